//! Endpoints and EndpointSlices of Services that select pods (`pkg/controller/endpoint` and `endpointslice` upstream).
//!
//! Pods are decoded only when a Service selects them: most pods belong to none.

mod members;
mod slices;
mod subsets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Meta, Object};
use plimsoll_client::{
    Client, Controller, Deletion, Informer, Outcome, Resource, Target, WorkQueue, modify, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::Pod;
use super::pod_control::is_namespace_terminating;
use members::{Member, Service};
use slices::Slice;

static SERVICES: Resource = Resource::builtin("", "v1", "services", "/services");
static ENDPOINTS: Resource = Resource::builtin("", "v1", "endpoints", "/endpoints");
static SLICES: Resource =
    Resource::builtin("discovery.k8s.io", "v1", "endpointslices", "discovery.k8s.io/endpointslices");

const ZONE: &str = "topology.kubernetes.io/zone";
/// Changes of pods within this time are dealt with together: in a rollout one pod after the other changes.
const BATCH: SignedDuration = SignedDuration::from_millis(100);

/// The controller.
pub struct EndpointsController {
    client: Arc<dyn Client>,
    services: Informer<Service>,
    pods: Informer<Pod>,
    slices: Informer<Slice>,
    endpoints: Informer<Object>,
    /// What is known of the pods of Services, as `namespace/name`.
    known: Mutex<HashMap<String, Known>>,
    /// Services that were seen to go and whose Endpoints may still be there, as `namespace/name`.
    gone: Mutex<BTreeSet<String>>,
}

/// The pods of a Service as they were the last time: those that haven't changed since aren't decoded again.
struct Known {
    service: Arc<Service>,
    /// By name: the revision, and what it is to the Service.
    members: HashMap<String, (u64, Option<Member>)>,
}

/// `namespace/service` of a slice that is ours.
fn service_of(slice: &Slice) -> Option<String> {
    let labels = &slice.metadata.labels;
    let ours = labels.get(slices::MANAGED_BY).is_some_and(|m| m == slices::MANAGER);
    let service = labels.get(slices::SERVICE).filter(|_| ours)?;
    Some(format!("{}/{service}", slice.metadata.namespace))
}

fn ignore(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code == 404 || is_namespace_terminating(&error) => Ok(()),
        other => other,
    }
}

impl EndpointsController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            services: Informer::new(&reader, &SERVICES.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, |_| None),
            slices: Informer::new(&reader, &SLICES.storage, service_of),
            endpoints: Informer::new(&reader, &ENDPOINTS.storage, |_| None),
            known: Mutex::default(),
            gone: Mutex::default(),
            client,
        }
    }

    async fn sync_service(&self, path: &str) -> Outcome {
        let Some(service) = self.services.get(path) else { return self.clean_up(path).await };
        if !service.is_ours() || service.metadata.deletion_timestamp.is_some() {
            self.known().remove(path);
            return Ok(None);
        }
        let members = self.members(&service);
        self.write_slices(&service, &members).await?;
        self.write_endpoints(&service, &members).await?;
        Ok(None)
    }

    fn members(&self, service: &Arc<Service>) -> Vec<Member> {
        let store = self.client.reader();
        let namespace = &service.metadata.namespace;
        let path = service.metadata.path();
        let mut names = Vec::new();
        self.pods.in_namespace(namespace, |pod| {
            if !pod.is_terminal() && service.selects(&pod.metadata.labels) {
                names.push(pod.metadata.name.clone());
            }
        });
        let before = self.known().remove(&path).filter(|known| Arc::ptr_eq(&known.service, service));
        let mut before = before.map(|known| known.members).unwrap_or_default();
        let mut known = HashMap::with_capacity(names.len());
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let Some(record) = store.get(&resources::PODS.key(namespace, &name)) else { continue };
            let member = match before.remove(&name) {
                Some((revision, member)) if revision == record.revision() => member,
                _ => record.value().ok().and_then(|pod| members::member(service, &pod)),
            };
            if let Some(member) = &member {
                let node = store.get(&resources::NODES.key("", &member.node));
                // Nodes may get another zone while their pods stay.
                let zone = node.and_then(|node| node.labels().get(ZONE).cloned());
                found.push(Member { zone, ..member.clone() });
            }
            known.insert(name, (record.revision(), member));
        }
        self.known().insert(path, Known { service: Arc::clone(service), members: known });
        found
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Service is gone. Slices have it as their owner and go with it; Endpoints have no owner. Whichever client made them, they
    /// go when the Service is seen to go; where it was never seen, only those that were made here.
    async fn clean_up(&self, path: &str) -> Outcome {
        self.known().remove(path);
        let seen = self.gone().remove(path);
        if let Some(left) = self.endpoints.get(path).filter(|e| seen || is_ours(&e.metadata)) {
            let meta = &left.metadata;
            let target = Target::object(&ENDPOINTS, &meta.namespace, &meta.name);
            let deleted = ignore(self.client.delete(target, Deletion::of_uid(&meta.uid)).await);
            if seen && deleted.is_err() && self.services.get(path).is_none() {
                self.gone().insert(path.to_owned());
            }
            deleted?;
        }
        Ok(None)
    }

    async fn write_slices(&self, service: &Service, members: &[Member]) -> Result<(), ApiError> {
        let existing = self.slices.indexed(&service.metadata.path());
        let plan = slices::plan(members, &existing);
        let namespace = &service.metadata.namespace;
        for (i, content) in &plan.update {
            let Some(slice) = existing.get(*i) else { continue };
            self.change_slice(service, &slice.metadata, |object| {
                object["endpoints"] = json!(content.endpoints);
                object["ports"] = json!(content.ports);
            })
            .await?;
        }
        for content in &plan.create {
            let target = Target::create(&SLICES, namespace);
            ignore(self.client.create(target, slices::object(service, content)).await.map(drop))?;
        }
        for slice in plan.delete.iter().filter_map(|i| existing.get(*i)) {
            let target = Target::object(&SLICES, namespace, &slice.metadata.name);
            ignore(self.client.delete(target, Deletion::of_uid(&slice.metadata.uid)).await)?;
        }
        // Labels follow those of the Service, also where nothing else changes.
        let labels = slices::labels(service);
        for (i, slice) in existing.iter().enumerate() {
            let touched = plan.delete.contains(&i) || plan.update.iter().any(|(u, _)| *u == i);
            if !touched && slice.metadata.labels != labels {
                self.change_slice(service, &slice.metadata, |_| {}).await?;
            }
        }
        Ok(())
    }

    async fn change_slice(
        &self,
        service: &Service,
        slice: &Meta,
        change: impl Fn(&mut Value) + Send + Sync,
    ) -> Result<(), ApiError> {
        let target = Target::object(&SLICES, &slice.namespace, &slice.name);
        let changed = modify(&*self.client, target, &slice.uid, |object| {
            change(object);
            object["metadata"]["labels"] = json!(slices::labels(service));
            true
        });
        ignore(changed.await)
    }

    async fn write_endpoints(&self, service: &Service, members: &[Member]) -> Result<(), ApiError> {
        let Meta { namespace, name, .. } = &service.metadata;
        let (wanted, truncated) = subsets::subsets(service, members);
        let labels = json!(subsets::labels(service));
        let Some(current) = self.endpoints.get(&service.metadata.path()) else {
            let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels});
            if truncated {
                metadata["annotations"] = json!({subsets::OVER_CAPACITY: "truncated"});
            }
            let mut object = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata});
            set_subsets(&mut object, &wanted);
            let made = self.client.create(Target::create(&ENDPOINTS, namespace), object).await;
            return ignore(made.map(drop));
        };
        let target = Target::object(&ENDPOINTS, namespace, name);
        let changed = modify(&*self.client, target, &current.metadata.uid, |object| {
            let same = object["subsets"].as_array().map_or(&[][..], Vec::as_slice) == wanted;
            let marked = !object["metadata"]["annotations"][subsets::OVER_CAPACITY].is_null();
            if same && marked == truncated && object["metadata"]["labels"] == labels {
                return false;
            }
            set_subsets(object, &wanted);
            object["metadata"]["labels"] = labels.clone();
            if truncated {
                object["metadata"]["annotations"][subsets::OVER_CAPACITY] = json!("truncated");
            } else if let Some(map) = object["metadata"]["annotations"].as_object_mut() {
                map.remove(subsets::OVER_CAPACITY);
            }
            true
        });
        ignore(changed.await)
    }
}

/// No subsets are left out, as an empty list of Go is.
fn set_subsets(object: &mut Value, subsets: &[Value]) {
    let Some(map) = object.as_object_mut() else { return };
    if subsets.is_empty() {
        map.remove("subsets");
    } else {
        map.insert("subsets".to_owned(), json!(subsets));
    }
}

/// Whether an Endpoints object was made here.
fn is_ours(meta: &Meta) -> bool {
    meta.labels.get(subsets::MANAGED_BY).is_some_and(|m| m == subsets::MANAGER)
}

impl Controller for EndpointsController {
    fn name(&self) -> &'static str {
        "endpoints"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.services.signal(), self.pods.signal(), self.slices.signal(), self.endpoints.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, now: Timestamp) {
        self.services.refresh(|seen| {
            match seen.new {
                Some(_) => self.gone().remove(seen.path),
                None => self.gone().insert(seen.path.to_owned()),
            };
            queue.add(seen.path);
        });
        // What is written here comes back as well: at once, it would end the time in which pods are taken together.
        let soon = now.saturating_add(BATCH).unwrap_or(now);
        self.slices.refresh(|seen| {
            for path in [seen.old, seen.new].into_iter().flatten().filter_map(|s| service_of(s)) {
                queue.add_at(&path, soon);
            }
        });
        self.endpoints.refresh(|seen| queue.add_at(seen.path, soon));
        self.pods.refresh(|seen| {
            for pod in [seen.old, seen.new].into_iter().flatten() {
                let meta = &pod.metadata;
                self.services.in_namespace(&meta.namespace, |service| {
                    if service.selects(&meta.labels) {
                        queue.add_at(&service.metadata.path(), soon);
                    }
                });
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_service(key))
    }
}
