//! The StatefulSet controller: pods with names that stay, in order (`pkg/controller/statefulset` upstream).

pub mod model;
pub mod plan;
mod pods;
mod retention;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{OwnerReference, controller_reference, orphans, text};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Resource,
    Subject, Target, WorkQueue, modify, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::replicaset::write_status;
use super::revision::{self, Owner, Revision};
use crate::pod::{Pod, by_owner};
use crate::pod_control::{adopt, let_go};
use model::{StatefulSet, Status};
use plan::{Op, Plan, Revisions};

/// The StatefulSet controller.
pub struct StatefulSetController {
    client: Arc<dyn Client>,
    clock: Clock,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    revisions: Informer<Revision>,
    recorder: EventRecorder,
}

fn is_set(owner: &OwnerReference) -> bool {
    owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/")
}

impl StatefulSetController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock.clone(), "statefulset-controller"),
            sets: Informer::new(&reader, &resources::STATEFUL_SETS.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, by_owner),
            revisions: Informer::new(&reader, &resources::REVISIONS.storage, revision::owner_index),
            client,
            clock,
        }
    }

    async fn sync_set(&self, path: &str) -> Outcome {
        let Some(set) = self.sets.get(path) else { return Ok(None) };
        let set = &*set;
        let pods = self.claim(set).await?;
        let owner = controller_reference("apps/v1", "StatefulSet", &set.metadata);
        let owner = (&set.metadata, &owner);
        let known = revision::claimed(&*self.client, &self.revisions, &set.spec.selector, owner).await?;
        let update = self.update_revision(set, &known).await?;
        let old = known.iter().find(|r| r.metadata.name == set.status.current_revision);
        let current = old.map_or_else(|| update.clone(), |r| Revision::clone(r));
        let revisions = Revisions { current: &current.metadata.name, update: &update.metadata.name };
        self.own_claims(set, &pods).await?;
        let Plan { ops, status, again } = plan::plan(set, &pods, revisions, self.clock.now());
        let mut failure = None;
        for op in ops {
            let done = match op {
                Op::Create(ordinal, new) => {
                    self.create(set, if new { &update } else { &current }, ordinal).await
                }
                Op::Delete(ordinal) => match pods.get(&ordinal) {
                    Some(pod) => self.delete(set, pod).await,
                    None => Ok(()),
                },
            };
            if let Err(error) = done {
                failure = Some(error);
                break;
            }
        }
        if status != set.status {
            write_status(&*self.client, &resources::STATEFUL_SETS, &set.metadata, json!(status)).await?;
        }
        if failure.is_none() {
            failure = self.make_missing_claims(set, &pods).await.err();
        }
        let in_use = |name: &str| {
            name == revisions.current
                || name == revisions.update
                || pods.values().any(|p| p.metadata.labels.get(pods::REVISION).is_some_and(|r| r == name))
        };
        revision::truncate(&*self.client, &known, in_use, set.spec.revision_history_limit).await?;
        failure.map_or(Ok(again), Err)
    }

    /// Gives claims the owners that the set's retention policy asks for.
    async fn own_claims(&self, set: &StatefulSet, pods: &BTreeMap<i32, Arc<Pod>>) -> Result<(), ApiError> {
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        for (ordinal, pod) in pods {
            for claim in pods::claims(set, *ordinal) {
                let name = claim["metadata"]["name"].as_str().unwrap_or_default();
                let record = self.client.reader().get(&resources::CLAIMS.key(&set.metadata.namespace, name));
                let Some((record, there)) = record.and_then(|r| r.value().ok().map(|v| (r, v))) else {
                    continue;
                };
                if retention::owners(set, pod, *ordinal, &there).is_none() {
                    continue;
                }
                let target = Target::object(&resources::CLAIMS, &set.metadata.namespace, name);
                let given = modify(&*self.client, target, record.uid(), |object| {
                    let owners = retention::owners(set, pod, *ordinal, object);
                    let changed = owners.is_some();
                    if let Some(owners) = owners {
                        object["metadata"]["ownerReferences"] = owners;
                    }
                    changed
                });
                match given.await {
                    Err(error) if error.code != 404 => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn update_revision(
        &self,
        set: &StatefulSet,
        known: &[Arc<Revision>],
    ) -> Result<Revision, ApiError> {
        let owner = Owner {
            kind: "StatefulSet",
            meta: &set.metadata,
            template: &set.spec.template,
            labels: &set.spec.template["metadata"]["labels"],
            collisions: set.status.collision_count,
        };
        let counted = |n| json!(Status { collision_count: Some(n), ..set.status.clone() });
        revision::current_or_counted(&*self.client, owner, known, (&resources::STATEFUL_SETS, counted)).await
    }

    async fn create(&self, set: &StatefulSet, revision: &Revision, ordinal: i32) -> Result<(), ApiError> {
        let about = format!("create Pod {} in StatefulSet {}", pods::name(set, ordinal), set.metadata.name);
        if let Err(error) = self.make_claims(set, ordinal, true).await {
            let message = format!("{about} failed error: {error}");
            self.event(set, EventType::Warning, "FailedCreate", message);
            return Err(error);
        }
        self.make(set, &resources::PODS, pods::pod(set, revision, ordinal), &about, "successful").await
    }

    /// Makes the claims of a pod that aren't there. An error: one is on its way out, or is about to be (for a pod that
    /// `is_new`) because it belongs to a set or pod from before; a pod that uses it would never start.
    async fn make_claims(&self, set: &StatefulSet, ordinal: i32, is_new: bool) -> Result<(), ApiError> {
        let pod = pods::name(set, ordinal);
        for claim in pods::claims(set, ordinal) {
            let called = text(&claim, &["metadata", "name"]).to_owned();
            let record = self.client.reader().get(&resources::CLAIMS.key(&set.metadata.namespace, &called));
            let Some(record) = record else {
                let about = format!("create Claim {called} Pod {pod} in StatefulSet {}", set.metadata.name);
                self.make(set, &resources::CLAIMS, claim, &about, "success").await?;
                continue;
            };
            let known = record.value().unwrap_or_default();
            if !known["metadata"]["deletionTimestamp"].is_null() {
                return Err(ApiError::new(409, "Conflict", format!("pvc {called} is being deleted")));
            }
            if is_new && retention::is_stale(set, &pod, "", &known) {
                return Err(ApiError::new(409, "Conflict", format!("pvc {called} has a stale owner")));
            }
        }
        Ok(())
    }

    /// Claims of pods that wait may have gone since the pod was made (`createMissingPersistentVolumeClaims`).
    async fn make_missing_claims(
        &self,
        set: &StatefulSet,
        pods: &BTreeMap<i32, Arc<Pod>>,
    ) -> Result<(), ApiError> {
        if set.metadata.deletion_timestamp.is_some() || set.spec.volume_claim_templates.is_empty() {
            return Ok(());
        }
        for (ordinal, pod) in pods.range(set.ordinals()) {
            if pod.status.phase == "Pending" && pod.metadata.deletion_timestamp.is_none() {
                self.make_claims(set, *ordinal, false).await?;
            }
        }
        Ok(())
    }

    async fn make(
        &self,
        set: &StatefulSet,
        resource: &Resource,
        object: Value,
        about: &str,
        good: &str,
    ) -> Result<(), ApiError> {
        match self.client.create(Target::create(resource, &set.metadata.namespace), object).await {
            Ok(_) => self.event(set, EventType::Normal, "SuccessfulCreate", format!("{about} {good}")),
            Err(error)
                if error
                    .details
                    .iter()
                    .flat_map(|d| &d.causes)
                    .any(|c| c.reason == "NamespaceTerminating") => {}
            Err(error) => {
                let message = format!("{about} failed error: {error}");
                self.event(set, EventType::Warning, "FailedCreate", message);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn delete(&self, set: &StatefulSet, pod: &Pod) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        if pod.is_terminal() {
            let path = set.metadata.path();
            let message = format!("StatefulSet {path} is recreating failed Pod {}", meta.name);
            self.event(set, EventType::Warning, "RecreatingFailedPod", message);
        }
        let about = format!("delete Pod {} in StatefulSet {}", meta.name, set.metadata.name);
        let target = Target::object(&resources::PODS, &meta.namespace, &meta.name);
        match self.client.delete(target, Deletion::of_uid(&meta.uid)).await {
            Ok(()) => self.event(set, EventType::Normal, "SuccessfulDelete", format!("{about} successful")),
            Err(error) if error.code == 404 || error.code == 409 => {}
            Err(error) => {
                self.event(set, EventType::Warning, "FailedDelete", format!("{about} failed error: {error}"));
                return Err(error);
            }
        }
        Ok(())
    }

    fn event(&self, set: &StatefulSet, kind: EventType, reason: &str, message: String) {
        let subject = Subject::of("apps/v1", "StatefulSet", &set.metadata);
        self.recorder.record(subject, Event::new(kind, reason, message));
    }

    /// The set's pods, by ordinal: adopts orphans, releases pods that it no longer selects.
    async fn claim(&self, set: &StatefulSet) -> Result<BTreeMap<i32, Arc<Pod>>, ApiError> {
        let (client, uid) = (&*self.client, &set.metadata.uid);
        let leaving = set.metadata.deletion_timestamp.is_some();
        let ours = |pod: &Pod| {
            set.spec.selector.matches(&pod.metadata.labels) && set.ordinal(&pod.metadata.name).is_some()
        };
        let mut kept = BTreeMap::new();
        let mut keep = |pod: Arc<Pod>| {
            if let Some(ordinal) = set.ordinal(&pod.metadata.name) {
                kept.insert(ordinal, pod);
            }
        };
        for pod in self.pods.indexed(uid) {
            if leaving || ours(&pod) {
                keep(pod);
            } else {
                let_go(client, &resources::PODS, &pod.metadata, uid, None).await?;
            }
        }
        if !leaving {
            let owner = controller_reference("apps/v1", "StatefulSet", &set.metadata);
            for pod in self.pods.indexed(&orphans(&set.metadata.namespace)) {
                if ours(&pod) && pod.metadata.deletion_timestamp.is_none() {
                    adopt(client, &resources::PODS, &pod.metadata, &owner, None).await?;
                    keep(pod);
                }
            }
        }
        Ok(kept)
    }
}

impl Controller for StatefulSetController {
    fn name(&self) -> &'static str {
        "statefulset"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.sets.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.revisions.refresh(|_| {});
        self.sets.refresh(|seen| queue.add(seen.path));
        self.pods.refresh(|seen| {
            for pod in [seen.old, seen.new].into_iter().flatten() {
                let meta = &pod.metadata;
                match meta.controller() {
                    Some(owner) if is_set(owner) => queue.add(&format!("{}/{}", meta.namespace, owner.name)),
                    Some(_) => {}
                    None => self.sets.in_namespace(&meta.namespace, |set| {
                        if set.spec.selector.matches(&meta.labels) && set.ordinal(&meta.name).is_some() {
                            queue.add(&set.metadata.path());
                        }
                    }),
                }
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_set(key))
    }
}
