//! StatefulSets, framework `statefulset` (Kueue `pkg/controller/jobs/statefulset`): all pods have one workload, which is
//! admitted whole.

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::resource::{STATEFUL_SETS, WORKLOADS};
use serde_json::{Value, json};

use super::{
    INDEX_SOURCE, Membership, QUEUE_LABELS, RETRY, applies, changes, create, follow, group_workload, member,
    off, same_shape, shared_rules, suspends, sync_queue, ungate_replaced,
};
use crate::config::STATEFUL_SET as FRAMEWORK;
use crate::integration::Integration;
use crate::plan::{Plan, Write, delete, patch};
use crate::pod_view::ended;
use crate::podset::{self, Ranks};
use crate::store::Kind;
use crate::webhook::review::{Review, Validation, default_queue};
use crate::webhook::validation::ErrorList;
use crate::{Env, names, orphan, workload};

/// Name of the podset.
const POD_SET: &str = "main";
/// Label: index of a pod.
const INDEX: &str = "apps.kubernetes.io/pod-index";

/// The registration of StatefulSets.
pub const INTEGRATION: Integration = Integration {
    framework: FRAMEWORK,
    resource: STATEFUL_SETS,
    validating_webhook: "vstatefulset.kb.io",
    defaults_updates: true,
    default,
    validate,
    reconcile: Some(|_, namespace, name, env| reconcile(namespace, name, env)),
};

/// The parent that gates the pods of a set; empty: none does.
fn parent(set: &Value) -> &str {
    json::text(set, &["spec", "template", "metadata", "annotations", names::SUSPENDING_PARENT])
}

/// Whether another framework queues the pods, such as that of a LeaderWorkerSet (Kueue `managedByAnotherFramework`).
fn is_anothers(set: &Value) -> bool {
    !matches!(parent(set), "" | FRAMEWORK)
}

fn replicas(set: &Value) -> i64 {
    json::int(set, &["spec", "replicas"]).unwrap_or(1)
}

fn default(review: &Review<'_>, set: &mut Value, env: Env<'_>) {
    if is_anothers(set) || !applies(FRAMEWORK, review, env) {
        return;
    }
    default_queue(review, set, env);
    if suspends(review, set, env) {
        let path = ["spec", "template", "metadata", "annotations", names::SUSPENDING_PARENT];
        json::set(set, &path, json!(FRAMEWORK));
    }
}

fn validate(review: &Review<'_>, set: &Value, env: Env<'_>) -> Validation {
    if is_anothers(set) {
        return Validation::default();
    }
    if let Some(validation) = off(&INTEGRATION, set, env) {
        return validation;
    }
    let mut errors = ErrorList::default();
    shared_rules(&INTEGRATION, set, env, &mut errors);
    changes(review, set, &mut errors);
    if let Some(old) = review.old.filter(|_| applies(FRAMEWORK, review, env) && suspends(review, set, env)) {
        let spec = |o: &Value| o["spec"]["template"]["spec"].clone();
        same_shape(&spec(set), &spec(old), "spec.template.spec", &mut errors);
        scales(old, set, env, &mut errors);
    }
    Validation::of(errors)
}

/// A set is scaled to zero and from zero alone, and from there when nothing is left of what ran before.
fn scales(old: &Value, set: &Value, env: Env<'_>, errors: &mut ErrorList) {
    const PATH: &str = "spec.replicas";
    let (before, after) = (replicas(old), replicas(set));
    if before != 0 && after != 0 {
        errors.immutable(PATH, after, before);
    }
    if before != 0 || after <= 0 {
        return;
    }
    if json::int(set, &["status", "replicas"]).unwrap_or(0) > 0 {
        return errors.forbidden(PATH, "scaling down is still in progress");
    }
    let left = env.objects.get(Kind::Workload, json::namespace(old), &name_of_workload(old, env));
    if left.is_some_and(|wl| !workload::is_on_hold(&wl)) {
        errors.forbidden(PATH, "workload from previous scale-down is still being deleted");
    }
}

/// Name of the set of a pod.
pub(super) fn of_pod(pod: &Value) -> Option<&str> {
    let owner = json::controller(pod).filter(|o| o["kind"] == STATEFUL_SETS.kind)?;
    (owner["apiVersion"] == STATEFUL_SETS.api_version).then(|| json::text(owner, &["name"]))
}

/// Name of its workload; older versions of Kueue made it without the UID, and such a workload is kept (Kueue `findWorkload`).
fn name_of_workload(set: &Value, env: Env<'_>) -> String {
    let names = env.config.workload_names;
    let named = |uid| names.of(STATEFUL_SETS.kind, STATEFUL_SETS.group(), json::name(set), uid);
    let exists = |name: &String| env.objects.get(Kind::Workload, json::namespace(set), name).is_some();
    let (name, old) = (named(super::owner_uid(set)), named(""));
    if !exists(&name) && exists(&old) { old } else { name }
}

/// Makes a pod a member of its set's group (Kueue `statefulset_pod_reconciler.go`).
pub(super) fn join(pod: &Value, env: Env<'_>) -> Plan {
    let Some(name) = of_pod(pod) else { return Plan::new() };
    let Some(set) = env.objects.get(Kind::StatefulSet, json::namespace(pod), name) else {
        return vec![Write::RequeueAfter(RETRY)];
    };
    if !env.config.manages(&set) {
        return Plan::new();
    }
    let of = Membership {
        group: &name_of_workload(&set, env),
        size: replicas(&set),
        role: POD_SET,
        labels: &QUEUE_LABELS,
        annotations: &[(names::GROUP_FAST, "true"), (names::GROUP_SERVING, "true"), (INDEX_SOURCE, INDEX)],
    };
    member(pod, &set, &of, env.objects.identifiers())
}

fn pod_sets(set: &Value) -> Vec<Value> {
    let template = &set["spec"]["template"];
    let mut podset = json!({"name": POD_SET, "count": replicas(set), "template": {"spec": template["spec"]}});
    let ranks = Ranks { index_label: Some(INDEX.into()), groups: None };
    if let Some(request) = ranks.topology_request(template) {
        podset["topologyRequest"] = request;
    }
    let mut pod_sets = vec![podset];
    podset::sanitize(&mut pod_sets);
    pod_sets
}

/// The writes for the set of this name.
fn reconcile(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some(set) = env.objects.get(Kind::StatefulSet, namespace, name) else {
        let owned = env.objects.owned_by_name(namespace, STATEFUL_SETS.kind, name);
        return orphan::finalize_ownerless(&owned, env);
    };
    let managed = super::is_managed(FRAMEWORK, &set, namespace, env);
    if is_anothers(&set) || json::deleting(&set) || !managed {
        return Plan::new();
    }
    let group = name_of_workload(&set, env);
    let pods = env.objects.pods_of_group(namespace, &group);
    let mut plan = sync_queue(&set, &pods);
    plan.extend(pods.iter().filter_map(|pod| ungate_replaced(pod, env)));
    match env.objects.get(Kind::Workload, namespace, &group) {
        Some(wl) => plan.extend(scale(&set, &wl, &pods, env)),
        None if replicas(&set) > 0 && !super::is_dispatched(&set) => {
            match group_workload(&INTEGRATION, &set, &group, &pod_sets(&set), env) {
                Ok(wl) => plan.extend(create(&INTEGRATION, &set, wl)),
                Err(writes) => plan.extend(writes),
            }
        }
        None => {}
    }
    plan
}

/// Keeps the workload of a set in step with its number of pods. A set of none keeps its workload on hold, once no pod uses
/// its quota any more.
fn scale(set: &Value, wl: &Value, pods: &[Arc<Value>], env: Env<'_>) -> Plan {
    if json::deleting(wl) || json::is_true(wl, "Finished") {
        return Plan::new();
    }
    let uses = |pod: &Value| !json::text(pod, &["spec", "nodeName"]).is_empty() && !ended(pod);
    let held = workload::is_on_hold(wl);
    if replicas(set) == 0 {
        if held || wl["spec"]["active"] == false || pods.iter().any(|pod| uses(pod)) {
            return Plan::new();
        }
        return workload::unreserve(wl, "OnHold", "StatefulSet scaled to zero; workload on hold", env.now);
    }
    let wanted = pod_sets(set);
    let counts = |pod_sets: &[Value]| pod_sets.iter().map(|p| p["count"].as_i64()).collect::<Vec<_>>();
    if counts(&wanted) != counts(json::list(wl, &["spec", "podSets"])) {
        if json::is_true(wl, "QuotaReserved") {
            // What is charged can't be changed: its pods stop, and a workload of the new size follows.
            return vec![delete(WORKLOADS, wl)];
        }
        let mut new = wl.clone();
        json::set(&mut new, &["spec", "podSets"], Value::Array(wanted));
        return patch(WORKLOADS, wl, &new).into_iter().collect();
    }
    let plan = follow(&INTEGRATION, set, wl);
    if !plan.is_empty() || !held {
        return plan;
    }
    let message = "Workload no longer on hold; waiting for quota reservation";
    workload::unreserve(wl, "PendingEvaluation", message, env.now)
}
