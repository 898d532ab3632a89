//! Virtual time and simulated kubelets. Pure: time comes in as an argument, writes go out as data.
