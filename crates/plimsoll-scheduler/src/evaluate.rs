//! The whole verdict on one pod: the status of every plugin for every node.

use super::Scheduler;
use super::cluster::{Cluster, NodeId, PodId};
use super::cycle::{Cycle, totals};
use super::framework::{Code, Incoming, PluginIds, Status};
use super::message::{Failure, Fit};
use super::metrics::{Meter, Unmetered};
use super::plugins::preemption;
use super::post_filter;
use super::ranked::Ranked;
use super::runner::Runner;

/// Fewer feasible nodes are never enough while there are more (`minFeasibleNodesToFind`).
const MIN_FEASIBLE: usize = 100;

/// A verdict in texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Upstream's name of the status code.
    pub code: &'static str,
    /// The plugin that rejects; `None`: the framework.
    pub plugin: Option<String>,
    /// Why, sorted.
    pub reasons: Vec<String>,
}

impl Rejection {
    fn new(runner: &Runner, cluster: &Cluster, status: &Status) -> Self {
        Self {
            code: status.code.name(),
            plugin: status.plugin.map(|p| runner.names.of(p).to_owned()),
            reasons: status.texts(&cluster.strings),
        }
    }
}

/// A node on which preemption would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims {
    /// Node name.
    pub node: String,
    /// `namespace/name` of the victims, sorted.
    pub victims: Vec<String>,
    /// Victims protected by an exhausted budget.
    pub violations: i64,
}

/// Node name, weighted score by plugin, total.
pub type NodeScore = (String, Vec<(String, i64)>, i64);

/// Everything that was found out about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Set when the pod may not enter the queue; nothing else is set then.
    pub pre_enqueue: Option<Rejection>,
    /// Set when PreFilter rejects the pod.
    pub pre_filter: Option<Rejection>,
    /// Names of the only nodes that were evaluated, sorted; `None`: all.
    pub restricted: Option<Vec<String>>,
    /// Whether only the nominated node was evaluated, and passed.
    pub nominated_first: bool,
    /// Verdict by node name; `None`: feasible.
    pub nodes: Vec<(String, Option<Rejection>)>,
    /// Scores of feasible nodes: (node, by plugin, total).
    pub scores: Vec<NodeScore>,
    /// Feasible nodes with the highest total, sorted.
    pub best: Vec<String>,
    /// Failure text without and with the message of PostFilter, when nothing is feasible.
    pub message: Option<(String, String)>,
    /// All preemption candidates, and which of them are best.
    pub candidates: Vec<Victims>,
    /// Nodes of the best candidates, sorted.
    pub best_candidates: Vec<String>,
}

impl Scheduler {
    /// The whole verdict on a pod that is not on a node: the status of every plugin for every node.
    ///
    /// `node_name` evaluates it as if its `spec.nodeName` had that value. `None` when the pod is unknown, on a
    /// node, or belongs to no profile.
    pub fn evaluate(&mut self, uid: &str, node_name: Option<&str>) -> Option<Verdict> {
        let id = self.cluster.pod_by_uid(uid)?;
        if self.cluster.pods[id].node.is_some() {
            return None;
        }
        let runner = self.runners.get(self.profile_of(id)?)?;
        let mut incoming = Incoming::new(&self.cluster, id);
        incoming.node_name = node_name.map(|n| self.cluster.strings.intern(n));
        Some(verdict(runner, &mut self.cluster, incoming))
    }
}

/// Node verdicts, in id order.
pub(crate) type Verdicts = Vec<(NodeId, Status)>;

/// Filters all candidates of the cycle. With a nominated node that passes, only that node is evaluated.
pub(crate) fn filter_all(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
) -> (Verdicts, bool) {
    let outside = match filter_nominated(meter, cycle, cluster) {
        Some((node, status)) if status.is_success() => return (vec![(node, status)], true),
        other => other,
    };
    let nodes = cycle.candidates(cluster);
    let mut out: Verdicts = nodes.into_iter().map(|n| (n, cycle.filter(meter, cluster, n))).collect();
    add_outside(&mut out, outside);
    (out, false)
}

/// The status of the nominated node, when it passes or PreFilter left it out: then no other status is reported for it.
fn filter_nominated(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
) -> Option<(NodeId, Status)> {
    let node = cluster.pods[cycle.pod.id].nominated;
    let node = node.filter(|n| cluster.nodes[*n].exists && cycle.is_within(*n))?;
    let status = cycle.filter(meter, cluster, node);
    (status.is_success() || !cycle.allows(cluster, node)).then_some((node, status))
}

/// Adds the verdict on a nominated node that PreFilter left out.
fn add_outside(verdicts: &mut Verdicts, outside: Option<(NodeId, Status)>) {
    if let Some(one) = outside.filter(|(_, s)| s.code != Code::Error) {
        verdicts.push(one);
        verdicts.sort_unstable_by_key(|(node, _)| *node);
    }
}

/// After how many feasible ones of so many nodes the search stops; `None`: never (upstream `numFeasibleNodesToFind` in
/// `schedule_one.go`).
///
/// With a percentage of 0 all nodes are evaluated: ranks make that cheaper than upstream's sample.
pub(crate) fn sample(runner: &Runner, nodes: usize) -> Option<usize> {
    let percentage = usize::from(runner.profile.percentage_of_nodes_to_score);
    if percentage == 0 || percentage >= 100 || nodes < MIN_FEASIBLE {
        return None;
    }
    // Extenders may filter or score what is found.
    if !(runner.scores() || runner.has_remote()) {
        return Some(1);
    }
    Some((nodes * percentage / 100).max(MIN_FEASIBLE))
}

/// Filters a sample of the candidates, as [`filter_in_turn`]. With a nominated node that passes, only that node is evaluated.
pub(crate) fn filter_some(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
    start: &mut usize,
) -> (Verdicts, bool) {
    let outside = match filter_nominated(meter, cycle, cluster) {
        Some((node, status)) if status.is_success() => return (vec![(node, status)], true),
        other => other,
    };
    let mut out = filter_in_turn(meter, cycle, cluster, start);
    add_outside(&mut out, outside);
    (out, false)
}

/// Filters candidates of the cycle in turn, from `start` on, until a sample of them is feasible; moves `start` on.
pub(crate) fn filter_in_turn(
    meter: &impl Meter,
    cycle: &mut Cycle<'_>,
    cluster: &mut Cluster,
    start: &mut usize,
) -> Verdicts {
    let nodes = cycle.candidates(cluster);
    // A sample of those that PreFilter has left.
    let wanted = sample(cycle.runner, nodes.len()).unwrap_or(nodes.len());
    let mut out = Verdicts::new();
    let mut feasible = 0;
    for i in 0..nodes.len() {
        let node = nodes[(*start + i) % nodes.len()];
        let status = cycle.filter(meter, cluster, node);
        feasible += usize::from(status.is_success());
        out.push((node, status));
        if feasible == wanted {
            break;
        }
    }
    *start = (*start + out.len()).checked_rem(cycle.node_count(cluster)).unwrap_or(0);
    out.sort_unstable_by_key(|(node, _)| *node);
    out
}

fn note(failure: &mut Failure, status: &Status) {
    let Some(plugin) = status.plugin else { return };
    let list = match status.code {
        Code::Unschedulable | Code::Unresolvable => &mut failure.plugins,
        Code::Pending => &mut failure.pending,
        Code::Success | Code::Error | Code::Wait | Code::Skip => return,
    };
    list.insert(plugin);
}

/// Sums up why no node is feasible.
pub(crate) fn failure(cycle: &Cycle<'_>, cluster: &Cluster, verdicts: &Verdicts) -> Failure {
    let nominated = cluster.pods[cycle.pod.id].nominated;
    let mut out = Failure {
        deallocate: Vec::new(),
        fit: Fit { nodes: cycle.node_count(cluster), ..Fit::default() },
        plugins: cycle.restricted_by.clone(),
        pending: PluginIds::default(),
        potential: Vec::new(),
        // Of a node without a verdict, as of one that is gone (`NewDefaultNodeToStatus` in `framework/interface.go`).
        nominated: nominated.map(|_| Code::Unresolvable),
    };
    if !cycle.status.is_success() {
        out.fit.pre_filter = Some(cycle.status.message(&cluster.strings));
        note(&mut out, &cycle.status);
        out.nominated = nominated.map(|_| cycle.status.code);
        if cycle.status.code == Code::Unschedulable {
            out.potential = cycle.live_nodes(cluster);
        }
        return out;
    }
    if cycle.names.is_some() {
        let outside = cycle.node_count(cluster).saturating_sub(verdicts.len());
        out.fit.count(&cycle.outside(), outside, &cluster.strings);
    }
    let mut last: Option<(&Status, usize)> = None;
    for (node, status) in verdicts {
        if status.code == Code::Unschedulable {
            out.potential.push(*node);
        }
        if nominated == Some(*node) {
            out.nominated = Some(status.code);
        }
        // Runs of equal verdicts are counted together: rendering texts is the slow part.
        match &mut last {
            Some((same, n)) if *same == status => *n += 1,
            _ => {
                if let Some((old, n)) = last.replace((status, 1)) {
                    out.fit.count(old, n, &cluster.strings);
                    note(&mut out, old);
                }
            }
        }
    }
    if let Some((old, n)) = last {
        out.fit.count(old, n, &cluster.strings);
        note(&mut out, old);
    }
    out
}

/// The same from ranks: only distinct rejections are counted.
pub(crate) fn ranked_failure(cluster: &Cluster, ranked: &Ranked) -> Failure {
    let mut out = Failure {
        deallocate: Vec::new(),
        fit: ranked_fit(cluster, ranked),
        plugins: PluginIds::default(),
        pending: PluginIds::default(),
        potential: ranked.rejected(|s| s.code == Code::Unschedulable),
        nominated: None,
    };
    ranked.rejections().for_each(|(status, _)| note(&mut out, status));
    out
}

/// What it says of the nodes: the time does not depend on how many there are.
pub(crate) fn ranked_fit(cluster: &Cluster, ranked: &Ranked) -> Fit {
    let mut fit = Fit { nodes: cluster.node_count, ..Fit::default() };
    ranked.rejections().for_each(|(status, nodes)| fit.count(status, nodes, &cluster.strings));
    fit
}

/// The verdict of a profile on a pod that is in the cluster but on no node.
fn verdict(runner: &Runner, cluster: &mut Cluster, pod: Incoming) -> Verdict {
    let mut out = Verdict::default();
    if let Some(status) = runner.pre_enqueue(&Unmetered, cluster, pod.id) {
        out.pre_enqueue = Some(Rejection::new(runner, cluster, &status));
        return out;
    }
    let mut cycle = Cycle::pre_filter(&Unmetered, runner, cluster, pod);
    let text = |n: NodeId, cluster: &Cluster| cluster.strings.text(cluster.nodes[n].name).to_owned();
    let mut verdicts = Verdicts::new();
    if cycle.status.is_success() {
        let names = cycle.names.as_ref().map(|n| n.iter().map(|s| cluster.strings.text(*s).to_owned()));
        out.restricted = names.map(Iterator::collect);
        if let Some(r) = &mut out.restricted {
            r.sort_unstable();
        }
        (verdicts, out.nominated_first) = filter_all(&Unmetered, &mut cycle, cluster);
        for (node, status) in &verdicts {
            let rejection = (!status.is_success()).then(|| Rejection::new(runner, cluster, status));
            out.nodes.push((text(*node, cluster), rejection));
        }
        if cycle.names.is_some() && !out.nominated_first {
            let outside = Rejection::new(runner, cluster, &cycle.outside());
            let seen: Vec<NodeId> = verdicts.iter().map(|(n, _)| *n).collect();
            for node in cluster.live_nodes().filter(|n| !seen.contains(n)) {
                out.nodes.push((text(node, cluster), Some(outside.clone())));
            }
        }
    } else {
        out.pre_filter = Some(Rejection::new(runner, cluster, &cycle.status));
    }
    let feasible: Vec<NodeId> = verdicts.iter().filter(|(_, s)| s.is_success()).map(|(n, _)| *n).collect();
    if feasible.is_empty() {
        fail(&mut out, &mut cycle, cluster, &verdicts);
        return out;
    }
    // A plugin that fails scores no node.
    let scores = cycle.score(&Unmetered, cluster, &feasible).unwrap_or_default();
    let sums = totals(&scores, feasible.len());
    for (i, node) in feasible.iter().enumerate() {
        let by_plugin = scores.iter().map(|(id, list)| (runner.names.of(*id).to_owned(), list[i])).collect();
        out.scores.push((text(*node, cluster), by_plugin, sums[i]));
    }
    let max = sums.iter().max();
    let top = feasible.iter().zip(&sums).filter(|(_, s)| Some(*s) == max);
    out.best = top.map(|(n, _)| text(*n, cluster)).collect();
    out.best.sort_unstable();
    out
}

fn fail(out: &mut Verdict, cycle: &mut Cycle<'_>, cluster: &mut Cluster, verdicts: &Verdicts) {
    let mut failure = failure(cycle, cluster, verdicts);
    let short = failure.fit.short();
    if !cycle.runner.post_filter.is_empty() {
        let post = post_filter::run(&Unmetered, cycle, cluster, &failure, (None, None));
        failure.fit.post_filter = post.text;
        let text = |n: NodeId, c: &Cluster| c.strings.text(c.nodes[n].name).to_owned();
        let best = preemption::best(&post.candidates);
        out.best_candidates = best.iter().map(|i| text(post.candidates[*i].node, cluster)).collect();
        out.best_candidates.sort_unstable();
        for c in &post.candidates {
            let mut victims: Vec<String> = c.victims.iter().map(|p: &PodId| cluster.pod_name(*p)).collect();
            victims.sort_unstable();
            out.candidates.push(Victims { node: text(c.node, cluster), victims, violations: c.violations });
        }
    }
    out.message = Some((short, failure.fit.full()));
}
