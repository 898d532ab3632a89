//! From watches to the engine, the cache and the job integrations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::Event;
use plimsoll_core::place::{ClusterObject, Event as PlaceEvent};
use plimsoll_core::queueing::{Event as QueueEvent, WorkloadKey};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Api, Resource};
use crate::cache::{Cache, Kind};
use crate::driver::Inbox;
use crate::jobs::control::Queue;
use crate::start::Roles;
use crate::watch::{self, Delta};

/// Where everything goes that a watch tells.
#[derive(Clone, Debug)]
pub struct Sinks {
    /// The engine.
    pub inbox: Inbox,
    /// Last seen objects.
    pub cache: Cache,
    /// Jobs to reconcile.
    pub queue: Queue,
    /// What this process does.
    pub roles: Roles,
    /// Whether everything has been listed once.
    pub synced: Synced,
}

/// Says when every watch has listed once. Before that, what is missing in the cache may well exist.
#[derive(Clone, Debug)]
pub struct Synced {
    left: Arc<AtomicUsize>,
    done: CancellationToken,
}

impl Synced {
    /// Waits for this many lists.
    pub fn new(lists: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(lists)), done: CancellationToken::new() }
    }

    fn one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.cancel();
        }
    }

    /// Waits until everything has been listed once.
    pub async fn wait(&self) {
        self.done.cancelled().await;
    }
}

/// What is watched for these roles.
pub fn resources(roles: Roles) -> Vec<Resource> {
    let mut all = vec![api::NAMESPACES, api::PODS];
    if roles.placement {
        all.push(api::NODES);
    }
    if roles.queueing {
        all.extend([
            api::JOBS,
            api::PRIORITY_CLASSES,
            api::WORKLOADS,
            api::CLUSTER_QUEUES,
            api::LOCAL_QUEUES,
            api::COHORTS,
            api::FLAVORS,
            api::WORKLOAD_PRIORITY_CLASSES,
        ]);
    }
    all
}

/// Follows one resource until stopped.
pub async fn follow(api: Api, resource: Resource, sinks: Sinks, stop: CancellationToken) {
    let mut synced = false;
    watch::run(api, resource, "", stop, |delta| match delta {
        Delta::Upsert { meta, bytes } => sinks.upsert(resource, meta, bytes),
        Delta::Delete { key, uid } => sinks.delete(resource, &key.0, &key.1, uid),
        Delta::Synced => {
            if !std::mem::replace(&mut synced, true) {
                sinks.inbox.synced();
                sinks.synced.one();
            }
        }
    })
    .await;
}

fn kind_of(resource: Resource) -> Option<Kind> {
    Some(match resource {
        api::JOBS => Kind::Job,
        api::WORKLOADS => Kind::Workload,
        api::LOCAL_QUEUES => Kind::LocalQueue,
        api::CLUSTER_QUEUES => Kind::ClusterQueue,
        api::COHORTS => Kind::Cohort,
        api::FLAVORS => Kind::Flavor,
        api::WORKLOAD_PRIORITY_CLASSES => Kind::WorkloadPriorityClass,
        api::PRIORITY_CLASSES => Kind::PriorityClass,
        api::NAMESPACES => Kind::Namespace,
        _ => return None,
    })
}

/// Whether the bytes name anything of Kueue; spares the parsing of pods that no queue manages.
fn mentions_kueue(bytes: &[u8]) -> bool {
    const NEEDLE: &[u8] = b"kueue.x-k8s.io/managed";
    bytes.windows(NEEDLE.len()).any(|w| w == NEEDLE)
}

impl Sinks {
    fn upsert(&self, resource: Resource, meta: &watch::Meta, bytes: &[u8]) {
        if resource == api::PODS {
            return self.pod(meta, bytes);
        }
        if resource == api::NODES {
            match plimsoll_api::convert::node(bytes) {
                Ok(node) => self.inbox.send(Event::Place(PlaceEvent::NodeUpsert(Box::new(node)))),
                Err(e) => tracing::warn!(node = meta.name, error = %e, "a node is left out"),
            }
            return;
        }
        let Some(kind) = kind_of(resource) else { return };
        let object: Value = match serde_json::from_slice(bytes) {
            Ok(object) => object,
            Err(e) => {
                tracing::warn!(resource = resource.plural, name = meta.name, error = %e, "an object is left out");
                return;
            }
        };
        match upserted(resource, &object) {
            Ok(events) => {
                for event in events {
                    self.inbox.send(event);
                }
            }
            Err(e) => {
                tracing::warn!(
                    resource = resource.plural,
                    name = meta.name,
                    error = e,
                    "an object is left out"
                );
            }
        }
        // The cache first: whoever is woken looks there.
        self.cache.put(kind, object.clone());
        self.touched(kind, &object);
    }

    fn touched(&self, kind: Kind, object: &Value) {
        self.queue.touched(kind, object);
        for key in crate::jobs::in_use::concerned(&self.cache, kind, object) {
            self.queue.add(key);
        }
    }

    fn pod(&self, meta: &watch::Meta, bytes: &[u8]) {
        if self.roles.placement {
            match plimsoll_api::convert::pod(bytes) {
                Ok(pod) => self.inbox.send(Event::Place(PlaceEvent::PodUpsert(Box::new(pod)))),
                Err(e) => {
                    tracing::warn!(pod = meta.name, namespace = meta.namespace, error = %e, "a pod is left out");
                }
            }
        }
        if self.roles.queueing
            && mentions_kueue(bytes)
            && let Ok(object) = serde_json::from_slice::<Value>(bytes)
        {
            self.cache.put(Kind::Pod, object.clone());
            self.queue.touched(Kind::Pod, &object);
        }
    }

    fn delete(&self, resource: Resource, namespace: &str, name: &str, uid: &str) {
        if resource == api::PODS {
            if self.roles.placement {
                self.inbox.send(Event::Place(PlaceEvent::PodDelete(uid.to_owned())));
            }
            if let Some(old) = self.cache.remove(Kind::Pod, namespace, name) {
                self.queue.touched(Kind::Pod, &old);
            }
            return;
        }
        if resource == api::NODES {
            self.inbox.send(Event::Place(PlaceEvent::NodeDelete(name.to_owned())));
            return;
        }
        let Some(kind) = kind_of(resource) else { return };
        let old = self.cache.remove(kind, namespace, name);
        for event in deleted(kind, namespace, name) {
            self.inbox.send(event);
        }
        if let Some(old) = old {
            self.touched(kind, &old);
        }
    }
}

/// The engine's events for an object that is there.
fn upserted(resource: Resource, object: &Value) -> Result<Vec<Event>, String> {
    use plimsoll_api::kueue as k;
    let text = |e: plimsoll_api::convert::ConvertError| e.to_string();
    let one = |e: QueueEvent| Ok(vec![Event::Queueing(e)]);
    match resource {
        api::WORKLOADS => one(QueueEvent::WorkloadUpsert(Box::new(k::workload(object).map_err(text)?))),
        api::LOCAL_QUEUES => {
            one(QueueEvent::LocalQueueUpsert(Box::new(k::local_queue(object).map_err(text)?)))
        }
        api::CLUSTER_QUEUES => {
            one(QueueEvent::ClusterQueueUpsert(Box::new(k::cluster_queue(object).map_err(text)?)))
        }
        api::COHORTS => one(QueueEvent::CohortUpsert(Box::new(k::cohort(object).map_err(text)?))),
        api::FLAVORS => {
            one(QueueEvent::ResourceFlavorUpsert(Box::new(k::resource_flavor(object).map_err(text)?)))
        }
        api::NAMESPACES => {
            let name = crate::json::name(object).to_owned();
            let labels = crate::json::map(object, &["metadata", "labels"]).into_iter().flatten();
            let labels: plimsoll_core::model::StringMap =
                labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect();
            let place = ClusterObject::Namespace { name: name.clone(), labels: labels.clone() };
            Ok(vec![
                Event::Queueing(QueueEvent::NamespaceUpsert(name, labels)),
                Event::Place(PlaceEvent::ObjectUpsert(Box::new(place))),
            ])
        }
        _ => Ok(Vec::new()),
    }
}

fn deleted(kind: Kind, namespace: &str, name: &str) -> Vec<Event> {
    let (ns, n) = (namespace.to_owned(), name.to_owned());
    let event = match kind {
        Kind::Workload => QueueEvent::WorkloadDelete(WorkloadKey { namespace: ns, name: n }),
        Kind::LocalQueue => QueueEvent::LocalQueueDelete(ns, n),
        Kind::ClusterQueue => QueueEvent::ClusterQueueDelete(n),
        Kind::Cohort => QueueEvent::CohortDelete(n),
        Kind::Flavor => QueueEvent::ResourceFlavorDelete(n),
        Kind::Namespace => {
            let place = PlaceEvent::ObjectDelete("Namespace".into(), String::new(), n.clone());
            return vec![Event::Queueing(QueueEvent::NamespaceDelete(n)), Event::Place(place)];
        }
        _ => return Vec::new(),
    };
    vec![Event::Queueing(event)]
}
