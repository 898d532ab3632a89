//! An embedded Kubernetes API server: real requests, real watches, one process, one file.

pub mod control;
pub mod store;
