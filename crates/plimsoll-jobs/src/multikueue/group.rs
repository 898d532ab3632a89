//! A workload of the manager beside its copies on worker clusters (Kueue's `wlGroup`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::REPLACEMENT_FOR;
use plimsoll_api::resource::{Resource, WORKLOADS};
use plimsoll_state::{Duration, Time};
use serde_json::Value;

use super::adapter::Adapter;
use super::lacks::read_as;
use super::{Copy, Plan, Step, WorkloadKey, clusters_of_jobs, edits, replaced};
use crate::kinds::ray;
use crate::plan::{Write, delete, patch, remove_finalizer};
use crate::serving::leader_worker_set;
use crate::store::{Kind, ObjectStore};
use crate::{Env, names};

/// The state of a check that lets its workload run.
pub(super) const READY: &str = "Ready";

/// All that a plan looks at.
pub(super) struct Group<'a> {
    /// The workload.
    pub key: &'a WorkloadKey,
    /// Its object on the manager.
    pub local: &'a Value,
    /// The state of the check of MultiKueue.
    pub row: &'a Value,
    /// The kind of its job.
    pub adapter: Adapter,
    /// Its job on the manager, or the pods of its group.
    pub jobs: Vec<Arc<Value>>,
    /// The clusters of the check that are connected.
    pub remotes: BTreeMap<&'a str, Copy>,
    /// The clusters of the check that are not, and since when.
    pub lost: BTreeMap<&'a str, Time>,
    /// Copies on clusters that the check does not name, and on those that do not serve the kind of the job.
    pub elsewhere: BTreeMap<&'a str, Copy>,
    /// The connected clusters of the check that do not serve the kind of the job, or on which it can't be watched.
    pub lacking: BTreeSet<&'a str>,
    /// Configuration and time.
    pub env: Env<'a>,
}

impl<'a> Group<'a> {
    /// The cluster whose copy has had this condition for the longest time, and the condition (Kueue
    /// `bestMatchByCondition`). The cluster that was chosen comes before all others: times are whole seconds, and its job must
    /// not be removed for a copy that was admitted within the same one.
    pub fn first_with(&self, kind: &str) -> Option<(&'a str, &Value, &Value)> {
        let copies = self.remotes.iter().filter_map(|(cluster, copy)| {
            let workload = copy.workload.as_deref()?;
            let condition = json::condition(workload, kind).filter(|c| c["status"] == "True")?;
            Some((*cluster, workload, condition))
        });
        copies.min_by_key(|(cluster, _, condition)| {
            (*cluster != self.cluster(), json::text(condition, &["lastTransitionTime"]))
        })
    }

    /// The cluster whose copy is evicted. Once a cluster is chosen, the copies of others say nothing of the job: they are about to
    /// be removed.
    pub fn evicts(&self) -> Option<&'a str> {
        let (cluster, ..) = self.first_with("Evicted")?;
        let chosen = self.state() == READY && !self.cluster().is_empty();
        (!chosen || cluster == self.cluster()).then_some(cluster)
    }

    /// Whether a condition of the manager's workload is `True`.
    pub fn has(&self, condition: &str) -> bool {
        json::is_true(self.local, condition)
    }

    /// State of the check of MultiKueue.
    pub fn state(&self) -> &str {
        json::text(self.row, &["state"])
    }

    /// `status.clusterName`, or empty.
    pub fn cluster(&self) -> &'a str {
        json::text(self.local, &["status", "clusterName"])
    }

    /// The cluster on which an elastic job runs already, or empty: its slices stay together. (In Kueue the scheduler writes
    /// `status.clusterName` when a slice replaces another one.)
    pub fn home(&self) -> String {
        if !self.is_elastic() || !self.cluster().is_empty() {
            return self.cluster().to_owned();
        }
        let before = replaced(self.key, self.env.objects).into_iter();
        let objects = before.filter_map(|w| self.env.objects.get(Kind::Workload, &w.namespace, &w.name));
        objects
            .map(|w| json::text(&w, &["status", "clusterName"]).to_owned())
            .find(|c| !c.is_empty())
            .unwrap_or_default()
    }

    /// Whether the workload is of an elastic job.
    pub fn is_elastic(&self) -> bool {
        self.env.is_elastic(self.local)
    }

    /// How long a worker that is lost since then may stay so.
    pub fn time_left(&self, since: Time) -> Duration {
        since.plus(self.env.config.multikueue.worker_lost_timeout).since(self.env.now)
    }

    /// Removes what all clusters have of it, but for one of them.
    pub fn remove_all_but(&self, kept: Option<&str>) -> BTreeMap<String, Vec<Write>> {
        let all = self.remotes.iter().chain(&self.elsewhere);
        removals(all.filter(|(cluster, _)| Some(**cluster) != kept).map(|(cluster, copy)| (*cluster, copy)))
    }

    /// Mirrors the status of a worker's job.
    pub fn mirror_jobs(&self, cluster: &str) -> Vec<Step> {
        let mut steps = self.sync_jobs(cluster);
        steps.retain(|step| matches!(step, Step::Manager(_)));
        steps
    }

    /// Whether the store has an older version of the worker's job than the Workload that has finished for this reason: each
    /// kind has a watch of its own. (Kueue reads the job instead.)
    pub fn job_is_stale(&self, cluster: &str, reason: &str) -> bool {
        let Some(copy) = self.remotes.get(cluster) else { return false };
        let by_job = matches!(reason, "Succeeded" | "Failed");
        let stale = |remote: &Value| {
            // The controller of Jobs writes these before the end.
            let ending =
                ["SuccessCriteriaMet", "FailureTarget"].iter().any(|sign| json::is_true(remote, sign));
            (by_job || self.adapter.kind == Kind::Job && ending) && !self.adapter.has_ended(remote)
        };
        self.jobs.iter().any(|local| copy.job(self.adapter.kind, json::name(local)).is_some_and(stale))
    }

    /// Mirrors the job while its next slice waits on its worker: what runs goes on there, and Ray may resize it.
    pub fn mirror_between_slices(&self) -> Vec<Step> {
        let home = self.home();
        let between =
            clusters_of_jobs::has_cluster(self.adapter.kind) && self.is_elastic() && !home.is_empty();
        if between { self.mirror_jobs(&home) } else { Vec::new() }
    }

    /// Creates the job on a worker, or mirrors the status of the worker's.
    pub fn sync_jobs(&self, cluster: &str) -> Vec<Step> {
        let Some(copy) = self.remotes.get(cluster) else { return Vec::new() };
        let mut steps = Vec::new();
        for local in &self.jobs {
            match copy.job(self.adapter.kind, json::name(local)) {
                // A member that runs on would keep the place of its replacement. (Kueue leaves it.)
                Some(remote) if self.adapter.kind == Kind::Pod && json::deleting(local) => {
                    let end = (!json::deleting(remote)).then(|| delete(self.adapter.resource, remote));
                    steps.extend(end.map(|write| Step::Worker(cluster.to_owned(), write)));
                }
                Some(remote) => {
                    let mirrored = self.adapter.mirror(local, remote, self.env.now);
                    // Each write of the manager's job is of the version that the store shows.
                    let recorded = mirrored.is_none().then(|| self.record_cluster(local, remote, copy));
                    steps.extend(mirrored.or(recorded.flatten()).map(Step::Manager));
                    let new = edits::edited(self.adapter.kind, local, remote, self.local, self.env);
                    let edit = patch(self.adapter.resource, remote, &new);
                    steps.extend(edit.map(|write| Step::Worker(cluster.to_owned(), write)));
                }
                None if json::deleting(local) => {}
                None => {
                    let job = self.adapter.for_worker(local, &self.key.name, &self.env.config.multikueue);
                    steps.push(Step::Worker(cluster.to_owned(), Write::Create(self.adapter.resource, job)));
                }
            }
        }
        steps
    }

    /// The write that says on this cluster how large the RayCluster of an elastic job is by now.
    fn record_cluster(&self, local: &Value, remote: &Value, copy: &Copy) -> Option<Write> {
        if !self.env.is_elastic(local) || !ray::is_autoscaled(self.adapter.kind, local) {
            return None;
        }
        let of_job = |c: &&Arc<Value>| json::controller(c).is_some_and(|o| o["uid"] == json::uid(remote));
        let cluster = copy.clusters.iter().find(of_job)?;
        clusters_of_jobs::record(self.adapter.resource, local, cluster)
    }

    /// Whether a connected cluster of the check has a job of it.
    pub fn has_remote_job(&self) -> bool {
        self.remotes.values().any(|copy| !copy.jobs.is_empty())
    }

    /// Ends the job on clusters of which nothing is mirrored, because the check does not name them; `None`: it is on none.
    pub fn end_elsewhere(&self) -> Option<Plan> {
        let with_job = || self.elsewhere.iter().filter(|(_, copy)| !copy.jobs.is_empty());
        with_job().next()?;
        Some(Plan::apart(removals(with_job().map(|(cluster, copy)| (*cluster, copy)))))
    }
}

/// Whether a slice has been replaced by the next one, or waits for the place of the one before.
pub(super) fn is_between_slices(local: &Value) -> bool {
    let finished = json::condition(local, "Finished").filter(|c| c["status"] == "True");
    match finished {
        Some(condition) => condition["reason"] == "WorkloadSliceReplaced",
        None => !json::is_true(local, "QuotaReserved") && json::annotation(local, REPLACEMENT_FOR).is_some(),
    }
}

/// What the other workloads of the same job leave to decide.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// Nothing: it is the only one, or the first.
    First,
    /// It waits for the first of them, or for those that are missing.
    Waits,
    /// They are on this cluster.
    On(String),
}

/// The other workloads of a workload's job (Kueue `listComponentWorkloads`).
fn components<'a>(local: &'a Value, objects: &'a ObjectStore) -> impl Iterator<Item = Arc<Value>> {
    let owners = json::list(local, &["metadata", "ownerReferences"]).iter();
    let indexed = json::annotation(local, names::COMPONENT).is_some();
    let all =
        owners.filter(move |_| indexed).flat_map(move |owner| objects.owned_by(json::text(owner, &["uid"])));
    all.filter(move |w| json::uid(w) != json::uid(local) && index(w).is_some())
}

/// The other workloads of a workload's job that may wait for it.
pub(super) fn waiting_components<'a>(
    local: &'a Value,
    objects: &'a ObjectStore,
) -> impl Iterator<Item = Arc<Value>> {
    let waits = |w: &Arc<Value>| {
        json::is_true(w, "QuotaReserved")
            && w["status"]["clusterName"].is_null()
            && w["status"]["nominatedClusterNames"].is_null()
    };
    components(local, objects).filter(waits)
}

fn index(workload: &Value) -> Option<u32> {
    json::annotation(workload, names::COMPONENT)?.parse().ok()
}

impl Group<'_> {
    /// Whether the workload may choose its cluster (Kueue `nominateAndSynchronizeWorkers`): all workloads of a job run on one.
    pub fn together(&self) -> Together {
        let Some(job) = self.jobs.first().filter(|_| self.adapter.has_several()) else {
            return Together::First;
        };
        let others: Vec<Arc<Value>> = components(self.local, self.env.objects).collect();
        if i64::try_from(others.len()).is_ok_and(|n| n + 1 < leader_worker_set::replicas(job)) {
            return Together::Waits;
        }
        if let Some(cluster) = others.iter().find_map(|w| w["status"]["clusterName"].as_str()) {
            return Together::On(cluster.to_owned());
        }
        let own = index(self.local);
        if own.is_none() || others.iter().any(|w| index(w) < own) { Together::Waits } else { Together::First }
    }
}

/// The writes that remove copies, by cluster.
pub(super) fn removals<'a>(
    copies: impl Iterator<Item = (&'a str, &'a Copy)>,
) -> BTreeMap<String, Vec<Write>> {
    let writes = copies.map(|(cluster, copy)| (cluster.to_owned(), removal(copy)));
    writes.filter(|(_, writes)| !writes.is_empty()).collect()
}

/// The writes that remove a copy: first the jobs, which is repeated when the workload is gone already (Kueue
/// `RemoveRemoteObjects`).
fn removal(copy: &Copy) -> Vec<Write> {
    let jobs = copy.jobs.iter().filter(|(_, job)| !json::deleting(job));
    let mut writes: Vec<Write> =
        jobs.filter_map(|(kind, job)| Some(delete(resource_of(*kind, job)?, job))).collect();
    if let Some(workload) = &copy.workload {
        writes.extend(remove_finalizer(WORKLOADS, workload, names::IN_USE));
        if !json::deleting(workload) {
            writes.push(delete(WORKLOADS, workload));
        }
    }
    writes
}

fn resource_of(kind: Kind, object: &Value) -> Option<Resource> {
    use plimsoll_api::resource::{JOBS, PODS, STATEFUL_SETS};
    match kind {
        Kind::Job => Some(JOBS),
        Kind::Pod => Some(PODS),
        Kind::StatefulSet => Some(STATEFUL_SETS),
        Kind::Custom(custom) => read_as(custom.versions(), object),
        _ => None,
    }
}

impl Plan {
    /// A plan of writes on clusters that wait for nothing.
    pub(super) fn apart(apart: BTreeMap<String, Vec<Write>>) -> Self {
        Self { apart, ..Self::default() }
    }
}
