//! The Deployment controller: rolls pod templates out by means of ReplicaSets.

pub mod hash;
pub mod plan;
mod progress;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{controller_reference, orphans};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Subject, Target,
    WorkQueue, modify, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::model::{Deployment, ReplicaSet};
use super::replicaset::write_status;
use crate::pod::{Pod, by_owner};
use crate::pod_control::{adopt, let_go};
use plan::{Op, REVISION, Rollout};

/// The Deployment controller.
pub struct DeploymentController {
    client: Arc<dyn Client>,
    clock: Clock,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    recorder: EventRecorder,
}

impl DeploymentController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock.clone(), "deployment-controller"),
            deployments: Informer::new(&reader, &resources::DEPLOYMENTS.storage, |_| None),
            sets: Informer::new(&reader, &resources::REPLICA_SETS.storage, |s| {
                Some(s.metadata.owner_index())
            }),
            pods: Informer::new(&reader, &resources::PODS.storage, by_owner),
            client,
            clock,
        }
    }

    async fn sync_deployment(&self, path: &str) -> Outcome {
        let Some(deployment) = self.deployments.get(path) else { return Ok(None) };
        let d = &*deployment;
        let selector = &d.spec.selector;
        if selector.match_labels.is_empty() && selector.match_expressions.is_empty() {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.event(d, Event::new(EventType::Warning, "SelectingAll", message));
            return Ok(None);
        }
        let sets = self.claim(d).await?;
        let now = self.clock.now();
        let rollout = Rollout::new(d, sets, now);
        let old_pods = rollout.old.iter().any(|set| self.has_pods(set));
        let (plan, new, old) = rollout.decide(old_pods);
        for op in &plan.ops {
            self.apply(d, op).await?;
        }
        for event in plan.events {
            self.event(d, event);
        }
        let (status, again) = progress::status(d, new.as_ref(), &old, plan.progressing, now);
        if status != d.status {
            // The revision may just have been written: at the version of that.
            let mut meta = d.metadata.clone();
            if plan.ops.iter().any(|op| matches!(op, Op::Revision(_))) {
                let key = resources::DEPLOYMENTS.key(&meta.namespace, &meta.name);
                let record = self.client.reader().get(&key).filter(|r| r.uid() == meta.uid);
                meta.resource_version = record.map(|r| r.revision().to_string()).unwrap_or_default();
            }
            write_status(&*self.client, &resources::DEPLOYMENTS, &meta, json!(status)).await?;
        }
        Ok(again)
    }

    fn event(&self, d: &Deployment, event: Event) {
        self.recorder.record(Subject::of("apps/v1", "Deployment", &d.metadata), event);
    }

    /// Whether a ReplicaSet has pods that haven't ended.
    fn has_pods(&self, set: &ReplicaSet) -> bool {
        self.pods.indexed(&set.metadata.uid).iter().any(|pod| !pod.is_terminal())
    }

    async fn apply(&self, d: &Deployment, op: &Op) -> Result<(), ApiError> {
        let namespace = &d.metadata.namespace;
        match op {
            Op::Create(set) => self.create(d, set).await,
            Op::Update { set, annotations, replicas, min_ready_seconds } => {
                let target = Target::object(&resources::REPLICA_SETS, namespace, &set.name);
                let change = |object: &mut Value| {
                    object["metadata"]["annotations"] = json!(annotations);
                    object["spec"]["replicas"] = json!(replicas);
                    object["spec"]["minReadySeconds"] = json!(min_ready_seconds);
                    true
                };
                modify(&*self.client, target, &set.uid, change).await
            }
            Op::Delete(set) => {
                let target = Target::object(&resources::REPLICA_SETS, namespace, &set.name);
                match self.client.delete(target, Deletion::of_uid(&set.uid)).await {
                    Err(error) if error.code != 404 && error.code != 409 => Err(error),
                    _ => Ok(()),
                }
            }
            Op::Revision(revision) => {
                let target = Target::object(&resources::DEPLOYMENTS, namespace, &d.metadata.name);
                let change = |object: &mut Value| {
                    object["metadata"]["annotations"][REVISION] = json!(revision);
                    true
                };
                modify(&*self.client, target, &d.metadata.uid, change).await
            }
        }
    }

    async fn create(&self, d: &Deployment, set: &Value) -> Result<(), ApiError> {
        let namespace = &d.metadata.namespace;
        match self.client.create(Target::create(&resources::REPLICA_SETS, namespace), set.clone()).await {
            Ok(_) => Ok(()),
            Err(error) if error.reason == "AlreadyExists" => {
                // The name is taken: the next attempt has another one.
                let mut status = d.status.clone();
                status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                write_status(&*self.client, &resources::DEPLOYMENTS, &d.metadata, json!(status)).await?;
                Err(error)
            }
            Err(error) => {
                let name = set["metadata"]["name"].as_str().unwrap_or_default();
                let message = format!("Failed to create new replica set {name:?}: {error}");
                self.event(d, Event::new(EventType::Warning, "ReplicaSetCreateError", message));
                Err(error)
            }
        }
    }

    async fn claim(&self, d: &Deployment) -> Result<Vec<ReplicaSet>, ApiError> {
        let (client, uid) = (&*self.client, &d.metadata.uid);
        let leaving = d.metadata.deletion_timestamp.is_some();
        let mut kept = Vec::new();
        for set in self.sets.indexed(uid) {
            if leaving || d.spec.selector.matches(&set.metadata.labels) {
                kept.push(ReplicaSet::clone(&set));
            } else {
                let_go(client, &resources::REPLICA_SETS, &set.metadata, uid, None).await?;
            }
        }
        let mine = |s: &&Arc<ReplicaSet>| {
            !leaving && s.metadata.deletion_timestamp.is_none() && d.spec.selector.matches(&s.metadata.labels)
        };
        let owner = controller_reference("apps/v1", "Deployment", &d.metadata);
        for set in self.sets.indexed(&orphans(&d.metadata.namespace)).iter().filter(mine) {
            adopt(client, &resources::REPLICA_SETS, &set.metadata, &owner, None).await?;
            kept.push(ReplicaSet::clone(set));
        }
        Ok(kept)
    }
}

impl Controller for DeploymentController {
    fn name(&self) -> &'static str {
        "deployment"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.deployments.signal(), self.sets.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.deployments.refresh(|seen| queue.add(seen.path));
        self.sets.refresh(|seen| {
            for set in [seen.old, seen.new].into_iter().flatten() {
                let meta = &set.metadata;
                match meta.controller() {
                    Some(owner) if owner.kind == "Deployment" => {
                        queue.add(&format!("{}/{}", meta.namespace, owner.name));
                    }
                    Some(_) => {}
                    None => self.deployments.in_namespace(&meta.namespace, |d| {
                        if d.spec.selector.matches(&meta.labels) {
                            queue.add(&d.metadata.path());
                        }
                    }),
                }
            }
        });
        // A rollout that recreates waits for the last old pod to go.
        self.pods.refresh(|seen| {
            let (Some(old), None) = (seen.old, seen.new) else { return };
            let Some(owner) = old.metadata.controller().filter(|o| o.kind == "ReplicaSet") else { return };
            let set = self.sets.get(&format!("{}/{}", old.metadata.namespace, owner.name));
            if let Some(owner) = set.as_ref().and_then(|s| s.metadata.controller()) {
                queue.add(&format!("{}/{}", old.metadata.namespace, owner.name));
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_deployment(key))
    }
}
