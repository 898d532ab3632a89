//! JobKinds themselves: their conditions, and their finalizer, which lets go of the workloads of their jobs first.

use std::time::Duration;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::resource::{JOB_KINDS, WORKLOADS};
use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::custom_kind::CustomKind;
use crate::plan::{Plan, Write, delete, patch, patch_status, remove_finalizer};
use crate::store::Kind;
use crate::{Env, names};

/// Condition: its jobs are queued.
const READY: &str = "Ready";
/// Condition: its expressions could be evaluated for every job so far.
const EVALUATES: &str = "Evaluates";
/// Finalizer.
pub const FINALIZER: &str = "plimsoll.dev/job-kind";
/// Most workloads that are let go at once.
const BATCH: usize = 256;
/// Pause before the next ones.
const NEXT: Duration = Duration::from_millis(100);

/// Whether the JobKind of this kind is being deleted: its jobs are not queued any more.
pub(crate) fn is_going(custom: CustomKind, env: Env<'_>) -> bool {
    let name = env.objects.declared_by(custom);
    let kind = name.and_then(|name| env.objects.get(Kind::JobKind, "", &name));
    kind.is_some_and(|kind| json::deleting(&kind))
}

/// The writes for the JobKind of this name.
pub(crate) fn plan(name: &str, env: Env<'_>) -> Plan {
    let (Some(kind), Some(known)) = (env.objects.get(Kind::JobKind, "", name), env.objects.job_kind(name))
    else {
        return Plan::new();
    };
    if json::deleting(&kind) {
        return let_go(&kind, known.custom, env);
    }
    if known.custom.is_some() && !json::has_finalizer(&kind, FINALIZER) {
        let mut new = (*kind).clone();
        let mut finalizers = json::list(&kind, &["metadata", "finalizers"]).to_vec();
        finalizers.push(json!(FINALIZER));
        json::set(&mut new, &["metadata", "finalizers"], Value::Array(finalizers));
        return patch(JOB_KINDS, &kind, &new).into_iter().collect();
    }
    let served = |custom: &CustomKind| env.objects.served(Kind::Custom(*custom));
    let (status, reason, message) = match (&known.declaration, known.custom) {
        (Err(errors), _) => (false, "Invalid", errors.join("; ")),
        (Ok(_), Some(custom)) => match served(&custom) {
            Some(resource) => {
                (true, "Served", format!("Jobs are queued in version {}", resource.api_version))
            }
            None => {
                let resource = custom.preferred();
                let (group, plural) = (resource.group(), resource.plural);
                let text = format!("The cluster does not serve {plural}.{group}, or they may not be listed");
                (false, "NotServed", text)
            }
        },
        (Ok(_), None) => return Plan::new(),
    };
    let mut new = (*kind).clone();
    if let Some(conditions) = set_status_condition(&new, READY, status, reason, &message, env.now) {
        json::set(&mut new, &["status", "conditions"], Value::Array(conditions));
    }
    // What failed for the version before may be mended.
    let failed = json::condition(&kind, EVALUATES).filter(|c| c["status"] == "False");
    if failed.is_some_and(|c| c["observedGeneration"] != kind["metadata"]["generation"])
        && let Some(conditions) = set_status_condition(
            &new,
            EVALUATES,
            true,
            "Changed",
            "No job of this version has failed",
            env.now,
        )
    {
        json::set(&mut new, &["status", "conditions"], Value::Array(conditions));
    }
    if new["status"]["conditions"] == kind["status"]["conditions"] {
        return Plan::new();
    }
    vec![patch_status(JOB_KINDS, &kind, &json!({"conditions": new["status"]["conditions"]}))]
}

/// The conditions with the first failure of an expression; `None`: one is known already.
pub(crate) fn evaluation_failed(kind: &Value, message: &str, now: Time) -> Option<Vec<Value>> {
    let known = json::condition(kind, EVALUATES)
        .is_some_and(|c| c["status"] == "False" && c["observedGeneration"] == kind["metadata"]["generation"]);
    if known {
        return None;
    }
    set_status_condition(kind, EVALUATES, false, "EvaluationFailed", message, now)
}

/// Deletes the workloads of all jobs, so that they hold no quota, and then the finalizer.
fn let_go(kind: &Value, custom: Option<CustomKind>, env: Env<'_>) -> Plan {
    let of_kind = |wl: &Value| {
        let text = |owner: &Value, key: &str| json::text(owner, &[key]).to_owned();
        custom.is_some_and(|custom| {
            json::controller(wl).is_some_and(|o| custom.has_kind(&text(o, "apiVersion"), &text(o, "kind")))
        })
    };
    let mut plan = Plan::new();
    for wl in env.objects.all(Kind::Workload).filter(|wl| of_kind(wl)).take(BATCH) {
        plan.extend(remove_finalizer(WORKLOADS, &wl, names::IN_USE));
        if !json::deleting(&wl) {
            plan.push(delete(WORKLOADS, &wl));
        }
    }
    if plan.is_empty() {
        return remove_finalizer(JOB_KINDS, kind, FINALIZER).into_iter().collect();
    }
    plan.push(Write::RequeueAfter(NEXT));
    plan
}
