//! To which shard workloads, pods and keys of the job controllers belong, by their queue ([`plimsoll_api::shards`]).

mod division;

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::shards::{DEFAULT, Owner, Trees};
use plimsoll_state::model::Pod;
use serde_json::Value;

use crate::ancestors::{self, Ancestor};
use crate::controllers::affected;
use crate::custom_kind::CustomKind;
use crate::key::Key;
use crate::store::{Kind, ObjectStore};
use crate::{Env, integrations, names};

pub use division::{Division, Leaving, Seen, Step, Told};

/// The scheduler whose name pods have that name none.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Whose a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// Of the shard of a ClusterQueue, also of one that does not exist.
    ClusterQueue(String),
    /// Of the shard of a node.
    Node(String),
    /// It is about the whole cluster, or about no queue.
    Cluster,
    /// Not known yet: every leader may plan it, as the plan only looks again.
    Undecided,
}

/// The ClusterQueue that decides about a workload: the one whose quota it holds, else that of its LocalQueue.
pub fn cluster_queue_of(wl: &Value, objects: &ObjectStore) -> Option<String> {
    let holds = json::text(wl, &["status", "admission", "clusterQueue"]);
    if !holds.is_empty() {
        return Some(holds.to_owned());
    }
    of_local_queue(json::namespace(wl), json::text(wl, &["spec", "queueName"]), objects)
}

fn of_local_queue(namespace: &str, name: &str, objects: &ObjectStore) -> Option<String> {
    let queue = objects.get(Kind::LocalQueue, namespace, name).filter(|_| !name.is_empty())?;
    Some(json::text(&queue, &["spec", "clusterQueue"]).to_owned())
}

/// The shard of a workload; [`DEFAULT`] where its queue is not known.
pub fn owner_of_workload(wl: &Value, objects: &ObjectStore, trees: &Trees) -> Owner {
    cluster_queue_of(wl, objects).map_or_else(Owner::default, |name| trees.of_cluster_queue(&name))
}

/// Whether a pod belongs to a shard wherever it is: one of a queue where the queue does. One without a queue, and without a
/// node, is that of the profile that it names, which no other shard may have; the name that pods have by default is that of the
/// shard [`DEFAULT`] alone.
pub fn has_pod(shard: &str, pod: &Pod, objects: &ObjectStore, trees: &Trees) -> bool {
    let workload = objects.get(Kind::Workload, &pod.namespace, &pod.workload);
    if let Some(wl) = workload.filter(|_| !pod.workload.is_empty()) {
        return owner_of_workload(&wl, objects, trees).is(shard);
    }
    // Its workload is not known yet, or not any more.
    let label = |key: &str| pod.labels.get(key).map(String::as_str).filter(|name| !name.is_empty());
    let of_cluster_queue = label(names::CLUSTER_QUEUE).filter(|name| trees.has_cluster_queue(name));
    if let Some(name) = of_cluster_queue {
        return trees.of_cluster_queue(name).is(shard);
    }
    if let Some(queue) = label(names::QUEUE) {
        let name = of_local_queue(&pod.namespace, queue, objects);
        return name.map_or_else(Owner::default, |name| trees.of_cluster_queue(&name)).is(shard);
    }
    if !pod.spec.node_name.is_empty() {
        return false;
    }
    let by_default = matches!(&*pod.spec.scheduler_name, "" | DEFAULT_SCHEDULER);
    !by_default || shard == DEFAULT
}

/// Whose a key of the job controllers is.
pub fn concern(key: &Key, env: Env<'_>) -> Concern {
    let objects = env.objects;
    let of_workload = |namespace: &str, name: &str| {
        let wl = objects.get(Kind::Workload, namespace, name);
        queue(wl.as_deref().and_then(|wl| cluster_queue_of(wl, objects)))
    };
    match key {
        Key::Job { framework, namespace, name } => of_job(framework, namespace, name, env),
        Key::PodGroup(namespace, group) => {
            if let Some(wl) = objects.get(Kind::Workload, namespace, group) {
                return queue(cluster_queue_of(&wl, objects));
            }
            let pods = objects.pods_of_group(namespace, group);
            pods.first().map_or(Concern::Cluster, |pod| of_labels(pod, namespace, env))
        }
        Key::Topology(namespace, name)
        | Key::Retention(namespace, name)
        | Key::Orphan(namespace, name)
        | Key::Variants(namespace, name)
        | Key::Provisioning(namespace, name) => of_workload(namespace, name),
        Key::TerminatingPod(namespace, name) => match objects.get(Kind::Pod, namespace, name) {
            Some(pod) => Concern::Node(json::text(&pod, &["spec", "nodeName"]).to_owned()),
            None => Concern::Cluster,
        },
        Key::ClusterQueue(name) => Concern::ClusterQueue(name.clone()),
        Key::JobKind(_)
        | Key::AdmissionCheck(_)
        | Key::ResourceFlavor(_)
        | Key::TopologyInUse(_)
        | Key::WorkloadPriorityClass(_) => Concern::Cluster,
    }
}

fn queue(name: Option<String>) -> Concern {
    name.map_or(Concern::Cluster, Concern::ClusterQueue)
}

/// A job is of the shard of its workload, also when its label names another queue by now: the owner gives it away.
fn of_job(framework: &str, namespace: &str, name: &str, env: Env<'_>) -> Concern {
    let objects = env.objects;
    let integration = integrations::of_framework(framework);
    let declared = || objects.declaration_of_framework(framework).map(|(custom, _)| custom);
    let (kind, named) = match integration {
        Some(integration) => (Kind::of(integration.resource), integration.resource.kind),
        None => {
            let custom: Option<CustomKind> = declared();
            (custom.map(Kind::Custom), custom.map_or("", |custom| custom.preferred().kind))
        }
    };
    let job = kind.and_then(|kind| objects.get(kind, namespace, name));
    let workloads: Vec<Arc<Value>> = match &job {
        Some(job) => objects.owned_by(json::uid(job)).collect(),
        None => objects.owned_by_name(namespace, named, name),
    };
    let reserving = |wl: &&Arc<Value>| !wl["status"]["admission"].is_null() && !json::is_true(wl, "Finished");
    let open = |wl: &&Arc<Value>| !json::is_true(wl, "Finished");
    let found = workloads.iter().find(reserving).or_else(|| workloads.iter().find(open));
    if let Some(wl) = found.or_else(|| workloads.first()) {
        return queue(cluster_queue_of(wl, objects));
    }
    job.map_or(Concern::Cluster, |job| of_labels(&job, namespace, env))
}

/// By the queue of an object, or of the job that it is within.
fn of_labels(object: &Value, namespace: &str, env: Env<'_>) -> Concern {
    match ancestors::managed(object, namespace, env) {
        Ancestor::Managed(job) => {
            let workload = env.objects.owned_by(json::uid(&job)).next();
            match workload {
                Some(wl) => queue(cluster_queue_of(&wl, env.objects)),
                None => queue(of_local_queue(namespace, json::label(&job, names::QUEUE), env.objects)),
            }
        }
        Ancestor::Unknown => Concern::Undecided,
        Ancestor::None | Ancestor::TooDeep => {
            queue(of_local_queue(namespace, json::label(object, names::QUEUE), env.objects))
        }
    }
}

/// The keys of everything that job controllers do in these namespaces: their queues belong to another shard than before, and
/// no object changes that a new owner would notice.
pub fn keys_of_namespaces(namespaces: &BTreeSet<String>, objects: &ObjectStore) -> BTreeSet<Key> {
    let custom = CustomKind::all().filter(|custom| custom.has_jobs()).chain(objects.declared_kinds());
    let kinds = [Kind::Workload, Kind::Job, Kind::StatefulSet, Kind::Pod];
    let kinds = kinds.into_iter().chain(custom.map(Kind::Custom));
    let mut keys = BTreeSet::new();
    for kind in kinds {
        for object in objects.all(kind).filter(|object| namespaces.contains(json::namespace(object))) {
            keys.extend(affected(kind, &object, objects));
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use plimsoll_api::shards::{Marks, TreeObject};
    use plimsoll_state::Time;
    use serde_json::json;

    use super::*;
    use crate::config::{BATCH_JOB, Config};

    /// Queues `a` and `b` of two shards.
    fn cluster() -> (ObjectStore, Trees) {
        let (mut objects, mut trees) = (ObjectStore::default(), Trees::default());
        for name in ["a", "b"] {
            let marks = Marks { label: name.to_owned(), ..Marks::default() };
            trees.put(TreeObject::cluster_queue(name), "", marks, "1");
            let lq = json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "spec": {"clusterQueue": name}});
            objects.put(Kind::LocalQueue, lq);
        }
        trees.resolve();
        (objects, trees)
    }

    fn whose(key: &Key, objects: &ObjectStore) -> Concern {
        concern(key, Env { objects, config: &Config::default(), now: Time(0) })
    }

    #[test]
    fn a_job_is_of_the_shard_of_its_workload_until_that_is_given_away() {
        let (mut objects, _) = cluster();
        let key = Key::job(BATCH_JOB, "n", "j");
        let of = |queue: &str| Concern::ClusterQueue(queue.to_owned());
        assert_eq!(whose(&key, &objects), Concern::Cluster, "there is no such job");
        let job = |queue: &str| json!({"metadata": {"namespace": "n", "name": "j", "uid": "j", "labels": {names::QUEUE: queue}}});
        objects.put(Kind::Job, job("a"));
        assert_eq!(whose(&key, &objects), of("a"));
        let owner =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
        let wl = |queue: &str, status: Value| {
            json!({"metadata": {"namespace": "n", "name": "w", "uid": "w", "ownerReferences": owner},
                "spec": {"queueName": queue}, "status": status})
        };
        objects.put(Kind::Workload, wl("a", json!({})));
        objects.put(Kind::Job, job("b"));
        assert_eq!(whose(&key, &objects), of("a"), "the leader of a changes the workload's queue");
        objects.put(Kind::Workload, wl("b", json!({"admission": {"clusterQueue": "a"}})));
        assert_eq!(whose(&key, &objects), of("a"), "it holds quota there");
        assert_eq!(whose(&Key::Retention("n".into(), "w".into()), &objects), of("a"));
        objects.put(Kind::Workload, wl("b", json!({})));
        assert_eq!(whose(&key, &objects), of("b"));
        objects.remove(Kind::Job, "n", "j", "j");
        assert_eq!(whose(&key, &objects), of("b"), "its workload is left");
        objects.put(Kind::Workload, wl("missing", json!({})));
        assert_eq!(whose(&key, &objects), Concern::Cluster);
    }

    #[test]
    fn a_job_within_a_job_is_of_the_shard_of_the_topmost_one() {
        let (mut objects, _) = cluster();
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "top", "uid": "top", "controller": true}]);
        let child = json!({"metadata": {"namespace": "n", "name": "child", "uid": "child", "ownerReferences": owner}});
        objects.put(Kind::Job, child);
        let key = Key::job(BATCH_JOB, "n", "child");
        assert_eq!(whose(&key, &objects), Concern::Undecided, "the other one is not known yet");
        let top = json!({"metadata": {"namespace": "n", "name": "top", "uid": "top", "labels": {names::QUEUE: "b"}}});
        objects.put(Kind::Job, top);
        assert_eq!(whose(&key, &objects), Concern::ClusterQueue("b".into()));
    }

    #[test]
    fn pods_belong_to_their_queue_or_without_one_to_their_profile() {
        let (mut objects, trees) = cluster();
        let pod = |workload: &str, labels: &[(&str, &str)], scheduler: &str, node: &str| {
            let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let mut pod = Pod { namespace: "n".into(), workload: workload.into(), labels, ..Pod::default() };
            (pod.spec.scheduler_name, pod.spec.node_name) = (scheduler.into(), node.into());
            pod
        };
        let shards = |pod: &Pod, objects: &ObjectStore| {
            let all = ["a", "b", DEFAULT];
            all.into_iter().filter(|shard| has_pod(shard, pod, objects, &trees)).collect::<Vec<_>>()
        };
        let admitted = pod("w", &[(names::CLUSTER_QUEUE, "a")], "default-scheduler", "");
        assert_eq!(shards(&admitted, &objects), ["a"], "its workload is not known yet");
        let wl = json!({"metadata": {"namespace": "n", "name": "w", "uid": "w"},
            "spec": {"queueName": "a"}, "status": {"admission": {"clusterQueue": "b"}}});
        objects.put(Kind::Workload, wl);
        assert_eq!(shards(&admitted, &objects), ["b"]);
        assert_eq!(shards(&pod("w", &[], "other", "somewhere"), &objects), ["b"], "wherever it is");
        assert_eq!(shards(&pod("", &[(names::QUEUE, "a")], "default-scheduler", ""), &objects), ["a"]);
        assert_eq!(shards(&pod("", &[(names::QUEUE, "none")], "other", ""), &objects), [DEFAULT]);
        assert_eq!(shards(&pod("", &[], "default-scheduler", ""), &objects), [DEFAULT]);
        assert_eq!(shards(&pod("", &[], "default-scheduler", "somewhere"), &objects), [""; 0]);
        assert_eq!(
            shards(&pod("", &[], "of-a", ""), &objects).len(),
            3,
            "the engine has that profile or not"
        );
    }

    #[test]
    fn what_is_about_the_whole_cluster_and_about_nodes_is_told_apart() {
        let (mut objects, _) = cluster();
        let pod = json!({"metadata": {"namespace": "n", "name": "p", "uid": "p", "labels": {names::QUEUE: "a"}},
            "spec": {"nodeName": "x"}});
        objects.put(Kind::Pod, pod);
        let terminating = Key::TerminatingPod("n".into(), "p".into());
        assert_eq!(whose(&terminating, &objects), Concern::Node("x".into()));
        assert_eq!(
            whose(&Key::job(crate::config::POD, "n", "p"), &objects),
            Concern::ClusterQueue("a".into())
        );
        assert_eq!(whose(&Key::ClusterQueue("q".into()), &objects), Concern::ClusterQueue("q".into()));
        for key in
            [Key::ResourceFlavor("f".into()), Key::AdmissionCheck("c".into()), Key::JobKind("k".into())]
        {
            assert_eq!(whose(&key, &objects), Concern::Cluster, "{key:?}");
        }
        let keys = keys_of_namespaces(&["n".to_owned()].into(), &objects);
        assert!(keys_of_namespaces(&["m".to_owned()].into(), &objects).is_empty());
        assert_eq!(keys.len(), 0, "the pod is not managed");
    }
}
