//! The seam between kinds of jobs and the reconciler (Kueue `pkg/controller/jobframework/interface.go`).

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{Resource, WORKLOADS};
use plimsoll_state::Time;
use serde_json::Value;

use crate::plan::{Plan, event, patch};
use crate::podset::{self, PodSetInfo};
use crate::{Env, names, workload};

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Message of the workload's condition `Finished`.
    pub message: String,
    /// Whether the job succeeded.
    pub success: bool,
}

impl Finished {
    /// Reason of the workload's condition `Finished`.
    pub const fn reason(&self) -> &'static str {
        if self.success { "Succeeded" } else { "Failed" }
    }
}

/// Pods of a podset that have ended and whose quota can be released while the others run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReclaimablePod {
    /// Podset.
    pub name: String,
    /// Number of pods.
    pub count: i64,
}

/// A podset of an elastic job that may have fewer pods than it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalablePodSet {
    /// Podset.
    pub name: String,
    /// How few, where that is known.
    pub least: Option<i64>,
}

/// The workloads of a job.
#[derive(Debug, Default)]
pub struct FoundWorkloads {
    /// The workload that is equivalent to the job.
    pub matching: Option<Arc<Value>>,
    /// Workloads of this job that are not equivalent to it.
    pub to_delete: Vec<Arc<Value>>,
    /// Writes that come before anything else.
    pub plan: Plan,
}

/// A new Workload.
#[derive(Debug)]
pub struct NewWorkload {
    /// Writes that come before its creation.
    pub plan: Plan,
    /// The object, without priority.
    pub object: Value,
}

/// The outcome of the search for the one workload of a job.
pub(crate) enum Step {
    /// The reconcile continues with this workload, or without one.
    Continue(Option<Arc<Value>>),
    /// This workload without reserved quota is updated to the job; the reconcile ends with that.
    Update(Arc<Value>),
    /// These writes come first; the reconcile ends with them.
    Plan(Plan),
}

/// An Event on every member of the job.
pub fn events(job: &dyn GenericJob, warning: bool, reason: &str, message: &str) -> Plan {
    let resource = job.resource();
    job.members().into_iter().map(|o| event(resource, o, warning, reason, message)).collect()
}

/// A job of any kind: Kueue's `GenericJob`, and as methods with defaults its optional interfaces (`ComposableJob`,
/// `JobWithReclaimablePods`, `JobWithCustomStop`, `JobWithFinalize`, `JobWithPriorityClass`,
/// `JobWithCustomWorkloadConditions`).
///
/// A job is a view of objects as last seen. No method changes an object in place: starting and stopping edit copies, and
/// the difference becomes a patch, so that fields that this crate does not know are preserved.
pub trait GenericJob {
    /// The object that stands for the job: the Job, the pod, the first pod of a group.
    fn object(&self) -> &Value;

    /// Resource and kind of that object.
    fn resource(&self) -> Resource;

    /// All objects of the job (`ComposableJob.ForEach`). Events are recorded on each.
    fn members(&self) -> Vec<&Value> {
        vec![self.object()]
    }

    /// Name of the LocalQueue, or empty.
    fn queue_name(&self) -> &str {
        json::label(self.object(), names::QUEUE)
    }

    /// Name of the PriorityClass of its pods (`JobWithPriorityClass`); `None`: the first that a podset's template names.
    fn priority_class(&self) -> Option<&str> {
        None
    }

    /// Whether the job is suspended: none of its pods may start.
    fn is_suspended(&self) -> bool;

    /// Whether pods run that use quota. `release`: whether terminating ones do, for kinds that have a choice
    /// ([`plimsoll_api::kueue::QuotaRelease`]).
    fn is_active(&self, release: QuotaReleaseStrategy) -> bool;

    /// Whether an earlier stop was interrupted and has to be completed.
    fn is_stopping(&self) -> bool {
        false
    }

    /// Whether the job waits for its user, and neither starts nor stops (`JobWithOnHold`); `None`: no job of this kind does.
    fn is_on_hold(&self) -> Option<bool> {
        None
    }

    /// How the job ended; `None`: it has not.
    fn finished(&self) -> Option<Finished>;

    /// Whether all its pods are ready or have succeeded.
    fn pods_ready(&self) -> bool;

    /// Whether this many pods are ready or have succeeded: those of a workload slice that asks for fewer than the job does.
    fn has_ready_pods(&self, _count: i64) -> bool {
        self.pods_ready()
    }

    /// What the name of a new workload slice is derived from beside the job, so that it changes with the number of pods (Kueue's
    /// `ElasticWorkloadNameProvider`).
    fn slice_generation(&self) -> String {
        json::int(self.object(), &["metadata", "generation"]).unwrap_or(0).to_string()
    }

    /// The podsets of an elastic job that may have fewer pods than they ask for.
    fn scalable_pod_sets(&self) -> Vec<ScalablePodSet> {
        Vec::new()
    }

    /// Pods whose quota can be released early; `None`: this kind does not support it.
    fn reclaimable_pods(&self) -> Option<Vec<ReclaimablePod>> {
        None
    }

    /// `spec.podSets` of the job's Workload.
    fn pod_sets(&self) -> Vec<Value>;

    /// Suspends a copy of a member.
    fn suspend(&self, member: &mut Value);

    /// Injects what the admission assigned into a copy of a member, and lets it run. A member that runs already is left
    /// as it is.
    ///
    /// # Errors
    /// A conflict between the assignment and the job, which no retry resolves.
    fn run_with_pod_sets_info(&self, member: &mut Value, infos: &[PodSetInfo]) -> Result<(), String>;

    /// Restores in a copy of a member what [`GenericJob::run_with_pod_sets_info`] changed, from the podsets of its
    /// workload.
    fn restore_pod_sets_info(&self, member: &mut Value, pod_sets: &[Value]);

    /// Whether a workload may belong to this kind at all.
    fn may_own(&self, _workload: &Value) -> bool {
        true
    }

    /// Whether a workload still describes the job (Kueue's `EquivalentToWorkload`).
    fn equivalent_to_workload(&self, workload: &Value, env: Env<'_>) -> bool {
        podset::job_matches(self.is_suspended(), &self.pod_sets(), workload, env)
    }

    /// Writes that make the job own a workload that its user created for it (Kueue's `EnsurePrebuiltWorkloadOwnership` and
    /// `EnsureWorkloadOwnedByAllMembers`). Empty when it does.
    fn adopt(&self, wl: &Value) -> Plan {
        if json::controller(wl).is_some() {
            return Plan::new();
        }
        let (resource, object) = (self.resource(), self.object());
        let mut new = wl.clone();
        let mut owners = json::list(wl, &["metadata", "ownerReferences"]).to_vec();
        owners.push(workload::owner(resource.api_version, resource.kind, object, true));
        json::set(&mut new, &["metadata", "ownerReferences"], Value::Array(owners));
        json::set(&mut new, &["metadata", "labels", names::JOB_UID], json::uid(object).into());
        patch(WORKLOADS, wl, &new).into_iter().collect()
    }

    /// The workloads of the job (Kueue's `FindMatchingWorkloads`): of those that name it as owner, the first that is
    /// finished or equivalent matches.
    fn find_workloads(&self, env: Env<'_>) -> FoundWorkloads {
        let mut found = FoundWorkloads::default();
        for wl in env.objects.owned_by(json::uid(self.object())).filter(|w| self.may_own(w)) {
            // A finished workload stays the job's, whatever has changed since.
            let matches = json::is_true(&wl, "Finished") || self.equivalent_to_workload(&wl, env);
            if found.matching.is_none() && matches {
                found.matching = Some(wl);
            } else {
                found.to_delete.push(wl);
            }
        }
        found
    }

    /// The Workload to create (Kueue's `ConstructComposableWorkload`).
    ///
    /// # Errors
    /// The writes that report why there can be none yet.
    fn construct_workload(&self, env: Env<'_>) -> Result<NewWorkload, Plan> {
        let object = workload::new(self.resource(), self.object(), self.queue_name(), &self.pod_sets(), env);
        Ok(NewWorkload { plan: Plan::new(), object })
    }

    /// Lets all members run with what was assigned to them.
    ///
    /// # Errors
    /// A conflict between the assignment and the job, which no retry resolves.
    fn start(&self, infos: &[PodSetInfo], message: &str) -> Result<Plan, String> {
        let mut plan = Plan::new();
        for member in self.members() {
            let mut new = member.clone();
            self.run_with_pod_sets_info(&mut new, infos)?;
            if let Some(write) = patch(self.resource(), member, &new) {
                plan.push(write);
                plan.push(event(self.resource(), member, false, "Started", message));
            }
        }
        Ok(plan)
    }

    /// Lets a job run on whose stop was begun, where all that its admission assigned is still there; `None`: the stop is completed
    /// first.
    fn resume(&self, _workload: &Value, _infos: &[PodSetInfo], _message: &str) -> Option<Plan> {
        None
    }

    /// Suspends all members and restores them from `workload`, if there is one. Empty when nothing is left to stop.
    /// Kinds that can't do this in one write have a procedure of their own (`JobWithCustomStop`).
    fn stop(&self, workload: Option<&Value>, _reason: &str, message: &str, _now: Time) -> Plan {
        if self.is_suspended() {
            return Plan::new();
        }
        let mut plan = Plan::new();
        for member in self.members() {
            let mut new = member.clone();
            self.suspend(&mut new);
            if let Some(wl) = workload {
                self.restore_pod_sets_info(&mut new, json::list(wl, &["spec", "podSets"]));
            }
            if let Some(write) = patch(self.resource(), member, &new) {
                plan.push(write);
                plan.push(event(self.resource(), member, false, "Stopped", message));
            }
        }
        plan
    }

    /// Releases what the integration keeps on a finished job, such as finalizers of pods.
    fn finalize(&self) -> Plan {
        Plan::new()
    }

    /// Conditions of the workload with those that only this kind has; `None` when they are up to date.
    fn custom_workload_conditions(&self, _workload: &Value, _env: Env<'_>) -> Option<Vec<Value>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_api::conditions::set_status_condition;
    use serde_json::json;

    use super::*;
    use crate::plan::{Write, merge_diff};
    use crate::reconciler::reconcile;
    use crate::store::Kind;
    use crate::testing::Fixture;

    const NOW: Time = Time::from_seconds(1_700_000_000);
    const TRAINS: Resource = Resource { api_version: "example.com/v1", plural: "trains", kind: "Train" };
    const ROLES: [&str; 2] = ["launcher", "worker"];

    /// A kind with nothing but the required methods: two roles with a template each.
    struct Train(Value);

    impl GenericJob for Train {
        fn object(&self) -> &Value {
            &self.0
        }

        fn resource(&self) -> Resource {
            TRAINS
        }

        fn is_suspended(&self) -> bool {
            json::flag(&self.0, &["spec", "suspend"])
        }

        fn is_active(&self, _: QuotaReleaseStrategy) -> bool {
            json::int(&self.0, &["status", "running"]).unwrap_or(0) > 0
        }

        fn finished(&self) -> Option<Finished> {
            let done = json::condition(&self.0, "Done")?;
            Some(Finished { message: json::text(done, &["message"]).to_owned(), success: true })
        }

        fn pods_ready(&self) -> bool {
            true
        }

        fn pod_sets(&self) -> Vec<Value> {
            let podset = |role: &str| {
                let spec = &self.0["spec"][role];
                json!({"name": role, "count": spec["replicas"], "template": spec["template"]})
            };
            ROLES.map(podset).to_vec()
        }

        fn suspend(&self, train: &mut Value) {
            json::set(train, &["spec", "suspend"], json!(true));
        }

        fn run_with_pod_sets_info(&self, train: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
            json::set(train, &["spec", "suspend"], json!(false));
            for info in infos {
                let template = &mut train["spec"][info.name.as_str()]["template"];
                podset::merge(template, info).map_err(podset::Error::into_message)?;
            }
            Ok(())
        }

        fn restore_pod_sets_info(&self, train: &mut Value, pod_sets: &[Value]) {
            for podset in pod_sets {
                let role = json::text(podset, &["name"]);
                podset::restore(&mut train["spec"][role]["template"], podset);
            }
        }
    }

    fn train() -> Value {
        let role = |n: i64| {
            json!({"replicas": n, "ownField": {"kept": true}, "template": {
                "metadata": {"labels": {"own": "x"}},
                "spec": {"containers": [{"name": "c", "unknownField": 1}]}}})
        };
        json!({"metadata": {"namespace": "ns", "name": "t", "uid": "tu", "resourceVersion": "1",
                            "labels": {names::QUEUE: "q"}},
               "spec": {"suspend": true, "unknownField": [1], "launcher": role(1), "worker": role(4)}})
    }

    fn workload(object: &Value, admitted: bool) -> Value {
        let mut wl = object.clone();
        json::set(&mut wl, &["metadata", "uid"], json!("wu"));
        json::set(&mut wl, &["metadata", "resourceVersion"], json!("2"));
        if admitted {
            let assigned = |role: &str| json!({"name": role, "flavors": {"cpu": "f"}});
            let assigned = ROLES.map(assigned).to_vec();
            let admission = json!({"clusterQueue": "cq", "podSetAssignments": assigned});
            json::set(&mut wl, &["status", "admission"], admission);
            for kind in ["QuotaReserved", "Admitted"] {
                let conditions = set_status_condition(&wl, kind, true, kind, "", NOW).unwrap();
                json::set(&mut wl, &["status", "conditions"], Value::Array(conditions));
            }
        }
        wl
    }

    fn changed(old: &Value, write: &Write) -> Value {
        let Write::Patch { body, .. } = write else { panic!("{write:?}") };
        let mut new = old.clone();
        merge(&mut new, body);
        new
    }

    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *into = patch.clone() };
        for (key, value) in patch {
            if value.is_null() {
                json::remove(into, &[key]);
            } else {
                merge(&mut into[key.as_str()], value);
            }
        }
    }

    /// The defaults carry a kind through its life, and restore it with all fields that they don't know.
    #[test]
    fn a_kind_needs_the_required_methods_only() {
        let mut fixture = Fixture::default();
        let flavor = json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"zone": "a"}}});
        fixture.put(Kind::Flavor, flavor);
        let plan = reconcile(&Train(train()), fixture.env(NOW));
        let Some(Write::Create(_, made)) = plan.first() else { panic!("{plan:?}") };
        let counts: Vec<&Value> =
            json::list(made, &["spec", "podSets"]).iter().map(|p| &p["count"]).collect();
        assert_eq!(counts, [&json!(1), &json!(4)]);

        fixture.put(Kind::Workload, workload(made, true));
        let plan = reconcile(&Train(train()), fixture.env(NOW));
        assert!(matches!(&plan[1], Write::Event(e) if e.reason == "Started"), "{plan:?}");
        let started = changed(&train(), &plan[0]);
        for role in ROLES {
            let spec = &started["spec"][role]["template"]["spec"];
            assert_eq!(spec["nodeSelector"], json!({"zone": "a"}));
            assert_eq!(spec["containers"], train()["spec"][role]["template"]["spec"]["containers"]);
        }
        assert!(reconcile(&Train(started.clone()), fixture.env(NOW)).is_empty(), "runs as admitted");

        // Evicted: stopped as it was, then its quota is released when nothing runs.
        let mut evicted = workload(made, true);
        let conditions = set_status_condition(&evicted, "Evicted", true, "Preempted", "", NOW).unwrap();
        json::set(&mut evicted, &["status", "conditions"], Value::Array(conditions));
        json::set(&mut evicted, &["metadata", "resourceVersion"], json!("3"));
        fixture.put(Kind::Workload, evicted);
        let plan = reconcile(&Train(started.clone()), fixture.env(NOW));
        assert!(matches!(&plan[1], Write::Event(e) if e.reason == "Stopped"), "{plan:?}");
        let mut stopped = changed(&started, &plan[0]);
        assert_eq!(merge_diff(&train(), &stopped), None);
        json::set(&mut stopped, &["status", "running"], json!(1));
        assert!(reconcile(&Train(stopped.clone()), fixture.env(NOW)).is_empty());
        json::set(&mut stopped, &["status", "running"], json!(0));
        let plan = reconcile(&Train(stopped.clone()), fixture.env(NOW));
        assert!(matches!(plan.as_slice(), [Write::WorkloadStopped { .. }]), "{plan:?}");

        let done = json!([{"type": "Done", "status": "True", "message": "well"}]);
        json::set(&mut stopped, &["status", "conditions"], done);
        let plan = reconcile(&Train(stopped), fixture.env(NOW));
        let Some(Write::Patch { body, .. }) = plan.first() else { panic!("{plan:?}") };
        let last = json::list(body, &["status", "conditions"]).last().unwrap();
        assert_eq!((&last["type"], &last["reason"]), (&json!("Finished"), &json!("Succeeded")));
    }
}
