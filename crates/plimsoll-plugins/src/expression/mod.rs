//! `Expression`: filter, score and preEnqueue as expressions in CEL.
//!
//! An expression is evaluated once for all nodes that are equal in what it reads: with 20 sets of labels among 5,000 nodes
//! it is evaluated 20 times. Results are kept with the ranks of a kind of pods and repaired by what changes.

mod args;
mod classes;
mod compiled;
mod reads;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use plimsoll_cel::{EvalError, Value};
use plimsoll_scheduler::Registration;
use plimsoll_scheduler::framework::{
    ActionType, Cluster, ClusterEvent, ClusterEventWithHint, Code, CycleState, EventResource, ExtensionPoint,
    FilterState, Incoming, NodeId, Normalization, Plugin, PodId, PreFilterResult, ScoreState, Status,
};

use self::args::Expressions;
use self::classes::Classes;
use self::compiled::Compiled;
use self::values::of_pod;

const POINTS: [ExtensionPoint; 3] =
    [ExtensionPoint::PreEnqueue, ExtensionPoint::Filter, ExtensionPoint::Score];
/// Highest score (upstream `MaxNodeScore`).
const MAX_SCORE: i64 = 100;

/// The plugin for a registry.
pub(crate) fn registration() -> Registration {
    Registration::new("Expression", &POINTS, |args, handle| {
        let name = handle.name();
        // The arguments were checked when the configuration was read.
        let expressions = args.of(name).and_then(|text| Expressions::read(text).ok());
        Box::new(Expression::new(name, expressions.unwrap_or_default()))
    })
    .with_instances()
    .with_args(|text| Expressions::read(text).map(drop))
    .with_points_of(|text| Expressions::read(text).map_or_else(|_| Vec::new(), |e| e.points()))
}

/// An expression and the status of what it rejects.
#[derive(Debug)]
struct Filter {
    compiled: Compiled,
    code: Code,
    reason: String,
}

impl Filter {
    fn new(compiled: Compiled, reason: String) -> Self {
        // Other pods that leave the node change nothing, unless the expression reads what they request.
        let code = if compiled.node.has("requested") { Code::Unschedulable } else { Code::Unresolvable };
        Self { compiled, code, reason }
    }

    /// An expression that fails rejects: with a missing key nothing is known to match.
    fn status(&self, pod: &Value, node: &Value) -> Status {
        let failed = |error: &EvalError| Status::new(self.code, format!("{}: {error}", self.reason));
        match self.compiled.evaluate(pod, node) {
            Ok(Value::Bool(true)) => Status::success(),
            Ok(Value::Bool(false)) => Status::new(self.code, self.reason.clone()),
            Ok(_) => Status::new(self.code, format!("{}: the value is not a bool", self.reason)),
            Err(error) => failed(&error),
        }
    }
}

/// An instance of the plugin.
#[derive(Debug)]
struct Expression {
    filter: Option<Arc<Filter>>,
    score: Option<Arc<Compiled>>,
    pre_enqueue: Option<Filter>,
    events: Vec<ClusterEventWithHint>,
}

impl Expression {
    fn new(name: &str, expressions: Expressions) -> Self {
        let events = events(&expressions);
        let Expressions { filter, score, pre_enqueue, reason } = expressions;
        let reason = |what: &str| {
            reason.clone().unwrap_or_else(|| format!("{what} didn't match the expression of plugin {name}"))
        };
        Self {
            filter: filter.map(|compiled| Arc::new(Filter::new(compiled, reason("node(s)")))),
            score: score.map(Arc::new),
            pre_enqueue: pre_enqueue.map(|compiled| Filter::new(compiled, reason("pod"))),
            events,
        }
    }

    /// The expressions whose results belong to a node.
    fn by_node(&self) -> impl Iterator<Item = &Compiled> {
        self.filter.iter().map(|f| &f.compiled).chain(self.score.as_deref())
    }
}

/// The events that can change a rejection, from what the expressions read.
fn events(expressions: &Expressions) -> Vec<ClusterEventWithHint> {
    let Expressions { filter, score: _, pre_enqueue, reason: _ } = expressions;
    let mut out = Vec::new();
    let any = |pairs: &[(bool, ActionType)]| {
        pairs.iter().filter(|(reads, _)| *reads).map(|(_, actions)| *actions).reduce(ActionType::or)
    };
    let reads = |field| filter.iter().chain(pre_enqueue).any(|e| e.pod.has(field));
    let resized = ActionType::POD_SCALE_DOWN.or(ActionType::POD_OTHER);
    let of_pod = any(&[(reads("labels"), ActionType::POD_LABEL), (reads("requests"), resized)]);
    out.extend(of_pod.map(|actions| ClusterEventWithHint::hinted(EventResource::UnschedulablePod, actions)));
    let Some(node) = filter.as_ref().map(|e| &e.node).filter(|reads| !reads.is_empty()) else { return out };
    let of_node = any(&[
        (true, ActionType::ADD),
        (node.has("labels"), ActionType::NODE_LABEL),
        (node.has("taints"), ActionType::NODE_TAINT),
        (node.has("allocatable"), ActionType::NODE_ALLOCATABLE),
    ]);
    out.extend(of_node.map(|actions| ClusterEventWithHint::hinted(EventResource::Node, actions)));
    if node.has("requested") {
        let actions = ActionType::ADD.or(ActionType::DELETE).or(resized);
        out.push(ClusterEventWithHint::hinted(EventResource::AssignedPod, actions));
    }
    out
}

/// What an expression reads of a pod.
fn pod_value(compiled: &Compiled, cluster: &Cluster, pod: PodId) -> Value {
    cluster.pod(pod).map_or(Value::Null, |view| of_pod(view, &compiled.pod).value())
}

impl Plugin for Expression {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        // Pods that share results have the same spec, and with `reads_pod_labels` the same labels and namespace.
        !self.by_node().any(|e| e.pod.has("name"))
    }

    fn reads_pod_labels(&self) -> bool {
        self.by_node().any(|e| e.pod.has("labels") || e.pod.has("namespace"))
    }

    fn pre_enqueue(&self, cluster: &Cluster, pod: PodId) -> Option<Status> {
        let filter = self.pre_enqueue.as_ref()?;
        let status = filter.status(&pod_value(&filter.compiled, cluster, pod), &Value::Null);
        (!status.is_success()).then_some(status)
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let Some(filter) = &self.filter else { return PreFilterResult::Skip };
        let pod = pod_value(&filter.compiled, cluster, pod.id);
        PreFilterResult::go(Filtering { filter: Arc::clone(filter), pod, classes: Classes::new() })
    }

    fn pre_score(
        &self,
        cluster: &Cluster,
        pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        let compiled = Arc::clone(self.score.as_ref()?);
        let pod = pod_value(&compiled, cluster, pod.id);
        Some(Box::new(Scoring { compiled, pod, classes: Classes::new() }))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        &self.events
    }

    /// An event of a node, or of a pod on one, helps when the node passes now; one of the pod itself may always help.
    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, event: &ClusterEvent) -> bool {
        if event.resource() == EventResource::UnschedulablePod {
            return event.pod() == Some(pod);
        }
        let node = event.node_name(cluster).or_else(|| event.node_name_of_pod(cluster));
        let (Some(filter), Some(node)) = (&self.filter, node.and_then(|name| cluster.node_named(name)))
        else {
            return false;
        };
        let pod = pod_value(&filter.compiled, cluster, pod);
        filter.status(&pod, &values::of_node(node, &filter.compiled.node).value()).is_success()
    }
}

/// The filter for one pod.
#[derive(Debug)]
struct Filtering {
    filter: Arc<Filter>,
    pod: Value,
    classes: Classes<Status>,
}

impl FilterState for Filtering {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let found = self
            .classes
            .get(cluster, node, &self.filter.compiled.node, |node| self.filter.status(&self.pod, node));
        found.unwrap_or_else(|| Status::unresolvable("node(s) are gone"))
    }

    fn is_fixed(&self) -> bool {
        !self.filter.compiled.node.has("requested")
    }
}

/// The score for one pod.
#[derive(Debug)]
struct Scoring {
    compiled: Arc<Compiled>,
    pod: Value,
    classes: Classes<i64>,
}

impl ScoreState for Scoring {
    /// A score outside of 0..=100 becomes the nearest inside; an expression that fails gives 0.
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let found = self.classes.get(cluster, node, &self.compiled.node, |node| {
            score_of(&self.compiled.evaluate(&self.pod, node))
        });
        found.unwrap_or(0)
    }

    fn is_fixed(&self) -> bool {
        !self.compiled.node.has("requested")
    }

    fn normalization(&self) -> Normalization {
        Normalization::None
    }
}

fn score_of(value: &Result<Value, EvalError>) -> i64 {
    match value {
        Ok(Value::Int(i)) => (*i).clamp(0, MAX_SCORE),
        Ok(Value::UInt(u)) => i64::try_from(*u).unwrap_or(MAX_SCORE).min(MAX_SCORE),
        Ok(Value::Float(f)) => (0..=MAX_SCORE).rev().find(|i| *f >= as_float(*i)).unwrap_or(0),
        _ => 0,
    }
}

/// A whole number in 0..=100.
fn as_float(i: i64) -> f64 {
    f64::from(i32::try_from(i).unwrap_or(0))
}
