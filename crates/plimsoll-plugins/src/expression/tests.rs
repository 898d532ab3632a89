//! Tests of the plugin in a scheduler, against a plain evaluation for each node.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use plimsoll_cel::{Budget, Program, Value, from_json};
use plimsoll_scheduler::args::Args;
use plimsoll_scheduler::framework::{ArgsError, ExtensionPoint};
use plimsoll_scheduler::{
    Action, Config, Event, FeatureGates, PluginRef, PluginSet, Profile, Scheduler, UserPlugins, UserSet,
};
use plimsoll_state::model::{
    Container, LabelSelector, Node, Operator, Pod, Requirement, SpreadConstraint, Taint, TaintEffect,
    UnsatisfiableAction,
};
use plimsoll_state::{ObjectEvent, Time};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::args::Expressions;
use super::score_of;

thread_local! {
    /// How often expressions were evaluated on this thread.
    pub static EVALUATIONS: Cell<usize> = const { Cell::new(0) };
}

fn evaluations() -> usize {
    EVALUATIONS.with(|n| n.replace(0))
}

type Labels = BTreeMap<String, String>;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A node, as the scheduler and as the plain evaluation see it.
#[derive(Clone, Debug)]
struct NodeCase {
    name: String,
    labels: Labels,
    taint: Option<String>,
    cpu: i64,
}

impl NodeCase {
    fn new(name: &str, pairs: &[(&str, &str)]) -> Self {
        Self { name: name.to_owned(), labels: labels(pairs), taint: None, cpu: 4000 }
    }

    fn event(&self) -> ObjectEvent {
        let allocatable = [("cpu", self.cpu), ("memory", 1 << 32), ("pods", 100)];
        let taint = |key: &String| Taint {
            key: key.clone(),
            value: String::new(),
            effect: TaintEffect::PreferNoSchedule,
        };
        ObjectEvent::NodeUpsert(Box::new(Node {
            uid: format!("uid-{}", self.name),
            name: self.name.clone(),
            labels: self.labels.clone(),
            taints: self.taint.iter().map(taint).collect(),
            allocatable: allocatable.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            ..Node::default()
        }))
    }

    /// `used`: cpu, memory and number of the pods on it.
    fn json(&self, used: (i64, i64)) -> Json {
        let taint = |key: &String| json!({"key": key, "value": "", "effect": "PreferNoSchedule"});
        json!({
            "name": self.name, "labels": self.labels, "taints": self.taint.iter().map(taint).collect::<Vec<_>>(),
            "allocatable": {"cpu": self.cpu, "memory": 1_i64 << 32, "ephemeral-storage": 0, "pods": 100},
            "requested": {"cpu": used.0, "memory": 0, "ephemeral-storage": 0, "pods": used.1},
        })
    }
}

#[derive(Clone, Debug)]
struct PodCase {
    name: String,
    labels: Labels,
    cpu: i64,
}

impl PodCase {
    fn new(name: &str, pairs: &[(&str, &str)]) -> Self {
        Self { name: name.to_owned(), labels: labels(pairs), cpu: 0 }
    }

    fn event(&self) -> ObjectEvent {
        let mut pod = Pod {
            uid: format!("uid-{}", self.name),
            namespace: "ns".to_owned(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            ..Pod::default()
        };
        "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
        let requests = std::iter::once(("cpu".to_owned(), self.cpu)).collect();
        pod.spec.containers = vec![Container { name: "c".to_owned(), requests, ..Container::default() }];
        ObjectEvent::PodUpsert(Box::new(pod))
    }

    fn json(&self) -> Json {
        json!({
            "name": self.name, "namespace": "ns", "labels": self.labels, "priority": 0,
            "requests": {"cpu": self.cpu, "memory": 0, "ephemeral-storage": 0},
        })
    }
}

/// A scheduler with instances of the plugin after all others that filter.
fn scheduler(instances: &[(&str, Json)]) -> Scheduler {
    scheduler_with(UserPlugins::default(), instances)
}

fn scheduler_with(mut user: UserPlugins, instances: &[(&str, Json)]) -> Scheduler {
    let mut args = Args::default();
    for (name, values) in instances {
        let name = format!("Expression/{name}");
        user.multi_point.enabled.push(PluginRef { name: name.clone(), weight: 100 });
        assert_eq!(
            crate::registry().get(&name).unwrap().check_args(&values.to_string()),
            Some(Ok(())),
            "{name}"
        );
        args.set_json(&name, values.to_string());
    }
    let mut plugins = PluginSet::new(&crate::registry(), &user, &FeatureGates::default()).unwrap();
    plugins.restrict(&args);
    let profile = Profile { plugins, args, ..Profile::default() };
    Scheduler::new(Config { profiles: vec![profile], ..Config::default() })
}

fn step(s: &mut Scheduler, at: i64, events: &[ObjectEvent]) -> Vec<Action> {
    let now = Time::from_seconds(at);
    events.iter().for_each(|e| s.handle_object(now, e));
    let mut actions = Vec::new();
    s.decide(now, &mut |a| actions.push(a));
    for action in &actions {
        if let Action::Bind { pod, .. } = action {
            s.handle(now, Event::Bound(pod.uid.clone()));
        }
    }
    s.check();
    actions
}

fn binds(actions: &[Action]) -> Vec<(String, String)> {
    let bind = |a: &Action| match a {
        Action::Bind { pod, node } => Some((pod.name.clone(), node.clone())),
        _ => None,
    };
    actions.iter().filter_map(bind).collect()
}

fn message(actions: &[Action]) -> String {
    let message = |a: &Action| match a {
        Action::Unschedulable { message, .. } => Some(message.clone()),
        _ => None,
    };
    actions.iter().find_map(message).unwrap_or_default()
}

#[test]
fn pods_go_where_their_expressions_say() {
    let mut s = scheduler(&[
        (
            "teams",
            json!({"filter": "pod.labels['team'] == node.labels['team']", "reason": "node(s) of another team"}),
        ),
        ("watts", json!({"score": "100 - int(node.labels['watts']) / 10"})),
    ]);
    let nodes = [
        NodeCase::new("a", &[("team", "red"), ("watts", "700")]),
        NodeCase::new("b", &[("team", "red"), ("watts", "300")]),
        NodeCase::new("c", &[("team", "blue"), ("watts", "100")]),
        NodeCase::new("d", &[("watts", "100")]),
    ];
    step(&mut s, 0, &nodes.each_ref().map(NodeCase::event));
    let pod = |name: &str, team: &str| PodCase::new(name, &[("team", team)]).event();
    let placed = step(&mut s, 1, &[pod("p", "red"), pod("q", "blue"), pod("r", "red")]);
    assert_eq!(
        binds(&placed),
        [("p", "b"), ("q", "c"), ("r", "b")].map(|(p, n)| (p.to_owned(), n.to_owned()))
    );

    let text = message(&step(&mut s, 2, &[pod("g", "green")]));
    let want = "1 node(s) of another team: no such key: team, 3 node(s) of another team";
    assert!(text.starts_with(&format!("0/4 nodes are available: {want}.")), "{text}");
    let text = message(&step(&mut s, 3, &[PodCase::new("none", &[]).event()]));
    assert!(
        text.starts_with("0/4 nodes are available: 4 node(s) of another team: no such key: team."),
        "{text}"
    );
}

#[test]
fn only_events_that_help_wake_a_pod() {
    let mut s = scheduler(&[("teams", json!({"filter": "pod.labels['team'] == node.labels['team']"}))]);
    let node = |name: &str, team: &str| NodeCase::new(name, &[("team", team)]).event();
    step(&mut s, 0, &[node("a", "red")]);
    let text = message(&step(&mut s, 1, &[PodCase::new("g", &[("team", "green")]).event()]));
    let want = "0/1 nodes are available: 1 node(s) didn't match the expression of plugin Expression/teams.";
    assert!(text.starts_with(want), "{text}");
    assert_eq!(binds(&step(&mut s, 20, &[node("b", "blue")])), [], "another team's node");
    assert_eq!(s.queue_counts().unschedulable, 1);
    assert_eq!(binds(&step(&mut s, 40, &[node("b", "green")])), [("g".to_owned(), "b".to_owned())]);
    step(&mut s, 41, &[PodCase::new("h", &[("team", "black")]).event()]);
    assert_eq!(s.queue_counts().unschedulable, 1);
    let red = step(&mut s, 60, &[PodCase::new("h", &[("team", "red")]).event()]);
    assert_eq!(binds(&red), [("h".to_owned(), "a".to_owned())], "its own labels changed");
}

#[test]
fn pods_of_other_names_share_no_results() {
    let mut s = scheduler(&[("names", json!({"filter": "pod.name.endsWith(node.name)"}))]);
    let nodes = ["a", "b", "c"].map(|name| NodeCase::new(name, &[]).event());
    step(&mut s, 0, &nodes);
    let pods = ["x-c", "x-a", "x-b", "y-a", "y-c"].map(|name| PodCase::new(name, &[]).event());
    for (pod, node) in binds(&step(&mut s, 1, &pods)) {
        assert!(pod.ends_with(&node), "{pod} is on {node}");
    }
    assert_eq!(s.queue_counts().unschedulable, 0);
}

#[test]
fn a_pod_that_leaves_makes_room() {
    let mut s =
        scheduler(&[("one", json!({"filter": "node.requested['pods'] < 1", "reason": "node(s) in use"}))]);
    step(&mut s, 0, &[NodeCase::new("a", &[]).event()]);
    let pods = ["p", "q"].map(|name| PodCase::new(name, &[]).event());
    let actions = step(&mut s, 1, &pods);
    assert_eq!(binds(&actions), [("p".to_owned(), "a".to_owned())]);
    assert!(message(&actions).starts_with("0/1 nodes are available: 1 node(s) in use."));
    let left = step(&mut s, 20, &[ObjectEvent::PodDelete("uid-p".to_owned())]);
    assert_eq!(binds(&left), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn pods_that_may_not_be_queued_wait_for_their_labels() {
    let arguments =
        json!({"preEnqueue": "pod.labels['approved'] == 'true'", "reason": "pod is not approved"});
    let mut s = scheduler(&[("approval", arguments)]);
    step(&mut s, 0, &[NodeCase::new("a", &[]).event()]);
    let pod = |pairs: &[(&str, &str)]| PodCase::new("p", pairs).event();
    assert_eq!(binds(&step(&mut s, 1, &[pod(&[])])), []);
    let reasons = |s: &mut Scheduler| s.evaluate("uid-p", None).unwrap().pre_enqueue.unwrap().reasons;
    assert_eq!(reasons(&mut s), ["pod is not approved: no such key: approved"]);
    assert_eq!(binds(&step(&mut s, 20, &[pod(&[("approved", "false")])])), []);
    assert_eq!(reasons(&mut s), ["pod is not approved"]);
    let approved = step(&mut s, 40, &[pod(&[("approved", "true")])]);
    assert_eq!(binds(&approved), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn equal_nodes_are_evaluated_once() {
    let mut s =
        scheduler(&[("teams", json!({"filter": "int(node.labels['rack']) < int(pod.labels['racks'])"}))]);
    let node = |i: usize, rack: usize| {
        NodeCase::new(&format!("n{i}"), &[("rack", &rack.to_string()), ("name", &i.to_string())]).event()
    };
    let nodes: Vec<ObjectEvent> = (0..5000).map(|i| node(i, i % 20)).collect();
    step(&mut s, 0, &nodes);
    evaluations();
    let pods: Vec<ObjectEvent> =
        (0..60).map(|i| PodCase::new(&format!("p{i}"), &[("racks", "7")]).event()).collect();
    assert_eq!(binds(&step(&mut s, 1, &pods)).len(), 60);
    // The first pod has a cycle of its own, the second makes the ranks for all after it.
    assert_eq!(evaluations(), 2 * 20, "5,000 nodes of 20 classes");
    step(&mut s, 2, &[node(3, 40)]);
    step(&mut s, 3, &[PodCase::new("last", &[("racks", "7")]).event()]);
    assert_eq!(evaluations(), 21, "made afresh once");
}

#[test]
fn a_filter_that_runs_first_is_kept_for_pods_that_spread() {
    let filter = json!({"filter": "int(node.labels['rack']) < 7"});
    let first = PluginRef { name: "Expression/racks".to_owned(), weight: 0 };
    let enabled = UserSet { enabled: vec![first], ..UserSet::default() };
    let user = UserPlugins { points: vec![("filter".to_owned(), enabled)], ..UserPlugins::default() };
    let mut s = scheduler_with(user, &[("racks", filter)]);
    let node = |i: usize| NodeCase::new(&format!("n{i}"), &[("rack", &(i % 20).to_string())]).event();
    step(&mut s, 0, &(0..200).map(node).collect::<Vec<_>>());
    evaluations();
    let app = Requirement { key: "app".to_owned(), operator: Operator::Exists, values: Vec::new() };
    let pod = |i: usize| {
        let mut event = PodCase::new(&format!("p{i}"), &[("app", "a")]).event();
        if let ObjectEvent::PodUpsert(pod) = &mut event {
            pod.spec.spread = vec![SpreadConstraint {
                max_skew: 1,
                topology_key: "rack".to_owned(),
                when_unsatisfiable: UnsatisfiableAction::DoNotSchedule,
                selector: Some(LabelSelector { requirements: vec![app.clone()] }),
                min_domains: None,
                honor_node_affinity: true,
                honor_node_taints: false,
                match_label_keys: Vec::new(),
            }];
        }
        event
    };
    let pods: Vec<ObjectEvent> = (0..30).map(pod).collect();
    // Racks from 7 on count as domains, so that each rack can take one more than those.
    assert_eq!(binds(&step(&mut s, 1, &pods)).len(), 7);
    assert!(evaluations() <= 5 * 20, "once for each class, not for each pod");
}

#[test]
fn scores_are_in_range() {
    for (value, want) in [
        (Value::Int(-7), 0),
        (Value::Int(101), 100),
        (Value::UInt(u64::MAX), 100),
        (Value::Float(99.9), 99),
        (Value::Float(f64::NAN), 0),
        (Value::Float(f64::INFINITY), 100),
        (Value::Float(-1e300), 0),
        (Value::Null, 0),
    ] {
        assert_eq!(score_of(&Ok(value.clone())), want, "{value:?}");
    }
}

#[test]
fn bad_arguments_name_the_field_and_the_way_out() {
    let looping = "node.labels.all(a, node.labels.all(b, node.labels.all(c, a != b || b != c)))";
    for (arguments, field, want) in [
        (json!([]), "", "must be an object"),
        (json!({}), "", "Required value: one of filter, score, preEnqueue"),
        (json!({"reason": "r"}), "", "Required value: one of filter, score, preEnqueue"),
        (json!({"filtr": "true"}), "filtr", "the fields are filter, reason, score, preEnqueue"),
        (json!({"filter": true}), "filter", "must be a string: quote it"),
        (
            json!({"filter": "node.labls['a'] == 'b'"}),
            "filter",
            "ERROR: <input>:1:5: undefined field 'labls'",
        ),
        (json!({"filter": "node.labls['a'] == 'b'"}), "filter", "can read pod.labels, pod.name"),
        (
            json!({"filter": "true &&\n nod.name == 'a'"}),
            "filter",
            "<input>:2:2: undeclared reference to 'nod'",
        ),
        (json!({"filter": "node.name =="}), "filter", "Syntax error"),
        (json!({"filter": "node.labels['a']"}), "filter", "must evaluate to a bool, not to string: compare"),
        (json!({"filter": "pod.priority == 'high'"}), "filter", "no matching overload"),
        (json!({"filter": looping}), "filter", "instead of looping"),
        (
            json!({"score": "node.labels['watts']"}),
            "score",
            "must evaluate to a number, not to string: int(…)",
        ),
        (json!({"preEnqueue": "node.name == 'a'"}), "preEnqueue", "undeclared reference to 'node'"),
        (json!({"filter": "true", "reason": " "}), "reason", "must not be empty"),
        (json!({"filter": "true", "reason": "a\nb"}), "reason", "must be one line"),
        (json!({"filter": "true", "reason": "x".repeat(300)}), "reason", "Too long"),
    ] {
        let errors = Expressions::read(&arguments.to_string()).unwrap_err();
        let found = |e: &ArgsError| e.field == field && e.message.contains(want);
        assert!(errors.iter().any(found), "{arguments}: {want}: {errors:?}");
    }
}

#[test]
fn an_instance_runs_where_it_has_an_expression() {
    let points = |arguments: Json| Expressions::read(&arguments.to_string()).unwrap().points();
    assert_eq!(points(json!({"filter": "true"})), [ExtensionPoint::Filter]);
    let both = json!({"score": "1", "preEnqueue": "pod.priority > 3"});
    assert_eq!(points(both), [ExtensionPoint::PreEnqueue, ExtensionPoint::Score]);
}

const FILTERS: [&str; 12] = [
    "pod.labels['a'] == node.labels['a']",
    "node.labels[?'b'].orValue('1') == '1'",
    "'a' in node.labels && !('b' in node.labels)",
    "node.labels.exists(k, k == 'a' || node.labels[k] == '2')",
    "int(node.labels['a']) > 1",
    "node.taints.all(t, t.key != 'slow')",
    "node.allocatable['cpu'] - node.requested['cpu'] >= 2 * pod.requests['cpu']",
    "node.requested['pods'] < 2",
    "node.requested['pods'] > 0 || node.name == 'n0'",
    "node.name < 'n3' || pod.name == 'p2'",
    "pod.namespace == 'ns' && pod.priority <= 0 && node.allocatable['cpu'] > 1000",
    "node.labels[pod.labels['a']] == '1'",
];
const SCORES: [&str; 5] = [
    "100 - int(node.labels['a']) * 30",
    "node.taints.size() * 50 + pod.priority",
    "double(node.requested['cpu']) / double(node.allocatable['cpu']) * 100.0",
    "node.name == 'n1' ? 100 : 0",
    "pod.labels['b'] == node.labels['b'] ? 70 : 7",
];

fn some_labels() -> impl Strategy<Value = Labels> {
    proptest::collection::btree_map("[ab]", "[123]", 0..3)
}

fn some_node(name: usize) -> impl Strategy<Value = NodeCase> {
    let taint = proptest::option::of("slow|other");
    (some_labels(), taint, prop_oneof![Just(1000), Just(4000)])
        .prop_map(move |(labels, taint, cpu)| NodeCase { name: format!("n{name}"), labels, taint, cpu })
}

fn some_pod(name: usize) -> impl Strategy<Value = PodCase> {
    (some_labels(), prop_oneof![Just(0), Just(500), Just(900)]).prop_map(move |(labels, cpu)| PodCase {
        name: format!("p{name}"),
        labels,
        cpu,
    })
}

/// A change of one node or pod.
#[derive(Clone, Debug)]
enum Change {
    Node(NodeCase),
    Pod(PodCase),
    DeletePod(usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let one = prop_oneof![
        2 => (0..5_usize).prop_flat_map(some_node).prop_map(Change::Node),
        3 => (0..6_usize).prop_flat_map(some_pod).prop_map(Change::Pod),
        1 => (0..6_usize).prop_map(Change::DeletePod),
    ];
    proptest::collection::vec(one, 1..16)
}

/// The plain evaluation of one expression for one node.
fn plain(source: &str, pod: &Json, node: &Json) -> Result<Value, String> {
    let program = Program::parse(source).unwrap();
    let mut variables = HashMap::from([("pod", from_json(pod)), ("node", from_json(node))]);
    program.evaluate(&mut variables, &mut Budget::new(1_000_000)).map_err(|e| e.to_string())
}

/// The objects of a case and where the pods are, for the plain evaluation.
#[derive(Debug, Default)]
struct Objects {
    nodes: BTreeMap<String, NodeCase>,
    pods: BTreeMap<String, PodCase>,
    placed: BTreeMap<String, String>,
}

impl Objects {
    fn apply(&mut self, change: Change) -> Option<ObjectEvent> {
        match change {
            Change::Node(node) => {
                let event = node.event();
                self.nodes.insert(node.name.clone(), node);
                Some(event)
            }
            // What a pod on a node requests stays.
            Change::Pod(pod) if self.placed.contains_key(&pod.name) => None,
            Change::Pod(pod) => {
                let cpu = self.pods.get(&pod.name).map_or(pod.cpu, |old| old.cpu);
                let pod = PodCase { cpu, ..pod };
                let event = pod.event();
                self.pods.insert(pod.name.clone(), pod);
                Some(event)
            }
            Change::DeletePod(i) => {
                let pod = self.pods.remove(&format!("p{i}"))?;
                self.placed.remove(&pod.name);
                Some(ObjectEvent::PodDelete(format!("uid-{}", pod.name)))
            }
        }
    }

    fn node(&self, node: &NodeCase) -> Json {
        let on = self.placed.iter().filter(|(_, on)| **on == node.name);
        let used = on.fold((0, 0), |(cpu, pods), (pod, _)| (cpu + self.pods[pod].cpu, pods + 1));
        node.json(used)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Verdicts and scores are those of a plain evaluation for each node, with all fields; and no pod sleeps while a node
    /// would take it, so that the events that the plugin registers are enough.
    #[test]
    fn classes_decide_as_a_plain_evaluation_does(
        filter in proptest::sample::select(&FILTERS[..]),
        score in proptest::sample::select(&SCORES[..]),
        changes in changes(),
    ) {
        let mut s = scheduler(&[("one", json!({"filter": filter, "score": score, "reason": "no"}))]);
        let mut objects = Objects::default();
        for (i, change) in changes.into_iter().enumerate() {
            let event = objects.apply(change);
            for (pod, node) in binds(&step(&mut s, 12 * i64::try_from(i).unwrap(), event.as_slice())) {
                objects.placed.insert(pod, node);
            }
        }
        // The last pods that were tried are out of their backoff.
        for at in [215, 230, 245] {
            for (pod, node) in binds(&step(&mut s, at, &[])) {
                objects.placed.insert(pod, node);
            }
        }
        for pod in objects.pods.values().filter(|pod| !objects.placed.contains_key(&pod.name)) {
            let verdict = s.evaluate(&format!("uid-{}", pod.name), None).unwrap();
            prop_assert!(verdict.best.is_empty(), "{} sleeps, although {:?} would take it", pod.name, verdict.best);
            compare(&objects, pod, filter, score, &verdict)?;
        }
        // A pod that was never tried.
        let pod = PodCase::new("p9", &[("a", "2"), ("b", "2")]);
        s.handle_object(Time::from_seconds(250), &pod.event());
        let verdict = s.evaluate("uid-p9", None).unwrap();
        compare(&objects, &pod, filter, score, &verdict)?;
    }
}

fn compare(
    objects: &Objects,
    pod: &PodCase,
    filter: &str,
    score: &str,
    verdict: &plimsoll_scheduler::Verdict,
) -> Result<(), TestCaseError> {
    for (name, rejection) in &verdict.nodes {
        let node = objects.node(&objects.nodes[name]);
        let ours = rejection.as_ref().filter(|r| r.plugin.as_deref() == Some("Expression/one"));
        if rejection.is_some() && ours.is_none() {
            continue;
        }
        let want = match plain(filter, &pod.json(), &node) {
            Ok(Value::Bool(true)) => None,
            Ok(_) => Some("no".to_owned()),
            Err(error) => Some(format!("no: {error}")),
        };
        prop_assert_eq!(ours.map(|r| r.reasons.join(" ")), want, "{} on {}", pod.name, node);
    }
    for (name, scores, _) in &verdict.scores {
        let node = objects.node(&objects.nodes[name]);
        let value = plain(score, &pod.json(), &node).map_err(|_| plimsoll_cel::EvalError::Budget);
        let ours = scores.iter().find(|(plugin, _)| plugin == "Expression/one").map(|(_, score)| *score);
        prop_assert_eq!(ours, Some(100 * score_of(&value)), "{} on {}", pod.name, node);
    }
    Ok(())
}
