//! Single plain pods (framework `pod`, Kueue KEP-976, spec section 4.5).

use plimsoll_state::Time;
use serde_json::{Value, json};

use super::{Env, Found, Integration, Write, names, note, patch, patch_status, podset, workload};
use crate::api::{PODS, Resource};
use crate::{clock, json};

/// A pod without a group.
#[derive(Debug)]
pub struct Pod<'a> {
    /// The object.
    pub object: &'a Value,
}

/// Whether the pod has Kueue's scheduling gate.
pub fn gated(pod: &Value) -> bool {
    json::list(pod, &["spec", "schedulingGates"]).iter().any(|g| g["name"] == names::GATE)
}

/// Whether the pod has ended.
pub fn ended(pod: &Value) -> bool {
    matches!(json::text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether the pod is ready or has succeeded.
pub fn ready(pod: &Value) -> bool {
    json::is_true(pod, "Ready") || json::text(pod, &["status", "phase"]) == "Succeeded"
}

/// Whether nothing of the pod can run now.
pub fn suspended(pod: &Value) -> bool {
    ended(pod) || gated(pod)
}

/// The podset that a pod makes: its spec as it is.
pub fn podset_of(pod: &Value, name: &str) -> Value {
    let mut out = json!({"name": name, "count": 1, "template": {"spec": pod["spec"]}});
    let index = json::annotation(pod, "kueue.x-k8s.io/pod-group-pod-index-label");
    let label = index.map(|_| "kueue.x-k8s.io/pod-group-pod-index");
    if let Some(request) = podset::topology_request(pod, label) {
        out["topologyRequest"] = request;
    }
    out
}

fn strip_gate(spec: &mut Value, gate: &str) {
    let gates = json::list(spec, &["schedulingGates"]);
    let left: Vec<Value> = gates.iter().filter(|g| g["name"] != gate).cloned().collect();
    if left.is_empty() {
        json::remove(spec, &["schedulingGates"]);
    } else {
        json::set(spec, &["schedulingGates"], Value::Array(left));
    }
}

/// Writes that let one pod go.
///
/// # Errors
/// When the pod already has another value for something assigned.
pub fn ungate(pod: &Value, info: &podset::Info, message: &str) -> Result<Vec<Write>, String> {
    if !gated(pod) {
        return Ok(Vec::new());
    }
    let mut new = pod.clone();
    let mut spec = new["spec"].take();
    strip_gate(&mut spec, names::GATE);
    if !info.gates.iter().any(|g| g["name"] == names::TOPOLOGY_GATE) {
        // Its flavor has no topology: nobody else would let it go.
        strip_gate(&mut spec, names::TOPOLOGY_GATE);
    }
    json::set(&mut new, &["spec"], spec);
    // A pod must be created with its gates; none can be added later.
    let info = podset::Info { gates: Vec::new(), ..info.clone() };
    podset::inject(&mut new, &info).map_err(|e| match e {
        podset::Error::Missing(m) | podset::Error::Conflict(m) => m,
    })?;
    let mut writes: Vec<Write> = patch(PODS, pod, &new).into_iter().collect();
    writes.push(note(PODS, pod, false, "Started", message));
    Ok(writes)
}

/// Writes that stop one pod: it is marked with `TerminationTarget` and deleted. What can't run is kept, unless the
/// workload itself is going.
pub fn terminate(pod: &Value, reason: &str, message: &str, now: Time) -> Vec<Write> {
    if json::deleting(pod) || reason != "WorkloadDeleted" && suspended(pod) {
        return Vec::new();
    }
    let mut conditions = json::list(pod, &["status", "conditions"]).to_vec();
    conditions.retain(|c| c["type"] != "TerminationTarget");
    conditions.push(json!({
        "type": "TerminationTarget", "status": "True", "lastTransitionTime": clock::text(now),
        "reason": reason, "message": message,
    }));
    vec![
        patch_status(PODS, pod, &json!({ "conditions": conditions })),
        Write::Delete {
            resource: PODS,
            namespace: json::namespace(pod).into(),
            name: json::name(pod).into(),
            uid: json::uid(pod).into(),
        },
        note(PODS, pod, false, "Stopped", message),
    ]
}

/// Reason on the pod for an eviction, with the eviction's own reason.
pub fn stop_reason(workload: Option<&Value>, reason: &str) -> String {
    let evicted = workload.and_then(|w| json::condition(w, "Evicted")).filter(|c| c["status"] == "True");
    match evicted {
        Some(e) if reason == "WorkloadEvicted" => {
            format!("WorkloadEvictedDueTo{}", json::text(e, &["reason"]))
        }
        _ => reason.to_owned(),
    }
}

/// A patch that takes Kueue's finalizer off a pod.
pub fn release(pod: &Value) -> Option<Write> {
    super::drop_finalizer(PODS, pod, names::MANAGED)
}

impl Integration for Pod<'_> {
    fn object(&self) -> &Value {
        self.object
    }

    fn resource(&self) -> Resource {
        PODS
    }

    fn is_suspended(&self) -> bool {
        suspended(self.object)
    }

    fn is_active(&self) -> bool {
        // Terminating pods are active until they have really ended.
        json::text(self.object, &["status", "phase"]) == "Running"
            || json::deleting(self.object)
                && !suspended(self.object)
                && !json::text(self.object, &["spec", "nodeName"]).is_empty()
    }

    fn finished(&self) -> Option<(String, bool)> {
        let message = json::text(self.object, &["status", "message"]).to_owned();
        match json::text(self.object, &["status", "phase"]) {
            "Succeeded" => Some((message, true)),
            "Failed" => Some((message, false)),
            _ => None,
        }
    }

    fn pods_ready(&self) -> bool {
        ready(self.object)
    }

    fn reclaimable(&self) -> Option<Vec<(String, i64)>> {
        None
    }

    fn find(&self, env: Env<'_>) -> Found {
        let mine = [podset_of(self.object, "main")];
        let mut found = Found::default();
        for wl in env.cache.owned_by(json::uid(self.object)) {
            if json::annotation(&wl, names::IS_GROUP).is_some() {
                continue;
            }
            let declared = json::list(&wl, &["spec", "podSets"]);
            let same = json::is_true(&wl, "Finished")
                || podset::running(&wl, env).is_some_and(|r| podset::equivalent(&mine, &r, true))
                || podset::equivalent(&mine, declared, true);
            if found.matching.is_none() && same {
                found.matching = Some(wl);
            } else {
                found.extra.push(wl);
            }
        }
        found
    }

    fn compose(&self, env: Env<'_>) -> Result<(Vec<Write>, Value), Vec<Write>> {
        Ok((Vec::new(), workload::skeleton(self, &[podset_of(self.object, "main")], env)))
    }

    fn start(&self, infos: &[podset::Info], message: &str) -> Result<Vec<Write>, String> {
        let [info] = infos else {
            return Err(format!("invalid podset infos: expecting 1 pod set got {}", infos.len()));
        };
        ungate(self.object, info, message)
    }

    fn stop(&self, workload: Option<&Value>, reason: &str, message: &str, now: Time) -> Vec<Write> {
        terminate(self.object, &stop_reason(workload, reason), message, now)
    }

    fn finalize(&self) -> Vec<Write> {
        release(self.object).into_iter().collect()
    }
}
