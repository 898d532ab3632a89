//! The job controllers: which keys a changed object concerns, and the plan of each.

use std::sync::Arc;

use plimsoll_api::json;
use serde_json::Value;

use crate::config::{BATCH_JOB, POD, STATEFUL_SET};
use crate::key::Key;
use crate::plan::Plan;
use crate::pod_view::{awaits_forceful_deletion, workload_of};
use crate::store::{Kind, ObjectStore};
use crate::{
    Env, concurrent_admission, failure_recovery, finalizer, integrations, job_kind, kinds, multikueue, names,
    orphan, pod, priority_class, provisioning, retention, serving, topology_ungater,
};

/// The keys that a deleted object concerns: `old` is its last seen state, unless the caller did not keep it or another object
/// had its name already. `objects` shows the state after the deletion.
pub fn affected_by_deletion(kind: Kind, uid: &str, old: Option<&Value>, objects: &ObjectStore) -> Vec<Key> {
    let mut keys = old.map_or_else(Vec::new, |old| affected(kind, old, objects));
    // Where the owner has a successor under its name, that one reconciles its own workloads only.
    keys.extend(orphan::affected(objects, uid));
    keys
}

/// The keys that a node concerns which has become unreachable ([`ObjectStore::node_seen`]).
pub fn affected_by_unreachable_node(objects: &ObjectStore, node: &str) -> Vec<Key> {
    failure_recovery::affected(objects, node)
}

/// The keys that a changed object concerns. `objects` shows the state after the change.
pub fn affected(kind: Kind, object: &Value, objects: &ObjectStore) -> Vec<Key> {
    let (namespace, name) = (json::namespace(object), json::name(object));
    let mut keys = match kind {
        Kind::Job => vec![Key::job(BATCH_JOB, namespace, name)],
        Kind::StatefulSet => vec![Key::job(STATEFUL_SET, namespace, name)],
        Kind::JobKind => vec![Key::JobKind(name.to_owned())],
        Kind::Custom(custom) if !custom.has_jobs() => kinds::trainjob::of_runtime(custom, object, objects),
        Kind::Custom(custom) if objects.external_kinds().any(|external| external == custom) => Vec::new(),
        Kind::Custom(custom) => {
            let mut keys = vec![Key::job(custom.framework(), namespace, name)];
            keys.extend(kinds::ray::of_cluster(custom, object));
            keys
        }
        Kind::Pod => of_pod(object, objects),
        Kind::Workload => of_workload(object, objects),
        Kind::WorkloadPriorityClass if !objects.kept_value(name) => {
            vec![Key::WorkloadPriorityClass(name.to_owned())]
        }
        _ => Vec::new(),
    };
    keys.extend(finalizer::affected(objects, kind, object));
    keys.extend(provisioning::affected(objects, kind, object));
    keys.extend(multikueue::affected_checks(objects, kind, object));
    keys.extend(concurrent_admission::affected(objects, kind, object));
    keys
}

fn of_pod(pod: &Value, objects: &ObjectStore) -> Vec<Key> {
    let (namespace, name) = (json::namespace(pod), json::name(pod));
    let mut keys = Vec::new();
    keys.extend(serving::affected_by_pod(pod, objects.identifiers()));
    let workload = workload_of(pod);
    if let Some(first) = json::annotation(pod, names::SLICE) {
        // The slice says whose pod it is: pods may be made by others than the job.
        let slice = [workload, first].iter().find_map(|name| objects.get(Kind::Workload, namespace, name));
        let owner = slice.as_deref().and_then(json::controller).or_else(|| json::controller(pod));
        let above = owner.and_then(|owner| kinds::ray::above(owner, namespace, objects));
        for owner in owner.into_iter().chain(&above) {
            keys.extend(of_elastic_job(owner, namespace, objects));
        }
    }
    if !workload.is_empty() {
        keys.push(Key::Topology(namespace.to_owned(), workload.to_owned()));
    }
    if awaits_forceful_deletion(pod) {
        keys.push(Key::TerminatingPod(namespace.to_owned(), name.to_owned()));
    }
    match pod::group::of(pod, objects.identifiers()) {
        Some(group) => keys.push(Key::PodGroup(namespace.to_owned(), group.to_owned())),
        None if json::label(pod, names::MANAGED) == "true" => {
            keys.push(Key::job(POD, namespace, name));
        }
        None => {}
    }
    keys
}

/// The keys that a pod of an elastic job concerns: the job, and its slices that have places on nodes.
fn of_elastic_job(owner: &Value, namespace: &str, objects: &ObjectStore) -> Vec<Key> {
    let job = match owner["kind"].as_str() {
        Some("Job") => Some(Key::job(BATCH_JOB, namespace, json::text(owner, &["name"]))),
        _ => kinds::ray::key_of(owner, namespace),
    };
    let live = |wl: &Arc<Value>| !json::is_true(wl, "Finished") && topology_ungater::concerns(wl);
    let slices = objects.owned_by(json::text(owner, &["uid"])).filter(live);
    let slices = slices.map(|wl| Key::Topology(namespace.to_owned(), json::name(&wl).to_owned()));
    job.into_iter().chain(slices).collect()
}

fn of_workload(wl: &Value, objects: &ObjectStore) -> Vec<Key> {
    let (namespace, name) = (json::namespace(wl), json::name(wl));
    let mut keys = Vec::new();
    let mut push_if = |concerned: bool, key: fn(String, String) -> Key| {
        if concerned {
            keys.push(key(namespace.to_owned(), name.to_owned()));
        }
    };
    push_if(retention::concerns(wl), Key::Retention);
    push_if(orphan::concerns(wl), Key::Orphan);
    if concurrent_admission::is_variant(wl) {
        // It has the labels and annotations of its parent, whose pods are not its own.
        return keys;
    }
    let mut push_if = |concerned: bool, key: fn(String, String) -> Key| {
        if concerned {
            keys.push(key(namespace.to_owned(), name.to_owned()));
        }
    };
    push_if(topology_ungater::concerns(wl), Key::Topology);
    if json::annotation(wl, names::IS_GROUP) == Some("true") {
        keys.push(Key::PodGroup(namespace.to_owned(), name.to_owned()));
    }
    for owner in json::list(wl, &["metadata", "ownerReferences"]) {
        let text = |key: &str| json::text(owner, &[key]);
        if let Some(integration) = integrations::of_kind(text("apiVersion"), text("kind"))
            && integration.reconcile.is_some()
            // Members of a group are reconciled by its key.
            && !(integration.framework == POD && json::annotation(wl, names::IS_GROUP) == Some("true"))
        {
            // A prebuilt workload of a group may have no annotation that says so.
            let pod = (integration.framework == POD).then(|| objects.get(Kind::Pod, namespace, text("name")));
            let group = |pod| pod::group::of(pod, objects.identifiers());
            let key = match pod.flatten().as_deref().and_then(group) {
                Some(group) => Key::PodGroup(namespace.to_owned(), group.to_owned()),
                None => Key::job(integration.framework, namespace, text("name")),
            };
            if !keys.contains(&key) {
                keys.push(key);
            }
        } else if let Some(declared) = objects.declared_of_kind(text("apiVersion"), text("kind")) {
            keys.push(Key::job(declared.framework(), namespace, text("name")));
        }
    }
    keys
}

/// The writes for one key. Empty when everything is as it should be.
pub fn reconcile(key: &Key, env: Env<'_>) -> Plan {
    match key {
        Key::Job { framework, namespace, name } => match integrations::of_framework(framework) {
            Some(integration) => {
                integration.reconcile.map_or_else(Plan::new, |plan| plan(framework, namespace, name, env))
            }
            None => kinds::declared::reconcile(framework, namespace, name, env),
        },
        Key::JobKind(name) => job_kind::plan(name, env),
        Key::PodGroup(namespace, group) => pod::group::reconcile(namespace, group, env),
        Key::Topology(namespace, name) => topology_ungater::plan(namespace, name, env),
        Key::Retention(namespace, name) => retention::plan(namespace, name, env),
        Key::TerminatingPod(namespace, name) => failure_recovery::plan(namespace, name, env),
        Key::Orphan(namespace, name) => orphan::plan(namespace, name, env),
        Key::Variants(namespace, name) => concurrent_admission::plan(namespace, name, env),
        Key::Provisioning(namespace, name) => provisioning::plan(namespace, name, env),
        Key::AdmissionCheck(name) => {
            let plan = finalizer::admission_check(env.objects, name);
            if plan.is_empty() {
                [provisioning::plan_check(name, env), multikueue::plan_check(name, env)].concat()
            } else {
                plan
            }
        }
        Key::ClusterQueue(name) => finalizer::cluster_queue(env.objects, name),
        Key::ResourceFlavor(name) => finalizer::resource_flavor(env.objects, name),
        Key::TopologyInUse(name) => finalizer::topology(env.objects, name),
        Key::WorkloadPriorityClass(name) => priority_class::plan(name, env.objects),
    }
}
