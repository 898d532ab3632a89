//! Plain pods, framework `pod` (Kueue KEP-976, `pkg/controller/jobs/pod`): single pods here, pod groups in [`group`].

pub mod group;
mod webhook;

use std::sync::Arc;

use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{PODS, Resource};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::config::POD;
use crate::generic_job::{Finished, GenericJob};
use crate::integration::Integration;
use crate::plan::{self, Plan, Write, event, patch_status};
use crate::pod_view::{ended, has_gate};
use crate::podset::{self, PodSetInfo, Ranks};
use crate::store::Kind;
use crate::{Env, names, orphan, reconciler, serving, workload};

/// Name of the podset of a single pod.
const POD_SET: &str = "main";

/// The registration of this kind.
pub const INTEGRATION: Integration = Integration {
    framework: POD,
    resource: PODS,
    validating_webhook: "vpod.kb.io",
    defaults_updates: false,
    default: webhook::default,
    validate: webhook::validate,
    reconcile: Some(|_, namespace, name, env| reconcile(namespace, name, env)),
};

/// A pod without a group.
#[derive(Debug)]
pub struct Pod<'a> {
    /// The object.
    pub object: &'a Value,
}

/// Whether the pod has Kueue's scheduling gate.
fn gated(pod: &Value) -> bool {
    has_gate(pod, names::GATE)
}

/// Whether the pod is ready or has succeeded.
fn ready(pod: &Value) -> bool {
    json::is_true(pod, "Ready") || json::text(pod, &["status", "phase"]) == "Succeeded"
}

/// Whether nothing of the pod can run now: it is gated or has ended.
pub(crate) fn suspended(pod: &Value) -> bool {
    ended(pod) || gated(pod)
}

/// Whether a pod uses quota.
fn uses_quota(pod: &Value, release: QuotaReleaseStrategy) -> bool {
    let runs = json::text(pod, &["status", "phase"]) == "Running";
    match release {
        QuotaReleaseStrategy::OnQuotaReleased => runs && !json::deleting(pod),
        // One that is bound and being deleted counts until it has ended; it may have begun to run.
        QuotaReleaseStrategy::OnTerminal => {
            runs || json::deleting(pod)
                && !suspended(pod)
                && !json::text(pod, &["spec", "nodeName"]).is_empty()
        }
    }
}

/// The podset that a pod makes: its spec as it is.
fn podset_of(pod: &Value, name: &str) -> Value {
    let mut out = json!({"name": name, "count": 1, "template": {"spec": pod["spec"]}});
    let ranks = Ranks { index_label: Some("kueue.x-k8s.io/pod-group-pod-index".into()), groups: None };
    if let Some(request) = ranks.topology_request(pod) {
        out["topologyRequest"] = request;
    }
    out
}

/// The Workload of a pod on its own, with the name that a user gave to it if there is one (Kueue's importer,
/// `checkPodWorkload`).
pub fn single_pod_workload(pod: &Value, queue_name: &str, env: Env<'_>) -> Value {
    let mut object = workload::new(PODS, pod, queue_name, &[podset_of(pod, POD_SET)], env);
    let prebuilt = env.objects.identifiers().prebuilt_of(pod);
    if !prebuilt.is_empty() {
        json::set(&mut object, &["metadata", "name"], json!(prebuilt));
    }
    object
}

/// Removes a scheduling gate from a pod spec.
fn strip_gate(spec: &mut Value, gate: &str) {
    let gates = json::list(spec, &["schedulingGates"]);
    let left: Vec<Value> = gates.iter().filter(|g| g["name"] != gate).cloned().collect();
    if left.is_empty() {
        json::remove(spec, &["schedulingGates"]);
    } else {
        json::set(spec, &["schedulingGates"], Value::Array(left));
    }
}

/// Injects what was assigned into a gated pod and removes its gates. Other pods are left as they are.
///
/// # Errors
/// When the pod has another value for something assigned.
fn ungate(pod: &mut Value, info: &PodSetInfo) -> Result<(), String> {
    if !gated(pod) {
        return Ok(());
    }
    let mut spec = pod["spec"].take();
    strip_gate(&mut spec, names::GATE);
    if !info.scheduling_gates.iter().any(|g| g["name"] == names::TOPOLOGY_GATE) {
        // Without a topology in its flavor no topology ungater handles the pod.
        strip_gate(&mut spec, names::TOPOLOGY_GATE);
    }
    json::set(pod, &["spec"], spec);
    // The API server refuses gates on an existing pod: a pod is created with all that it may need.
    let info = PodSetInfo { scheduling_gates: Vec::new(), ..info.clone() };
    podset::merge(pod, &info).map_err(podset::Error::into_message)
}

/// Writes that stop one pod: a condition `TerminationTarget`, then its deletion. A suspended pod is kept, unless the
/// workload itself is being deleted.
fn terminate(pod: &Value, reason: &str, message: &str, now: Time) -> Plan {
    if json::deleting(pod) || reason != "WorkloadDeleted" && suspended(pod) {
        return Plan::new();
    }
    let mut conditions = json::list(pod, &["status", "conditions"]).to_vec();
    conditions.retain(|c| c["type"] != "TerminationTarget");
    conditions.push(json!({
        "type": "TerminationTarget", "status": "True", "lastTransitionTime": timestamp::text(now),
        "reason": reason, "message": message,
    }));
    vec![
        patch_status(PODS, pod, &json!({ "conditions": conditions })),
        plan::delete(PODS, pod),
        event(PODS, pod, false, "Stopped", message),
    ]
}

/// Reason on the pod for an eviction, with the eviction's own reason.
fn stop_reason(workload: Option<&Value>, reason: &str) -> String {
    let evicted = workload.and_then(|w| json::condition(w, "Evicted")).filter(|c| c["status"] == "True");
    match evicted {
        Some(e) if reason == "WorkloadEvicted" => {
            format!("WorkloadEvictedDueTo{}", json::text(e, &["reason"]))
        }
        _ => reason.to_owned(),
    }
}

/// A patch that removes Kueue's finalizer from a pod.
fn finalize(pod: &Value) -> Option<Write> {
    plan::remove_finalizer(PODS, pod, names::MANAGED)
}

/// Without the workloads of pod groups, which have their own key.
fn of_single_pods(workloads: impl IntoIterator<Item = Arc<Value>>) -> Vec<Arc<Value>> {
    workloads.into_iter().filter(|w| json::annotation(w, names::IS_GROUP).is_none()).collect()
}

/// The writes for the pod of this name.
fn reconcile(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let objects = env.objects;
    let Some(object) = objects.get(Kind::Pod, namespace, name) else {
        let workloads = objects.owned_by_name(namespace, "Pod", name);
        return orphan::finalize_ownerless(&of_single_pods(workloads), env);
    };
    let grouped = group::of(&object, objects.identifiers()).is_some();
    if !grouped && let Some(plan) = serving::join(&object, env) {
        return plan;
    }
    if json::label(&object, names::MANAGED) != "true" || grouped {
        return Plan::new();
    }
    let job = Pod { object: &object };
    if json::deleting(&object) && !job.is_active(env.config.quota_release.pods) {
        // A workload that can finish is finished before it is released, so that its end is recorded.
        let workloads = of_single_pods(objects.owned_by(json::uid(&object)));
        let unfinished = |w: &Arc<Value>| !json::is_true(w, "Finished") && !json::is_true(w, "Evicted");
        if ended(&object) && workloads.iter().any(unfinished) {
            return reconciler::reconcile(&job, env);
        }
        // An evicted one releases its quota first, so that its status says why.
        let is = |w: &Value, kind: &str| json::is_true(w, kind);
        let holds = |w: &&Arc<Value>| {
            is(w, "Evicted") && is(w, "QuotaReserved") && !is(w, "Finished") && !json::deleting(w)
        };
        let evicted: Plan = workloads.iter().filter(holds).map(|w| reconciler::stopped(w, true)).collect();
        if !evicted.is_empty() {
            return evicted;
        }
        // While it runs, its workload is kept for its end.
        if job.is_active(QuotaReleaseStrategy::OnTerminal) {
            return Plan::new();
        }
        let mut plan = orphan::finalize(&workloads, env);
        plan.extend(finalize(&object));
        return plan;
    }
    if !env.config.manages_namespace(objects, namespace) {
        return Plan::new();
    }
    reconciler::reconcile(&job, env)
}

impl GenericJob for Pod<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        PODS
    }

    fn is_suspended(&self) -> bool {
        suspended(self.object)
    }

    fn is_active(&self, release: QuotaReleaseStrategy) -> bool {
        uses_quota(self.object, release)
    }

    fn finished(&self) -> Option<Finished> {
        let success = match json::text(self.object, &["status", "phase"]) {
            "Succeeded" => true,
            "Failed" => false,
            _ => return None,
        };
        Some(Finished { message: json::text(self.object, &["status", "message"]).to_owned(), success })
    }

    fn pods_ready(&self) -> bool {
        ready(self.object)
    }

    fn pod_sets(&self) -> Vec<Value> {
        vec![podset_of(self.object, POD_SET)]
    }

    /// A pod can't be suspended once it was ungated: [`Pod::stop`] deletes it.
    fn suspend(&self, _pod: &mut Value) {}

    fn run_with_pod_sets_info(&self, pod: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
        match infos {
            [info] => ungate(pod, info),
            _ => Err(format!("invalid podset infos: expecting 1 pod set got {}", infos.len())),
        }
    }

    /// A deleted pod has nothing to restore.
    fn restore_pod_sets_info(&self, _pod: &mut Value, _pod_sets: &[Value]) {}

    fn may_own(&self, workload: &Value) -> bool {
        json::annotation(workload, names::IS_GROUP).is_none()
    }

    fn equivalent_to_workload(&self, workload: &Value, env: Env<'_>) -> bool {
        let mine = self.pod_sets();
        podset::running(workload, env).is_some_and(|running| podset::equivalent(&mine, &running, true))
            || podset::equivalent(&mine, json::list(workload, &["spec", "podSets"]), true)
    }

    fn stop(&self, workload: Option<&Value>, reason: &str, message: &str, now: Time) -> Plan {
        terminate(self.object, &stop_reason(workload, reason), message, now)
    }

    fn finalize(&self) -> Plan {
        finalize(self.object).into_iter().collect()
    }
}
