//! A plugin of the columnar interface in the scheduling framework.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_plugin::{Manifest, Normalization as Normalize, Permit, Pod, Rejection};
use plimsoll_scheduler::PreBindWork;
use plimsoll_scheduler::framework::{
    ActionType, AssumedPod, Cluster, ClusterEventWithHint, Code, CycleState, EventResource, ExtensionPoint,
    FilterState, Incoming, NodeId, Normalization, PermitResult, Plugin, PluginId, PodId, PreFilterResult,
    ScoreState, Status, WaitingPods,
};
use plimsoll_state::slab::Id;
use plimsoll_state::time::Duration;

use super::backend::Backend;
use super::shared::Shared;

/// Scores (upstream `MinNodeScore`, `MaxNodeScore`).
const SCORES: (i64, i64) = (0, 100);
/// A raw score that no plugin gives: ranks are not made of it, and a whole cycle reports the failure.
const FAILED: i64 = i64::MIN;

/// The extension points at which a plugin runs.
pub fn points(manifest: &Manifest) -> Vec<ExtensionPoint> {
    let has = |name: &str| manifest.points.contains(&name);
    let all = [
        (ExtensionPoint::PreFilter, has("preFilter") || has("filter")),
        // A pod that PreFilter blocks for what others hold is rejected node by node, so that preemption may help.
        (ExtensionPoint::Filter, has("filter") || has("preFilter") && manifest.charges),
        (ExtensionPoint::PreScore, has("score")),
        (ExtensionPoint::Score, has("score")),
        (ExtensionPoint::Reserve, has("reserve")),
        (ExtensionPoint::Permit, has("permit")),
        (ExtensionPoint::PostBind, has("postBind")),
    ];
    all.into_iter().filter(|(_, runs)| *runs).map(|(point, _)| point).collect()
}

/// Keys of the annotations of nodes that it reads.
fn annotations(manifest: &Manifest) -> Vec<String> {
    manifest.node_annotations.iter().chain(&manifest.node_annotation_numbers).cloned().collect()
}

/// The events that can change what a plugin says.
fn events(manifest: &Manifest) -> Vec<ClusterEventWithHint> {
    let always = ClusterEventWithHint::always;
    let resized = ActionType::POD_SCALE_DOWN.or(ActionType::POD_OTHER);
    let node = [
        (true, ActionType::ADD),
        (!manifest.node_labels.is_empty() || !manifest.node_numbers.is_empty(), ActionType::NODE_LABEL),
        (manifest.node_taints, ActionType::NODE_TAINT),
        (!annotations(manifest).is_empty(), ActionType::NODE_ANNOTATION),
        (!manifest.node_resources.is_empty(), ActionType::NODE_ALLOCATABLE),
    ];
    let node = node.into_iter().filter(|(reads, _)| *reads).map(|(_, a)| a).reduce(ActionType::or);
    let mut out: Vec<_> = node.into_iter().map(|actions| always(EventResource::Node, actions)).collect();
    if manifest.charges || !manifest.node_resources.is_empty() {
        out.push(always(EventResource::AssignedPod, ActionType::ADD.or(ActionType::DELETE).or(resized)));
    }
    let own = [
        (!manifest.pod_labels.is_empty(), ActionType::POD_LABEL),
        (!manifest.pod_requests.is_empty(), resized),
    ];
    let own = own.into_iter().filter(|(reads, _)| *reads).map(|(_, a)| a).reduce(ActionType::or);
    out.extend(own.map(|actions| always(EventResource::UnschedulablePod, actions)));
    out
}

fn status_of(why: Rejection) -> Status {
    match why {
        Rejection::Error(text) => Status::error(text),
        Rejection::Unschedulable(text) => Status::unschedulable(text),
        Rejection::Unresolvable(text) => Status::new(Code::Unresolvable, text),
    }
}

type Handle = Arc<Mutex<Shared>>;

fn lock(shared: &Handle) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plugin.
#[derive(Debug)]
pub struct FastPlugin {
    id: PluginId,
    name: Arc<str>,
    manifest: Arc<Manifest>,
    reasons: Arc<[Status]>,
    shared: Handle,
    events: Vec<ClusterEventWithHint>,
    annotations: Vec<String>,
}

impl FastPlugin {
    /// A plugin of this number and name.
    pub fn new(backend: Box<dyn Backend>, id: PluginId, name: &str) -> Self {
        let manifest = Arc::new(backend.manifest().clone());
        let code = |helps| if helps { Code::Unschedulable } else { Code::Unresolvable };
        let reasons =
            manifest.reasons.iter().map(|(text, helps)| Status::new(code(*helps), text.clone())).collect();
        let (events, annotations) = (events(&manifest), annotations(&manifest));
        Self {
            id,
            name: name.into(),
            manifest,
            reasons,
            shared: Arc::new(Mutex::new(Shared::new(backend))),
            events,
            annotations,
        }
    }

    fn has(&self, point: &str) -> bool {
        self.manifest.points.contains(&point)
    }

    /// A pod that has a node, as the plugin sees it.
    fn assumed(shared: &mut Shared, cluster: &Cluster, pod: PodId) -> Result<Pod, String> {
        shared.settle(cluster)?;
        shared.pod(cluster, pod, &BTreeMap::new())
    }
}

impl Plugin for FastPlugin {
    fn is_local(&self, cluster: &Cluster, pod: &Incoming) -> bool {
        let holds = || {
            let charges = lock(&self.shared).charges_of(cluster, &cluster.pod_shape(pod.id));
            // With a failure the pod gets a whole cycle, which reports it.
            charges.map_or(true, |charges| !charges.is_empty())
        };
        !(self.manifest.pod_name || self.manifest.charges && holds())
    }

    fn follows_changes(&self) -> bool {
        true
    }

    fn reads_node_annotations(&self) -> &[String] {
        &self.annotations
    }

    fn reads_pod_labels(&self) -> bool {
        !self.manifest.pod_labels.is_empty() || self.manifest.pod_namespace
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _: &mut CycleState) -> PreFilterResult {
        if !self.has("preFilter") && !self.has("filter") {
            return PreFilterResult::Skip;
        }
        let mut shared = lock(&self.shared);
        let asked = shared.settle(cluster).and_then(|()| shared.pod(cluster, pod.id, &BTreeMap::new()));
        let answer = asked.and_then(|seen| Ok((shared.backend.pre_filter(&seen)?, seen)));
        drop(shared);
        let (answer, seen) = match answer {
            Ok(answer) => answer,
            Err(text) => return PreFilterResult::Reject(Status::error(text)),
        };
        let blocked = match answer {
            Ok(()) => None,
            // Pods that leave may change it: PreFilter is asked again when a dry run takes some away.
            Err(why @ Rejection::Unschedulable(_)) if !seen.charges.is_empty() => Some(status_of(why)),
            Err(why) => return PreFilterResult::Reject(status_of(why)),
        };
        PreFilterResult::go(Filtering {
            shared: Arc::clone(&self.shared),
            manifest: Arc::clone(&self.manifest),
            reasons: Arc::clone(&self.reasons),
            id: pod.id,
            cycle: RefCell::new(Cycle {
                pod: seen,
                blocked,
                delta: BTreeMap::new(),
                stale: false,
                batch: Batch::default(),
            }),
        })
    }

    fn pre_score(
        &self,
        cluster: &Cluster,
        pod: &Incoming,
        _: &[NodeId],
        _: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        let mut shared = lock(&self.shared);
        let seen = shared.settle(cluster).and_then(|()| shared.pod(cluster, pod.id, &BTreeMap::new()));
        drop(shared);
        let (pod, failure) = match seen {
            Ok(pod) => (pod, None),
            Err(text) => (Pod::default(), Some(Status::error(text))),
        };
        Some(Box::new(Scoring {
            shared: Arc::clone(&self.shared),
            manifest: Arc::clone(&self.manifest),
            pod,
            failure: RefCell::new(failure),
            batch: RefCell::default(),
        }))
    }

    fn reserve(&self, pod: &AssumedPod<'_>, _: &mut PreBindWork) -> Status {
        let mut shared = lock(&self.shared);
        let seen = Self::assumed(&mut shared, pod.cluster(), pod.pod());
        match seen.and_then(|seen| shared.backend.reserve(&seen)) {
            Ok(Ok(())) => Status::success(),
            Ok(Err(why)) => status_of(why),
            Err(text) => Status::error(text),
        }
    }

    fn permit(&self, pod: &AssumedPod<'_>, _: &mut WaitingPods) -> PermitResult {
        let mut shared = lock(&self.shared);
        let seen = Self::assumed(&mut shared, pod.cluster(), pod.pod());
        match seen.and_then(|seen| shared.backend.permit(&seen)) {
            Ok(Permit::Allow) => PermitResult::Allow,
            Ok(Permit::Wait(millis)) => {
                PermitResult::Wait(Duration(i64::from(millis).saturating_mul(1_000_000)))
            }
            Ok(Permit::Reject(why)) => PermitResult::Reject(status_of(why)),
            Err(text) => PermitResult::Reject(Status::error(text)),
        }
    }

    fn post_bind(&self, pod: &AssumedPod<'_>) {
        let mut shared = lock(&self.shared);
        let seen = Self::assumed(&mut shared, pod.cluster(), pod.pod());
        if let Err(error) = seen.and_then(|seen| shared.backend.post_bind(&seen)) {
            // Nothing depends on what comes after the binding.
            tracing::error!(plugin = &*self.name, "failed postBind: {error}");
        }
    }

    fn review(&self, cluster: &Cluster, waiting: &mut WaitingPods) {
        for pod in waiting.held_by(self.id) {
            let mut shared = lock(&self.shared);
            let seen = Self::assumed(&mut shared, cluster, pod);
            match seen.and_then(|seen| shared.backend.permit(&seen)) {
                Ok(Permit::Allow) => waiting.allow(pod, self.id),
                Ok(Permit::Wait(_)) => {}
                Ok(Permit::Reject(why)) => drop(waiting.reject(pod, self.id, why.reason().to_owned())),
                // The pod's time runs out.
                Err(error) => tracing::error!(plugin = &*self.name, "failed permit: {error}"),
            }
        }
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        &self.events
    }
}

/// Answers for rows of one pod. The first rows that are asked for are asked of the plugin one by one, as after a change of a
/// node; the more are asked for in order, the more are asked of the plugin at once.
#[derive(Debug)]
struct Batch<T> {
    /// The log of changes that the answers go with.
    position: Option<u64>,
    answers: Vec<Option<T>>,
    size: usize,
    /// The row after the last one that was asked for.
    next: usize,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { position: None, answers: Vec::new(), size: 1, next: usize::MAX }
    }
}

/// Most rows of one call.
const MOST_ROWS: usize = 8192;
/// Rows that may be left out between two that are asked for in order: other plugins have rejected them.
const GAP: usize = 256;

impl<T: Copy> Batch<T> {
    /// The answer for a node, if it was asked for since the last change.
    fn known(&mut self, cluster: &Cluster, node: NodeId) -> Option<T> {
        let row = node.index();
        let known = (*self.answers.get(row)?).filter(|_| self.position == Some(cluster.change_position()))?;
        self.next = row + 1;
        Some(known)
    }

    /// The answer for a node; `ask` gets rows.
    fn get(
        &mut self,
        cluster: &Cluster,
        node: NodeId,
        ask: impl FnOnce(&[u32]) -> Result<Vec<T>, String>,
    ) -> Result<T, String> {
        let position = cluster.change_position();
        if self.position != Some(position) {
            self.answers.clear();
            (self.position, self.size, self.next) = (Some(position), 1, usize::MAX);
        }
        if let Some(known) = self.known(cluster, node) {
            return Ok(known);
        }
        let row = node.index();
        let in_order = (self.next..self.next.saturating_add(GAP)).contains(&row);
        self.size = if in_order { (self.size * 8).min(MOST_ROWS) } else { 1 };
        self.next = row + 1;
        let rows: Vec<u32> = (row..cluster.node_bound())
            .filter(|i| *i == row || cluster.node(NodeId::new(*i)).is_some())
            .filter_map(|i| u32::try_from(i).ok())
            .take(self.size)
            .collect();
        let answers = ask(&rows)?;
        self.answers.resize(self.answers.len().max(cluster.node_bound()).max(row + 1), None);
        for (row, answer) in rows.iter().zip(answers) {
            self.answers[*row as usize] = Some(answer);
        }
        self.answers[row].ok_or_else(|| "the plugin gave no answer".to_owned())
    }

    fn forget(&mut self) {
        self.position = None;
    }
}

#[derive(Debug)]
struct Cycle {
    pod: Pod,
    /// What PreFilter says, when pods that leave may change it.
    blocked: Option<Status>,
    /// What a dry run adds to the counters.
    delta: BTreeMap<String, i64>,
    /// Whether PreFilter is to be asked again.
    stale: bool,
    batch: Batch<u8>,
}

/// The filter of one pod, or of all pods of a kind.
#[derive(Debug)]
struct Filtering {
    shared: Handle,
    manifest: Arc<Manifest>,
    reasons: Arc<[Status]>,
    id: PodId,
    cycle: RefCell<Cycle>,
}

impl Filtering {
    fn change(&self, cluster: &Cluster, (other, node): (PodId, NodeId), by: i64) {
        let mut shared = lock(&self.shared);
        let cycle = &mut *self.cycle.borrow_mut();
        shared.touch(node);
        cycle.batch.forget();
        match shared.charges_of(cluster, &cluster.pod_shape(other)) {
            Ok(charges) => {
                for charge in &*charges {
                    *cycle.delta.entry(charge.key.clone()).or_default() += by.saturating_mul(charge.amount);
                    cycle.stale |= cycle.pod.charge(&charge.key).is_some();
                }
            }
            Err(text) => cycle.blocked = Some(Status::error(text)),
        }
    }

    fn verdict(&self, cluster: &Cluster, node: NodeId) -> Result<Status, String> {
        let cycle = &mut *self.cycle.borrow_mut();
        // A dry run that changes nodes without a word in the log forgets the answers.
        if !cycle.stale
            && cycle.blocked.is_none()
            && let Some(answer) = cycle.batch.known(cluster, node)
        {
            return Ok(self.status(answer));
        }
        let mut shared = lock(&self.shared);
        if std::mem::take(&mut cycle.stale) {
            shared.sync(cluster)?;
            cycle.pod = Pod { node: None, ..shared.pod(cluster, self.id, &cycle.delta)? };
            cycle.blocked = shared.backend.pre_filter(&cycle.pod)?.err().map(status_of);
            cycle.batch.forget();
        }
        if let Some(status) = &cycle.blocked {
            return Ok(status.clone());
        }
        if !self.manifest.points.contains(&"filter") {
            return Ok(Status::success());
        }
        shared.sync(cluster)?;
        let pod = &cycle.pod;
        let answer = cycle.batch.get(cluster, node, |rows| {
            let Shared { backend, table, .. } = &mut *shared;
            backend.filter(pod, table, rows)
        })?;
        Ok(self.status(answer))
    }

    /// What an answer of the guest means.
    fn status(&self, answer: u8) -> Status {
        match answer.checked_sub(1) {
            None => Status::success(),
            Some(at) => match self.reasons.get(usize::from(at)) {
                Some(status) => status.clone(),
                None => Status::error(format!("filter returned reason {answer} of {}", self.reasons.len())),
            },
        }
    }
}

impl FilterState for Filtering {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        self.verdict(cluster, node).unwrap_or_else(Status::error)
    }

    fn add_pod(&mut self, cluster: &Cluster, other: PodId, node: NodeId) {
        self.change(cluster, (other, node), 1);
    }

    fn remove_pod(&mut self, cluster: &Cluster, other: PodId, node: NodeId) {
        self.change(cluster, (other, node), -1);
    }

    fn is_fixed(&self) -> bool {
        self.manifest.node_resources.is_empty() && !self.manifest.charges
    }
}

/// The score of one pod, or of all pods of a kind.
#[derive(Debug)]
struct Scoring {
    shared: Handle,
    manifest: Arc<Manifest>,
    pod: Pod,
    failure: RefCell<Option<Status>>,
    batch: RefCell<Batch<i64>>,
}

impl Scoring {
    fn raw(&self, cluster: &Cluster, node: NodeId) -> Result<i64, String> {
        let mut batch = self.batch.borrow_mut();
        if let Some(known) = batch.known(cluster, node) {
            return Ok(known);
        }
        let mut shared = lock(&self.shared);
        shared.sync(cluster)?;
        batch.get(cluster, node, |rows| {
            let Shared { backend, table, .. } = &mut *shared;
            backend.score(&self.pod, table, rows)
        })
    }
}

impl ScoreState for Scoring {
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        if self.failure.borrow().is_some() {
            return FAILED;
        }
        match self.raw(cluster, node) {
            Ok(raw) if self.manifest.normalize == Normalize::None => raw.clamp(SCORES.0, SCORES.1),
            Ok(raw) => raw.clamp(0, i64::MAX / 1000),
            Err(text) => {
                *self.failure.borrow_mut() = Some(Status::error(text));
                FAILED
            }
        }
    }

    fn is_fixed(&self) -> bool {
        self.manifest.node_resources.is_empty() && !self.manifest.charges
    }

    fn normalization(&self) -> Normalization {
        match self.manifest.normalize {
            Normalize::None => Normalization::None,
            Normalize::Max => Normalization::ByMax { reverse: false },
            Normalize::ReverseMax => Normalization::ByMax { reverse: true },
        }
    }

    fn normalize_score(&self, _: &Cluster, _: &[NodeId], scores: &mut [i64]) {
        let reverse = match self.manifest.normalize {
            Normalize::None => return,
            Normalize::Max => false,
            Normalize::ReverseMax => true,
        };
        let max = scores.iter().copied().max().unwrap_or(0).max(0);
        for score in scores {
            let scaled = if max == 0 { 0 } else { SCORES.1.saturating_mul((*score).max(0)) / max };
            *score = if reverse { SCORES.1 - scaled } else { scaled };
        }
    }

    fn failure(&self) -> Option<Status> {
        self.failure.borrow().clone()
    }
}
