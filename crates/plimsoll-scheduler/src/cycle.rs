//! One scheduling cycle over the plugins of a profile: PreFilter, Filter, PreScore, Score (spec section 2.2).

use super::cluster::{Cluster, NodeId, PodId};
use super::framework::{
    Code, Counts, FilterState, Incoming, Permit, Plugin, PluginId, Point, PreFilter, Profile, Reason,
    ScoreState, Status, Waiting,
};
use super::plugins;
use plimsoll_state::intern::{Interner, Sym};
use plimsoll_state::time::Duration;
use std::collections::BTreeSet;

/// A profile with its plugins made.
#[derive(Debug)]
pub(crate) struct Runner {
    pub profile: Profile,
    pub name: Sym,
    plugins: Vec<Box<dyn Plugin>>,
    pre_enqueue: Vec<usize>,
    pre_filter: Vec<usize>,
    /// Plugins at Filter that are not at PreFilter: they make their state, but restrict no nodes.
    filter_only: Vec<usize>,
    filter: Vec<usize>,
    score: Vec<(usize, i64)>,
    /// Plugins at Score that are not at PreScore: they skip no pod.
    score_only: Vec<usize>,
    /// Plugins with work at Reserve.
    reserve: Vec<usize>,
    permit: Vec<usize>,
    pub post_filter: Vec<PluginId>,
}

impl Runner {
    pub fn new(profile: Profile, strings: &mut Interner) -> Self {
        let mut made: Vec<Box<dyn Plugin>> = Vec::new();
        for id in PluginId::ALL {
            let points = [
                Point::PreEnqueue,
                Point::PreFilter,
                Point::Filter,
                Point::PreScore,
                Point::Score,
                Point::Reserve,
                Point::Permit,
            ];
            let used = points.iter().any(|p| profile.plugins.at(*p).iter().any(|(i, _)| i == id));
            if let Some(plugin) = used.then(|| plugins::make(*id, &profile.args, strings)).flatten() {
                made.push(plugin);
            }
        }
        let at = |point: Point| -> Vec<(usize, i64)> {
            let list = profile.plugins.at(point).iter();
            list.filter_map(|(id, w)| Some((made.iter().position(|p| p.id() == *id)?, *w))).collect()
        };
        let indices = |point: Point| at(point).into_iter().map(|(i, _)| i).collect::<Vec<_>>();
        Self {
            name: strings.intern(&profile.scheduler_name),
            pre_enqueue: indices(Point::PreEnqueue),
            filter_only: apart(&indices(Point::PreFilter), indices(Point::Filter)),
            pre_filter: pre_filter_order(indices(Point::PreFilter), indices(Point::Filter)),
            filter: indices(Point::Filter),
            score: at(Point::Score),
            score_only: apart(&indices(Point::PreScore), indices(Point::Score)),
            reserve: indices(Point::Reserve).into_iter().filter(|i| made[*i].reserves()).collect(),
            permit: indices(Point::Permit),
            post_filter: profile.plugins.at(Point::PostFilter).iter().map(|(id, _)| *id).collect(),
            plugins: made,
            profile,
        }
    }

    /// Adds a plugin at Reserve and Permit, behind the others.
    #[cfg(test)]
    pub fn add_guard(&mut self, plugin: Box<dyn Plugin>) {
        self.reserve.push(self.plugins.len());
        self.permit.push(self.plugins.len());
        self.plugins.push(plugin);
    }

    /// Whether plugins have a say between choosing a node and binding.
    pub fn guards(&self) -> bool {
        !self.permit.is_empty() || !self.reserve.is_empty()
    }

    /// Reserve: the first plugin that does not succeed.
    pub fn reserve(&self, cluster: &Cluster, pod: PodId, node: NodeId) -> Option<Status> {
        let mut said = self.reserve.iter().map(|i| self.plugins[*i].reserve(cluster, pod, node));
        said.find(|s| !s.is_success())
    }

    /// Unreserve: all plugins, the last one first.
    pub fn unreserve(&self, cluster: &Cluster, waiting: &mut Waiting, pod: PodId, node: NodeId) {
        for i in self.reserve.iter().rev() {
            self.plugins[*i].unreserve(cluster, waiting, pod, node);
        }
    }

    /// Permit: the plugins that want the pod to wait, or the first rejection.
    ///
    /// # Errors
    /// The status of the plugin that rejects the pod or fails.
    pub fn permit(
        &self,
        cluster: &Cluster,
        waiting: &mut Waiting,
        pod: PodId,
        node: NodeId,
    ) -> Result<Vec<(PluginId, Duration)>, Status> {
        let mut holds = Vec::new();
        for plugin in self.permit.iter().map(|i| &self.plugins[*i]) {
            match plugin.permit(cluster, waiting, pod, node) {
                Permit::Allow => {}
                Permit::Wait(timeout) => holds.push((plugin.id(), timeout)),
                Permit::Reject(status) => return Err(Status { plugin: Some(plugin.id()), ..status }),
            }
        }
        Ok(holds)
    }

    /// Whether any plugin scores.
    pub fn scores(&self) -> bool {
        !self.score.is_empty()
    }

    /// The plugin of this id, if the profile uses it.
    pub fn plugin(&self, id: PluginId) -> Option<&dyn Plugin> {
        self.plugins.iter().find(|p| p.id() == id).map(|p| &**p)
    }

    /// On what the results for the pod depend.
    pub fn reach(&self, cluster: &Cluster, pod: &Incoming) -> Reach {
        let mut reach = Reach::Node;
        for plugin in self.plugins.iter().filter(|p| !p.is_local(cluster, pod)) {
            if !plugin.is_counted() {
                return Reach::Cluster;
            }
            reach = Reach::Domains;
        }
        reach
    }

    /// Empty counters of the plugins for which pods elsewhere matter, in filter order; `None`: one can't count.
    pub fn layers(&self, cluster: &Cluster, pod: &Incoming) -> Option<Vec<Layer>> {
        let mut out = Vec::new();
        for (i, plugin) in self.plugins.iter().enumerate() {
            if plugin.is_local(cluster, pod) {
                continue;
            }
            let weight = self.score.iter().find(|(s, _)| *s == i).map(|(_, w)| *w);
            let filters = self.filter.contains(&i);
            out.push(Layer { plugin: i, counts: plugin.counts(cluster, pod)?, filters, weight, width: 0 });
        }
        out.sort_by_key(|l| self.filter.iter().position(|i| *i == l.plugin));
        Some(out)
    }

    /// PreEnqueue: the first plugin that keeps the pod out.
    pub fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        self.pre_enqueue.iter().find_map(|i| self.plugins[*i].pre_enqueue(cluster, pod))
    }
}

/// On what verdicts and scores depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// On the node alone.
    Node,
    /// On counts by topology domain, too.
    Domains,
    /// On anything.
    Cluster,
}

/// Counters of a plugin, and what they are for.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Index of the plugin.
    pub plugin: usize,
    pub counts: Box<dyn Counts>,
    /// Whether the plugin filters in this profile.
    pub filters: bool,
    /// Its weight, if it scores.
    pub weight: Option<i64>,
    /// How many coordinates it has.
    pub width: usize,
}

/// Plugins that only filter make their state first; their order among themselves does not matter.
fn pre_filter_order(pre_filter: Vec<usize>, filter: Vec<usize>) -> Vec<usize> {
    let mut out = apart(&pre_filter, filter);
    out.extend(pre_filter);
    out
}

/// Plugins of a point that are not at the one before it, which may skip a pod.
fn apart(before: &[usize], point: Vec<usize>) -> Vec<usize> {
    point.into_iter().filter(|i| !before.contains(i)).collect()
}

/// What PreFilter left behind: one state per plugin that goes on to filter.
#[derive(Debug)]
pub(crate) struct Cycle<'a> {
    pub runner: &'a Runner,
    pub pod: Incoming,
    /// Filter states by plugin index; `None`: skipped.
    states: Vec<Option<Box<dyn FilterState>>>,
    /// The only nodes to look at; `None`: all.
    pub names: Option<BTreeSet<Sym>>,
    /// Plugins that restricted the nodes.
    pub restricted_by: BTreeSet<PluginId>,
    /// The verdict of PreFilter as a whole.
    pub status: Status,
    /// How many plugins got to see the pod in PreFilter.
    reached: usize,
}

fn sorted_names(plugins: &BTreeSet<PluginId>) -> Vec<&'static str> {
    let mut names: Vec<&str> = plugins.iter().map(|p| p.name()).collect();
    names.sort_unstable();
    names
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
            states: runner.plugins.iter().map(|_| None).collect(),
            names: None,
            restricted_by: BTreeSet::new(),
            status: Status::success(),
            reached: 0,
        };
        for i in runner.pre_filter.iter().filter(|i| !without.contains(i)) {
            cycle.reached += 1;
            match runner.plugins[*i].pre_filter(cluster, &cycle.pod) {
                PreFilter::Skip => {}
                PreFilter::Reject(status) => {
                    let goes_on = status.code == Code::Unschedulable;
                    cycle.status = status;
                    if !goes_on {
                        return cycle;
                    }
                }
                PreFilter::Go { nodes, state } => {
                    cycle.states[*i] = Some(state);
                    if let Some(nodes) = nodes
                        && !runner.filter_only.contains(i)
                        && cycle.restrict(runner.plugins[*i].id(), nodes)
                    {
                        return cycle;
                    }
                }
            }
        }
        cycle
    }

    /// Intersects the node set; true when nothing is left.
    fn restrict(&mut self, by: PluginId, nodes: Vec<Sym>) -> bool {
        self.restricted_by.insert(by);
        let new: BTreeSet<Sym> = nodes.into_iter().collect();
        let left = match self.names.take() {
            None => new,
            Some(old) => old.intersection(&new).copied().collect(),
        };
        let empty = left.is_empty();
        self.names = Some(left);
        if empty {
            let names = sorted_names(&self.restricted_by);
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
        let text =
            format!("node(s) didn't satisfy plugin(s) [{}]", sorted_names(&self.restricted_by).join(" "));
        Status {
            code: Code::Unresolvable,
            plugin: None,
            reasons: std::iter::once(Reason::Owned(text.into())).collect(),
        }
    }

    /// Nodes to look at, in id order.
    pub fn candidates(&self, cluster: &Cluster) -> Vec<NodeId> {
        match &self.names {
            None => cluster.live_nodes().collect(),
            Some(names) => {
                let mut out: Vec<NodeId> = names.iter().filter_map(|n| cluster.node_by_name(*n)).collect();
                out.sort_unstable();
                out
            }
        }
    }

    /// Whether PreFilter left the node to be looked at.
    pub fn allows(&self, cluster: &Cluster, node: NodeId) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(&cluster.nodes[node].name))
    }

    /// Filter plugins in order; stops at the first that rejects.
    pub fn filter_once(&self, cluster: &Cluster, node: NodeId) -> Status {
        for i in &self.runner.filter {
            if let Some(state) = &self.states[*i] {
                let status = state.filter(cluster, node);
                if !status.is_success() {
                    return status;
                }
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
    pub fn score(&self, cluster: &Cluster, nodes: &[NodeId]) -> Vec<(PluginId, Vec<i64>)> {
        let mut out = Vec::with_capacity(self.runner.score.len());
        for (i, weight) in &self.runner.score {
            let plugin = &self.runner.plugins[*i];
            let filter = self.states[*i].as_deref();
            let Some(state) = plugin.pre_score(cluster, &self.pod, nodes, filter) else {
                if self.runner.score_only.contains(i) {
                    out.push((plugin.id(), vec![0; nodes.len()]));
                }
                continue;
            };
            let mut scores: Vec<i64> = nodes.iter().map(|n| state.score(cluster, *n)).collect();
            state.normalize(cluster, nodes, &mut scores);
            for s in &mut scores {
                *s = s.saturating_mul(*weight);
            }
            out.push((plugin.id(), scores));
        }
        out
    }

    /// Score states with their weights, for no nodes in particular.
    pub fn score_states(&self, cluster: &Cluster, without: &[usize]) -> Vec<(Box<dyn ScoreState>, i64)> {
        let mut out = Vec::new();
        for (i, weight) in self.runner.score.iter().filter(|(i, _)| !without.contains(i)) {
            let filter = self.states[*i].as_deref();
            if let Some(state) = self.runner.plugins[*i].pre_score(cluster, &self.pod, &[], filter) {
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
    pub fn take_filters(&mut self) -> Vec<Box<dyn FilterState>> {
        self.runner.filter.iter().filter_map(|i| self.states[*i].take()).collect()
    }

    /// Whether the plugin got to see the pod in PreFilter.
    pub fn has_run(&self, id: PluginId) -> bool {
        let ran = self.runner.pre_filter.get(..self.reached).unwrap_or_default();
        ran.iter().any(|i| self.runner.plugins[*i].id() == id)
    }

    /// The filter state of a plugin.
    pub fn state(&self, id: PluginId) -> Option<&dyn FilterState> {
        let i = self.runner.plugins.iter().position(|p| p.id() == id)?;
        self.states[i].as_deref()
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
