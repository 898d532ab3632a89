//! Kinds whose pods serve and never finish, queued through their pods: `deployment.rs` with a workload for each pod,
//! `stateful_set.rs` with one for all of them, `leader_worker_set.rs` with one for each group. The latter two create the
//! workloads, and their pods join as the pods of a pod group do (Kueue `pkg/controller/jobs/{deployment,statefulset,leaderworkerset}`).

pub(crate) mod deployment;
pub(crate) mod leader_worker_set;
pub(crate) mod stateful_set;

use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::resource::{PODS, WORKLOADS};
use serde_json::{Value, json};

use crate::integration::Integration;
use crate::key::Key;
use crate::plan::{Plan, Write, event, patch};
use crate::pod_view::{GROUP, Identifiers, ended, has_gate};
use crate::store::Kind;
use crate::webhook::review::{Review, Validation, owner_is_managed};
use crate::webhook::validation::{self, ErrorList, label_path};
use crate::webhook::{admission_gates, job_rules};
use crate::{Env, ancestors, config, names, priority_class, workload};

/// Pause before a missing object is looked up again.
const RETRY: Duration = Duration::from_secs(1);
/// Label of StatefulSet pods: the revision of their set.
const REVISION: &str = "controller-revision-hash";
/// Annotation of pods: the label that has their index.
const INDEX_SOURCE: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
/// Labels that reach the pods.
const QUEUE_LABELS: [&str; 2] = [names::QUEUE, names::PRIORITY_CLASS];

/// The UID that names the workloads of an object: on a worker cluster that of the manager's (Kueue `GetOwnerUID`).
fn owner_uid(object: &Value) -> &str {
    let of_manager = json::annotation(object, names::ORIGIN_UID).filter(|_| is_dispatched(object));
    of_manager.unwrap_or_else(|| json::uid(object))
}

/// Whether a manager of MultiKueue has created an object, and so creates its workloads.
fn is_dispatched(object: &Value) -> bool {
    json::label_opt(object, names::ORIGIN).is_some()
}

/// Whether objects of this framework are queued in the namespace of a request.
fn applies(framework: &str, review: &Review<'_>, env: Env<'_>) -> bool {
    env.config.has_framework(framework) && env.config.manages_namespace(env.objects, review.namespace)
}

/// Whether the pods of an object wait for quota (Kueue `WorkloadShouldBeSuspended`). Those of one that is being deleted do not:
/// the garbage collector changes it, too.
fn suspends(review: &Review<'_>, object: &Value, env: Env<'_>) -> bool {
    !json::deleting(object) && env.config.manages(object) && !owner_is_managed(review, object, env)
}

/// What is said of an object whose framework is off: it follows no rules, and a queue has no effect.
fn off(of: &Integration, object: &Value, env: Env<'_>) -> Option<Validation> {
    let (label, framework) = (names::QUEUE, of.framework);
    if env.config.has_framework(framework) {
        return None;
    }
    let mut validation = Validation::default();
    if !json::label(object, label).is_empty() {
        validation.warnings.push(format!(
            "label '{label}' has no effect here: '{framework}' is not among integrations.frameworks, so pods run without quota"
        ));
    }
    Some(validation)
}

/// The rules that these kinds share. There are none for labels that their pods do not follow.
fn shared_rules(of: &Integration, object: &Value, env: Env<'_>, errors: &mut ErrorList) {
    validation::name_label(object, names::QUEUE, errors);
    job_rules::not_elastic(of.resource, object, env, errors);
    job_rules::own(object, errors);
}

/// Whether the framework is on and queues this object by itself: its namespace and labels are managed, and no ancestor is.
fn is_managed(framework: &str, object: &Value, namespace: &str, env: Env<'_>) -> bool {
    let config = env.config;
    config.has_framework(framework)
        && config.manages_namespace(env.objects, namespace)
        && config.manages(object)
        && matches!(ancestors::managed(object, namespace, env), ancestors::Ancestor::None)
}

/// Admission gates of a new object. Later they are only removed, queue and priority class stay while pods run, and a queue is never
/// removed.
fn changes(review: &Review<'_>, object: &Value, errors: &mut ErrorList) {
    if let Some(old) = review.old {
        let label = |o: &Value, key: &str| json::label(o, key).to_owned();
        let queue = label(object, names::QUEUE);
        let runs = json::int(old, &["status", "readyReplicas"]).unwrap_or(0) > 0;
        if runs || queue.is_empty() {
            errors.immutable(&label_path(names::QUEUE), queue, label(old, names::QUEUE));
        }
        validation::priority_class(!runs, old, object, errors);
    }
    admission_gates::validate(object, review.old, errors);
}

/// What decides where a pod may run stays (Kueue `ValidateImmutablePodGroupPodSpec`).
fn same_shape(new: &Value, old: &Value, at: &str, errors: &mut ErrorList) {
    const FIELDS: [&str; 8] = [
        "nodeSelector",
        "affinity",
        "tolerations",
        "runtimeClassName",
        "priority",
        "topologySpreadConstraints",
        "overhead",
        "resourceClaims",
    ];
    let mut same = |path: String, new: &Value, old: &Value| {
        let empty = |v: &Value| match v {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        if new != old && !(empty(new) && empty(old)) {
            errors.invalid(&path, new.clone(), "field is immutable");
        }
    };
    for field in FIELDS {
        same(format!("{at}.{field}"), &new[field], &old[field]);
    }
    same(format!("{at}.resources"), &new["resources"]["requests"], &old["resources"]["requests"]);
    for field in ["initContainers", "containers"] {
        let (a, b) = (json::list(new, &[field]), json::list(old, &[field]));
        if a.len() != b.len() {
            same(format!("{at}.{field}"), &new[field], &old[field]);
            continue;
        }
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            let at = format!("{at}.{field}[{i}]");
            same(
                format!("{at}.resources.requests"),
                &a["resources"]["requests"],
                &b["resources"]["requests"],
            );
            same(format!("{at}.ports"), &a["ports"], &b["ports"]);
        }
    }
}

/// The keys that a pod of these kinds concerns, beside those of any pod.
pub(crate) fn affected_by_pod(pod: &Value, identifiers: Identifiers) -> Vec<Key> {
    let namespace = json::namespace(pod);
    let parent = match json::annotation(pod, names::SUSPENDING_PARENT) {
        Some(config::STATEFUL_SET) => stateful_set::of_pod(pod).map(|name| (config::STATEFUL_SET, name)),
        Some(leader_worker_set::FRAMEWORK) => {
            leader_worker_set::of_pod(pod).map(|name| (leader_worker_set::FRAMEWORK, name))
        }
        _ => None,
    };
    let Some((framework, name)) = parent else { return Vec::new() };
    let mut keys = vec![Key::job(framework, namespace, name)];
    if identifiers.group_of(pod).is_empty() {
        keys.push(Key::job(config::POD, namespace, json::name(pod)));
    }
    keys
}

/// Whether a pod becomes a member of its parent's group after its creation.
pub(crate) fn joins_later(pod: &Value) -> bool {
    let parent = json::annotation(pod, names::SUSPENDING_PARENT);
    matches!(parent, Some(config::STATEFUL_SET | leader_worker_set::FRAMEWORK))
}

/// The writes that make a pod a member of its workload's group; `None`: it is no pod of these kinds.
pub(crate) fn join(pod: &Value, env: Env<'_>) -> Option<Plan> {
    match json::annotation(pod, names::SUSPENDING_PARENT)? {
        config::STATEFUL_SET => Some(stateful_set::join(pod, env)),
        leader_worker_set::FRAMEWORK => Some(leader_worker_set::join(pod, env)),
        _ => None,
    }
}

/// Whether an object that serves still owns a workload, which then stays as it is without pods.
pub(crate) fn owner_lives(wl: &Value, env: Env<'_>) -> bool {
    json::list(wl, &["metadata", "ownerReferences"]).iter().any(|owner| {
        let text = |key: &str| json::text(owner, &[key]);
        let kind = match text("kind") {
            "StatefulSet" => Kind::StatefulSet,
            "LeaderWorkerSet" => leader_worker_set::KIND,
            _ => return false,
        };
        let object = env.objects.get(kind, json::namespace(wl), text("name"));
        object.is_some_and(|o| json::uid(&o) == text("uid") && !json::deleting(&o))
    })
}

/// What makes a pod a member of a group.
struct Membership<'a> {
    group: &'a str,
    size: i64,
    role: &'a str,
    /// Labels of the parent that the pod gets.
    labels: &'a [&'static str],
    annotations: &'a [(&'static str, &'static str)],
}

/// The write that makes a pod a member of a group.
fn member(pod: &Value, parent: &Value, of: &Membership<'_>, identifiers: Identifiers) -> Plan {
    if ended(pod) || json::deleting(pod) {
        return Plan::new();
    }
    let mut new = pod.clone();
    let mut label = |key: &str, value: &str| json::set(&mut new, &["metadata", "labels", key], json!(value));
    label(names::MANAGED, "true");
    for key in of.labels {
        let value = json::label(parent, key);
        if !value.is_empty() {
            label(key, value);
        }
    }
    let size = of.size.to_string();
    for key in [GROUP, names::PREBUILT] {
        identifiers.set(&mut new, key, of.group);
    }
    let common = [(names::GROUP_COUNT, size.as_str()), (names::ROLE_HASH, of.role)];
    for (key, value) in common.into_iter().chain(of.annotations.iter().copied()) {
        json::set(&mut new, &["metadata", "annotations", key], json!(value));
    }
    patch(PODS, pod, &new).into_iter().collect()
}

/// Gives the waiting pods of a group the queue of their parent.
fn sync_queue(parent: &Value, pods: &[std::sync::Arc<Value>]) -> Plan {
    let queue = json::label(parent, names::QUEUE);
    let other = |pod: &Value| has_gate(pod, names::GATE) && json::label(pod, names::QUEUE) != queue;
    let write = |pod: &std::sync::Arc<Value>| {
        let mut new = (**pod).clone();
        json::set(&mut new, &["metadata", "labels", names::QUEUE], json!(queue));
        patch(PODS, pod, &new)
    };
    if queue.is_empty() { Plan::new() } else { pods.iter().filter(|p| other(p)).filter_map(write).collect() }
}

/// Lets a gated pod go that its set replaces by one of another revision: the set waits for it (Kueue `ShouldUngatePod`).
fn ungate_replaced(pod: &Value, env: Env<'_>) -> Option<Write> {
    let set = json::controller(pod).filter(|o| o["kind"] == "StatefulSet")?;
    let set = env.objects.get(Kind::StatefulSet, json::namespace(pod), json::text(set, &["name"]))?;
    let revision = |key: &str| json::text(&set, &["status", key]);
    let replaced = revision("currentRevision") != revision("updateRevision")
        && revision("currentRevision") == json::label(pod, REVISION);
    if !replaced {
        return None;
    }
    let gates = json::list(pod, &["spec", "schedulingGates"]);
    let ours = |gate: &&Value| gate["name"] != names::GATE && gate["name"] != names::TOPOLOGY_GATE;
    let left: Vec<Value> = gates.iter().filter(ours).cloned().collect();
    let mut new = pod.clone();
    json::set(&mut new, &["spec", "schedulingGates"], Value::Array(left));
    patch(PODS, pod, &new).filter(|_| !gates.is_empty())
}

/// The workload of a group (Kueue `NewGroupWorkload`), or the event that says why there can be none yet.
fn group_workload(
    of: &Integration,
    object: &Value,
    name: &str,
    pod_sets: &[Value],
    env: Env<'_>,
) -> Result<Value, Plan> {
    let mut wl = workload::without_owner(object, json::label(object, names::QUEUE), pod_sets, env);
    json::set(&mut wl, &["metadata", "name"], json!(name));
    json::set(&mut wl, &["metadata", "labels", names::JOB_UID], json!(json::uid(object)));
    // Its pods have no label that bounds their time, and they decide.
    json::remove(&mut wl, &["spec", "maximumExecutionTimeSeconds"]);
    json::set(&mut wl, &["metadata", "annotations", names::IS_GROUP], json!("true"));
    own(of, object, &mut wl);
    match workload::priority(object, None, pod_sets, env) {
        Ok(priority) => workload::set_priority(&mut wl, &priority),
        Err(why) => return Err(priority_class::missing(of.resource, object, why.as_deref())),
    }
    Ok(wl)
}

/// Makes the object an owner of a workload.
fn own(of: &Integration, object: &Value, wl: &mut Value) {
    let resource = of.resource;
    let kind = format!("{}, Kind={}", resource.api_version, resource.kind);
    for (key, value) in [(names::OWNER_KIND, kind.as_str()), (names::OWNER_NAME, json::name(object))] {
        json::set(wl, &["metadata", "annotations", key], json!(value));
    }
    let mut owners = json::list(wl, &["metadata", "ownerReferences"]).to_vec();
    owners.push(workload::owner(resource.api_version, resource.kind, object, false));
    json::set(wl, &["metadata", "ownerReferences"], Value::Array(owners));
}

/// Creates a workload.
fn create(of: &Integration, object: &Value, wl: Value) -> Plan {
    let text = format!("Created Workload: {}/{}", json::namespace(&wl), json::name(&wl));
    vec![Write::Create(WORKLOADS, wl), event(of.resource, object, false, "CreatedWorkload", &text)]
}

/// Gives a workload the queue and the admission gates of its object, and makes that its owner.
fn follow(of: &Integration, object: &Value, wl: &Value) -> Plan {
    let mut new = wl.clone();
    let owns = |owner: &Value| owner["uid"] == json::uid(object);
    if !json::list(wl, &["metadata", "ownerReferences"]).iter().any(owns) {
        own(of, object, &mut new);
    }
    let gates = |o: &Value| json::annotation(o, names::GATED_BY).unwrap_or_default().to_owned();
    let wanted = gates(object);
    let path = ["metadata", "annotations", names::GATED_BY];
    if wanted.is_empty() {
        json::remove(&mut new, &path);
    } else {
        json::set(&mut new, &path, json!(wanted));
    }
    let queue = json::label(object, names::QUEUE);
    if !json::is_true(wl, "QuotaReserved") && json::text(wl, &["spec", "queueName"]) != queue {
        json::set(&mut new, &["spec", "queueName"], json!(queue));
    }
    let mut plan: Plan = patch(WORKLOADS, wl, &new).into_iter().collect();
    if wanted != gates(wl) {
        let text = format!("Updated workload AdmissionGatedBy to {}", json!(wanted));
        plan.push(event(of.resource, object, false, "UpdatedWorkload", &text));
    }
    plan
}

#[cfg(test)]
mod tests;
