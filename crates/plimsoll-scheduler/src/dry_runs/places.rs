//! Places that a topology names (joint admission): which of them its pods can have.
//!
//! A podset has a place on each of a thousand nodes, and its pods differ in the node that they select. Where the filters
//! depend on the node alone, PreFilter runs once for all of them.

use super::{DryRun, HOSTNAME};
use crate::Scheduler;
use crate::cluster::{Beside, Cluster, NodeId, Pod, PodId, ShapeId};
use crate::cycle::Cycle;
use crate::framework::Incoming;
use crate::metrics::Unmetered;
use crate::node_reservations::Placeholder;
use crate::plugins::inter_pod_affinity::REASON_EXISTING;
use crate::runner::{Reach, Runner};
use plimsoll_state::intern::Sym;
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::{DryRunFailure, DryRunId, PodsAt};
use plimsoll_state::time::Time;
use std::sync::Arc;

/// What pods have been placed so far.
#[derive(Default)]
struct Placed {
    rows: Vec<(NodeId, Placeholder)>,
    /// How many of each place.
    counts: Vec<usize>,
    failure: Option<DryRunFailure>,
}

impl Scheduler {
    /// Places pods as [`Scheduler::dry_run`] does, and goes on with the next place where one fits nowhere. How many have a node
    /// of each place, and why not all of the first one that were not. `explain`: whether that is to have a message. `alone`: as if
    /// all other workloads had left; then the dry run is lifted.
    pub fn dry_run_each(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[PodsAt<'_>],
        (alone, explain): (bool, bool),
    ) -> (DryRunId, Vec<usize>, Option<DryRunFailure>) {
        self.set_now(now);
        if !alone {
            return self.place_each(workload, pods, (Beside::All, explain));
        }
        let found = if !explain && pods.iter().all(|set| self.is_decided_by_nodes_alone(&set.pod)) {
            self.place_each(workload, pods, (Beside::Alone, false))
        } else {
            self.without_workloads(|s| s.place_each(workload, pods, (Beside::All, explain)))
        };
        self.lift_dry_run(found.0);
        found
    }

    /// Whether each node by itself decides about such pods if the pods of workloads had left.
    fn is_decided_by_nodes_alone(&mut self, pod: &model::Pod) -> bool {
        let Some((row, profile)) = self.placeholder(pod, "", None) else { return true };
        let incoming = Incoming::new(&self.cluster, row);
        let runner = self.runners.get(profile).filter(|_| !self.ranks.off);
        let reach = runner.and_then(|runner| runner.reach_alone(&self.cluster, &incoming));
        self.cluster.remove_pod(row);
        reach.is_some()
    }

    fn place_each(
        &mut self,
        workload: &WorkloadKey,
        pods: &[PodsAt<'_>],
        how: (Beside, bool),
    ) -> (DryRunId, Vec<usize>, Option<DryRunFailure>) {
        let mut placed = Placed::default();
        for set in pods {
            let (mut next, mut alike) = (0, !self.ranks.off);
            while next < set.places.len() {
                if alike {
                    let end = placed.counts.len() + set.places.len() - next;
                    alike = self.place_alike(workload, (set, next), &mut placed, how);
                    next = set.places.len() - (end - placed.counts.len());
                }
                if let Some(place) = set.places.get(next) {
                    self.place_at(workload, (set, place), &mut placed, how.0);
                    next += 1;
                }
            }
        }
        (self.dry_runs.insert(DryRun { rows: placed.rows, stands: true }), placed.counts, placed.failure)
    }

    /// Places the pods of one place, whatever their filters depend on.
    fn place_at(
        &mut self,
        workload: &WorkloadKey,
        (set, (values, count)): (&PodsAt<'_>, &(Vec<String>, i32)),
        placed: &mut Placed,
        beside: Beside,
    ) {
        let mut pod = set.pod.clone();
        let selector = set.levels.iter().cloned().zip(values.iter().cloned());
        pod.spec.node_selector.extend(selector);
        let (before, first) = (placed.rows.len(), placed.failure.is_none());
        let count = number_of(*count);
        let failed = match beside {
            Beside::All => self.place_equal(workload, (&pod, count), &mut placed.rows, first),
            Beside::Alone => {
                let fits = self.place_by_nodes_alone(workload, (&pod, count), &mut placed.rows);
                (fits != Some(true)).then(String::new)
            }
        };
        placed.counts.push(if failed.is_some() { placed.rows.len() - before } else { count });
        if first {
            placed.failure = failed.map(|message| {
                let by_labels = message.contains(REASON_EXISTING);
                DryRunFailure { message, by_labels }
            });
        }
    }

    /// Places the pods of the places of a podset from number `next` on, as long as each place is a node and only that decides
    /// about them: up to a place that [`Scheduler::place_at`] is for, such as the first that fails, if that is to be explained.
    /// Whether that could be done.
    fn place_alike(
        &mut self,
        workload: &WorkloadKey,
        (set, next): (&PodsAt<'_>, usize),
        placed: &mut Placed,
        (beside, explain): (Beside, bool),
    ) -> bool {
        let Some(level) = set.levels.iter().position(|l| l == HOSTNAME) else { return false };
        let name = format!("{}-{}", workload.name, set.pod.pod_set);
        let Some((like, profile)) = self.placeholder(&set.pod, &name, None) else { return false };
        let keys: Option<Vec<Sym>> = set.levels.iter().map(|l| self.cluster.strings.get(l)).collect();
        let (cluster, runner) = (&mut self.cluster, self.runners.get(profile));
        let cycle = runner.and_then(|runner| local_cycle(runner, cluster, like));
        let Some((keys, cycle)) = keys.zip(cycle) else {
            cluster.remove_pod(like);
            return false;
        };
        let pod_set: Arc<str> = set.pod.pod_set.as_str().into();
        let (shape, mut pairs) = (cluster.pods[like].shape, Vec::with_capacity(keys.len()));
        for (values, count) in &set.places[next..] {
            pairs.clear();
            pairs.extend(keys.iter().zip(values).filter_map(|(k, v)| Some((*k, cluster.strings.get(v)?))));
            let node = selected_node(cluster, &pairs, level).filter(|_| pairs.len() == keys.len());
            let Some(node) = node else { break };
            let (before, count) = (placed.rows.len(), number_of(*count));
            let mut own: Option<ShapeId> = None;
            while placed.rows.len() - before < count
                && cluster.beside(beside, node, |c| cycle.filter_once(&Unmetered, c, node).is_success())
            {
                let shape = match own {
                    Some(shape) => cluster.shapes.share(shape),
                    None => cluster.selecting(shape, &pairs),
                };
                own = Some(shape);
                let row = new_row(cluster, &mut self.placeholders, &name, shape);
                cluster.place(row, node);
                placed.rows.push((node, Placeholder { row, pod_set: Arc::clone(&pod_set) }));
            }
            let there = placed.rows.len() - before;
            if there < count && placed.failure.is_none() {
                if explain {
                    placed.rows.drain(before..).rev().for_each(|(_, p)| cluster.remove_pod(p.row));
                    break;
                }
                placed.failure = Some(DryRunFailure { message: String::new(), by_labels: false });
            }
            placed.counts.push(there);
        }
        drop(cycle);
        cluster.remove_pod(like);
        true
    }

    /// Whether so many such pods fit on nodes now, wherever each of them is: a dry run of them succeeds then. `false` where they
    /// don't, and where that depends on more than each node by itself.
    pub fn fits_anywhere(&mut self, now: Time, pod: &model::Pod, count: usize) -> bool {
        self.set_now(now);
        let Some((like, profile)) = self.placeholder(pod, "", None) else { return false };
        let cluster = &mut self.cluster;
        // Rows for the pods of one node, which leave it before the next one is looked at.
        let (mut rows, mut left) = (Vec::new(), count);
        if let Some(cycle) = self.runners.get(profile).and_then(|r| local_cycle(r, cluster, like)) {
            let (shape, nodes) = (cluster.pods[like].shape, cluster.live_nodes().collect::<Vec<_>>());
            for node in nodes {
                // Nominated pods may go first: that is for the whole search.
                if left == 0 || !cluster.nodes[node].nominated.is_empty() {
                    continue;
                }
                self.ranks.work.looked_at += 1;
                let mut there = 0;
                while there < left && cycle.filter_once(&Unmetered, cluster, node).is_success() {
                    if rows.len() == there {
                        let shape = cluster.shapes.share(shape);
                        rows.push(new_row(cluster, &mut self.placeholders, "", shape));
                    }
                    cluster.place(rows[there], node);
                    there += 1;
                }
                rows[..there].iter().rev().for_each(|row| {
                    cluster.unplace(*row);
                });
                left -= there;
            }
        } else {
            left = usize::MAX;
        }
        rows.into_iter().rev().chain([like]).for_each(|row| cluster.remove_pod(row));
        left == 0
    }

    /// The nodes, by name, that don't take one such pod now, or once all other workloads have left (`alone`). Where that depends
    /// on other pods of its workload, there are none.
    pub fn unusable_nodes(&mut self, now: Time, pod: &model::Pod, alone: bool) -> Vec<String> {
        self.set_now(now);
        if !alone {
            self.unusable(pod, Beside::All)
        } else if self.is_decided_by_nodes_alone(pod) {
            self.unusable(pod, Beside::Alone)
        } else {
            self.without_workloads(|s| s.unusable(pod, Beside::All))
        }
    }

    fn unusable(&mut self, pod: &model::Pod, beside: Beside) -> Vec<String> {
        let Some((row, profile)) = self.placeholder(pod, "", None) else { return Vec::new() };
        let spec = &self.cluster.shape(row).spec;
        let unusable = match self.runners.get(profile).filter(|_| !spec.depends_on_pods()) {
            None => Vec::new(),
            Some(runner) => {
                let incoming = Incoming::new(&self.cluster, row);
                let cycle = Cycle::pre_filter(&Unmetered, runner, &self.cluster, incoming);
                let cluster = &mut self.cluster;
                let mut nodes: Vec<NodeId> = cluster.live_nodes().collect();
                nodes.retain(|node| {
                    let takes = |c: &mut Cluster| {
                        cycle.status.is_success()
                            && cycle.allows(c, *node)
                            && cycle.filter_once(&Unmetered, c, *node).is_success()
                    };
                    !cluster.beside(beside, *node, takes)
                });
                let name = |node: NodeId| cluster.strings.text(cluster.nodes[node].name).to_owned();
                nodes.into_iter().map(name).collect()
            }
        };
        self.cluster.remove_pod(row);
        unusable
    }
}

/// The filters for all pods like one, if they look at nothing but the node, as it is when they are asked. Objects that plugins
/// read are kept for single pods.
fn local_cycle<'a>(runner: &'a Runner, cluster: &Cluster, like: PodId) -> Option<Cycle<'a>> {
    let incoming = Incoming::new(cluster, like);
    if cluster.sources.keep || !matches!(runner.reach(cluster, &incoming), Reach::Node | Reach::Labels) {
        return None;
    }
    let cycle = Cycle::pre_filter(&Unmetered, runner, cluster, incoming);
    (cycle.status.is_success() && cycle.names.is_none()).then_some(cycle)
}

/// The node with these labels, of which the one at `level` has its name, unless pods are nominated to it: those may go first.
fn selected_node(cluster: &Cluster, labels: &[(Sym, Sym)], level: usize) -> Option<NodeId> {
    let node = cluster.node_by_name(labels.get(level)?.1)?;
    let row = &cluster.nodes[node];
    (row.nominated.is_empty() && row.info.labels.has_all(labels)).then_some(node)
}

/// How many pods there are at a place.
fn number_of(pods: i32) -> usize {
    usize::try_from(pods).unwrap_or(0)
}

/// A row for a pod to come, on no node.
fn new_row(cluster: &mut Cluster, number: &mut u64, name: &str, shape: ShapeId) -> PodId {
    *number += 1;
    cluster.insert_pod(Pod::new(&format!("reservation-{number}"), name, shape))
}
