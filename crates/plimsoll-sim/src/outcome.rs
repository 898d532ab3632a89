//! How a run ended, and whether it kept to the bounds of its scenario.

use std::collections::BTreeMap;

use plimsoll_state::Duration;

use crate::check::{Rule, Violation};
use crate::measure::Measure;
use crate::scenario::Bounds;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Steps.
    pub steps: u64,
    /// Virtual time.
    pub took: Duration,
    /// What went wrong.
    pub violation: Option<Violation>,
    /// Sum over everything the API server ever held: equal in equal runs.
    pub digest: u64,
    /// How long workloads that had quota waited for nodes at most, by priority.
    pub waited_for_nodes: BTreeMap<i64, Duration>,
    /// How many pods the scheduler once had no node for.
    pub unschedulable: usize,
    /// How many workloads were preempted, and the longest time between a preemption and the start of the workload that it
    /// was for.
    pub preemptions: (usize, Duration),
    /// How many variants were evicted for a sibling with a more favorable flavor.
    pub migrations: usize,
    /// How many explanations of why something waits were compared with the objects.
    pub explanations: usize,
    /// What gangs got of the nodes, where they are gangs.
    pub measured: Option<Measure>,
}

impl Outcome {
    /// The first of these bounds that the run has not kept to.
    pub(crate) fn beyond(&self, bounds: &Bounds) -> Option<Violation> {
        let broken = |message| Some(Violation::new(Rule::Waiting, message));
        for (priority, bound) in &bounds.waited {
            let waited = self.waited_for_nodes.get(priority).copied().unwrap_or_default();
            if waited > Duration::from_millis(*bound) {
                return broken(format!("a workload of priority {priority} waited for nodes for {waited:?}"));
            }
        }
        let (count, longest) = self.preemptions;
        if bounds.preempting.is_some_and(|bound| longest > Duration::from_millis(bound)) {
            return broken(format!("{count} were preempted, and the preemptor started after {longest:?}"));
        }
        if bounds.placed && self.unschedulable > 0 {
            return broken(format!("{} pods had no node", self.unschedulable));
        }
        None
    }
}
