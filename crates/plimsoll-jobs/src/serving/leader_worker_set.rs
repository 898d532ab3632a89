//! LeaderWorkerSets, framework `leaderworkerset.x-k8s.io/leaderworkerset` (Kueue `pkg/controller/jobs/leaderworkerset`): each
//! group of a leader and its workers has a workload, with a podset for either.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::WorkloadNames;
use plimsoll_api::resource::{LEADER_WORKER_SETS, WORKLOADS};
use serde_json::{Value, json};

use super::{
    Membership, QUEUE_LABELS, RETRY, applies, changes, create, follow, group_workload, is_dispatched, member,
    off, owner_uid, same_shape, shared_rules, suspends, sync_queue, ungate_replaced,
};
use crate::custom_kind::CustomKind;
use crate::integration::Integration;
use crate::plan::{Plan, Write, delete};
use crate::podset::Ranks;
use crate::store::Kind;
use crate::webhook::admission_gates;
use crate::webhook::pod_sets::{PodSetAt, topology};
use crate::webhook::review::{Review, Validation, default_queue};
use crate::webhook::validation::ErrorList;
use crate::{Env, names, orphan};

/// Name in `integrations.frameworks`.
pub(crate) const FRAMEWORK: &str = CustomKind::LEADER_WORKER_SET.framework();
/// The kind of object.
pub(crate) const KIND: Kind = Kind::Custom(CustomKind::LEADER_WORKER_SET);
/// Names of the podsets; `main`: there is no template for leaders.
const LEADER: &str = "leader";
const WORKER: &str = "worker";
const MAIN: &str = "main";
/// What the LeaderWorkerSet controller writes begins with this.
const DOMAIN: &str = "leaderworkerset.sigs.k8s.io";
/// Label of pods: name of their LeaderWorkerSet.
const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// Label of pods: index of their group.
const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// Label of workers: index in their group.
const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// Annotation of workers: name of their leader.
const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";
const PODSET_GROUP: &str = "kueue.x-k8s.io/podset-group-name";
/// Most groups of a set (Kueue `maxLeaderWorkerSetReplicas`).
const MOST_REPLICAS: i64 = 1_000_000;
/// Most workloads that one reconcile creates.
const BATCH: usize = 256;

const TEMPLATE: [&str; 2] = ["spec", "leaderWorkerTemplate"];

/// The registration of LeaderWorkerSets.
pub(crate) const INTEGRATION: Integration = Integration {
    framework: FRAMEWORK,
    resource: LEADER_WORKER_SETS,
    validating_webhook: "vleaderworkerset.kb.io",
    defaults_updates: true,
    default,
    validate,
    reconcile: Some(|_, namespace, name, env| reconcile(namespace, name, env)),
};

/// Groups that the set asks for.
pub(crate) fn replicas(set: &Value) -> i64 {
    json::int(set, &["spec", "replicas"]).unwrap_or(1)
}

/// Pods of each group.
fn size(set: &Value) -> i64 {
    json::int(set, &["spec", "leaderWorkerTemplate", "size"]).unwrap_or(1)
}

fn template<'a>(set: &'a Value, key: &str) -> Option<&'a Value> {
    json::at(set, &TEMPLATE).get(key).filter(|t| t.is_object())
}

fn default(review: &Review<'_>, set: &mut Value, env: Env<'_>) {
    if !applies(FRAMEWORK, review, env) {
        return;
    }
    default_queue(review, set, env);
    if !suspends(review, set, env) {
        return;
    }
    let leads = template(set, "leaderTemplate").is_some();
    let labels: Vec<(&str, String)> =
        QUEUE_LABELS.into_iter().map(|key| (key, json::label(set, key).to_owned())).collect();
    let roles = if leads { &["leaderTemplate", "workerTemplate"][..] } else { &["workerTemplate"] };
    for role in roles {
        let path =
            |kind: &'static str, key: &'static str| [TEMPLATE[0], TEMPLATE[1], role, "metadata", kind, key];
        for (key, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            json::set(set, &path("labels", key), json!(value));
        }
        for (key, value) in [(names::SUSPENDING_PARENT, FRAMEWORK), (names::GROUP_SERVING, "true")] {
            json::set(set, &path("annotations", key), json!(value));
        }
        let grouped = json::at(set, &path("annotations", PODSET_GROUP)).is_string();
        if leads && *role == "workerTemplate" && !grouped {
            json::set(set, &path("annotations", INDEX_OFFSET), json!("1"));
        }
    }
}

fn validate(review: &Review<'_>, set: &Value, env: Env<'_>) -> Validation {
    if let Some(validation) = off(&INTEGRATION, set, env) {
        return validation;
    }
    let mut errors = ErrorList::default();
    shared_rules(&INTEGRATION, set, env, &mut errors);
    let count = replicas(set);
    if count < 0 {
        let detail = format!("invalid LeaderWorkerSet replicas: must be >= 0, got {count}");
        errors.invalid("spec.replicas", count, &detail);
    } else if count > MOST_REPLICAS {
        let detail = format!("invalid LeaderWorkerSet replicas: must be <= {MOST_REPLICAS}, got {count}");
        errors.invalid("spec.replicas", count, &detail);
    }
    let at = |key: &str| format!("spec.leaderWorkerTemplate.{key}");
    let rows: Vec<(Role, String)> =
        roles(set).into_iter().map(|r| (r, format!("{}.metadata", at(r.key)))).collect();
    let pod_sets: Vec<PodSetAt<'_>> = rows
        .iter()
        .filter_map(|(r, metadata)| {
            Some(PodSetAt { metadata, count: r.count, template: template(set, r.key)? })
        })
        .collect();
    admission_gates::validate(set, None, &mut errors);
    topology(&pod_sets, true, &mut errors);
    changes(review, set, &mut errors);
    let Some(old) = review.old.filter(|_| applies(FRAMEWORK, review, env) && suspends(review, set, env))
    else {
        return Validation::of(errors);
    };
    for key in ["leaderTemplate", "workerTemplate"] {
        match (template(set, key), template(old, key)) {
            (Some(new), Some(old)) => {
                same_shape(&new["spec"], &old["spec"], &format!("{}.spec", at(key)), &mut errors);
            }
            (None, None) => {}
            (new, _) => {
                // Go shows a template that is not there as a text.
                let shown = new.cloned().unwrap_or_else(|| json!("null"));
                errors.invalid(&at(key), shown, "field is immutable");
            }
        }
    }
    if env.config.webhook_gates.immutable_group_size {
        // The podsets of a workload are never made anew.
        errors.immutable(&at("size"), size(set), size(old));
    }
    Validation::of(errors)
}

/// A podset of each group.
#[derive(Clone, Copy)]
struct Role {
    podset: &'static str,
    key: &'static str,
    count: i64,
    index_label: Option<&'static str>,
}

fn roles(set: &Value) -> Vec<Role> {
    let worker =
        |podset, count| Role { podset, key: "workerTemplate", count, index_label: Some(WORKER_INDEX) };
    if template(set, "leaderTemplate").is_none() {
        return vec![worker(MAIN, size(set))];
    }
    let leader = Role { podset: LEADER, key: "leaderTemplate", count: 1, index_label: None };
    vec![leader, worker(WORKER, size(set) - 1)]
}

fn pod_sets(set: &Value) -> Vec<Value> {
    let podset = |role: Role| {
        let own = template(set, role.key).cloned().unwrap_or_default();
        let ranks = Ranks { index_label: role.index_label.map(Into::into), groups: None };
        let request = ranks.topology_request(&own);
        let mut kept = own;
        for map in ["labels", "annotations"] {
            if let Some(Value::Object(map)) = kept.pointer_mut(&format!("/metadata/{map}")) {
                map.retain(|key, _| key == SET_NAME || !key.starts_with(DOMAIN));
            }
        }
        let mut podset = json!({"name": role.podset, "count": role.count, "template": kept});
        if let Some(request) = request {
            podset["topologyRequest"] = request;
        }
        podset
    };
    roles(set).into_iter().map(podset).collect()
}

/// Name of the LeaderWorkerSet of a pod.
pub(super) fn of_pod(pod: &Value) -> Option<&str> {
    json::label_opt(pod, SET_NAME)
}

/// Name of the workload of a group.
fn name_of_workload(set: &Value, group: &str, names: WorkloadNames) -> String {
    let name = format!("{}-{group}", json::name(set));
    names.of(LEADER_WORKER_SETS.kind, LEADER_WORKER_SETS.group(), &name, owner_uid(set))
}

/// Names of the workloads of all groups, as far as no update is under way.
pub(crate) fn workload_names(set: &Value, names: WorkloadNames) -> impl Iterator<Item = String> {
    (0..replicas(set).clamp(0, MOST_REPLICAS))
        .map(move |group| name_of_workload(set, &group.to_string(), names))
}

/// Makes a pod a member of its group (Kueue `leaderworkerset_reconciler.go`, `setDefault`).
pub(super) fn join(pod: &Value, env: Env<'_>) -> Plan {
    // The controller labels it with its group.
    let (Some(name), Some(group)) = (of_pod(pod), json::label_opt(pod, GROUP_INDEX)) else {
        return Plan::new();
    };
    let Some(set) = env.objects.get(KIND, json::namespace(pod), name) else {
        return vec![Write::RequeueAfter(RETRY)];
    };
    let role = match (template(&set, "leaderTemplate"), json::annotation(pod, LEADER_NAME)) {
        (None, _) => MAIN,
        (Some(_), None) => LEADER,
        (Some(_), Some(_)) => WORKER,
    };
    let of = Membership {
        group: &name_of_workload(&set, group, env.config.workload_names),
        size: size(&set),
        role,
        labels: &[names::QUEUE],
        annotations: &[],
    };
    member(pod, &set, &of, env.objects.identifiers())
}

/// The writes for the LeaderWorkerSet of this name.
fn reconcile(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some(set) = env.objects.get(KIND, namespace, name) else {
        let owned = env.objects.owned_by_name(namespace, LEADER_WORKER_SETS.kind, name);
        return orphan::finalize_ownerless(&owned, env);
    };
    let managed = super::is_managed(FRAMEWORK, &set, namespace, env);
    if json::deleting(&set) || !managed {
        return Plan::new();
    }
    workloads(&set, namespace, env)
}

/// A workload for each group; those of groups that are gone are deleted (Kueue `filterWorkloads`).
fn workloads(set: &Value, namespace: &str, env: Env<'_>) -> Plan {
    let mut left: BTreeMap<String, Arc<Value>> =
        env.objects.owned_by(json::uid(set)).map(|w| (json::name(&w).to_owned(), w)).collect();
    let (mut plan, mut missing) = (Plan::new(), 0);
    for group in 0..groups(set).clamp(0, MOST_REPLICAS) {
        let name = name_of_workload(set, &group.to_string(), env.config.workload_names);
        if let Some(wl) = left.remove(&name) {
            let pods = env.objects.pods_of_group(namespace, &name);
            plan.extend(sync_queue(set, &pods));
            plan.extend(pods.iter().filter_map(|pod| ungate_replaced(pod, env)));
            plan.extend(follow(&INTEGRATION, set, &wl));
            continue;
        }
        if is_dispatched(set) {
            continue;
        }
        missing += 1;
        if missing > BATCH {
            plan.push(Write::RequeueAfter(RETRY));
            break;
        }
        match group_workload(&INTEGRATION, set, &name, &pod_sets(set), env) {
            Ok(mut wl) => {
                json::set(&mut wl, &["metadata", "annotations", names::COMPONENT], json!(group.to_string()));
                plan.extend(create(&INTEGRATION, set, wl));
            }
            Err(writes) => {
                plan.extend(writes);
                break;
            }
        }
    }
    if missing <= BATCH {
        plan.extend(left.values().filter(|wl| !json::deleting(wl)).map(|wl| delete(WORKLOADS, wl)));
    }
    plan
}

/// Groups that there may be: more than wanted while a rolling update surges.
fn groups(set: &Value) -> i64 {
    let wanted = replicas(set);
    let status = |key: &str| json::int(set, &["status", key]).unwrap_or(0);
    let surge = json::at(set, &["spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"]);
    let surges = surge.as_i64().is_some_and(|n| n > 0) && status("updatedReplicas") < wanted;
    if surges { status("replicas").max(wanted) } else { wanted }
}
