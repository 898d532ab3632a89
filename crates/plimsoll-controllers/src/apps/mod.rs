//! Controllers of the `apps` group.

pub mod daemonset;
pub mod deployment;
pub mod model;
pub mod replicaset;
pub mod revision;
pub mod statefulset;
