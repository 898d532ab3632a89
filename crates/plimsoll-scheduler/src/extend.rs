//! Scheduling cycles that ask plugins outside of the process: HTTP extenders. Such a cycle takes several steps; until it has ended no other pod is
//! taken from the queue, because cycles are serial (upstream `ScheduleOne`). At the end the other plugins
//! are called again, on the state of then.

mod preempt;

use super::cluster::{Cluster, NodeId, PodId};
use super::cycle::{Cycle, totals};
use super::decide::{self, Outcome};
use super::evaluate::{self, Verdicts};
use super::extender::{ExtenderAnswer, ExtenderCall, ExtenderVictims};
use super::framework::{Code, ExtensionPoint, Incoming, PluginId, Reason, RemoteCall, Status};
use super::message::Failure;
use super::metrics::Unmetered;
use super::queue::Stage;
use super::runner::Runner;
use super::{Action, Scheduler};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::intern::{Map, Sym};
use plimsoll_state::time::{Duration, Time};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A point of a plugin's score is worth this many points of an extender's (`MaxNodeScore / MaxExtenderPriority`).
const SCALE: i64 = 10;
/// How much longer than its own timeout a call may take.
const GRACE: Duration = Duration::from_seconds(30);

/// Calls of extenders.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    last: u64,
    /// Answers that no cycle has taken yet.
    answers: Vec<Answered>,
}

/// An extender's answer to a call about a pod.
#[derive(Debug)]
struct Answered {
    uid: String,
    extender: usize,
    call: u64,
    answer: Result<ExtenderAnswer, String>,
}

impl Calls {
    /// The number of a new call.
    pub(super) const fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// A cycle that waits for extenders.
#[derive(Debug)]
pub(crate) struct Extending {
    pub id: PodId,
    call: u64,
    deadline: Time,
    step: Step,
    /// Whether only the nominated node was evaluated.
    nominated_first: bool,
    /// The sample of nodes that was evaluated; `None`: all were.
    sample: Option<BTreeSet<Sym>>,
    /// Nodes that no plugin has rejected so far.
    feasible: Vec<Sym>,
    rejected: Vec<(Sym, Status)>,
    scores: Map<Sym, i64>,
}

#[derive(Debug)]
enum Step {
    Filter(PluginId, RemoteCall),
    Prioritize(Vec<RemoteCall>),
    Preempt { call: RemoteCall, failure: Box<Failure>, plans: Vec<ExtenderVictims> },
}

/// Which nodes a cycle filters.
enum Nodes<'a> {
    All,
    /// A sample, from this position on.
    Sample(&'a mut usize),
    /// The sample that it has filtered before.
    Of(&'a BTreeSet<Sym>),
}

impl Scheduler {
    fn remote(&self, id: PodId, point: ExtensionPoint) -> impl Iterator<Item = (PluginId, RemoteCall)> {
        let runner = self.profile_of(id).and_then(|p| self.runners.get(p));
        runner.into_iter().flat_map(move |r| r.remote(point, &self.cluster, id))
    }

    /// Whether the pod's cycle asks plugins outside of the process.
    pub(super) fn is_extended(&self, id: PodId) -> bool {
        let points = [ExtensionPoint::Filter, ExtensionPoint::Score, ExtensionPoint::PostFilter];
        self.runners.first().is_some_and(Runner::has_remote)
            && points.iter().any(|p| self.remote(id, *p).next().is_some())
    }

    fn runner_of(&self, id: PodId) -> Option<usize> {
        self.queue.get(id).map(|q| q.profile as usize).filter(|p| *p < self.runners.len())
    }

    /// Starts a cycle: the plugins first, then the extenders.
    pub(super) fn extend(&mut self, id: PodId, skip_nominated: bool) {
        let Some(profile) = self.runner_of(id) else { return };
        if self.cluster.node_count == 0 {
            return self.conclude(id, Outcome::NoNodes);
        }
        self.in_flight_events.entry(id).or_default();
        let incoming = Incoming::new(&self.cluster, id);
        let mut cycle = Cycle::pre_filter(&Unmetered, &self.runners[profile], &self.cluster, incoming);
        let sampled = evaluate::sample(&self.runners[profile], self.cluster.node_count).is_some();
        let nodes = if sampled { Nodes::Sample(&mut self.next_start) } else { Nodes::All };
        let (verdicts, nominated_first) = match filter(&mut cycle, &mut self.cluster, nodes, skip_nominated) {
            Ok(found) => found,
            Err(text) => return self.conclude(id, Outcome::Error(text)),
        };
        let names = |(n, s): &(NodeId, Status)| s.is_success().then(|| self.cluster.nodes[*n].name);
        let feasible: Vec<Sym> = verdicts.iter().filter_map(names).collect();
        let evaluated = verdicts.iter().map(|(n, _)| self.cluster.nodes[*n].name);
        let sample: Option<BTreeSet<Sym>> = sampled.then(|| evaluated.insert_each());
        let call = self.calls.number();
        self.extending = Some(Extending {
            id,
            call,
            deadline: self.now,
            step: Step::Prioritize(Vec::new()),
            nominated_first,
            sample,
            feasible,
            rejected: Vec::new(),
            scores: Map::default(),
        });
        self.ask_filter(0);
    }

    /// Asks the next plugin that filters, from the extender of this number on.
    fn ask_filter(&mut self, from: usize) {
        let Some(ext) = &self.extending else { return };
        let next = self.remote(ext.id, ExtensionPoint::Filter).find(|(_, call)| call.extender >= from);
        match next {
            Some((plugin, call)) if !ext.feasible.is_empty() => {
                let nodes = self.texts(&ext.feasible);
                let asked = (call.extender, call.timeout);
                self.ask(asked, Step::Filter(plugin, call), ExtenderCall::Filter(nodes));
            }
            _ => self.filtered(),
        }
    }

    fn texts(&self, names: &[Sym]) -> Vec<String> {
        names.iter().map(|n| self.cluster.strings.text(*n).to_owned()).collect()
    }

    fn ask(&mut self, (extender, timeout): (usize, Duration), step: Step, what: ExtenderCall) {
        let Some(ext) = &mut self.extending else { return };
        ext.step = step;
        ext.deadline = ext.deadline.max(self.now.plus(timeout).plus(GRACE));
        let (id, call) = (ext.id, ext.call);
        let pod = self.pod_ref(id);
        self.outbox.push(Action::Extend { pod, extender, call, what });
    }

    /// All extenders have filtered.
    fn filtered(&mut self) {
        let Some(ext) = &self.extending else { return };
        let id = ext.id;
        if ext.feasible.is_empty() {
            let again = ext.nominated_first;
            return if again { self.extend(id, true) } else { self.refuse_extended() };
        }
        let mut calls: Vec<RemoteCall> = Vec::new();
        if ext.feasible.len() > 1 {
            calls.extend(self.remote(id, ExtensionPoint::Score).map(|(_, call)| call));
        }
        if calls.is_empty() {
            return self.finish();
        }
        let nodes = self.texts(&ext.feasible);
        for call in &calls {
            let asked = (call.extender, call.timeout);
            self.ask(asked, Step::Prioritize(calls.clone()), ExtenderCall::Prioritize(nodes.clone()));
        }
    }

    /// Looks at the nodes again, scores them and takes the best.
    fn finish(&mut self) {
        let Some(ext) = self.extending.take() else { return };
        let Some(profile) = self.runner_of(ext.id) else { return };
        let incoming = Incoming::new(&self.cluster, ext.id);
        let cluster = &mut self.cluster;
        let mut cycle = Cycle::pre_filter(&Unmetered, &self.runners[profile], cluster, incoming);
        let mut feasible: Vec<NodeId> = Vec::new();
        if cycle.status.is_success() {
            for name in &ext.feasible {
                let Some(node) = cluster.node_by_name(*name) else { continue };
                if cycle.names.as_ref().is_none_or(|n| n.contains(name))
                    && cycle.filter(&Unmetered, cluster, node).is_success()
                {
                    feasible.push(node);
                }
            }
        }
        let chosen = match feasible.as_slice() {
            [] => None,
            [only] => Some(*only),
            many => {
                let scores = match cycle.score(&Unmetered, cluster, many) {
                    Ok(scores) => scores,
                    Err(status) => {
                        let text = self.runners[profile].error_text(cluster, &status, "Score");
                        return self.conclude(ext.id, Outcome::Error(text));
                    }
                };
                let mut sums = totals(&scores, many.len());
                for (sum, node) in sums.iter_mut().zip(many) {
                    let extra = ext.scores.get(&cluster.nodes[*node].name).copied().unwrap_or(0);
                    *sum = sum.saturating_add(extra);
                }
                Some(decide::pick(many, &sums, &mut self.rng))
            }
        };
        match chosen {
            Some(node) => self.conclude(ext.id, Outcome::Placed(node, cycle.state)),
            // No feasible node is left.
            None => self.again(ext.id),
        }
    }

    fn again(&mut self, id: PodId) {
        self.extending = None;
        self.in_flight_events.remove(&id);
        self.queue.enter(id, Stage::Active);
    }

    /// No node is left: sums up why, and looks for victims.
    fn refuse_extended(&mut self) {
        let Some(ext) = self.extending.take() else { return };
        let id = ext.id;
        let Some(profile) = self.runner_of(id) else { return };
        let incoming = Incoming::new(&self.cluster, id);
        let mut cycle = Cycle::pre_filter(&Unmetered, &self.runners[profile], &self.cluster, incoming);
        // Nodes that were not evaluated are not counted, as upstream; events about them are replayed.
        let nodes = ext.sample.as_ref().map_or(Nodes::All, Nodes::Of);
        let mut verdicts = match filter(&mut cycle, &mut self.cluster, nodes, true) {
            Ok((verdicts, _)) => verdicts,
            Err(text) => return self.conclude(id, Outcome::Error(text)),
        };
        let by_name: Map<Sym, Status> = ext.rejected.iter().cloned().collect();
        for (node, status) in verdicts.iter_mut().filter(|(_, s)| s.is_success()) {
            match by_name.get(&self.cluster.nodes[*node].name) {
                Some(rejected) => status.clone_from(rejected),
                None => return self.again(id),
            }
        }
        let mut failure = evaluate::failure(&cycle, &self.cluster, &verdicts);
        let (candidates, clear) = decide::candidates(
            &Unmetered,
            &mut cycle,
            &mut self.cluster,
            &mut failure,
            (&mut self.rng, None),
        );
        let first = self.remote(id, ExtensionPoint::PostFilter).next();
        let Some((_, call)) = first.filter(|_| !candidates.is_empty()) else {
            let candidate = decide::choose(candidates, &mut self.rng);
            return self.conclude(id, Outcome::Rejected { failure, candidate, clear_nomination: clear });
        };
        let plans = candidates.iter().map(|c| ExtenderVictims {
            node: self.cluster.strings.text(self.cluster.nodes[c.node].name).to_owned(),
            pods: c.victims.iter().map(|v| self.pod_ref(*v)).collect(),
            violations: c.violations,
        });
        let plans: Vec<ExtenderVictims> = plans.collect();
        self.extending = Some(ext);
        let asked = (call.extender, call.timeout);
        let step = Step::Preempt { call, failure: Box::new(failure), plans: plans.clone() };
        self.ask(asked, step, ExtenderCall::Preempt(plans));
    }

    /// An extender has answered. The cycle goes on with the next decision: what has changed until then counts.
    pub(super) fn extended(
        &mut self,
        uid: String,
        extender: usize,
        call: u64,
        answer: Result<ExtenderAnswer, String>,
    ) {
        self.calls.answers.push(Answered { uid, extender, call, answer });
    }

    /// Cycles go on for which extenders have answered.
    pub(super) fn take_extenders_answers(&mut self) {
        for answered in std::mem::take(&mut self.calls.answers) {
            self.carry_on(answered);
        }
    }

    fn carry_on(&mut self, Answered { uid, extender, call, answer }: Answered) {
        let Some(id) = self.cluster.pod_by_uid(&uid) else { return };
        if self.is_bind_call(id, call) {
            return self.bind_answered(id, answer);
        }
        let Some(ext) = self.extending.as_mut().filter(|e| e.id == id && e.call == call) else { return };
        match &mut ext.step {
            Step::Filter(plugin, asked) if asked.extender == extender => match answer {
                Ok(ExtenderAnswer::Filter { nodes, failed, unresolvable }) => {
                    let (by, ignorable) = ((*plugin, Arc::clone(&asked.name)), asked.ignorable);
                    match self.take_filter(by, &nodes, &failed, &unresolvable) {
                        Err(text) if !ignorable => self.break_off(&text),
                        // It has changed nothing.
                        Ok(()) | Err(_) => self.ask_filter(extender + 1),
                    }
                }
                _ if asked.ignorable => self.ask_filter(extender + 1),
                Err(text) => self.break_off(&text),
                Ok(_) => self.break_off("the extender answered another question"),
            },
            Step::Prioritize(waiting) => {
                let Some(at) = waiting.iter().position(|asked| asked.extender == extender) else { return };
                let weight = waiting.remove(at).weight;
                let done = waiting.is_empty();
                if let Ok(ExtenderAnswer::Prioritize(scores)) = answer {
                    for (node, score) in scores {
                        let Some(name) = self.cluster.strings.get(&node) else { continue };
                        let sum = ext.scores.entry(name).or_default();
                        *sum = sum.saturating_add(score.saturating_mul(weight).saturating_mul(SCALE));
                    }
                }
                if done {
                    self.finish();
                }
            }
            Step::Preempt { call, .. } if call.extender == extender => {
                let ignorable = call.ignorable;
                self.take_preempt(extender, ignorable, answer);
            }
            Step::Filter(..) | Step::Preempt { .. } => {}
        }
    }

    /// Leaves what an extender has let through.
    fn take_filter(
        &mut self,
        (plugin, extender): (PluginId, Arc<str>),
        nodes: &[String],
        failed: &[(String, String)],
        unresolvable: &[(String, String)],
    ) -> Result<(), String> {
        let strings = &self.cluster.strings;
        let Some(ext) = &mut self.extending else { return Ok(()) };
        let mut left: BTreeSet<Sym> = BTreeSet::new();
        for node in nodes {
            let known = strings.get(node).filter(|n| ext.feasible.contains(n));
            let Some(name) = known else {
                return Err(format!(
                    "extender {extender:?} claims a filtered node {node:?} which is not found in the input node list"
                ));
            };
            left.insert(name);
        }
        let text = |list: &[(String, String)], name: &str| {
            list.iter().find(|(n, _)| n == name).map(|(_, text)| text.clone())
        };
        for name in ext.feasible.iter().filter(|n| !left.contains(n)) {
            let node = strings.text(*name);
            let (code, text) = match (text(unresolvable, node), text(failed, node)) {
                (Some(text), _) => (Code::Unresolvable, Some(text)),
                (None, Some(text)) => (Code::Unschedulable, Some(text)),
                (None, None) => (Code::Unresolvable, None),
            };
            let reasons: SmallVec<[Reason; 1]> = text.map(|t| Reason::Owned(t.into())).into_iter().collect();
            ext.rejected.push((*name, Status { code, plugin: Some(plugin), reasons }));
        }
        ext.feasible.retain(|n| left.contains(n));
        Ok(())
    }

    fn break_off(&mut self, text: &str) {
        if let Some(ext) = self.extending.take() {
            self.conclude(ext.id, Outcome::Error(text.to_owned()));
        }
    }

    /// The pod is deleted or on a node: answers about it are ignored from now on.
    pub(super) fn forget_extended(&mut self, id: PodId) {
        self.in_flight_events.remove(&id);
        if self.extending.as_ref().is_some_and(|e| e.id == id) {
            self.extending = None;
        }
    }

    /// Ends the cycle when an answer has not come in time.
    pub(super) fn give_up_extending(&mut self) {
        if self.extending.as_ref().is_some_and(|e| self.now >= e.deadline) {
            self.break_off("context deadline exceeded");
        }
    }

    /// When the pending answer is too late.
    pub(super) fn extender_deadline(&self) -> Option<Time> {
        self.extending.as_ref().map(|e| e.deadline)
    }
}

/// Verdicts by node, and whether only the nominated node was evaluated.
fn filter(
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
    nodes: Nodes<'_>,
    skip_nominated: bool,
) -> Result<(Verdicts, bool), String> {
    let mut found = (Verdicts::new(), false);
    if cycle.status.is_success() {
        found = match (nodes, skip_nominated) {
            (Nodes::All, false) => evaluate::filter_all(&Unmetered, cycle, cluster),
            (Nodes::Sample(start), false) => evaluate::filter_some(&Unmetered, cycle, cluster, start),
            (Nodes::Sample(start), true) => {
                (evaluate::filter_in_turn(&Unmetered, cycle, cluster, start), false)
            }
            (nodes @ (Nodes::All | Nodes::Of(_)), _) => {
                let mut candidates = cycle.candidates(cluster);
                if let Nodes::Of(names) = nodes {
                    candidates.retain(|n| names.contains(&cluster.nodes[*n].name));
                }
                (candidates.into_iter().map(|n| (n, cycle.filter(&Unmetered, cluster, n))).collect(), false)
            }
        };
    } else if !cycle.status.code.is_rejected() {
        return Err(cycle.runner.error_text(cluster, &cycle.status, "PreFilter"));
    }
    match found.0.iter().find(|(_, s)| !s.is_success() && !s.code.is_rejected()) {
        Some((_, status)) => Err(cycle.runner.error_text(cluster, status, "Filter")),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests;
