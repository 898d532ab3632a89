//! PostFilter: the plugins in order, and what they can do (upstream `RunPostFilterPlugins` in
//! `framework/runtime/framework.go`).

use super::DeviceGrant;
use super::cluster::{Cluster, NodeId, PodId};
use super::cycle::Cycle;
use super::framework::{
    Candidate, Code, CycleState, DryRun, Incoming, PostFilterHandle, PostFilterResult, Status,
};
use super::message::Failure;
use super::metrics::{Meter, Point};
use super::plugins::preemption::{self, DryRuns};
use super::runner::Runner;
use plimsoll_state::rng::Rng;
use plimsoll_state::slab::Id;
use std::sync::Arc;

/// How PostFilter went.
#[derive(Debug, Default)]
pub(crate) struct PostFilter {
    /// Text to append to the message.
    pub text: String,
    pub candidates: Vec<Arc<Candidate>>,
    /// Whether the pod's nomination is to be cleared.
    pub clear_nomination: bool,
    /// Claims of the pod to deallocate.
    pub deallocate: Vec<DeviceGrant>,
}

/// A failed cycle, as PostFilter plugins see it.
struct Failed<'c, 'r, M> {
    meter: &'c M,
    cycle: &'c mut Cycle<'r>,
    cluster: &'c mut Cluster,
    failure: &'c Failure,
    /// Where the search for candidates starts; `None`: all candidates are wanted.
    rng: Option<&'c mut Rng>,
    known: Option<&'c mut DryRuns>,
    deallocate: Vec<DeviceGrant>,
}

impl<M: Meter> PostFilterHandle for Failed<'_, '_, M> {
    fn cluster(&self) -> &Cluster {
        self.cluster
    }

    fn pod(&self) -> &Incoming {
        &self.cycle.pod
    }

    fn state(&self) -> &CycleState {
        &self.cycle.state
    }

    fn nodes(&self) -> &[NodeId] {
        &self.failure.potential
    }

    fn nominated_verdict(&self) -> Option<Code> {
        self.failure.nominated
    }

    fn offset_and_candidates(&mut self, percentage: u32, absolute: u32) -> (usize, usize) {
        let n = self.failure.potential.len();
        let Some(rng) = &mut self.rng else { return (0, usize::MAX) };
        let wanted = (n * percentage as usize / 100).max(absolute as usize).min(n);
        let offset = if n > 0 { rng.below(u32::try_from(n).unwrap_or(u32::MAX)) as usize } else { 0 };
        (offset, wanted)
    }

    fn add_pod(&mut self, pod: PodId, node: NodeId) {
        self.cycle.add_pod(self.cluster, pod, node);
    }

    fn remove_pod(&mut self, pod: PodId) {
        self.cycle.remove_pod(self.cluster, pod);
    }

    fn candidate(&self, node: NodeId, victims: Vec<PodId>, violations: i64) -> Arc<Candidate> {
        preemption::candidate(self.cluster, node, victims, violations)
    }

    fn filter(&mut self, node: NodeId) -> Status {
        self.cycle.filter(self.meter, self.cluster, node)
    }

    fn deallocate(&mut self, claim: DeviceGrant) {
        self.deallocate.push(claim);
    }

    fn count_preemption(&mut self) {
        self.cluster.preempting.attempts += u64::from(self.rng.is_some());
    }

    fn known(&self) -> &[Option<DryRun>] {
        self.known.as_deref().map_or(&[], |known| known)
    }

    fn remember(&mut self, node: NodeId, outcome: &DryRun) {
        let Some(known) = &mut self.known else { return };
        if known.len() < self.cluster.nodes.bound() {
            known.resize(self.cluster.nodes.bound(), None);
        }
        if let Some(slot) = known.get_mut(node.index()) {
            *slot = Some(outcome.clone());
        }
    }
}

/// Runs the plugins until one can help, or fails. Without a generator all candidates are found.
pub(crate) fn run(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
    failure: &Failure,
    (rng, known): (Option<&mut Rng>, Option<&mut DryRuns>),
) -> PostFilter {
    let runner = cycle.runner;
    if runner.post_filter.is_empty() {
        // As `schedulingAlgorithm` in `schedule_one.go`.
        return PostFilter { clear_nomination: true, ..PostFilter::default() };
    }
    let handle = Failed { meter, cycle, cluster, failure, rng, known, deallocate: Vec::new() };
    meter.point(Point::PostFilter, || run_plugins(runner, handle), |(_, code)| *code).0
}

/// What the plugins come to, and the code of that.
fn run_plugins<M: Meter>(runner: &Runner, mut handle: Failed<'_, '_, M>) -> (PostFilter, Code) {
    let mut texts: Vec<String> = Vec::new();
    let mut out = PostFilter::default();
    let meter = handle.meter;
    for i in &runner.post_filter {
        let made = runner.at(*i);
        let run = || made.plugin.post_filter(&mut handle);
        let result = meter.plugin(Point::PostFilter, made.id, run, code);
        let ran = code(&result);
        out.deallocate.append(&mut handle.deallocate);
        match result {
            PostFilterResult::Candidates(candidates) => {
                out.candidates = candidates;
                return (out, ran);
            }
            PostFilterResult::Unschedulable { text, clear_nomination } => {
                out.clear_nomination |= clear_nomination;
                if !text.is_empty() {
                    texts.push(text);
                }
            }
            PostFilterResult::Error(text) => {
                out.text = text;
                out.clear_nomination = false;
                return (out, ran);
            }
        }
    }
    out.text = texts.join(", ");
    (out, Code::Unschedulable)
}

const fn code(result: &PostFilterResult) -> Code {
    match result {
        PostFilterResult::Candidates(_) => Code::Success,
        PostFilterResult::Unschedulable { .. } => Code::Unschedulable,
        PostFilterResult::Error(_) => Code::Error,
    }
}
