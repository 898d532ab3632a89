//! Claims on nodes: where the pods of a workload that waits for nodes will be, so that no workload after it takes what becomes
//! free there.
//!
//! A claim is a dry run with places that are free now, and places that will be when the pods of other workloads have left.
//! While it stands, a node takes another pod only beside the pods that it has and those that the claim has there.

use super::Scheduler;
use super::cluster::{NodeId, PodId};
use super::dry_runs::DryRun;
use super::node_reservations::Placeholder;
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::DryRunId;
use plimsoll_state::time::Time;

type Row = (NodeId, Placeholder);

impl Scheduler {
    /// Plans where the pods of a workload will be: as many as possible where they fit now, the rest as in the plan before,
    /// which ends, and where they fit beside pods of no workload and the dry runs that stand. The plan stands. `None`: they
    /// don't all fit even then.
    pub fn plan_claim(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
        before: Option<DryRunId>,
    ) -> Option<DryRunId> {
        self.now = now;
        if let Some(before) = before {
            self.lift_dry_run(before);
        }
        let mut planned =
            before.and_then(|id| self.dry_runs.remove(id)).map_or_else(Vec::new, |run| run.rows);
        let mut rows: Vec<Row> = Vec::with_capacity(pods.iter().map(|(_, n)| n).sum());
        let mut fits = pods.iter().all(|(pod, n)| self.place_equal(workload, pod, *n, &mut rows).is_none());
        if !fits {
            for (node, placeholder) in &rows {
                let same = |(n, p): &Row| n == node && p.pod_set == placeholder.pod_set;
                if let Some(at) = planned.iter().position(same) {
                    self.cluster.remove_pod(planned.remove(at).1.row);
                }
            }
            let missing = self.take_planned(&missing(pods, &rows), &mut planned, &mut rows);
            fits = missing.is_empty() || self.place_beside_others(workload, &missing, &mut rows);
        }
        planned.into_iter().for_each(|(_, p)| self.cluster.remove_pod(p.row));
        let run = self.dry_runs.insert(DryRun { rows, stands: true });
        if !fits {
            self.end_dry_run(run);
        }
        fits.then_some(run)
    }

    /// Uses planned places for missing pods; what is missing then.
    fn take_planned(
        &mut self,
        missing: &[(model::Pod, usize)],
        planned: &mut Vec<Row>,
        rows: &mut Vec<Row>,
    ) -> Vec<(model::Pod, usize)> {
        let mut left = Vec::new();
        for (pod, count) in missing {
            let mut count = *count;
            let usable = |s: &Self, (node, p): &Row| {
                *p.pod_set == *pod.pod_set && s.cluster.nodes.get(*node).is_some_and(|n| n.exists)
            };
            while count > 0
                && let Some(at) = planned.iter().position(|row| usable(self, row))
            {
                let (node, placeholder) = planned.remove(at);
                self.cluster.place(placeholder.row, node);
                rows.push((node, placeholder));
                count -= 1;
            }
            if count > 0 {
                left.push((pod.clone(), count));
            }
        }
        left
    }

    /// Places pods as if all pods of workloads, and what is reserved for those, had left; whether all fit.
    fn place_beside_others(
        &mut self,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
        rows: &mut Vec<Row>,
    ) -> bool {
        let leaving =
            self.cluster.pods.iter().filter(|(_, p)| p.queued && p.node.is_some()).map(|(id, _)| id);
        let leaving: Vec<PodId> = leaving.chain(self.reservations.all_placeholders()).collect();
        let on_nodes: Vec<(PodId, NodeId)> =
            leaving.into_iter().filter_map(|id| Some((id, self.cluster.unplace_keeping_row(id)?))).collect();
        let fits = pods.iter().all(|(pod, n)| self.place_equal(workload, pod, *n, rows).is_none());
        for (id, node) in on_nodes.into_iter().rev() {
            self.cluster.place(id, node);
        }
        fits
    }
}

/// The pods that have no place among `rows`.
fn missing(pods: &[(model::Pod, usize)], rows: &[Row]) -> Vec<(model::Pod, usize)> {
    let placed = |pod: &model::Pod| rows.iter().filter(|(_, p)| *p.pod_set == *pod.pod_set).count();
    let left = pods.iter().map(|(pod, count)| (pod.clone(), count.saturating_sub(placed(pod))));
    left.filter(|(_, count)| *count > 0).collect()
}
