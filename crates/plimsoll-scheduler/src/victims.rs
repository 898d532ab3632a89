//! Preemption for nodes (joint admission): where the pods of a workload fit once others have left. Workloads are removed,
//! one after the other, until all pods of a dry run have a node, and added again where they are not in the way after all.

use super::Scheduler;
use super::cluster::{NodeId, PodId};
use super::dry_runs::DryRun;
use super::node_reservations::Placeholder;
use super::plugins::preemption::BudgetsLeft;
use plimsoll_state::model::{self, Protection, WorkloadKey};
use plimsoll_state::reservation::DryRunId;
use plimsoll_state::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Where pods were that are removed.
pub(crate) type Removed = BTreeMap<Option<WorkloadKey>, Vec<(PodId, NodeId)>>;

impl Scheduler {
    /// Takes the pods of a workload, and what is reserved for it, off their nodes, until they are added again; `None`: the pods
    /// of all workloads that are being deleted. How many there were.
    pub fn simulate_removal(&mut self, workload: Option<&WorkloadKey>) -> usize {
        if self.removed.contains_key(&workload.cloned()) {
            return 0;
        }
        let pods: Vec<PodId> = match workload {
            Some(key) => {
                let placeholders = self.reservations.placeholders_of(key);
                self.cluster.workloads.of(key).map(|(id, _)| id).chain(placeholders).collect()
            }
            None => self.cluster.workloads.leaving().collect(),
        };
        let there: Vec<(PodId, NodeId)> =
            pods.into_iter().filter_map(|id| Some((id, self.cluster.unplace_keeping_row(id)?))).collect();
        let count = there.len();
        self.removed.insert(workload.cloned(), there);
        count
    }

    /// Adds the pods of a workload again that was removed.
    pub fn simulate_addition(&mut self, workload: Option<&WorkloadKey>) {
        for (pod, node) in self.removed.remove(&workload.cloned()).unwrap_or_default().into_iter().rev() {
            self.cluster.place(pod, node);
        }
    }

    /// Places those of these pods that a standing dry run has no place for; whether all have one then.
    pub fn extend_dry_run(
        &mut self,
        now: Time,
        run: DryRunId,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
    ) -> bool {
        self.set_now(now);
        let Some(known) = self.dry_runs.get_mut(run) else { return false };
        let mut rows = std::mem::take(&mut known.rows);
        let missing = super::claims::missing(pods, &rows);
        let fits =
            missing.iter().all(|(pod, n)| self.place_equal(workload, (pod, *n), &mut rows, false).is_none());
        if let Some(known) = self.dry_runs.get_mut(run) {
            known.rows = rows;
        }
        fits
    }

    /// Adds the pods of a workload again that was removed, if the pods of a standing dry run have a node beside them, where
    /// needed another one than before. Otherwise nothing has changed.
    pub fn put_back_beside(&mut self, run: DryRunId, workload: &WorkloadKey) -> bool {
        let key = Some(workload.clone());
        if !self.removed.contains_key(&key) {
            return true;
        }
        let Some(rows) = self.dry_runs.get_mut(run).map(|r| std::mem::take(&mut r.rows)) else {
            return false;
        };
        let there = self.removed.remove(&key).unwrap_or_default();
        there.iter().rev().for_each(|(pod, node)| self.cluster.place(*pod, *node));
        let touched: BTreeSet<NodeId> = there.iter().map(|(_, node)| *node).collect();
        let everywhere = self.matter_elsewhere(&there, &rows);
        let mut moved = Vec::new();
        for (at, (node, placeholder)) in rows.iter().enumerate() {
            if !everywhere && !touched.contains(node) {
                continue;
            }
            self.cluster.unplace(placeholder.row);
            let profile = self.profile_of(placeholder.row);
            if profile.is_some_and(|p| self.passes_on(placeholder.row, *node, p).is_some()) {
                self.cluster.place(placeholder.row, *node);
            } else {
                moved.push(at);
            }
        }
        let mut rows = rows;
        let mut before = Vec::new();
        let fits = moved.iter().all(|&at| {
            let row = rows[at].1.row;
            let found = self.profile_of(row).and_then(|p| self.best_node(row, p, (false, false)).ok());
            found.is_some_and(|node| {
                self.cluster.place(row, node);
                before.push((at, std::mem::replace(&mut rows[at].0, node)));
                true
            })
        });
        if !fits {
            before.into_iter().for_each(|(at, node)| rows[at].0 = node);
            moved.iter().for_each(|&at| {
                self.cluster.unplace(rows[at].1.row);
            });
            there.iter().for_each(|(pod, _)| {
                self.cluster.unplace_keeping_row(*pod);
            });
            moved.iter().for_each(|&at| self.cluster.place(rows[at].1.row, rows[at].0));
            self.removed.insert(key, there);
        }
        if let Some(known) = self.dry_runs.get_mut(run) {
            *known = DryRun { rows, stands: true };
        }
        fits
    }

    /// Whether pods that return may be in the way of placeholders on other nodes: by affinity or spreading of these, by
    /// anti-affinity of those, or by a volume that only one pod may use.
    fn matter_elsewhere(&self, returning: &[(PodId, NodeId)], rows: &[(NodeId, Placeholder)]) -> bool {
        let keeps_off = |pod: PodId| !self.cluster.shape(pod).spec.anti_affinity.required.is_empty();
        rows.iter().any(|(_, p)| {
            let spec = &self.cluster.shape(p.row).spec;
            spec.depends_on_pods() || !spec.source.volumes.is_empty()
        }) || returning.iter().any(|(pod, _)| keeps_off(*pod))
    }

    /// What speaks against preempting the pods of a workload for one with pods of this priority. Budgets count the pods of
    /// workloads that are removed as deleted before.
    pub fn protection(&self, workload: &WorkloadKey, priority: i64) -> Protection {
        let pods: Vec<PodId> = self.cluster.workloads.of(workload).map(|(id, _)| id).collect();
        if pods.iter().any(|p| i64::from(self.cluster.priority(*p)) > priority) {
            Protection::Priority
        } else if self.violates_budgets(workload, &pods) {
            Protection::Budget
        } else {
            Protection::None
        }
    }

    /// Whether deleting these pods of a workload violates a budget, once those of the workloads removed are deleted.
    fn violates_budgets(&self, workload: &WorkloadKey, pods: &[PodId]) -> bool {
        let namespace = pods.first().map(|p| self.cluster.shape(*p).namespace);
        let budgets = namespace.and_then(|n| self.cluster.objects.budgets.get(&n));
        if budgets.is_none_or(|b| b.is_empty()) {
            return false;
        }
        let mut left = BudgetsLeft::new(&self.cluster);
        let before = self.removed.keys().flatten().filter(|w| w.namespace == workload.namespace);
        for (pod, _) in before.flat_map(|w| self.cluster.workloads.of(w)) {
            left.delete(pod);
        }
        pods.iter().fold(false, |violated, p| left.delete(*p) | violated)
    }
}
