//! What a DaemonSet needs: which pods are made and deleted, and its status (`podsShouldBeOnNode`, `rollingUpdate`,
//! `updateDaemonSetStatus` upstream).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::model::{DaemonSet, Node, Status};
use super::place::{REVISION, should_run, tolerations};
use crate::pod::Pod;

/// The set's pods by the node that they are for.
pub type ByNode = BTreeMap<String, Vec<Arc<Pod>>>;

/// A node's pod of the newest revision, and one of an older.
type Pair<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// What there is to do.
#[derive(Debug, Default)]
pub struct Plan {
    /// Nodes that get a pod.
    pub create: Vec<String>,
    /// Pods that go.
    pub delete: Vec<Arc<Pod>>,
    /// Pods that ended, with their nodes: they go too, failed ones not too fast one after the other.
    pub ended: Vec<(Arc<Pod>, String)>,
    /// The status.
    pub status: Status,
    /// When a ready pod becomes available.
    pub again: Option<SignedDuration>,
}

struct View<'a> {
    set: &'a DaemonSet,
    tolerations: Vec<Value>,
    hash: &'a str,
    now: Timestamp,
}

impl View<'_> {
    fn wait(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::from(self.set.spec.min_ready_seconds))
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let long = |since: Timestamp| self.now.duration_since(since) >= self.wait();
        pod.is_ready() && (self.wait().is_zero() || pod.ready_since().is_some_and(long))
    }

    fn is_new(&self, pod: &Pod) -> bool {
        pod.metadata.labels.get(REVISION).is_some_and(|h| h == self.hash)
    }

    fn should_run(&self, node: &Node) -> (bool, bool) {
        should_run(self.set, &self.tolerations, node)
    }
}

/// What there is to do for a set whose pods are these; `hash`: the revision of its template.
pub fn plan(set: &DaemonSet, nodes: &[Arc<Node>], pods: &ByNode, hash: &str, now: Timestamp) -> Plan {
    let view = View { set, tolerations: tolerations(set), hash, now };
    let mut plan = Plan::default();
    for node in nodes {
        view.on_node(node, pods.get(&node.metadata.name).map_or(&[], Vec::as_slice), &mut plan);
    }
    // Pods that wait for a node that is gone: no other controller deletes them.
    let known: BTreeSet<&str> = nodes.iter().map(|n| n.metadata.name.as_str()).collect();
    let lost = pods.iter().filter(|(node, _)| !known.contains(node.as_str())).flat_map(|(_, pods)| pods);
    plan.delete.extend(lost.filter(|p| p.spec.node_name.is_empty() && !is_leaving(p)).cloned());
    let settled = plan.create.is_empty() && plan.delete.is_empty();
    if settled && set.is_rolling() {
        view.roll(nodes, pods, &mut plan);
    }
    view.status(nodes, pods, &mut plan);
    plan
}

fn is_leaving(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Scheduled ones first, then the oldest.
fn by_age(pods: &[Arc<Pod>]) -> Vec<&Arc<Pod>> {
    let mut sorted: Vec<&Arc<Pod>> = pods.iter().collect();
    let created = |p: &Pod| p.metadata.creation_timestamp.map(|t| t.0);
    sorted.sort_by(|a, b| {
        a.spec
            .node_name
            .is_empty()
            .cmp(&b.spec.node_name.is_empty())
            .then_with(|| created(a).cmp(&created(b)))
            .then_with(|| a.metadata.name.cmp(&b.metadata.name))
    });
    sorted
}

impl View<'_> {
    fn on_node(&self, node: &Node, pods: &[Arc<Pod>], plan: &mut Plan) {
        let name = &node.metadata.name;
        let staying = || pods.iter().filter(|p| !is_leaving(p));
        match self.should_run(node) {
            (true, _) if pods.is_empty() => plan.create.push(name.clone()),
            (_, false) => plan.delete.extend(staying().cloned()),
            (run, true) => {
                let (ended, running): (Vec<_>, Vec<_>) = staying().cloned().partition(|p| p.is_terminal());
                plan.ended.extend(ended.into_iter().map(|p| (p, name.clone())));
                let sorted = by_age(&running);
                if !self.set.allows_surge() {
                    plan.delete.extend(sorted.into_iter().skip(1).cloned());
                } else if sorted.is_empty() && run {
                    plan.create.push(name.clone());
                } else if sorted.len() > 1 {
                    self.two_at_most(&sorted, plan);
                }
            }
        }
    }

    /// With surge: the oldest of the new and the oldest of the old may be there, until the new one is available or the old one
    /// no longer ready.
    fn two_at_most(&self, sorted: &[&Arc<Pod>], plan: &mut Plan) {
        let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            sorted.iter().copied().partition(|p| self.is_new(p));
        for rest in [&new, &old] {
            plan.delete.extend(rest.iter().skip(1).map(|p| Arc::clone(*p)));
        }
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!old.is_ready() || self.is_available(new))
        {
            plan.delete.push(Arc::clone(old));
        }
    }

    /// The newest revision's and an older one's pod of a node (`findUpdatedPodsOnNode`); `None`: there are too many.
    fn pair<'a>(&self, pods: &'a [Arc<Pod>]) -> Option<Pair<'a>> {
        let (mut new, mut old) = (None, None);
        for pod in pods.iter().filter(|p| !is_leaving(p)) {
            let place = if self.is_new(pod) { &mut new } else { &mut old };
            if place.replace(pod).is_some() {
                return None;
            }
        }
        Some((new, old))
    }

    fn roll(&self, nodes: &[Arc<Node>], pods: &ByNode, plan: &mut Plan) {
        let runs: BTreeSet<&str> =
            nodes.iter().filter(|n| self.should_run(n).0).map(|n| n.metadata.name.as_str()).collect();
        let desired = i32::try_from(runs.len()).unwrap_or(i32::MAX);
        let (surge, unavailable) = self.set.limits(desired);
        // Nodes that want a pod and have none count too.
        let mut all: BTreeMap<&str, &[Arc<Pod>]> = runs.iter().map(|n| (*n, &[][..])).collect();
        all.extend(pods.iter().map(|(n, p)| (n.as_str(), p.as_slice())));
        if surge == 0 {
            self.replace(&all, unavailable, plan);
        } else {
            self.surge(&all, &runs, surge, plan);
        }
    }

    /// Old pods go first, as many as may be missing; new ones come in their place.
    fn replace(&self, all: &BTreeMap<&str, &[Arc<Pod>]>, limit: i32, plan: &mut Plan) {
        let mut missing = 0_i32;
        let mut candidates = Vec::new();
        for pods in all.values() {
            match self.pair(pods) {
                Some((Some(new), None)) if self.is_available(new) => {}
                Some((None, Some(old))) if self.is_available(old) => candidates.push(Arc::clone(old)),
                Some((None, Some(old))) => {
                    plan.delete.push(Arc::clone(old));
                    missing = missing.saturating_add(1);
                }
                _ => missing = missing.saturating_add(1),
            }
        }
        let room = usize::try_from(limit.saturating_sub(missing)).unwrap_or(0);
        plan.delete.extend(candidates.into_iter().take(room));
    }

    /// New pods come first, so many at a time; old ones go when the new ones are available.
    fn surge(&self, all: &BTreeMap<&str, &[Arc<Pod>]>, runs: &BTreeSet<&str>, limit: i32, plan: &mut Plan) {
        let (mut surging, mut available) = (0_i32, 0_usize);
        let (mut candidates, mut not_here) = (Vec::new(), Vec::new());
        for (node, pods) in all {
            let Some((new, old)) = self.pair(pods) else {
                surging = surging.saturating_add(1);
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|p| self.is_available(p)));
            match (new, old) {
                (_, None) => {}
                (Some(new), Some(_)) if !self.is_available(new) => surging = surging.saturating_add(1),
                (Some(_), Some(old)) => plan.delete.push(Arc::clone(old)),
                (None, Some(old)) => match (self.is_available(old), runs.contains(node)) {
                    (false, false) => plan.delete.push(Arc::clone(old)),
                    (false, true) => plan.create.push((*node).to_owned()),
                    (true, false) => not_here.push(Arc::clone(old)),
                    (true, true) => candidates.push((*node).to_owned()),
                },
            }
        }
        // Where no pod belongs any more, one goes when enough others are available.
        plan.delete.extend(not_here.into_iter().take(available.saturating_sub(runs.len())));
        let room = usize::try_from(limit.saturating_sub(surging)).unwrap_or(0);
        plan.create.extend(candidates.into_iter().take(room));
    }

    fn status(&self, nodes: &[Arc<Node>], pods: &ByNode, plan: &mut Plan) {
        let mut status = Status {
            observed_generation: self.set.metadata.generation,
            collision_count: self.set.status.collision_count,
            conditions: self.set.status.conditions.clone(),
            ..Status::default()
        };
        for node in nodes {
            let here = pods.get(&node.metadata.name).map_or(&[][..], Vec::as_slice);
            let first = by_age(here).into_iter().next();
            match (self.should_run(node).0, first) {
                (true, None) => status.desired_number_scheduled += 1,
                (true, Some(pod)) => {
                    status.desired_number_scheduled += 1;
                    status.current_number_scheduled += 1;
                    status.number_ready += i32::from(pod.is_ready());
                    status.number_available += i32::from(self.is_available(pod));
                    status.updated_number_scheduled += i32::from(self.is_new(pod));
                }
                (false, Some(_)) => status.number_misscheduled += 1,
                (false, None) => {}
            }
        }
        status.number_unavailable = status.desired_number_scheduled - status.number_available;
        plan.status = status;
        let waiting = pods.values().flatten().filter(|p| p.is_ready() && !self.is_available(p));
        let left = |since: Timestamp| self.wait() - self.now.duration_since(since);
        plan.again = waiting.filter_map(|p| p.ready_since()).map(left).min();
    }
}
