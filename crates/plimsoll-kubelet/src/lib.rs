//! Simulated kubelets. Pure: time comes in as an argument, writes go out as data.
//!
//! - [`Kubelet`] runs the pods of all simulated nodes as a stage machine, in the manner of KWOK.
//! - [`nodes`] makes Node and Lease objects.
//! - [`logs`] makes the lines that `kubectl logs` shows, from a pod's spec and status alone.

pub mod kubelet;
pub mod logs;
pub mod nodes;
mod time;

pub use kubelet::{Kubelet, Options, Write};
pub use time::{MILLISECOND, Nanos, SECOND};
