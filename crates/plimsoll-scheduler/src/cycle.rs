//! One scheduling cycle over the plugins of a profile: PreFilter, Filter, PreScore, Score (upstream
//! `framework/runtime/framework.go` and `schedulePod` in `schedule_one.go`).

use super::cluster::{Cluster, NodeId, PodId};
use super::framework::{
    Code, CycleState, FilterState, Incoming, Normalization, PluginId, PluginIds, PreFilterResult, Reason,
    ScoreState, Status,
};
use super::metrics::{Meter, Point};
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
    pub fn pre_filter(meter: &impl Meter, runner: &'a Runner, cluster: &Cluster, pod: Incoming) -> Self {
        Self::pre_filter_without(meter, runner, cluster, pod, &[])
    }

    /// Runs PreFilter, leaving out some plugins.
    pub fn pre_filter_without(
        meter: &impl Meter,
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
        meter.point(
            Point::PreFilter,
            || {
                cycle.run_pre_filter(meter, cluster, without);
                cycle.status.code
            },
            |code| *code,
        );
        let filters = runner.filter.iter().filter(|i| cycle.states[**i].is_some());
        cycle.filters = filters.map(|i| (*i, runner.plugins[*i].id)).collect();
        cycle
    }

    fn run_pre_filter(&mut self, meter: &impl Meter, cluster: &Cluster, without: &[usize]) {
        for i in self.runner.pre_filter.iter().filter(|i| !without.contains(i)) {
            let made = &self.runner.plugins[*i];
            let began = meter.read();
            let result = made.plugin.pre_filter(cluster, &self.pod, &mut self.state);
            if meter.measures() && !self.runner.filter_only.contains(i) {
                meter.plugin_ran(Point::PreFilter, made.id, pre_filter_code(&result), began);
            }
            match result {
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
        meter: &impl Meter,
        runner: &'a Runner,
        cluster: &Cluster,
        pod: Incoming,
        within: Option<&'a [NodeId]>,
    ) -> Self {
        Self { within, ..Self::pre_filter(meter, runner, cluster, pod) }
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
    pub fn filter_once(&self, meter: &impl Meter, cluster: &Cluster, node: NodeId) -> Status {
        for (i, plugin) in &self.filters {
            let Some(state) = &self.states[*i] else { continue };
            let mut status = match meter.metered() {
                None => state.filter(cluster, node),
                Some(meter) => meter.filter(*plugin, || state.filter(cluster, node)),
            };
            if !status.is_success() {
                status.plugin = Some(*plugin);
                return status;
            }
        }
        Status::success()
    }

    /// Filter with the pods nominated to the node: with them when they go first, then without.
    pub fn filter(&mut self, meter: &impl Meter, cluster: &mut Cluster, node: NodeId) -> Status {
        if cluster.nodes[node].nominated.is_empty() {
            return self.filter_once(meter, cluster, node);
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
        let mut status = self.filter_once(meter, cluster, node);
        for p in &added {
            self.remove_pod(cluster, *p);
        }
        if !added.is_empty() && status.is_success() {
            status = self.filter_once(meter, cluster, node);
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
    pub fn score(
        &self,
        meter: &impl Meter,
        cluster: &Cluster,
        nodes: &[NodeId],
    ) -> Result<Vec<(PluginId, Vec<i64>)>, Status> {
        let began = meter.read();
        let mut pre_score = 0;
        let scores = self.run_score(meter, cluster, nodes, &mut pre_score);
        if meter.measures() {
            // PreScore and Score of a plugin run one after the other, so that no states are collected.
            meter.point_took(Point::PreScore, Code::Success, pre_score);
            let nanos = meter.read().saturating_sub(began).saturating_sub(pre_score);
            meter.point_took(Point::Score, scores.as_ref().map_or_else(|s| s.code, |_| Code::Success), nanos);
        }
        scores
    }

    /// PreScore and Score, plugin by plugin; adds the nanoseconds of PreScore to `pre_score`.
    fn run_score(
        &self,
        meter: &impl Meter,
        cluster: &Cluster,
        nodes: &[NodeId],
        pre_score: &mut u64,
    ) -> Result<Vec<(PluginId, Vec<i64>)>, Status> {
        let mut out = Vec::with_capacity(self.runner.score.len());
        for (i, weight) in &self.runner.score {
            let id = &self.runner.plugins[*i].id;
            let began = meter.read();
            let state = self.run_pre_score(meter, cluster, *i, nodes);
            *pre_score += meter.read().saturating_sub(began);
            let Some(state) = state else {
                if self.runner.score_only.contains(i) {
                    out.push((*id, vec![0; nodes.len()]));
                }
                continue;
            };
            let score = |n: &NodeId| {
                let run = || state.score(cluster, *n);
                meter.metered().map_or_else(run, |meter| meter.score(*id, run))
            };
            let mut scores: Vec<i64> = nodes.iter().map(score).collect();
            let began = meter.read();
            state.normalize_score(cluster, nodes, &mut scores);
            let failure = state.failure();
            if meter.measures() && state.normalization() != Normalization::None {
                let code = failure.as_ref().map_or(Code::Success, |s| s.code);
                meter.plugin_ran(Point::NormalizeScore, *id, code, began);
            }
            if let Some(status) = failure {
                return Err(status.by(*id));
            }
            for s in &mut scores {
                *s = s.saturating_mul(*weight);
            }
            out.push((*id, scores));
        }
        Ok(out)
    }

    fn run_pre_score(
        &self,
        meter: &impl Meter,
        cluster: &Cluster,
        position: usize,
        nodes: &[NodeId],
    ) -> Option<Box<dyn ScoreState>> {
        let Made { id, plugin } = &self.runner.plugins[position];
        let began = meter.read();
        let state = plugin.pre_score(cluster, &self.pod, nodes, &self.state);
        if meter.measures() && !self.runner.score_only.contains(&position) {
            let code = if state.is_some() { Code::Success } else { Code::Skip };
            meter.plugin_ran(Point::PreScore, *id, code, began);
        }
        state
    }

    /// Score states, for no nodes in particular.
    pub fn score_states(&self, meter: &impl Meter, cluster: &Cluster, without: &[usize]) -> Vec<Scoring> {
        let mut out = Vec::new();
        meter.point(
            Point::PreScore,
            || {
                for (i, weight) in self.runner.score.iter().filter(|(i, _)| !without.contains(i)) {
                    let plugin = self.runner.plugins[*i].id;
                    if let Some(state) = self.run_pre_score(meter, cluster, *i, &[]) {
                        // Weights are of 32 bits in the configuration: kept so, the row is smaller.
                        let weight = i32::try_from(*weight).unwrap_or(i32::MAX);
                        out.push(Scoring { plugin, state, weight });
                    }
                }
            },
            |()| Code::Success,
        );
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

/// What a plugin knows about the pod while it scores, and the weight of its score.
#[derive(Debug)]
pub(crate) struct Scoring {
    pub plugin: PluginId,
    pub state: Box<dyn ScoreState>,
    pub weight: i32,
}

const fn pre_filter_code(result: &PreFilterResult) -> Code {
    match result {
        PreFilterResult::Skip => Code::Skip,
        PreFilterResult::Reject(status) => status.code,
        PreFilterResult::Go { .. } => Code::Success,
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
