//! One scheduling cycle over the plugins of a profile: PreFilter, Filter, PreScore, Score (upstream
//! `framework/runtime/framework.go` and `schedulePod` in `schedule_one.go`).

use super::cluster::{Cluster, NodeId, PodId};
use super::framework::{
    Code, CycleState, FilterState, Incoming, PluginId, PluginIds, PreFilterResult, Reason, ScoreState, Status,
};
use super::runner::{Layer, Made, Runner};
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::intern::Sym;
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// What PreFilter left behind: one state per plugin that goes on to filter.
#[derive(Debug)]
pub(crate) struct Cycle<'a> {
    pub runner: &'a Runner,
    pub pod: Incoming,
    /// What plugins keep for later points.
    pub state: CycleState,
    /// Filter states by position of the plugin; `None`: skipped.
    states: Vec<Option<Box<dyn FilterState>>>,
    /// Plugins that filter this pod, in filter order: position and number.
    filters: SmallVec<[(usize, PluginId); 8]>,
    /// The only nodes to evaluate (`PreFilterResult`); `None`: all.
    pub names: Option<BTreeSet<Sym>>,
    /// The only nodes there are for the pod, ascending: those of a placement; `None`: all.
    within: Option<&'a [NodeId]>,
    /// Plugins that restricted the nodes.
    pub restricted_by: PluginIds,
    /// The verdict of PreFilter as a whole.
    pub status: Status,
}

impl<'a> Cycle<'a> {
    /// Runs PreFilter.
    pub fn pre_filter(runner: &'a Runner, cluster: &Cluster, pod: Incoming) -> Self {
        Self::pre_filter_without(runner, cluster, pod, &[])
    }

    /// Runs PreFilter, leaving out some plugins.
    pub fn pre_filter_without(
        runner: &'a Runner,
        cluster: &Cluster,
        pod: Incoming,
        without: &[usize],
    ) -> Self {
        let mut cycle = Self {
            runner,
            pod,
            state: CycleState::default(),
            states: runner.plugins.iter().map(|_| None).collect(),
            filters: SmallVec::new(),
            names: None,
            within: None,
            restricted_by: PluginIds::default(),
            status: Status::success(),
        };
        cycle.run_pre_filter(cluster, without);
        let filters = runner.filter.iter().filter(|i| cycle.states[**i].is_some());
        cycle.filters = filters.map(|i| (*i, runner.plugins[*i].id)).collect();
        cycle
    }

    fn run_pre_filter(&mut self, cluster: &Cluster, without: &[usize]) {
        for i in self.runner.pre_filter.iter().filter(|i| !without.contains(i)) {
            let made = &self.runner.plugins[*i];
            match made.plugin.pre_filter(cluster, &self.pod, &mut self.state) {
                PreFilterResult::Skip => {}
                PreFilterResult::Reject(status) => {
                    let goes_on = status.code == Code::Unschedulable;
                    self.status = status.by(made.id);
                    if !goes_on {
                        return;
                    }
                }
                PreFilterResult::Go { nodes, state } => {
                    self.states[*i] = Some(state);
                    if let Some(nodes) = nodes
                        && !self.runner.filter_only.contains(i)
                        && self.restrict(made.id, nodes)
                    {
                        return;
                    }
                }
            }
        }
    }

    /// Runs PreFilter for a cycle in a placement (`Snapshot.AssumePlacement`), `within` ascending. As upstream, PreFilter
    /// looks at all nodes.
    pub fn pre_filter_within(
        runner: &'a Runner,
        cluster: &Cluster,
        pod: Incoming,
        within: Option<&'a [NodeId]>,
    ) -> Self {
        Self { within, ..Self::pre_filter(runner, cluster, pod) }
    }

    /// Whether the node is there for the pod.
    pub fn is_within(&self, node: NodeId) -> bool {
        self.within.is_none_or(|nodes| nodes.binary_search(&node).is_ok())
    }

    /// How many nodes are there for the pod (`NumNodesInPlacement`).
    pub fn node_count(&self, cluster: &Cluster) -> usize {
        self.within.map_or(cluster.node_count, <[NodeId]>::len)
    }

    /// The nodes that are there for the pod.
    pub fn live_nodes(&self, cluster: &Cluster) -> Vec<NodeId> {
        match self.within {
            None => cluster.live_nodes().collect(),
            Some(nodes) => nodes.to_vec(),
        }
    }

    /// Names of the plugins that restricted the nodes.
    fn restricting(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.restricted_by.iter().map(|p| self.runner.names.of(p)).collect();
        names.sort_unstable();
        names
    }

    /// Intersects the node set; true when nothing is left.
    fn restrict(&mut self, by: PluginId, nodes: Vec<Sym>) -> bool {
        self.restricted_by.insert(by);
        let new: BTreeSet<Sym> = nodes.into_iter().insert_each();
        let left = match self.names.take() {
            None => new,
            Some(old) => old.intersection(&new).copied().insert_each(),
        };
        let empty = left.is_empty();
        self.names = Some(left);
        if empty {
            let names = self.restricting();
            let text = match names.as_slice() {
                [one] => format!("node(s) didn't satisfy plugin {one}"),
                many => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", many.join(" ")),
            };
            self.status = Status {
                code: Code::Unresolvable,
                plugin: None,
                reasons: std::iter::once(Reason::Owned(text.into())).collect(),
            };
        }
        empty
    }

    /// The verdict on nodes outside the set.
    pub fn outside(&self) -> Status {
        let text = format!("node(s) didn't satisfy plugin(s) [{}]", self.restricting().join(" "));
        Status {
            code: Code::Unresolvable,
            plugin: None,
            reasons: std::iter::once(Reason::Owned(text.into())).collect(),
        }
    }

    /// Nodes to evaluate, in id order.
    pub fn candidates(&self, cluster: &Cluster) -> Vec<NodeId> {
        match &self.names {
            None => self.live_nodes(cluster),
            Some(names) => {
                let mut out: Vec<NodeId> = names.iter().filter_map(|n| cluster.node_by_name(*n)).collect();
                out.retain(|n| self.is_within(*n));
                out.sort_unstable();
                out
            }
        }
    }

    /// Whether PreFilter left the node to be evaluated.
    pub fn allows(&self, cluster: &Cluster, node: NodeId) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(&cluster.nodes[node].name))
    }

    /// Filter plugins in order; stops at the first that rejects.
    pub fn filter_once(&self, cluster: &Cluster, node: NodeId) -> Status {
        for (i, plugin) in &self.filters {
            let Some(state) = &self.states[*i] else { continue };
            let mut status = state.filter(cluster, node);
            if !status.is_success() {
                status.plugin = Some(*plugin);
                return status;
            }
        }
        Status::success()
    }

    /// Filter with the pods nominated to the node: with them when they go first, then without.
    pub fn filter(&mut self, cluster: &mut Cluster, node: NodeId) -> Status {
        if cluster.nodes[node].nominated.is_empty() {
            return self.filter_once(cluster, node);
        }
        let priority = self.pod.shape.spec.priority;
        let own = self.pod.id;
        let added: Vec<PodId> = cluster.nodes[node]
            .nominated
            .iter()
            .copied()
            .filter(|p| *p != own && cluster.pods[*p].node.is_none() && cluster.priority(*p) >= priority)
            .collect();
        for p in &added {
            self.add_pod(cluster, *p, node);
        }
        let mut status = self.filter_once(cluster, node);
        for p in &added {
            self.remove_pod(cluster, *p);
        }
        if !added.is_empty() && status.is_success() {
            status = self.filter_once(cluster, node);
        }
        status
    }

    /// Counts a pod on a node, in the cluster and in all filter states.
    ///
    /// For trials only: the caller takes it back, so it is no change to others.
    pub fn add_pod(&mut self, cluster: &mut Cluster, pod: PodId, node: NodeId) {
        cluster.changes.paused = true;
        cluster.place(pod, node);
        cluster.changes.paused = false;
        for state in self.states.iter_mut().flatten() {
            state.add_pod(cluster, pod, node);
        }
    }

    /// Takes a pod off its node, in the cluster and in all filter states.
    pub fn remove_pod(&mut self, cluster: &mut Cluster, pod: PodId) -> Option<NodeId> {
        let node = cluster.pods[pod].node?;
        cluster.changes.paused = true;
        cluster.unplace(pod);
        cluster.changes.paused = false;
        for state in self.states.iter_mut().flatten() {
            state.remove_pod(cluster, pod, node);
        }
        Some(node)
    }

    /// Scores by plugin for feasible nodes: normalised and weighted. Skipped plugins are not there.
    ///
    /// # Errors
    /// The status of the first plugin that failed.
    pub fn score(&self, cluster: &Cluster, nodes: &[NodeId]) -> Result<Vec<(PluginId, Vec<i64>)>, Status> {
        let mut out = Vec::with_capacity(self.runner.score.len());
        for (i, weight) in &self.runner.score {
            let Made { id, plugin } = &self.runner.plugins[*i];
            let Some(state) = plugin.pre_score(cluster, &self.pod, nodes, &self.state) else {
                if self.runner.score_only.contains(i) {
                    out.push((*id, vec![0; nodes.len()]));
                }
                continue;
            };
            let mut scores: Vec<i64> = nodes.iter().map(|n| state.score(cluster, *n)).collect();
            state.normalize_score(cluster, nodes, &mut scores);
            if let Some(status) = state.failure() {
                return Err(status.by(*id));
            }
            for s in &mut scores {
                *s = s.saturating_mul(*weight);
            }
            out.push((*id, scores));
        }
        Ok(out)
    }

    /// Score states with their weights, for no nodes in particular.
    pub fn score_states(&self, cluster: &Cluster, without: &[usize]) -> Vec<(Box<dyn ScoreState>, i64)> {
        let mut out = Vec::new();
        for (i, weight) in self.runner.score.iter().filter(|(i, _)| !without.contains(i)) {
            let plugin = &self.runner.plugins[*i].plugin;
            if let Some(state) = plugin.pre_score(cluster, &self.pod, &[], &self.state) {
                out.push((state, *weight));
            }
        }
        out
    }

    /// Whether a filter comes after one of those that count, so that its rejections would come second.
    pub fn filters_after(&self, layers: &[Layer]) -> bool {
        let counts = |i: &usize| layers.iter().any(|l| l.filters && l.plugin == *i);
        let after = self.runner.filter.iter().skip_while(|i| !counts(i));
        after.into_iter().any(|i| self.states[*i].is_some())
    }

    /// The filter states in filter order.
    pub fn take_filters(&mut self) -> Vec<(PluginId, Box<dyn FilterState>)> {
        let states = &mut self.states;
        self.filters.iter().filter_map(|(i, plugin)| Some((*plugin, states[*i].take()?))).collect()
    }
}

/// Sums of scores by node.
pub(crate) fn totals(scores: &[(PluginId, Vec<i64>)], nodes: usize) -> Vec<i64> {
    let mut out = vec![0i64; nodes];
    for (_, list) in scores {
        for (sum, s) in out.iter_mut().zip(list) {
            *sum = sum.saturating_add(*s);
        }
    }
    out
}
