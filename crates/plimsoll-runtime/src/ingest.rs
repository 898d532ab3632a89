//! From watches to the engine, the cache and the job integrations.

mod resources;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_api::convert::ConvertError;
use plimsoll_api::watch::Meta;
use plimsoll_api::{json, object};
use plimsoll_client::discovery::Groups;
use plimsoll_client::health::Health;
use plimsoll_client::reflector::{Delta, Memory, Reflector};
use plimsoll_client::{fault, optional};
use plimsoll_engine::Event;
use plimsoll_jobs::{
    CustomKind, Key, affected, affected_by_deletion, affected_by_unreachable_node, provisioning,
};
use plimsoll_queueing::CustomLabel;
use plimsoll_state::{ClusterObjectKey, ClusterObjectKind, ObjectEvent};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Api, Encoding, Resource};
use crate::cache::{Cache, Kind};
use crate::driver::Inbox;
use crate::jobs::control::Queue;
use crate::metrics::jobs::JobMetrics;
use crate::multikueue;
use crate::roles::Roles;
use crate::shard::Shard;
use crate::synced::Synced;
use crate::whole;

pub use resources::resources;
use resources::{REQUIRED, recovers};
use turn::Turn;

/// Where everything goes that a watch tells.
#[derive(Clone, Debug)]
pub struct Sinks {
    /// The engine.
    pub inbox: Inbox,
    /// Last seen objects.
    pub cache: Cache,
    /// Jobs to reconcile.
    pub queue: Queue,
    /// Workloads of worker clusters.
    pub multikueue: multikueue::Inbox,
    /// Counts of what is done for jobs.
    pub metrics: JobMetrics,
    /// What this process does.
    pub roles: Roles,
    /// Whether the engine has to know all nodes, and the pods on them.
    pub nodes: bool,
    /// Whether the engine gets whole pods and nodes.
    pub whole: bool,
    /// Whether everything has been listed once.
    pub synced: Synced,
    /// Whether everything can be watched.
    pub health: Health,
    /// What the cluster serves.
    pub groups: Groups,
    /// Labels that metrics have besides Kueue's.
    pub custom_labels: Arc<[CustomLabel]>,
    /// Whether rules of PreemptionConfigs read labels of workloads.
    pub preemption_configs: bool,
    /// The shard of this process; `None`: it has the whole cluster.
    pub shard: Option<Shard>,
}

/// Follows all objects of a resource in JSON, without a report of its health.
pub fn reflector(api: Api, resource: Resource) -> Reflector {
    Reflector { required: REQUIRED.contains(&resource), ..Reflector::new(api, resource) }
}

/// The versions of a resource that a CustomResourceDefinition adds, in order of preference; empty: any other resource.
fn versions(resource: Resource) -> &'static [Resource] {
    match Kind::of(resource) {
        Some(Kind::ProvisioningRequest) => &[api::PROVISIONING_REQUESTS, api::PROVISIONING_REQUESTS_BETA],
        Some(Kind::Custom(custom)) => custom.versions(),
        _ => &[],
    }
}

/// Taint of nodes whose kubelet is not heard of (`corev1.TaintNodeUnreachable`).
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Only PodTemplates of ProvisioningRequests are watched.
const OURS: &str = "&labelSelector=kueue.x-k8s.io%2Fmanaged%3Dtrue";

/// One resource and where it goes; clones share what has been seen.
#[derive(Clone, Debug)]
pub struct Follower {
    reflector: Reflector,
    /// The versions of one that a CustomResourceDefinition adds, in order of preference; empty: any other resource.
    versions: &'static [Resource],
    sinks: Sinks,
    /// Whether it has been listed once.
    listed: Arc<AtomicBool>,
}

impl Follower {
    /// Follows `resource` for these sinks.
    pub fn new(api: Api, resource: Resource, sinks: Sinks) -> Self {
        let of_shard = sinks.shard.as_ref().and_then(|shard| shard.selector(resource));
        let selector = if resource == api::POD_TEMPLATES { OURS } else { "" };
        let tracker = sinks.health.track(resource);
        // Queueing reads whole pods.
        let lean = resource == api::NODES || (resource == api::PODS && !sinks.roles.queueing);
        let encoding = if lean { Encoding::Protobuf } else { Encoding::Json };
        let selector = of_shard.map_or_else(|| selector.into(), Into::into);
        let reflector = Reflector { selector, encoding, tracker, ..reflector(api, resource) };
        Self { reflector, versions: versions(resource), sinks, listed: Arc::default() }
    }

    /// Follows the jobs of a kind that is not built in. Nothing waits for their first list.
    pub fn of_declared(api: Api, custom: CustomKind, sinks: Sinks) -> Self {
        let listed = Arc::new(AtomicBool::new(true));
        Self { versions: custom.versions(), listed, ..Self::new(api, custom.preferred(), sinks) }
    }

    /// What has been handed on.
    pub fn memory(&self) -> Memory {
        self.reflector.memory.clone()
    }

    /// Follows it until stopped.
    pub async fn run(self, stop: CancellationToken) {
        let Self { reflector, versions, sinks, listed } = self;
        let resource = reflector.resource;
        if !versions.is_empty() {
            let groups = sinks.groups.clone();
            let sink = Optional { sinks, resource, listed: &listed, first: true };
            return optional::run(reflector, versions, groups, stop, sink).await;
        }
        let hand_on = |delta: Delta<'_>| match delta {
            Delta::Upsert { meta, bytes } => {
                fault::point("watch", &meta.name);
                sinks.upsert(resource, meta, bytes);
            }
            Delta::Delete { namespace, name, uid } => sinks.delete(resource, namespace, name, uid),
            Delta::Absent => {}
            Delta::Synced { version } => {
                sinks.forget_unseen(resource, version);
                sinks.listed(&listed);
            }
        };
        reflector.run(stop, hand_on).await;
    }
}

/// Hands on what is heard of a resource that need not be served.
struct Optional<'a> {
    sinks: Sinks,
    resource: Resource,
    listed: &'a AtomicBool,
    /// The next list is the first one of its version.
    first: bool,
}

impl optional::Sink for Optional<'_> {
    fn served(&mut self, served: Option<Resource>) {
        let Some(kind) = self.sinks.cache.kind_of(self.resource) else { return };
        if !self.sinks.cache.serve(kind, served) {
            return;
        }
        self.first = true;
        if let Kind::Custom(custom) = kind
            && let Some(name) = self.sinks.cache.objects(|objects| objects.declared_by(custom))
        {
            self.sinks.queue.add(&Key::JobKind(name));
        }
    }

    fn delta(&mut self, resource: Resource, delta: Delta<'_>) {
        let sinks = &self.sinks;
        match delta {
            Delta::Upsert { meta, bytes } => sinks.upsert(resource, meta, bytes),
            Delta::Delete { namespace, name, uid } => sinks.delete(resource, namespace, name, uid),
            Delta::Absent => {}
            Delta::Synced { version } => {
                sinks.forget_unseen(resource, version);
                if std::mem::take(&mut self.first) && Kind::of(resource) == Some(Kind::ProvisioningRequest) {
                    sinks.cache.objects(provisioning::all).into_iter().for_each(|k| sinks.queue.add(&k));
                }
                sinks.listed(self.listed);
            }
        }
    }
}

/// Whether the bytes name anything of Kueue: a managed pod, or one of an admitted job. Spares the parsing of pods and
/// StatefulSets that no queue manages.
fn mentions_kueue(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"kueue.x-k8s.io/").is_some()
}

impl Sinks {
    /// A resource is listed, perhaps not for the first time.
    fn listed(&self, before: &AtomicBool) {
        if !before.swap(true, Ordering::AcqRel) {
            if let Some(mut turn) = self.turn() {
                turn.listed();
            }
            self.inbox.synced();
            self.synced.one();
        }
    }

    /// Forgets objects that came and went while the watch was broken.
    fn forget_unseen(&self, resource: Resource, version: &str) {
        let Some(kind) = self.cache.kind_of(resource) else { return };
        for old in self.cache.listed(kind, version) {
            self.gone(kind, json::uid(&old), Some(&old));
        }
    }

    fn upsert(&self, resource: Resource, meta: &Meta<'_>, bytes: &[u8]) {
        if resource == api::PODS {
            return self.pod(meta, bytes);
        }
        if resource == api::NODES {
            return self.node(meta, bytes);
        }
        if self.roles.placement {
            match plimsoll_api::convert::cluster_object(resource.kind, bytes) {
                Ok(Some(object)) if self.shard.as_ref().is_none_or(|shard| shard.sees(&object)) => {
                    self.inbox.send(Event::Object(ObjectEvent::ObjectUpsert(Box::new(object))));
                }
                Ok(_) => {}
                Err(e) => left_out(resource, meta, &e),
            }
        }
        let queued = resource != api::STATEFUL_SETS || mentions_kueue(bytes);
        if self.roles.queueing && queued {
            self.queueing(resource, meta, bytes);
        }
    }

    fn queueing(&self, resource: Resource, meta: &Meta<'_>, bytes: &[u8]) {
        let kind = self.cache.kind_of(resource);
        let object = match self.object(resource, kind, meta, bytes) {
            Ok(object) => object,
            Err(e) => return left_out(resource, meta, &e),
        };
        let event = self.event_of(&object);
        // The cache first: the engine's answer and the enqueued keys read it.
        let mut turn = self.turn();
        if let Some(kind) = kind {
            self.cache.put_text(kind, Arc::clone(&object), bytes);
        }
        match (event, &mut turn) {
            (Ok(Some(event)), Some(turn)) => turn.upsert(event, &object),
            (Ok(Some(event)), None) => self.inbox.send(Event::Queueing(event)),
            (Ok(None), _) => {}
            (Err(e), _) => left_out(resource, meta, &e),
        }
        drop(turn);
        if let Some(kind) = kind {
            self.touched(kind, &object);
        }
    }

    /// An object that a watch has shown: as the cache has it, where it is the answer to a write of this process, else parsed.
    fn object(
        &self,
        resource: Resource,
        kind: Option<Kind>,
        meta: &Meta<'_>,
        bytes: &[u8],
    ) -> serde_json::Result<Arc<Value>> {
        if let Some(known) = kind.and_then(|kind| self.cache.same(kind, meta))
            && known["apiVersion"] == resource.api_version
            && known["kind"] == resource.kind
        {
            return Ok(known);
        }
        let mut object = object::parse(bytes)?;
        // Items of lists come without kind and version.
        json::set(&mut object, &["apiVersion"], resource.api_version.into());
        json::set(&mut object, &["kind"], resource.kind.into());
        Ok(Arc::new(object))
    }

    /// The right to change the cache and to tell the engine, where only a part of the cluster is told.
    fn turn(&self) -> Option<Turn<'_>> {
        self.shard.as_ref().map(|shard| Turn::new(shard, self))
    }

    /// What tells queueing of an object.
    ///
    /// # Errors
    /// When the object has a value that can't be understood.
    pub fn event_of(&self, object: &Value) -> Result<Option<plimsoll_queueing::Event>, ConvertError> {
        let mut event = plimsoll_api::kueue::upsert_event(object)?;
        if let Some(event) = &mut event {
            plimsoll_api::kueue::add_metric_labels(event, object, &self.custom_labels);
            if self.preemption_configs {
                plimsoll_api::kueue::add_workload_labels(event, object);
            }
            if let plimsoll_queueing::Event::PreemptionConfigUpsert(config) = event {
                for problem in config.problems() {
                    tracing::warn!(
                        name = config.name,
                        "rule of a PreemptionConfig selects nothing: {problem}"
                    );
                }
            }
        }
        Ok(event)
    }

    /// Whether MultiKueue, which is about the whole cluster, runs here.
    fn dispatches(&self) -> bool {
        self.shard.as_ref().is_none_or(Shard::is_default)
    }

    /// Queues what a changed object concerns.
    fn touched(&self, kind: Kind, object: &Value) {
        let keys = self.cache.objects(|objects| {
            if self.dispatches() {
                self.multikueue.changed(kind, object, objects);
            }
            affected(kind, object, objects)
        });
        self.enqueue(&keys);
    }

    /// Queues what a deleted object concerns; `old` is its last seen state.
    fn gone(&self, kind: Kind, uid: &str, old: Option<&Value>) {
        if let Some(old) = old.filter(|_| kind == Kind::ClusterQueue) {
            self.metrics.cluster_queue_gone(json::name(old));
        }
        let keys = self.cache.objects(|objects| {
            if let Some(old) = old.filter(|_| self.dispatches()) {
                self.multikueue.changed(kind, old, objects);
            }
            affected_by_deletion(kind, uid, old, objects)
        });
        self.enqueue(&keys);
    }

    /// Queues keys, but those for which the configuration has nothing to do.
    fn enqueue(&self, keys: &[Key]) {
        let config = self.cache.config();
        keys.iter().filter(|key| config.concerns(key)).for_each(|key| self.queue.add(key));
    }

    fn node(&self, meta: &Meta<'_>, bytes: &[u8]) {
        let mut node = match plimsoll_api::convert::node(bytes) {
            Ok(node) => node,
            Err(e) => return left_out(api::NODES, meta, &e),
        };
        if self.nodes {
            node.encoded = self.whole.then(|| whole::encoded("Node", bytes)).flatten();
        }
        let (name, unreachable) = (node.name.clone(), node.taints.iter().any(|t| t.key == UNREACHABLE));
        let mine = match self.turn() {
            Some(mut turn) => turn.node(node, &meta.resource_version),
            None => {
                if self.nodes {
                    self.inbox.send(Event::Object(ObjectEvent::NodeUpsert(Box::new(node))));
                }
                true
            }
        };
        if mine && recovers(self.roles, self.cache.config()) {
            self.node_seen(&name, unreachable);
        } else if !mine {
            self.cache.node_gone(&name);
        }
    }

    fn node_seen(&self, node: &str, unreachable: bool) {
        if self.cache.node_seen(node, unreachable) {
            let keys = self.cache.objects(|objects| affected_by_unreachable_node(objects, node));
            keys.iter().for_each(|key| self.queue.add(key));
        }
    }

    fn pod(&self, meta: &Meta<'_>, bytes: &[u8]) {
        let kueue = self.roles.queueing && mentions_kueue(bytes);
        let object = kueue.then(|| object::parse(bytes).ok()).flatten().map(Arc::new);
        let mut turn = self.turn();
        // The cache first: when the pod is bound, the trace of its workload looks there.
        if let Some(object) = &object {
            self.cache.put(Kind::Pod, Arc::clone(object));
        }
        if self.nodes {
            match plimsoll_api::convert::pod(bytes) {
                Ok(mut pod) => {
                    pod.encoded = self.whole.then(|| whole::encoded("Pod", bytes)).flatten();
                    match &mut turn {
                        Some(turn) => turn.pod(pod),
                        None => self.inbox.send(Event::Object(ObjectEvent::PodUpsert(Box::new(pod)))),
                    }
                }
                Err(e) => left_out(api::PODS, meta, &e),
            }
        }
        drop(turn);
        if let Some(object) = &object {
            self.touched(Kind::Pod, object);
        }
    }

    fn delete(&self, resource: Resource, namespace: &str, name: &str, uid: &str) {
        let mut turn = self.turn();
        if resource == api::PODS {
            match &mut turn {
                Some(turn) => turn.pod_gone(uid),
                None if self.nodes => {
                    self.inbox.send(Event::Object(ObjectEvent::PodDelete(uid.to_owned())));
                }
                None => {}
            }
            let old = self.cache.remove(Kind::Pod, namespace, name, uid);
            drop(turn);
            return self.gone(Kind::Pod, uid, old.as_deref());
        }
        if resource == api::NODES {
            self.cache.node_gone(name);
            if let Some(turn) = &mut turn {
                turn.node_gone(name);
            } else if self.nodes {
                self.inbox.send(Event::Object(ObjectEvent::NodeDelete(name.to_owned())));
            }
            return;
        }
        if self.roles.placement
            && let Some(kind) = ClusterObjectKind::from_name(resource.kind)
        {
            let key = ClusterObjectKey { kind, namespace: namespace.to_owned(), name: name.to_owned() };
            self.inbox.send(Event::Object(ObjectEvent::ObjectDelete(key)));
        }
        if !self.roles.queueing {
            return;
        }
        let kind = self.cache.kind_of(resource);
        let old = kind.and_then(|kind| self.cache.remove(kind, namespace, name, uid));
        if let Some(event) = plimsoll_api::kueue::delete_event(resource.kind, namespace, name) {
            match &mut turn {
                Some(turn) => turn.delete(event),
                None => self.inbox.send(Event::Queueing(event)),
            }
        }
        drop(turn);
        if let Some(kind) = kind {
            self.gone(kind, uid, old.as_deref());
        }
    }
}

fn left_out(resource: Resource, meta: &Meta<'_>, error: &dyn std::fmt::Display) {
    let (namespace, name) = (&*meta.namespace, &*meta.name);
    tracing::warn!(kind = resource.kind, namespace, name, error = %error, "skipping malformed object");
}
