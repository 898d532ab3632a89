//! Simulated operators of the kinds of jobs that CustomResourceDefinitions add (`plimsoll up --with`): replicas become pods,
//! and statuses and conditions follow them.
//!
//! An [`Operator`] is a row of a table with pure functions ([`ray`], [`kubeflow`], …): which pods an object wants, and its
//! status by what became of them. [`OperatorController`] carries it out for all of them. Real operators do much more;
//! these do what queueing and its users see.

mod app_wrapper;
mod job_set;
mod kubeflow;
mod leader_worker_set;
mod plan;
mod ray;
mod spark;
mod trainer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::Meta;
use plimsoll_client::informer::parse;
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Informer, Outcome, Resource, Target, WorkQueue, resources,
};
use plimsoll_jobs::CustomKind;
use plimsoll_jobs::multikueue::has_other_manager;
use plimsoll_state::Time;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use crate::apps::replicaset::write_status;
use crate::pod::{Pod, by_owner};
use plan::{Plan, Role, State};

/// What is simulated of a kind.
#[derive(Debug)]
pub struct Operator {
    /// Name by which users choose it; several kinds may have the same.
    pub choice: &'static str,
    /// The resource.
    pub resource: Resource,
    /// The kind.
    pub kind: &'static str,
    /// Short names for `kubectl get`, as its definition has them.
    short_names: &'static [&'static str],
    /// Objects of other kinds that its pods are made from, too.
    reads: Option<Reads>,
    /// Texts in its spec that its definition sets by default.
    defaults: &'static [(&'static str, &'static str)],
    /// Path of the flag that suspends an object; empty: there is none.
    suspend: &'static [&'static str],
    /// The pods that an object wants.
    roles: fn(&Value) -> Vec<Role>,
    /// The status of an object with these pods.
    status: fn(&State<'_>) -> Value,
    /// Whether an object has ended: its pods that still run are deleted.
    ended: fn(&Value) -> bool,
}

/// What an object refers to for its pods.
#[derive(Debug)]
struct Reads {
    /// Resources and kinds, and whether they have namespaces.
    kinds: &'static [(Resource, &'static str, bool)],
    /// Which of the kinds an object refers to, and the name of the other object.
    of: fn(&Value) -> (usize, &str),
    /// The object with what the other one says, for the functions of [`Operator`].
    completed: fn(&Value, &Value) -> Value,
}

/// All operators.
pub static OPERATORS: [Operator; 14] = [
    job_set::JOB_SET,
    kubeflow::PYTORCH_JOB,
    kubeflow::TF_JOB,
    kubeflow::XGBOOST_JOB,
    kubeflow::PADDLE_JOB,
    kubeflow::JAX_JOB,
    kubeflow::MPI_JOB,
    ray::RAY_CLUSTER,
    ray::RAY_JOB,
    ray::RAY_SERVICE,
    leader_worker_set::LEADER_WORKER_SET,
    app_wrapper::APP_WRAPPER,
    spark::SPARK_APPLICATION,
    trainer::TRAIN_JOB,
];

/// The names of all operators.
pub fn names() -> BTreeSet<&'static str> {
    OPERATORS.iter().map(|operator| operator.choice).collect()
}

impl Operator {
    /// The definitions of its kind and of those that it reads: any fields, and a status of their own.
    pub fn definitions(&self) -> Vec<Value> {
        let read = self.reads.iter().flat_map(|reads| reads.kinds);
        let read = read.map(|(resource, kind, namespaced)| definition(resource, kind, *namespaced, &[], &[]));
        let own = definition(&self.resource, self.kind, true, self.short_names, self.defaults);
        read.chain([own]).collect()
    }

    /// Whether an object is another controller's (`managedBy`).
    fn leaves(&self, object: &Value) -> bool {
        let kind = CustomKind::of_kind(&self.resource.api_version(), self.kind);
        kind.is_some_and(|kind| has_other_manager(kind, object))
    }
}

fn definition(
    resource: &Resource,
    kind: &str,
    namespaced: bool,
    short_names: &[&str],
    defaults: &[(&str, &str)],
) -> Value {
    let (group, plural) = (&resource.group, &resource.plural);
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut spec = any.clone();
    for (field, value) in defaults {
        spec["properties"][*field] = json!({"type": "string", "default": value});
    }
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                "spec": spec, "status": any}});
    // Groups of Kubernetes' own have to say who approved them (KEP-2337).
    let protected = group.ends_with(".k8s.io") && !group.ends_with(".x-k8s.io");
    let approved = json!({"api-approved.kubernetes.io": "unapproved, of a simulated operator"});
    let annotations = if protected { approved } else { json!({}) };
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "annotations": annotations},
        "spec": {"group": group, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
                "listKind": format!("{kind}List")},
            "versions": [{"name": resource.version, "served": true, "storage": true,
                "subresources": {"status": {}}, "additionalPrinterColumns": [age],
                "schema": {"openAPIV3Schema": schema}}]},
    });
    if !short_names.is_empty() {
        definition["spec"]["names"]["shortNames"] = json!(short_names);
    }
    definition
}

/// Carries out what an operator plans.
pub struct OperatorController {
    operator: &'static Operator,
    client: Arc<dyn Client>,
    clock: Clock,
    objects: Informer<Value>,
    pods: Informer<Pod>,
    /// Of the kinds that the operator reads.
    read: Vec<Informer<Value>>,
}

/// Pause before an object that another one refers to is looked up again.
const RETRY: SignedDuration = SignedDuration::from_secs(1);

impl OperatorController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock, operator: &'static Operator) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            objects: Informer::decoding(&reader, &operator.resource.storage, parse),
            pods: Informer::new(&reader, &resources::PODS.storage, by_owner),
            read: operator
                .reads
                .iter()
                .flat_map(|reads| reads.kinds)
                .map(|(resource, ..)| Informer::decoding(&reader, &resource.storage, parse))
                .collect(),
            operator,
            client,
            clock,
        }
    }

    /// The object with what the one says that it refers to; `None`: that is not there yet.
    fn completed(&self, object: &Arc<Value>, namespace: &str) -> Option<Arc<Value>> {
        let Some(reads) = &self.operator.reads else { return Some(Arc::clone(object)) };
        let (kind, name) = (reads.of)(object);
        self.read.iter().for_each(|informer| informer.refresh(|_| ()));
        let (.., namespaced) = reads.kinds.get(kind)?;
        let path = if *namespaced { format!("{namespace}/{name}") } else { name.to_owned() };
        let other = self.read.get(kind)?.get(&path)?;
        Some(Arc::new((reads.completed)(object, &other)))
    }

    async fn sync_object(&self, key: &str) -> Outcome {
        let Some(object) = self.objects.get(key) else { return Ok(None) };
        let Ok(meta) = serde_json::from_value::<Meta>(object["metadata"].clone()) else { return Ok(None) };
        if meta.deletion_timestamp.is_some() || self.operator.leaves(&object) {
            return Ok(None);
        }
        let Some(object) = self.completed(&object, &meta.namespace) else { return Ok(Some(RETRY)) };
        let pods = self.pods.indexed(&meta.uid);
        let now = Time::from_seconds(self.clock.now().as_second());
        let Plan { create, delete, status } = plan::plan(self.operator, &object, &pods, now);
        for pod in delete {
            let target = Target::object(&resources::PODS, &meta.namespace, &pod.metadata.name);
            match self.client.delete(target, Deletion::of_uid(&pod.metadata.uid)).await {
                Err(error) if error.code != 404 => return Err(error),
                _ => {}
            }
        }
        for pod in create {
            match self.client.create(Target::create(&resources::PODS, &meta.namespace), pod).await {
                // One of this name is not gone yet, or not seen yet.
                Err(error) if error.reason != "AlreadyExists" => return Err(error),
                _ => {}
            }
        }
        if let Some(status) = status {
            write_status(&*self.client, &self.operator.resource, &meta, status).await?;
        }
        Ok(None)
    }
}

impl Controller for OperatorController {
    fn name(&self) -> &'static str {
        self.operator.kind
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.objects.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.objects.refresh(|seen| queue.add(seen.path));
        let kind = self.operator.kind;
        self.pods.refresh(|seen| {
            for pod in [seen.old, seen.new].into_iter().flatten() {
                if let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind == kind) {
                    queue.add(&format!("{}/{}", pod.metadata.namespace, owner.name));
                }
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_object(key))
    }
}
