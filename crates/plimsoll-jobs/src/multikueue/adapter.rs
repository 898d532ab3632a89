//! Kinds of jobs that MultiKueue dispatches (Kueue's `MultiKueueAdapter`): the job as a worker gets it, and what of a worker's
//! job is mirrored. A kind differs from another in where its objects keep `managedBy`, and in few more fields.

use std::sync::Arc;

use plimsoll_api::resource::{self, Resource};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Value, json};

use super::defaults::{SPEC, managed_by};
use super::lacks::followed_versions;
use super::{CONTROLLER, ORIGIN, Settings, set_workload};
use crate::config::{BATCH_JOB, POD, STATEFUL_SET};
use crate::custom_kind::CustomKind;
use crate::generic_job::GenericJob;
use crate::job::{Job, without_managed_labels};
use crate::names;
use crate::plan::{Write, merge_diff, patch_status};
use crate::serving::leader_worker_set;
use crate::store::{Kind, ObjectStore};
use crate::{Config, kinds, pod, pod_view};

/// A kind of job that can be dispatched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapter {
    /// Its objects in stores.
    pub kind: Kind,
    /// Its resource.
    pub resource: Resource,
    /// Where its objects keep `managedBy`; `None`: they have none, and the gates of their pods keep them from running.
    managed_by: Option<&'static [&'static str]>,
    /// Whether it is not built in.
    external: bool,
}

/// LeaderWorkerSets, which have a workload for each group.
const GROUPS: Kind = leader_worker_set::KIND;

/// The kinds of which objects are followed on worker clusters, with the versions in which those that CustomResourceDefinitions
/// add may be served.
pub fn followed(config: &Config, objects: &ObjectStore) -> Vec<(Kind, &'static [Resource])> {
    const WORKLOADS: &[Resource] = &[resource::WORKLOADS];
    const JOBS: &[Resource] = &[resource::JOBS];
    const PODS: &[Resource] = &[resource::PODS];
    const STATEFUL_SETS: &[Resource] = &[resource::STATEFUL_SETS];
    let mut all = vec![(Kind::Workload, WORKLOADS)];
    all.extend(config.has_framework(BATCH_JOB).then_some((Kind::Job, JOBS)));
    all.extend(config.has_framework(POD).then_some((Kind::Pod, PODS)));
    all.extend(config.has_framework(STATEFUL_SET).then_some((Kind::StatefulSet, STATEFUL_SETS)));
    let built_in = CustomKind::all().filter(|custom| {
        custom.has_jobs()
            && config.has_framework(custom.framework())
            && (managed_by(custom.preferred()).is_some() || Kind::Custom(*custom) == GROUPS)
    });
    let external = objects.external_kinds().filter(|custom| is_dispatched(*custom, config));
    let custom = built_in.chain(objects.declared_kinds()).chain(external);
    all.extend(custom.map(|custom| {
        let kind = Kind::Custom(custom);
        (kind, followed_versions(kind, custom.versions(), objects))
    }));
    all
}

/// Whether `multiKueue.externalFrameworks` names a kind.
fn is_dispatched(custom: CustomKind, config: &Config) -> bool {
    custom.versions().iter().any(|resource| {
        let (group, version) = resource.api_version.split_once('/').unwrap_or_default();
        let name = format!("{}.{version}.{group}", resource.kind);
        config.multikueue.external_frameworks.contains(&name)
    })
}

/// The kind of a workload's job, and the job's name.
///
/// # Errors
/// Why there is none, in Kueue's words.
pub(super) fn of_workload<'a>(
    workload: &'a Value,
    config: &Config,
    objects: &ObjectStore,
) -> Result<(Adapter, &'a str), String> {
    // Pods that have joined own it, too.
    let job = |key| json::annotation(workload, key).filter(|text| !text.is_empty());
    if let (Some(kind), Some(name)) = (job(names::OWNER_KIND), job(names::OWNER_NAME))
        && let Some((version, kind)) = kind.split_once(", Kind=")
        && let Some(adapter) = of_kind(version, kind, config, objects)
    {
        return Ok((adapter, name));
    }
    let owners = json::list(workload, &["metadata", "ownerReferences"]);
    let Some(owner) = json::controller(workload).or_else(|| owners.first()) else {
        return Err("No multikueue adapter found".to_owned());
    };
    let (version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    let adapter = of_kind(version, kind, config, objects);
    let adapter = adapter
        .ok_or_else(|| format!("No multikueue adapter found for owner kind \"{version}, Kind={kind}\""));
    Ok((adapter?, json::text(owner, &["name"])))
}

fn of_kind(version: &str, kind: &str, config: &Config, objects: &ObjectStore) -> Option<Adapter> {
    match (version, kind) {
        ("batch/v1", "Job") if config.has_framework(BATCH_JOB) => Some(Adapter {
            kind: Kind::Job,
            resource: resource::JOBS,
            managed_by: Some(SPEC),
            external: false,
        }),
        ("v1", "Pod") if config.has_framework(POD) => {
            Some(Adapter { kind: Kind::Pod, resource: resource::PODS, managed_by: None, external: false })
        }
        ("apps/v1", "StatefulSet") if config.has_framework(STATEFUL_SET) => Some(Adapter {
            kind: Kind::StatefulSet,
            resource: resource::STATEFUL_SETS,
            managed_by: None,
            external: false,
        }),
        _ => {
            let custom = CustomKind::of_kind(version, kind);
            if let Some(custom) = custom.filter(|c| config.has_framework(c.framework())) {
                let path = managed_by(custom.preferred()).map(|(path, _)| path);
                let dispatched = path.is_some() || Kind::Custom(custom) == GROUPS;
                return dispatched.then(|| Adapter::of_custom(custom, path, false, objects));
            }
            let external = objects.external_of_kind(version, kind).filter(|c| is_dispatched(*c, config));
            let custom = objects.declared_of_kind(version, kind).or(external)?;
            Some(Adapter::of_custom(custom, Some(SPEC), true, objects))
        }
    }
}

impl Adapter {
    fn of_custom(
        custom: CustomKind,
        managed_by: Option<&'static [&'static str]>,
        external: bool,
        objects: &ObjectStore,
    ) -> Self {
        let kind = Kind::Custom(custom);
        let resource = objects.served(kind).unwrap_or(custom.preferred());
        Self { kind, resource, managed_by, external }
    }

    /// Whether MultiKueue may dispatch a job; else why not, in Kueue's words.
    pub fn may_dispatch(&self, job: &Value) -> Result<(), String> {
        let Some(path) = self.managed_by else { return Ok(()) };
        let by = json::text(job, path);
        if by == CONTROLLER {
            return Ok(());
        }
        // Kueue names the path as each of its adapters does.
        let path = match self.kind {
            Kind::Custom(CustomKind::MPI_JOB) => "spec.runPolicy.managedBy",
            _ if self.external => ".spec.managedBy",
            _ => "spec.managedBy",
        };
        Err(format!("Expecting {path} to be {CONTROLLER:?} not {by:?}"))
    }

    /// Whether a job has several workloads, which one worker has to run together (Kueue `MultiKueueMultiWorkloadAdapter`).
    pub fn has_several(&self) -> bool {
        self.kind == GROUPS
    }

    /// Whether its own controller, which runs on the manager too, writes the status of a job: there is no `managedBy`.
    const fn keeps_status(&self) -> bool {
        self.managed_by.is_none() && !matches!(self.kind, Kind::Pod)
    }

    /// The objects of the job of this name: one, or all pods of a group.
    pub fn local_jobs(&self, namespace: &str, name: &str, objects: &ObjectStore) -> Vec<Arc<Value>> {
        let Some(job) = objects.get(self.kind, namespace, name) else { return Vec::new() };
        match pod::group::of(&job, objects.identifiers()).filter(|_| self.kind == Kind::Pod) {
            Some(group) => objects.pods_of_group(namespace, group),
            None => vec![job],
        }
    }

    /// The job as a worker gets it: what the user wrote, with the names of its workload and of this manager.
    pub fn for_worker(&self, job: &Value, workload: &str, settings: &Settings) -> Value {
        let mut metadata = json!({"name": json::name(job), "namespace": json::namespace(job)});
        for key in ["labels", "annotations"] {
            if let Some(map) = json::map(job, &["metadata", key]) {
                metadata[key] = Value::Object(map.clone());
            }
        }
        let mut copy = json!({
            "apiVersion": self.resource.api_version, "kind": self.resource.kind,
            "metadata": metadata, "spec": job["spec"],
        });
        if let Some(path) = self.managed_by {
            json::remove(&mut copy, path);
        }
        json::remove(&mut copy, &["metadata", "annotations", names::RAY_CLUSTER_SIZES]);
        match self.kind {
            Kind::Job => {
                json::remove(&mut copy, &["spec", "selector"]);
                without_managed_labels(&mut copy["spec"]["template"]);
                if settings.clears_ttl {
                    json::remove(&mut copy, &["spec", "ttlSecondsAfterFinished"]);
                }
            }
            Kind::Custom(custom) if custom == CustomKind::TRAIN_JOB => {
                kinds::trainjob::without_own_patches(&mut copy);
            }
            _ => {}
        }
        json::set(&mut copy, &["metadata", "labels", ORIGIN], settings.origin.as_str().into());
        if self.keeps_status() {
            // It names the workloads there.
            json::set(&mut copy, &["metadata", "annotations", names::ORIGIN_UID], json::uid(job).into());
        }
        if !self.has_several() {
            set_workload(&mut copy, workload);
        }
        copy
    }

    /// The write that mirrors the status of a worker's job.
    pub fn mirror(&self, local: &Value, remote: &Value, now: Time) -> Option<Write> {
        if self.keeps_status() || (json::deleting(local) && self.kind == Kind::Pod) {
            return None;
        }
        let status = match self.kind {
            Kind::Job => job_status(local, remote, now),
            Kind::Pod => pod_status(local, remote),
            // An operator that has not looked at it yet has nothing to say.
            _ if remote["status"].is_null() => return None,
            _ => remote["status"].clone(),
        };
        self.write_status(local, &status)
    }

    /// Whether a worker's job has ended, or it can't be told of this kind.
    pub fn has_ended(&self, remote: &Value) -> bool {
        match self.kind {
            Kind::Job => Job { object: remote }.finished().is_some(),
            Kind::Pod => pod_view::ended(remote) || json::deleting(remote),
            Kind::Custom(custom) => kinds::has_finished(custom, remote).unwrap_or(true),
            _ => true,
        }
    }

    /// The write that says of a suspended job that none of its pods run: its worker can't be asked any more.
    pub fn forget_pods(&self, local: &Value) -> Option<Write> {
        match self.kind {
            // The gate keeps it from running here; what it shows is the worker's.
            Kind::Pod if pod::suspended(local) && !pod_view::ended(local) => {
                let conditions = json::list(local, &["status", "conditions"]).iter();
                let own: Vec<&Value> = conditions.filter(|c| c["type"] == "PodScheduled").collect();
                self.write_status(local, &json!({"phase": "Pending", "conditions": own}))
            }
            Kind::Job if json::flag(local, &["spec", "suspend"]) => {
                let mut status = local["status"].clone();
                for key in ["active", "ready", "terminating"] {
                    json::remove(&mut status, &[key]);
                }
                self.write_status(local, &status)
            }
            Kind::Custom(_) if !self.keeps_status() && !local["status"].is_null() => {
                self.write_status(local, &json!({}))
            }
            _ => None,
        }
    }

    fn write_status(&self, local: &Value, status: &Value) -> Option<Write> {
        let none = json!({});
        let or_none = |status: &Value| if status.is_null() { none.clone() } else { status.clone() };
        let change = merge_diff(&or_none(&local["status"]), &or_none(status))?;
        Some(patch_status(self.resource, local, &change))
    }
}

/// The status that a Job gets (Kueue `determineStatusUpdate`). While it is suspended and the worker's runs, only the condition
/// `Suspended` is set: a start time would keep its template from being changed, and the API server wants that condition before
/// it is.
fn job_status(local: &Value, remote: &Value, now: Time) -> Value {
    let (job, other) = (Job { object: local }, Job { object: remote });
    if !job.is_suspended() || other.is_suspended() || other.finished().is_some() {
        return remote["status"].clone();
    }
    let mut status = local["status"].clone();
    let mut conditions = json::list(local, &["status", "conditions"]).to_vec();
    if conditions.iter().any(|c| c["type"] == "Suspended" && c["status"] == "True") {
        return status;
    }
    conditions.retain(|c| c["type"] != "Suspended");
    let at = timestamp::text(now);
    conditions.push(json!({
        "type": "Suspended", "status": "True", "reason": "MultiKueueAdapter",
        "message": "Set by MultiKueue adapter", "lastTransitionTime": at, "lastProbeTime": at,
    }));
    json::set(&mut status, &["conditions"], Value::Array(conditions));
    status
}

/// The status that a pod gets. One that is gated here keeps saying so until the worker's has its node: as unschedulable it would
/// make a cluster autoscaler bring nodes here.
fn pod_status(local: &Value, remote: &Value) -> Value {
    const SCHEDULED: &str = "PodScheduled";
    let mut status = remote["status"].clone();
    let gated = json::list(local, &["spec", "schedulingGates"]).iter().any(|g| g["name"] == names::GATE);
    if let Some(own) =
        json::condition(local, SCHEDULED).filter(|_| gated && !json::is_true(remote, SCHEDULED))
    {
        let mut conditions = json::list(remote, &["status", "conditions"]).to_vec();
        conditions.retain(|c| c["type"] != SCHEDULED);
        conditions.push(own.clone());
        json::set(&mut status, &["conditions"], Value::Array(conditions));
    }
    status
}
