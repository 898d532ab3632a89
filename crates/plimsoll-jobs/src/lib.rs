//! Job integrations as pure functions: from a job to its Workload, and from the Workload's admission back to the job.
//!
//! A caller keeps the last seen objects in an [`ObjectStore`], asks [`affected`] and [`affected_by_deletion`] which
//! [`Key`]s an object concerns, and carries out the [`Plan`] that [`reconcile`] returns for each as [`execution`] says.
//! `plimsoll-runtime` does this with watches and requests, the simulator with a model of the API in virtual time. Nothing here waits, reads a clock or writes.
//!
//! [`GenericJob`] is the seam between kinds of jobs and [`reconciler`], Kueue's generic reconciler. [`integrations`] is the
//! registry; a kind is one file: `job.rs` for `batch/v1` Jobs, `pod/` for plain pods and pod groups, `serving.rs` for
//! Deployments and StatefulSets, `kinds/` for those that CustomResourceDefinitions add ([`custom_kind`]). [`webhook`]
//! dispatches admission reviews to the kinds.

mod ancestors;
mod check_parameters;
mod concurrent_admission;
pub mod config;
pub mod controllers;
pub mod custom_kind;
pub mod declaration;
mod elastic;
pub mod execution;
mod failure_recovery;
mod finalizer;
pub mod generic_job;
pub mod integration;
pub mod integrations;
mod job;
mod job_kind;
mod key;
mod kinds;
pub mod multikueue;
pub mod names;
mod orphan;
pub mod plan;
mod pod;
pub mod pod_view;
pub mod podset;
mod priority_class;
pub mod provisioning;
pub mod reconciler;
mod refused;
mod retention;
mod serving;
pub mod shards;
pub mod store;
mod topology_ungater;
pub mod webhook;
pub mod workload;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use plimsoll_state::Time;

pub use config::Config;
pub use controllers::{affected, affected_by_deletion, affected_by_unreachable_node, reconcile};
pub use custom_kind::CustomKind;
pub use generic_job::GenericJob;
pub use job_kind::FINALIZER as JOB_KIND_FINALIZER;
pub use key::Key;
pub use kinds::pod_templates;
pub use kinds::trainjob::train_job_set;
pub use plan::{Plan, Write};
pub use pod::single_pod_workload;
pub use store::{Kind, ObjectStore};

/// The inputs of a reconcile or a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// Last seen objects.
    pub objects: &'a ObjectStore,
    /// Which jobs are queued, and how.
    pub config: &'a Config,
    /// The current time.
    pub now: Time,
}
