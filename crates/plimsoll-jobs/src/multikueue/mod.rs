//! MultiKueue (Kueue `pkg/controller/admissionchecks/multikueue`, KEP-693): a workload that has quota on this cluster, the
//! manager, is copied to worker clusters. The first worker that admits its copy gets the job, whose status is mirrored back.
//!
//! Everything here is a pure function of objects: what the manager's store shows, what the stores of the workers show
//! ([`WorkerStore`]), and the time. A caller keeps the stores up to date, asks [`affected`] and [`WorkerStore::put`] which
//! workloads a changed object concerns, and carries out the [`Plan`] of each ([`plan`]). Nothing is remembered between two
//! plans but the end of a dispatcher's round and what workers have answered, so a restart continues from the objects.

mod adapter;
mod check;
mod cluster;
mod clusters_of_jobs;
mod config;
mod defaults;
mod dispatch;
mod earliest;
mod edits;
mod group;
mod lacks;
mod nomination;
mod preemption;
mod quota;
mod settings;
#[cfg(test)]
mod tests;
mod worker;
mod workload;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::{REPLACEMENT_FOR, WorkloadNames};
pub use plimsoll_queueing::WorkloadKey;
use plimsoll_state::{Duration, Time};
use serde_json::Value;

pub use self::adapter::followed;
pub(crate) use self::check::{affected as affected_checks, plan as plan_check};
pub use self::cluster::{ClusterState, path_warning, plan as plan_cluster};
pub(crate) use self::config::runs_elsewhere;
pub use self::config::{ClusterSource, source};
pub(crate) use self::defaults::default_managed_by;
pub use self::defaults::has_other_manager;
pub use self::earliest::{Answer, Answers, Outlook};
pub use self::lacks::{Lack, Lacks, no_match};
pub use self::quota::{Quotas, local_queues_of, plan as plan_quota, queues_concerned, queues_with_checks};
pub use self::settings::Settings;
pub use self::worker::{Copy, WorkerStore};
pub use self::workload::plan;
use crate::names;
pub use crate::names::{MULTIKUEUE as CONTROLLER, ORIGIN};
use crate::plan::Write;
use crate::pod_view::Identifiers;
use crate::serving::leader_worker_set;
use crate::store::{Kind, ObjectStore};

/// Most slices of a job that are looked at for its name on a worker.
const MOST_SLICES: usize = 16;

/// What is known of a worker cluster.
#[derive(Clone, Debug)]
pub enum Sight {
    /// It is connected, and this is there of the workload.
    Connected(Copy),
    /// It can't be reached.
    Lost {
        /// Since when.
        since: Time,
    },
}

/// One write, and where.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// On this cluster.
    Manager(Write),
    /// On the worker cluster of this name.
    Worker(String, Write),
}

/// What a dispatcher remembers of a workload from one plan to the next. A restart begins without it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// When its round ends.
    pub round: Option<Time>,
    /// What workers have answered.
    pub answers: Answers,
}

/// When could these workers start this workload?
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The workload as a worker would get it.
    pub workload: Value,
    /// The clusters that are to be asked.
    pub clusters: Vec<String>,
}

/// What a reconcile of a workload wants to have done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order, up to the first failure.
    pub first: Vec<Step>,
    /// After that, by worker cluster: the writes of one are in order, and wait for no other cluster.
    pub apart: BTreeMap<String, Vec<Write>>,
    /// The workload is looked at again after this time.
    pub requeue_after: Option<Duration>,
    /// When the dispatcher's round ends that this belongs to: handed to the next plan of this workload ([`Memory::round`]).
    pub round: Option<Time>,
    /// What is to be asked of workers before it can be planned. Their answers are handed to the next plan
    /// ([`Memory::answers`]).
    pub ask: Option<Question>,
    /// The worker cluster whose admission the first writes report, for metrics.
    pub admitted_on: Option<String>,
}

impl Plan {
    fn manager(writes: impl IntoIterator<Item = Write>) -> Self {
        Self { first: writes.into_iter().map(Step::Manager).collect(), ..Self::default() }
    }

    fn after(wait: Duration) -> Self {
        Self { requeue_after: Some(wait), ..Self::default() }
    }
}

/// The key of a workload.
pub fn key_of(object: &Value) -> WorkloadKey {
    WorkloadKey { namespace: json::namespace(object).to_owned(), name: json::name(object).to_owned() }
}

/// The workloads that a changed or deleted object of the manager concerns.
pub fn affected(kind: Kind, object: &Value, objects: &ObjectStore) -> Vec<WorkloadKey> {
    match kind {
        Kind::Workload if has_checks(object) => {
            let waiting = group::waiting_components(object, objects).map(|w| key_of(&w));
            [key_of(object)].into_iter().chain(waiting).collect()
        }
        Kind::Job | Kind::Pod | Kind::StatefulSet | Kind::Custom(_) => {
            let owned = objects.owned_by(json::uid(object));
            owned.filter(|w| has_checks(w)).map(|w| key_of(&w)).collect()
        }
        Kind::AdmissionCheck | Kind::MultiKueueConfig | Kind::MultiKueueCluster => {
            let checks = config::checks_concerned(kind, object, objects);
            let concerned = |w: &Arc<Value>| {
                json::list(w, &["status", "admissionChecks"])
                    .iter()
                    .any(|row| checks.iter().any(|check| row["name"] == check.as_str()))
            };
            if checks.is_empty() { Vec::new() } else { all_where(objects, concerned) }
        }
        _ => Vec::new(),
    }
}

/// All workloads that MultiKueue dispatches.
pub fn all(objects: &ObjectStore) -> Vec<WorkloadKey> {
    all_where(objects, |w| config::row(objects, w).is_some())
}

fn all_where(objects: &ObjectStore, concerned: impl Fn(&Arc<Value>) -> bool) -> Vec<WorkloadKey> {
    objects.all(Kind::Workload).filter(concerned).map(|w| key_of(&w)).collect()
}

fn has_checks(workload: &Value) -> bool {
    !json::list(workload, &["status", "admissionChecks"]).is_empty()
}

/// The slices of an elastic job that a workload has replaced, the last one first: until a worker's job has the name of the
/// new one, it has that of one of these.
pub fn replaced(key: &WorkloadKey, objects: &ObjectStore) -> Vec<WorkloadKey> {
    let mut all = Vec::new();
    let mut next = key.clone();
    // Names that users write may make a circle.
    while all.len() < MOST_SLICES {
        let Some(wl) = objects.get(Kind::Workload, &next.namespace, &next.name) else { break };
        let before = json::annotation(&wl, REPLACEMENT_FOR).and_then(|text| text.split_once('/'));
        let Some((namespace, name)) = before.filter(|(namespace, _)| *namespace == key.namespace) else {
            break;
        };
        next = WorkloadKey { namespace: namespace.to_owned(), name: name.to_owned() };
        all.push(next.clone());
    }
    all
}

/// The workloads of a job that MultiKueue has created on a worker.
fn workloads_of_job(kind: Kind, object: &Value, names: WorkloadNames) -> Vec<WorkloadKey> {
    let key = |name| WorkloadKey { namespace: json::namespace(object).to_owned(), name };
    if kind == leader_worker_set::KIND {
        return leader_worker_set::workload_names(object, names).map(key).collect();
    }
    let name = IDENTIFIERS.prebuilt_of(object);
    if name.is_empty() { Vec::new() } else { vec![key(name.to_owned())] }
}

/// Where copies of jobs name their workload, whatever the gate says of this cluster's own jobs: workers read both.
const IDENTIFIERS: Identifiers = Identifiers::Annotations;

/// Names a workload in a job (Kueue `SetPrebuiltWorkloadName`).
fn set_workload(job: &mut Value, workload: &str) {
    IDENTIFIERS.set(job, names::PREBUILT, workload);
}
