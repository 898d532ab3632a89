//! What to do about a Deployment: a function of it, its ReplicaSets and the time (`pkg/controller/deployment` upstream).

mod scale;

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_apimachinery::meta::{Meta, Time, controller_reference};
use plimsoll_client::{Event, EventType};
use serde_json::{Map, Value, json};

use super::super::model::{Condition, Deployment, ReplicaSet};
use super::hash::template_hash;

/// Label that tells the pods of the ReplicaSets apart.
pub const HASH_LABEL: &str = "pod-template-hash";
/// Annotation: number of the rollout.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations of the Deployment that its ReplicaSets don't get.
const NOT_COPIED: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// A write to be made.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Make this ReplicaSet.
    Create(Value),
    /// Change a ReplicaSet: annotations, number of pods, `minReadySeconds`.
    Update {
        /// Which.
        set: Meta,
        /// All annotations.
        annotations: BTreeMap<String, String>,
        /// `spec.replicas`.
        replicas: i32,
        /// `spec.minReadySeconds`.
        min_ready_seconds: i32,
    },
    /// Delete it: it is old history.
    Delete(Meta),
    /// Set the Deployment's revision.
    Revision(String),
}

/// What to do.
#[derive(Debug, Default)]
pub struct Plan {
    /// Writes, in order.
    pub ops: Vec<Op>,
    /// Events.
    pub events: Vec<Event>,
    /// A condition `Progressing` that the rollout itself sets: status, reason, message.
    pub progressing: Option<Condition>,
}

/// A rollout: the Deployment and its ReplicaSets, as they will be after the writes that have been decided on.
pub struct Rollout<'a> {
    deployment: &'a Deployment,
    now: Timestamp,
    /// The ReplicaSet of the current template.
    pub new: Option<ReplicaSet>,
    /// The others, oldest first.
    pub old: Vec<ReplicaSet>,
    plan: Plan,
}

impl<'a> Rollout<'a> {
    /// The rollout of a Deployment with these ReplicaSets.
    pub fn new(deployment: &'a Deployment, mut sets: Vec<ReplicaSet>, now: Timestamp) -> Self {
        sets.sort_by(|a, b| {
            let order = |s: &ReplicaSet| (s.metadata.creation_timestamp, s.metadata.name.clone());
            order(a).cmp(&order(b))
        });
        let wanted = without_hash(&deployment.spec.template);
        let at = sets.iter().position(|s| without_hash(&s.spec.template) == wanted);
        let new = at.map(|at| sets.remove(at));
        Self { deployment, now, new, old: sets, plan: Plan::default() }
    }

    /// Decides. `old_pods`: whether pods of old ReplicaSets are still there, for `Recreate`.
    pub fn decide(mut self, old_pods: bool) -> (Plan, Option<ReplicaSet>, Vec<ReplicaSet>) {
        let d = self.deployment;
        if d.metadata.deletion_timestamp.is_none() {
            if d.spec.paused || self.is_scaling() {
                self.find_new(false);
                self.scale();
                if d.spec.paused {
                    self.clean_up();
                }
            } else if d.spec.strategy.kind == "Recreate" {
                self.recreate(old_pods);
            } else {
                self.roll();
            }
        }
        (self.plan, self.new, self.old)
    }

    fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new)
    }

    fn total(&self) -> i32 {
        self.all().map(ReplicaSet::replicas).fold(0, i32::saturating_add)
    }

    fn max_replicas(&self) -> i32 {
        self.deployment.replicas().saturating_add(self.deployment.limits().0)
    }

    /// Whether `spec.replicas` has changed since the ReplicaSets were last touched.
    fn is_scaling(&self) -> bool {
        let wanted = self.deployment.replicas().to_string();
        let mut active = self.all().filter(|s| s.replicas() > 0);
        active.any(|s| s.metadata.annotations.get(DESIRED).is_some_and(|d| *d != wanted))
    }

    fn roll(&mut self) {
        self.find_new(true);
        if self.scale_new() || self.scale_old() {
            return;
        }
        if self.is_complete() {
            self.clean_up();
        }
    }

    fn recreate(&mut self, old_pods: bool) {
        self.find_new(false);
        let active: Vec<usize> = (0..self.old.len()).filter(|i| self.old_replicas(*i) > 0).collect();
        if !active.is_empty() {
            for i in active {
                self.set_old(i, 0);
            }
            return;
        }
        if old_pods {
            return;
        }
        self.find_new(true);
        let wanted = self.deployment.replicas();
        self.set_new(wanted);
        if self.is_complete() {
            self.clean_up();
        }
    }

    /// Finds the ReplicaSet of the current template, or makes it; numbers the rollout.
    fn find_new(&mut self, create: bool) {
        let revision = |s: &ReplicaSet| -> i64 {
            s.metadata.annotations.get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
        };
        let next = self.old.iter().map(revision).max().unwrap_or(0).saturating_add(1);
        if let Some(new) = &self.new {
            let annotations = self.annotations(&new.metadata.annotations, next);
            let min_ready = self.deployment.spec.min_ready_seconds;
            if annotations != new.metadata.annotations || min_ready != new.spec.min_ready_seconds {
                let replicas = new.replicas();
                self.update_new(annotations, replicas);
            }
            let (name, revision) = match &self.new {
                Some(new) => (new.metadata.name.clone(), new.metadata.annotations.get(REVISION).cloned()),
                None => return,
            };
            self.number(revision.unwrap_or_default());
            self.progress("True", "FoundNewReplicaSet", &format!("Found new replica set {name:?}"));
        } else if create {
            self.create_new(next);
        }
    }

    fn number(&mut self, revision: String) {
        if self.deployment.metadata.annotations.get(REVISION) != Some(&revision) {
            self.plan.ops.push(Op::Revision(revision));
        }
    }

    /// Sets a first `Progressing` condition; later ones are derived from the status.
    fn progress(&mut self, status: &str, reason: &str, message: &str) {
        let known = self.deployment.status.conditions.iter().any(|c| c.kind == "Progressing");
        let created = reason == "NewReplicaSetCreated";
        if self.deployment.spec.progress_deadline_seconds.is_some() && (created || !known) {
            self.plan.progressing = Some(condition("Progressing", status, reason, message, self.now));
        }
    }

    fn create_new(&mut self, revision: i64) {
        let d = self.deployment;
        let hash = template_hash(&d.spec.template, d.status.collision_count);
        let name = format!("{}-{hash}", d.metadata.name);
        let mut template = d.spec.template.clone();
        put_label(&mut template["metadata"]["labels"], &hash);
        let mut selector = json!({"matchLabels": d.spec.selector.match_labels});
        put_label(&mut selector["matchLabels"], &hash);
        if !d.spec.selector.match_expressions.is_empty() {
            let expressions = d.spec.selector.match_expressions.iter().map(|e| {
                let mut value = json!({"key": e.key, "operator": e.operator});
                if !e.values.is_empty() {
                    value["values"] = json!(e.values);
                }
                value
            });
            selector["matchExpressions"] = expressions.collect();
        }
        let replicas = self.new_replicas(0);
        let mut annotations = self.annotations(&BTreeMap::new(), revision);
        self.note_size(&mut annotations);
        let set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {
                "name": name, "namespace": d.metadata.namespace,
                "labels": template["metadata"]["labels"], "annotations": annotations,
                "ownerReferences": [controller_reference("apps/v1", "Deployment", &d.metadata)],
            },
            "spec": {
                "replicas": replicas, "minReadySeconds": d.spec.min_ready_seconds,
                "selector": selector, "template": template,
            },
        });
        self.new = serde_json::from_value(set.clone()).ok();
        self.plan.ops.push(Op::Create(set));
        if replicas > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {replicas}");
            self.plan.events.push(Event::new(EventType::Normal, "ScalingReplicaSet", message));
        }
        self.number(revision.to_string());
        self.progress("True", "NewReplicaSetCreated", &format!("Created new replica set {name:?}"));
    }

    /// Annotations of the new ReplicaSet: the Deployment's, and its revision if that has become higher.
    fn annotations(&self, current: &BTreeMap<String, String>, revision: i64) -> BTreeMap<String, String> {
        let mut annotations = current.clone();
        for (key, value) in &self.deployment.metadata.annotations {
            if !NOT_COPIED.contains(&key.as_str()) {
                annotations.insert(key.clone(), value.clone());
            }
        }
        let before = current.get(REVISION);
        if before.and_then(|r| r.parse::<i64>().ok()).unwrap_or(0) < revision {
            annotations.insert(REVISION.to_owned(), revision.to_string());
            if let Some(before) = before {
                let history = annotations.entry(REVISION_HISTORY.to_owned()).or_default();
                if !history.is_empty() {
                    history.push(',');
                }
                history.push_str(before);
            }
        }
        annotations
    }

    fn note_size(&self, annotations: &mut BTreeMap<String, String>) {
        annotations.insert(DESIRED.to_owned(), self.deployment.replicas().to_string());
        annotations.insert(MAX.to_owned(), self.max_replicas().to_string());
    }

    /// Pods that the new ReplicaSet may have, which has `current` now.
    fn new_replicas(&self, current: i32) -> i32 {
        let wanted = self.deployment.replicas();
        if self.deployment.spec.strategy.kind == "Recreate" {
            return wanted;
        }
        let room = self.max_replicas().saturating_sub(self.total());
        if room <= 0 { current } else { current + room.min(wanted - current) }
    }

    fn update_new(&mut self, annotations: BTreeMap<String, String>, replicas: i32) {
        let min_ready_seconds = self.deployment.spec.min_ready_seconds;
        let Some(new) = &mut self.new else { return };
        new.metadata.annotations.clone_from(&annotations);
        new.spec.replicas = Some(replicas);
        new.spec.min_ready_seconds = min_ready_seconds;
        let set = new.metadata.clone();
        self.plan.ops.push(Op::Update { set, annotations, replicas, min_ready_seconds });
    }

    /// Gives the new ReplicaSet so many pods; whether that changes anything.
    fn set_new(&mut self, replicas: i32) -> bool {
        let Some(new) = &self.new else { return false };
        let before = new.replicas();
        let mut annotations = new.metadata.annotations.clone();
        self.note_size(&mut annotations);
        if before == replicas && annotations == new.metadata.annotations {
            return false;
        }
        self.scaled(&new.metadata.name.clone(), before, replicas);
        self.update_new(annotations, replicas);
        before != replicas
    }

    fn old_replicas(&self, i: usize) -> i32 {
        self.old.get(i).map_or(0, ReplicaSet::replicas)
    }

    /// Gives an old ReplicaSet so many pods.
    fn set_old(&mut self, i: usize, replicas: i32) -> bool {
        let Some(old) = self.old.get(i) else { return false };
        let (before, name) = (old.replicas(), old.metadata.name.clone());
        let mut annotations = old.metadata.annotations.clone();
        self.note_size(&mut annotations);
        if before == replicas && annotations == old.metadata.annotations {
            return false;
        }
        self.scaled(&name, before, replicas);
        let Some(old) = self.old.get_mut(i) else { return false };
        old.metadata.annotations.clone_from(&annotations);
        old.spec.replicas = Some(replicas);
        let (set, min_ready_seconds) = (old.metadata.clone(), old.spec.min_ready_seconds);
        self.plan.ops.push(Op::Update { set, annotations, replicas, min_ready_seconds });
        before != replicas
    }

    fn scaled(&mut self, name: &str, before: i32, after: i32) {
        if before != after {
            let direction = if after > before { "up" } else { "down" };
            let message = format!("Scaled {direction} replica set {name} from {before} to {after}");
            self.plan.events.push(Event::new(EventType::Normal, "ScalingReplicaSet", message));
        }
    }

    fn is_complete(&self) -> bool {
        let (d, s) = (self.deployment, &self.deployment.status);
        s.updated_replicas == d.replicas()
            && s.replicas == d.replicas()
            && s.available_replicas == d.replicas()
            && s.observed_generation >= d.metadata.generation
    }

    /// Deletes old ReplicaSets beyond `revisionHistoryLimit`, oldest first.
    fn clean_up(&mut self) {
        let limit = self.deployment.spec.revision_history_limit;
        let Some(limit) = limit.filter(|l| *l != i32::MAX).and_then(|l| usize::try_from(l).ok()) else {
            return;
        };
        let gone = |s: &&ReplicaSet| s.metadata.deletion_timestamp.is_none();
        let mut old: Vec<&ReplicaSet> = self.old.iter().filter(gone).collect();
        let revision = |s: &ReplicaSet| -> i64 {
            s.metadata.annotations.get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
        };
        old.sort_by_key(|s| revision(s));
        let surplus = old.len().saturating_sub(limit);
        let empty = |s: &&&ReplicaSet| {
            s.status.replicas == 0
                && s.replicas() == 0
                && s.metadata.generation <= s.status.observed_generation
        };
        let ops: Vec<Op> =
            old.iter().take(surplus).filter(empty).map(|s| Op::Delete(s.metadata.clone())).collect();
        self.plan.ops.extend(ops);
    }
}

fn put_label(labels: &mut Value, hash: &str) {
    match labels.as_object_mut() {
        Some(labels) => {
            labels.insert(HASH_LABEL.to_owned(), json!(hash));
        }
        None => *labels = json!({HASH_LABEL: hash}),
    }
}

/// A template without the label that ReplicaSets add, and without what is empty.
fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        if let Some(labels) = meta.get_mut("labels").and_then(Value::as_object_mut) {
            labels.remove(HASH_LABEL);
        }
        meta.retain(|_, v| !v.is_null() && v.as_object().is_none_or(|m: &Map<_, _>| !m.is_empty()));
    }
    template
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Condition {
    let now = Some(Time::whole(now));
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        last_update_time: now,
        last_transition_time: now,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}
