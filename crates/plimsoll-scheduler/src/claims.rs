//! Claims on nodes: where the pods of a workload that waits for nodes will be, so that no workload after it takes what becomes
//! free there.
//!
//! A claim is a dry run with places that are free now, and places that will be when the pods of other workloads have left.
//! While it stands, a node takes another pod only beside the pods that it has and those that the claim has there.

use super::Scheduler;
use super::cluster::{Beside, NodeId, PodId};
use super::cycle::Cycle;
use super::dry_runs::DryRun;
use super::framework::Incoming;
use super::metrics::Unmetered;
use super::node_reservations::Placeholder;
use super::ranked::{Rank, Wanted};
use plimsoll_state::cast::index32;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::DryRunId;
use plimsoll_state::slab::Id;
use plimsoll_state::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Row = (NodeId, Placeholder);

/// Places of the plan before, by podset and node, in this order.
#[derive(Default)]
struct Planned(BTreeMap<Arc<str>, BTreeMap<NodeId, Vec<Placeholder>>>);

impl Planned {
    fn new(rows: Vec<Row>) -> Self {
        let mut out = Self::default();
        for (node, p) in rows {
            out.0.entry(Arc::clone(&p.pod_set)).or_default().entry(node).or_default().push(p);
        }
        out
    }

    /// Takes a place of a podset on a node.
    fn take(&mut self, node: NodeId, pod_set: &str) -> Option<Placeholder> {
        let nodes = self.0.get_mut(pod_set)?;
        let there = nodes.get_mut(&node)?;
        let taken = there.pop();
        if there.is_empty() {
            nodes.remove(&node);
        }
        taken
    }

    /// Takes the next place of a podset.
    fn next_of(&mut self, pod_set: &str) -> Option<Row> {
        let node = *self.0.get(pod_set)?.first_key_value()?.0;
        Some((node, self.take(node, pod_set)?))
    }

    fn rest(self) -> impl Iterator<Item = Placeholder> {
        self.0.into_values().flat_map(BTreeMap::into_values).flatten()
    }
}

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
        self.set_now(now);
        // A part of a plan is none.
        self.ranks.work.may_put_off = false;
        self.ranks.work.claims += 1;
        if let Some(before) = before {
            self.lift_dry_run(before);
        }
        let planned = before.and_then(|id| self.dry_runs.remove(id)).map_or_else(Vec::new, |run| run.rows);
        let mut planned = Planned::new(planned);
        let mut rows: Vec<Row> = Vec::new();
        let mut fits =
            pods.iter().all(|(pod, n)| self.place_equal(workload, (pod, *n), &mut rows, false).is_none());
        if !fits {
            for (node, placeholder) in &rows {
                if let Some(same) = planned.take(*node, &placeholder.pod_set) {
                    self.cluster.remove_pod(same.row);
                }
            }
            let missing = self.take_planned(missing(pods, &rows), &mut planned, &mut rows);
            fits = missing.is_empty() || self.place_beside_others(workload, &missing, &mut rows);
        }
        planned.rest().for_each(|p| self.cluster.remove_pod(p.row));
        let run = self.dry_runs.insert(DryRun { rows, stands: true });
        if !fits {
            self.end_dry_run(run);
        }
        fits.then_some(run)
    }

    /// The nodes of a plan, as numbers, one for each pod, in order.
    pub fn planned_on(&self, plan: DryRunId) -> Vec<usize> {
        let rows = self.dry_runs.get(plan).map_or(&[][..], |run| &run.rows);
        let mut nodes: Vec<usize> = rows.iter().map(|(node, _)| node.index()).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The workloads that have to leave before all pods of a plan fit on its nodes. `None`: that is not known, because others
    /// than pods of workloads are in the way, or more than resources decide.
    pub fn claim_blockers(&mut self, plan: DryRunId) -> Option<BTreeSet<WorkloadKey>> {
        let stands = self.dry_runs.get(plan)?.stands;
        if !stands {
            self.restore_dry_run(plan, false);
        }
        let blockers = self.blockers(plan);
        if !stands {
            self.lift_dry_run(plan);
        }
        blockers
    }

    fn blockers(&self, plan: DryRunId) -> Option<BTreeSet<WorkloadKey>> {
        let rows = &self.dry_runs.get(plan)?.rows;
        let own: BTreeSet<PodId> = rows.iter().map(|(_, p)| p.row).insert_each();
        let mut blockers = BTreeSet::new();
        for (node, placeholder) in rows {
            let spec = &self.cluster.shape(placeholder.row).spec;
            if spec.depends_on_pods() || !spec.ports.is_empty() || !spec.source.volumes.is_empty() {
                return None;
            }
            if !self.cluster.is_overcommitted(*node) {
                continue;
            }
            for pod in self.cluster.nodes[*node].pods.iter().filter(|p| !own.contains(p)) {
                let workload = self.cluster.workloads.workload(*pod);
                blockers
                    .insert(workload.or_else(|| self.reservations.workload_of_placeholder(*pod))?.clone());
            }
        }
        Some(blockers)
    }

    /// Uses planned places for missing pods; what is missing then.
    fn take_planned(
        &mut self,
        mut missing: Vec<(model::Pod, usize)>,
        planned: &mut Planned,
        rows: &mut Vec<Row>,
    ) -> Vec<(model::Pod, usize)> {
        for (pod, count) in &mut missing {
            while *count > 0
                && let Some((node, placeholder)) = planned.next_of(&pod.pod_set)
            {
                if self.cluster.nodes.get(node).is_some_and(|n| n.exists) {
                    self.cluster.place(placeholder.row, node);
                    rows.push((node, placeholder));
                    *count -= 1;
                } else {
                    self.cluster.remove_pod(placeholder.row);
                }
            }
        }
        missing.retain(|(_, count)| *count > 0);
        missing
    }

    /// Places pods as if all pods of workloads, and what is reserved for those, had left; whether all fit.
    fn place_beside_others(
        &mut self,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
        rows: &mut Vec<Row>,
    ) -> bool {
        pods.iter().all(|(pod, count)| {
            let before = rows.len();
            let fits = self.place_by_nodes_alone(workload, (pod, *count), rows);
            fits.unwrap_or_else(|| {
                let left = count - (rows.len() - before);
                self.without_workloads(|s| s.place_equal(workload, (pod, left), rows, false).is_none())
            })
        })
    }

    /// The same for a number of equal pods where each node by itself decides: no pod has to be taken off its node but on those that
    /// are looked at. `None`: more than that decides.
    pub(super) fn place_by_nodes_alone(
        &mut self,
        workload: &WorkloadKey,
        (pod, count): (&model::Pod, usize),
        rows: &mut Vec<Row>,
    ) -> Option<bool> {
        let pod_set: Arc<str> = pod.pod_set.as_str().into();
        let name = format!("{}-{}", workload.name, pod.pod_set);
        let only = self.only_node_of(pod);
        let mut last = None;
        for _ in 0..count {
            let Some((row, profile)) = self.placeholder(pod, &name, last) else { return Some(true) };
            match self.best_node_alone(row, profile, only) {
                Some(Some(node)) => {
                    self.cluster.place(row, node);
                    rows.push((node, Placeholder { row, pod_set: Arc::clone(&pod_set) }));
                    last = Some(row);
                }
                found => {
                    self.cluster.remove_pod(row);
                    return found.map(|_| false);
                }
            }
        }
        Some(true)
    }

    /// The best node for a pod if all pods of workloads had left, of `only` one, if it has to be that; inner `None`: none fits.
    /// `None`: more than each node by itself decides.
    fn best_node_alone(&mut self, id: PodId, profile: usize, only: Option<NodeId>) -> Option<Option<NodeId>> {
        let runner = self.runners.get(profile)?;
        let incoming = Incoming::new(&self.cluster, id);
        if let Some(node) = only {
            runner.reach_alone(&self.cluster, &incoming)?;
            let cycle = Cycle::pre_filter(&Unmetered, runner, &self.cluster, incoming);
            let fits = self.cluster.alone_on(node, |cluster| {
                cycle.status.is_success()
                    && cycle.allows(cluster, node)
                    && cycle.filter_once(&Unmetered, cluster, node).is_success()
            });
            return Some(fits.then_some(node));
        }
        let wanted = Wanted { profile: index32(profile), beside: Beside::Alone, equal_follow: true };
        match self.ranks.best(None, runner, wanted, &mut self.cluster, &incoming, &mut self.rng) {
            Rank::Best(node) => Some(Some(node)),
            Rank::None(_) | Rank::PutOff => Some(None),
            Rank::Unknown => None,
        }
    }

    /// Does something as if all pods of workloads, and what is reserved for those, had left.
    pub(super) fn without_workloads<T>(&mut self, something: impl FnOnce(&mut Self) -> T) -> T {
        let leaving = self.cluster.pods.iter().filter(|(_, p)| p.queued && p.node.is_some());
        let leaving: Vec<PodId> = leaving.map(|(id, _)| id).collect();
        let on_nodes: Vec<(PodId, NodeId)> =
            leaving.into_iter().filter_map(|id| Some((id, self.cluster.unplace_keeping_row(id)?))).collect();
        let done = something(self);
        for (id, node) in on_nodes.into_iter().rev() {
            self.cluster.place(id, node);
        }
        done
    }
}

/// The pods that have no place among `rows`, which has some in the order of `pods`. With places in a topology there are
/// several entries of one podset.
pub(super) fn missing(pods: &[(model::Pod, usize)], rows: &[Row]) -> Vec<(model::Pod, usize)> {
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    rows.iter().for_each(|(_, p)| *placed.entry(&p.pod_set).or_default() += 1);
    let left = pods.iter().map(|(pod, count)| {
        let there = placed.get_mut(pod.pod_set.as_str());
        let known = there.as_ref().map_or(0, |n| **n).min(*count);
        there.into_iter().for_each(|n| *n -= known);
        (pod.clone(), count - known)
    });
    left.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod alone_tests;
