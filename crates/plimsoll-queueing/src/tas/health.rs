//! Nodes that fail under admitted workloads (Kueue's node controller; KEP-2724, replacement of failed nodes).
//!
//! A node has failed for a workload when it is gone or says nothing of being ready; when it is not ready, or has a
//! taint that the pods don't tolerate for ever, and no pod of the workload goes on there. One failed node is noted in
//! the workload's status and replaced in a second pass of the scheduler; with a second one the workload is evicted.

use std::collections::{BTreeMap, BTreeSet};

use super::HOSTNAME;
use crate::Queueing;
use crate::ids::WorkloadId;
use crate::model::{CheckState, PodSetAssignment, Workload, WorkloadKey};
use crate::state::WorkloadInfo;
use crate::{Action, Reporter, cond};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::{Node, Phase, Pod, Taint, TaintEffect, Toleration};
use plimsoll_state::time::{Duration, SECOND, Time};

/// After how long a node that is not ready counts as failed (Kueue `NodeFailureDelay`).
const FAILURE_DELAY: Duration = Duration::from_seconds(30);

/// How many nodes that changed take as much time as a workload. More of them than the events of a step concern, so that they get fewer.
const NODES_PER_WORKLOAD: usize = 4;

/// Gate of pods that wait for their place.
const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";

/// A pod of a workload with places on nodes.
#[derive(Debug)]
struct Placed {
    namespace: String,
    name: String,
    workload: WorkloadKey,
    /// Where it runs, possibly empty.
    node: String,
    /// Where it was sent, possibly empty.
    host: String,
    /// Whether it neither ended nor is being deleted.
    goes_on: bool,
    /// Whether it was sent to its node and waits to be bound.
    waits: bool,
    /// Whether it asks for a place in a topology itself.
    topology_aware: bool,
}

/// What is known of the health of nodes.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// By UID.
    pods: BTreeMap<String, Placed>,
    /// UIDs by node, where they run and where they were sent.
    by_node: BTreeMap<String, BTreeSet<String>>,
    /// Nodes to look at.
    suspects: BTreeMap<String, Suspect>,
    /// Whether this replica follows another one: nodes are looked at whole when it leads.
    follows: bool,
    timers: BTreeSet<(Time, String)>,
    /// How often ending a pod has failed, by its UID.
    failures: BTreeMap<String, u32>,
}

/// Why a node has to be looked at.
#[derive(Debug, Default)]
struct Suspect {
    /// The node itself changed, which concerns every workload with a place on it.
    changed: bool,
    /// Workloads whose pods came, went or ended there.
    workloads: BTreeSet<WorkloadKey>,
}

/// How a workload fares on a node.
struct Verdict {
    failed: bool,
    /// UIDs of pods that can never start there.
    stuck: Vec<String>,
}

impl Health {
    fn suspect(&mut self, node: &str) {
        if !node.is_empty() {
            self.suspects.entry(node.to_owned()).or_default().changed = true;
        }
    }

    /// A pod of a workload came, went or ended on a node.
    fn stirred(&mut self, node: &str, workload: &WorkloadKey) {
        if self.follows {
            self.suspect(node);
        } else if !node.is_empty() {
            self.suspects.entry(node.to_owned()).or_default().workloads.insert(workload.clone());
        }
    }

    /// Nothing is decided until [`Queueing::check_nodes`]: which workloads come and go meanwhile is not kept.
    pub(crate) const fn follow(&mut self) {
        self.follows = true;
    }

    /// Looks at a node again at a later time.
    pub(crate) fn look_again(&mut self, at: Time, node: &str) {
        self.timers.insert((at, node.to_owned()));
    }

    /// Takes some of the nodes that have to be looked at now.
    fn take_suspects(&mut self, now: Time, most: usize) -> BTreeMap<String, Suspect> {
        while self.suspects.len() < most
            && let Some(due) = self.timers.first().filter(|(at, _)| *at <= now).cloned()
        {
            self.timers.remove(&due);
            self.suspect(&due.1);
        }
        if self.suspects.len() <= most {
            return std::mem::take(&mut self.suspects);
        }
        std::iter::from_fn(|| self.suspects.pop_first()).take(most).insert_each()
    }

    /// Whether nodes have to be looked at now that a step had no time for.
    pub(crate) fn is_behind(&self, now: Time) -> bool {
        self.next().is_some_and(|at| at <= now)
    }

    /// When a node has to be looked at.
    pub(crate) fn next(&self) -> Option<Time> {
        if self.suspects.is_empty() { self.timers.first().map(|(t, _)| *t) } else { Some(Time(i64::MIN)) }
    }

    /// A node was seen, changed, or is gone.
    pub(super) fn node(&mut self, name: &str, old: Option<&Node>, new: Option<&Node>, taints: bool) {
        let changed = match (old, new) {
            (Some(a), Some(b)) => {
                a.ready != b.ready
                    || a.ready_since.is_some() != b.ready_since.is_some()
                    || (taints && a.taints != b.taints)
            }
            _ => true,
        };
        if changed {
            self.suspect(name);
        }
    }

    /// A pod was seen or changed.
    pub(super) fn pod(&mut self, pod: &Pod) {
        let host = pod.spec.node_selector.get(HOSTNAME).cloned().unwrap_or_default();
        self.forget(&pod.uid);
        if pod.workload.is_empty() || (!pod.topology_aware && host.is_empty()) {
            return;
        }
        let node = pod.spec.node_name.clone();
        let ended = pod.status.phase.is_terminal();
        let gated = pod.spec.scheduling_gates.iter().any(|g| g == TOPOLOGY_GATE);
        let placed = Placed {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            workload: WorkloadKey { namespace: pod.namespace.clone(), name: pod.workload.clone() },
            goes_on: !pod.deleting && !ended,
            topology_aware: pod.topology_aware,
            waits: node.is_empty() && pod.status.phase == Phase::Pending && !gated,
            node,
            host,
        };
        if placed.node.is_empty() {
            self.stirred(&placed.host, &placed.workload);
        } else if !placed.goes_on {
            self.stirred(&placed.node, &placed.workload);
        }
        for at in [&placed.node, &placed.host].into_iter().filter(|n| !n.is_empty()) {
            self.by_node.entry(at.clone()).or_default().insert(pod.uid.clone());
        }
        self.pods.insert(pod.uid.clone(), placed);
    }

    /// A pod is gone.
    pub(super) fn pod_gone(&mut self, uid: &str) {
        self.failures.remove(uid);
        if let Some(placed) = self.forget(uid) {
            self.stirred(&placed.node, &placed.workload);
        }
    }

    /// Ending a pod was tried. After a failure its node is looked at again, which asks again if it has to be.
    pub(crate) fn pod_answered(&mut self, uid: &str, failed: bool, now: Time) {
        let Some(host) = self.pods.get(uid).map(|p| p.host.clone()).filter(|_| failed) else {
            self.failures.remove(uid);
            return;
        };
        let count = self.failures.entry(uid.to_owned()).or_insert(0);
        *count = count.saturating_add(1);
        let wait = SECOND.saturating_mul(1 << (*count - 1).min(6));
        self.look_again(now.plus(Duration(wait)), &host);
    }

    fn forget(&mut self, uid: &str) -> Option<Placed> {
        let placed = self.pods.remove(uid)?;
        for at in [&placed.node, &placed.host] {
            if let Some(uids) = self.by_node.get_mut(at) {
                uids.remove(uid);
                if uids.is_empty() {
                    self.by_node.remove(at);
                }
            }
        }
        Some(placed)
    }

    fn on<'a>(&'a self, node: &str) -> impl Iterator<Item = (&'a String, &'a Placed)> {
        let uids = self.by_node.get(node).into_iter().flatten();
        uids.filter_map(|u| self.pods.get_key_value(u))
    }
}

/// Whether a placement has this node.
fn has_node(a: &PodSetAssignment, node: &str) -> bool {
    a.topology.as_ref().is_some_and(|t| {
        t.levels.last().is_some_and(|l| l == HOSTNAME)
            && t.domains.iter().any(|(values, _)| values.last().is_some_and(|v| v == node))
    })
}

/// Whether a workload has a place on this node.
fn is_placed_on(wl: &Workload, node: &str) -> bool {
    wl.status.admission.iter().flat_map(|a| &a.assignments).any(|a| has_node(a, node))
}

/// Whether all pods of a workload have places on nodes: each was sent to its own.
fn is_placed_whole(wl: &Workload) -> bool {
    let by_node = |a: &PodSetAssignment| {
        a.topology.as_ref().is_some_and(|t| t.levels.last().is_some_and(|l| l == HOSTNAME))
    };
    let mut all = wl.status.admission.iter().flat_map(|a| &a.assignments).peekable();
    all.peek().is_some() && all.all(by_node)
}

/// Whether a workload is admitted and goes on.
fn keeps_places(wl: &WorkloadInfo) -> bool {
    let s = &wl.obj.status;
    wl.quota().is_some()
        && s.is_true(cond::ADMITTED)
        && !s.is_true(cond::EVICTED)
        && !s.is_true(cond::FINISHED)
}

fn keeps_pods_away(t: &Taint) -> bool {
    t.effect != TaintEffect::PreferNoSchedule
}

impl Queueing {
    fn watches_nodes(&self) -> bool {
        let gates = &self.config.gates;
        self.config.watch_nodes && gates.topology && gates.replace_nodes
    }

    /// Notes that a node was seen, changed, or is gone.
    pub(super) fn observe_node(&mut self, name: &str, new: Option<&Node>) {
        if self.watches_nodes() {
            let taints = self.config.gates.replace_on_taints;
            let old = self.tas.nodes.get(name).map(AsRef::as_ref);
            self.tas.health.node(name, old, new, taints);
        }
    }

    /// Notes that a pod was seen or changed.
    pub(super) fn observe_pod(&mut self, pod: &Pod) {
        if self.watches_nodes() {
            self.tas.health.pod(pod);
        }
    }

    /// Looks at nodes that changed, or whose pods did: as many as a step has time for. Cycles wait until all of them are looked at.
    pub(crate) fn check_nodes(&mut self, now: Time) {
        let most = NODES_PER_WORKLOAD * self.bounded.most;
        self.tas.health.follows = false;
        let suspects = self.tas.health.take_suspects(now, most);
        let ask = suspects.iter().filter(|(_, s)| s.changed);
        let mut placed: BTreeMap<String, Vec<WorkloadId>> =
            ask.map(|(n, _)| (n.clone(), Vec::new())).insert_each();
        if !placed.is_empty() {
            self.find_placed(&mut placed);
        }
        for (node, suspect) in suspects {
            // Pods that come and go can only concern their own workloads.
            let affected = placed.remove(&node).unwrap_or_else(|| self.placed_of(&suspect.workloads, &node));
            self.check_node(&node, affected, now);
        }
    }

    /// Those of the workloads that are admitted with a place on a node.
    fn placed_of(&self, workloads: &BTreeSet<WorkloadKey>, node: &str) -> Vec<WorkloadId> {
        let ids = workloads.iter().flat_map(|key| self.bearing(key));
        let placed =
            |id: &WorkloadId| self.wl(*id).is_some_and(|w| keeps_places(w) && is_placed_on(&w.obj, node));
        ids.filter(placed).collect()
    }

    /// Admitted workloads with places on any of these nodes.
    fn find_placed(&self, nodes: &mut BTreeMap<String, Vec<WorkloadId>>) {
        for (id, wl) in self.workloads.iter().filter(|(_, w)| keeps_places(w)) {
            let placements = wl
                .obj
                .status
                .admission
                .iter()
                .flat_map(|a| &a.assignments)
                .filter_map(|a| a.topology.as_ref());
            let by_node = placements.filter(|t| t.levels.last().is_some_and(|l| l == HOSTNAME));
            for host in by_node.flat_map(|t| &t.domains).filter_map(|(values, _)| values.last()) {
                if let Some(ids) = nodes.get_mut(host).filter(|ids| ids.last() != Some(&id)) {
                    ids.push(id);
                }
            }
        }
    }

    /// Looks at one node and the workloads with places on it.
    fn check_node(&mut self, name: &str, affected: Vec<WorkloadId>, now: Time) {
        let gates = self.config.gates;
        let Some((ready, Some(since))) = self.tas.nodes.get(name).map(|n| (n.ready, n.ready_since)) else {
            for id in affected {
                self.node_failed(id, name, now);
            }
            return;
        };
        let deadline = since.plus(FAILURE_DELAY);
        let overdue = !ready && deadline <= now;
        if !ready && !overdue && (!gates.replace_on_pod_termination || gates.replace_after_fixed_time) {
            self.tas.health.look_again(deadline, name);
            if !gates.replace_on_pod_termination {
                return;
            }
        }
        let taints: Vec<Taint> = self.tas.nodes.get(name).map_or(Vec::new(), |n| {
            n.taints.iter().filter(|t| gates.replace_on_taints && keeps_pods_away(t)).cloned().collect()
        });
        let mut affected = affected;
        if overdue && gates.replace_after_fixed_time {
            for &id in &affected {
                self.node_failed(id, name, now);
            }
            affected.retain(|&id| self.wl(id).is_some_and(|w| !w.obj.status.is_true(cond::EVICTED)));
        }
        for id in self.sent_to(name) {
            if !affected.contains(&id) {
                affected.push(id);
            }
        }
        for id in affected {
            self.judge(id, name, ready, &taints, now);
        }
    }

    /// Draws the conclusions for one workload.
    fn judge(&mut self, id: WorkloadId, node: &str, ready: bool, taints: &[Taint], now: Time) {
        let Some(verdict) = self.verdict(id, node, ready, taints) else { return };
        if verdict.failed {
            self.node_failed(id, node, now);
        } else {
            let marked = self.wl(id).is_some_and(|w| w.obj.status.unhealthy_nodes.iter().any(|n| n == node));
            if marked {
                self.edit(id, now, Vec::new(), |e| e.status.unhealthy_nodes.retain(|n| n != node));
            }
        }
        if self.wl(id).is_none_or(|w| w.obj.status.is_true(cond::EVICTED)) {
            return;
        }
        for uid in verdict.stuck {
            if let Some(p) = self.tas.health.pods.get(&uid) {
                let (namespace, name) = (p.namespace.clone(), p.name.clone());
                self.out.push(Action::FailPod { namespace, name, uid });
            }
        }
    }

    fn verdict(&self, id: WorkloadId, node: &str, ready: bool, taints: &[Taint]) -> Option<Verdict> {
        let wl = self.wl(id)?;
        let on_end = self.config.gates.replace_on_pod_termination;
        let fine = Verdict { failed: false, stuck: Vec::new() };
        let failed = Verdict { failed: true, stuck: Vec::new() };
        if !is_placed_on(&wl.obj, node) {
            // Sent there before the node was replaced: such a pod is a stray.
            return Some(Verdict { failed: false, stuck: self.pods_on(&wl.obj, node).1 });
        }
        let at_once = if !ready {
            !on_end
        } else {
            let (refused, passing) = self.untolerated(&wl.obj, node, taints);
            if !refused && !passing {
                return Some(fine);
            }
            refused && !on_end
        };
        if at_once {
            return Some(failed);
        }
        let (goes_on, stuck) = self.pods_on(&wl.obj, node);
        Some(Verdict { failed: !goes_on, stuck })
    }

    /// Whether a pod of the workload goes on there, and the pods that were sent there and wait.
    fn pods_on(&self, wl: &Workload, node: &str) -> (bool, Vec<String>) {
        let name = wl.borne_by_pods();
        let here = || self.tas.health.on(node).filter(|(_, p)| p.workload == name);
        let goes_on = here().any(|(_, p)| p.node == node && p.goes_on);
        // A node that the pod's own template asks for is the user's business.
        let sent = |p: &Placed| p.topology_aware || is_placed_whole(wl);
        let stuck = here().filter(|(_, p)| p.host == node && p.waits && sent(p)).map(|(uid, _)| uid.clone());
        (goes_on, stuck.collect())
    }

    /// Whether the workload's pods there don't tolerate a taint, and whether they tolerate one only for a time.
    fn untolerated(&self, wl: &Workload, node: &str, taints: &[Taint]) -> (bool, bool) {
        let all: Vec<Vec<&Toleration>> = self.tolerations_on(wl, node);
        let (mut refused, mut passing) = (false, false);
        for taint in taints {
            if all.iter().any(|list| !list.iter().any(|t| t.tolerates(taint))) {
                refused = true;
            } else if all.iter().any(|list| !list.iter().any(|t| !t.temporary && t.tolerates(taint))) {
                passing = true;
            }
        }
        (refused, passing)
    }

    /// What the podsets there tolerate, with what flavors and admission checks add.
    fn tolerations_on<'a>(&'a self, wl: &'a Workload, node: &str) -> Vec<Vec<&'a Toleration>> {
        let assigned = wl.status.admission.iter().flat_map(|a| &a.assignments);
        let mut out = Vec::new();
        for a in assigned.filter(|a| has_node(a, node)) {
            let Some(ps) = wl.pod_sets.iter().find(|p| p.name == a.name) else { continue };
            let flavors = a.flavors.iter().filter_map(|(_, f)| self.ids.find_flavor(f));
            let flavors = flavors.filter_map(|f| self.objects.flavors.get(&f)).flat_map(|f| &f.tolerations);
            let updates = wl.status.admission_checks.iter().flat_map(|c| &c.updates);
            let updates = updates.filter(|u| u.name == a.name).flat_map(|u| &u.tolerations);
            out.push(ps.spec.tolerations.iter().chain(flavors).chain(updates).collect());
        }
        out
    }

    /// Workloads of pods that were sent to the node.
    fn sent_to(&self, node: &str) -> Vec<WorkloadId> {
        let keys: BTreeSet<&WorkloadKey> =
            self.tas.health.on(node).filter(|(_, p)| p.host == node).map(|(_, p)| &p.workload).insert_each();
        let ids = keys.into_iter().flat_map(|k| self.bearing(k));
        let stays = |id: &WorkloadId| {
            self.wl(*id).is_some_and(|w| {
                !w.obj.status.is_true(cond::FINISHED) && !w.obj.status.is_true(cond::EVICTED)
            })
        };
        ids.filter(stays).collect()
    }

    /// Notes that a node of a workload has to be replaced; with another one it is evicted.
    fn node_failed(&mut self, id: WorkloadId, node: &str, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let s = &wl.obj.status;
        if s.is_true(cond::EVICTED) || s.unhealthy_nodes.iter().any(|n| n == node) {
            return;
        }
        if s.unhealthy_nodes.is_empty() {
            self.edit(id, now, Vec::new(), |e| e.status.unhealthy_nodes.push(node.to_owned()));
            return;
        }
        let names: Vec<&str> = s.unhealthy_nodes.iter().map(String::as_str).chain([node]).collect();
        let message = format!(
            "Workload eviction triggered due to multiple TAS assigned node failures, including: {}",
            names.join(", ")
        );
        self.evict(id, ("NodeFailures", ""), &message, Reporter::NodeController, now);
    }

    /// After a write on the health of its nodes failed, looks at a workload's nodes again.
    pub(crate) fn nodes_again(&mut self, id: WorkloadId, at: Time) {
        if !self.watches_nodes() {
            return;
        }
        let Some(wl) = self.workloads.get(id) else { return };
        let assigned = wl.obj.status.admission.iter().flat_map(|a| &a.assignments);
        for t in assigned.filter_map(|a| a.topology.as_ref()) {
            for host in t.domains.iter().filter_map(|(values, _)| values.last()) {
                self.tas.health.look_again(at, host);
            }
        }
    }

    /// Node selector and tolerations that ready admission checks add to a podset.
    pub(crate) fn updates_of<'a>(
        wl: &'a Workload,
        pod_set: &'a str,
    ) -> impl Iterator<Item = &'a crate::model::PodSetUpdate> {
        let ready = wl.status.admission_checks.iter().filter(|c| c.state == CheckState::Ready);
        ready.flat_map(|c| &c.updates).filter(move |u| u.name == pod_set)
    }
}
