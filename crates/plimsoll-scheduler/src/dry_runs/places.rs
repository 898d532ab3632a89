//! Places that a topology names (joint admission): which of them its pods can have.

use super::DryRun;
use crate::Scheduler;
use crate::cycle::Cycle;
use crate::framework::Incoming;
use crate::metrics::Unmetered;
use crate::plugins::inter_pod_affinity::REASON_EXISTING;
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::{DryRunFailure, DryRunId};
use plimsoll_state::time::Time;

impl Scheduler {
    /// Places pods as [`Scheduler::dry_run`] does, and goes on with the next kind of pods where one fits nowhere. How many of
    /// each kind have a node, and the message about the first that has none. `alone`: as if all other workloads had left; then it
    /// is lifted.
    pub fn dry_run_each(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
        alone: bool,
    ) -> (DryRunId, Vec<usize>, Option<DryRunFailure>) {
        self.set_now(now);
        if alone {
            return self.without_workloads(|s| {
                let found = s.place_each(workload, pods);
                s.lift_dry_run(found.0);
                found
            });
        }
        self.place_each(workload, pods)
    }

    fn place_each(
        &mut self,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
    ) -> (DryRunId, Vec<usize>, Option<DryRunFailure>) {
        let (mut rows, mut placed, mut failure) = (Vec::new(), Vec::with_capacity(pods.len()), None);
        for (pod, count) in pods {
            let before = rows.len();
            let failed = self.place_equal(workload, (pod, *count), &mut rows, failure.is_none());
            placed.push(if failed.is_some() { rows.len() - before } else { *count });
            failure = failure.or_else(|| {
                let message = failed?;
                Some(DryRunFailure { by_labels: message.contains(REASON_EXISTING), message })
            });
        }
        (self.dry_runs.insert(DryRun { rows, stands: true }), placed, failure)
    }

    /// Which of these nodes take one such pod now, or once all other workloads have left (`alone`). Where that depends on other
    /// pods of its workload, all do.
    pub fn usable_nodes(&mut self, now: Time, pod: &model::Pod, nodes: &[&str], alone: bool) -> Vec<bool> {
        self.set_now(now);
        if alone { self.without_workloads(|s| s.usable(pod, nodes)) } else { self.usable(pod, nodes) }
    }

    fn usable(&mut self, pod: &model::Pod, nodes: &[&str]) -> Vec<bool> {
        let Some((row, profile)) = self.placeholder(pod, "", None) else { return vec![true; nodes.len()] };
        let spec = &self.cluster.shape(row).spec;
        let usable = match self.runners.get(profile).filter(|_| !spec.depends_on_pods()) {
            None => vec![true; nodes.len()],
            Some(runner) => {
                let incoming = Incoming::new(&self.cluster, row);
                let cycle = Cycle::pre_filter(&Unmetered, runner, &self.cluster, incoming);
                let takes = |name: &&str| {
                    let known = self.cluster.strings.get(name).and_then(|n| self.cluster.node_by_name(n));
                    known.is_some_and(|node| {
                        cycle.status.is_success()
                            && cycle.allows(&self.cluster, node)
                            && cycle.filter_once(&Unmetered, &self.cluster, node).is_success()
                    })
                };
                nodes.iter().map(takes).collect()
            }
        };
        self.cluster.remove_pod(row);
        usable
    }
}
