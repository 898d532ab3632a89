//! A plugin from outside the crate: registered by name, named by a profile, decides with the others.

use std::collections::BTreeMap;

use plimsoll_scheduler::framework::{
    ActionType, Cluster, ClusterEvent, ClusterEventWithHint, CycleState, EventResource, FilterState, Handle,
    Incoming, NodeId, Normalization, Plugin, PodId, PreFilterResult, ScoreState, Status,
};
use plimsoll_scheduler::{
    Action, Config, ExtensionPoint, FeatureGates, PluginRef, PluginSet, Profile, Registration, Registry,
    Scheduler, UserPlugins, args::Args,
};
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::{ObjectEvent, Time};

/// Keeps pods on nodes of their team, and prefers nodes of a high rank. `rank` is the label to rank by, from the
/// plugin's arguments.
#[derive(Debug)]
struct Teams {
    rank: String,
    events: [ClusterEventWithHint; 1],
}

#[derive(Debug)]
struct Team(BTreeMap<NodeId, bool>);

#[derive(Debug)]
struct Ranks(String);

impl Plugin for Teams {
    /// All verdicts at once, from columns, as a host for plugins in another process asks for them.
    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, state: &mut CycleState) -> PreFilterResult {
        let Some(team) = cluster.pod(pod.id).and_then(|p| p.label("team")) else {
            return PreFilterResult::Skip;
        };
        let columns = cluster.node_columns(&["cpu"], &["team"]);
        assert_eq!(columns.allocatable[0].len(), columns.ids.len(), "one row per node");
        state.write(team.len());
        let is_mine = columns.labels[0].iter().map(|label| *label == Some(team));
        PreFilterResult::go(Team(columns.ids.iter().copied().zip(is_mine).collect()))
    }

    fn pre_score(
        &self,
        _cluster: &Cluster,
        _pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        Some(Box::new(Ranks(self.rank.clone())))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        &self.events
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, event: &ClusterEvent) -> bool {
        let team = cluster.pod(pod).and_then(|p| p.label("team"));
        let name = event.node_name(cluster);
        cluster.node_views().any(|n| Some(n.name()) == name && n.label("team") == team)
    }
}

impl FilterState for Team {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        if self.0.get(&node) == Some(&true) {
            return Status::success();
        }
        let name = cluster.node(node).map_or("", |n| n.name());
        Status::unresolvable(format!("node {name} is not of the team"))
    }
}

impl ScoreState for Ranks {
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let rank = cluster.node(node).and_then(|n| n.label(&self.0)?.parse().ok());
        rank.unwrap_or(0)
    }

    fn normalization(&self) -> Normalization {
        Normalization::None
    }
}

fn registry() -> Registry {
    let make = |args: &Args, _: &mut Handle<'_>| -> Box<dyn Plugin> {
        let rank = args.of("Teams").unwrap_or("\"rank\"").trim_matches('"').to_owned();
        let added =
            ClusterEventWithHint::hinted(EventResource::Node, ActionType::ADD.or(ActionType::NODE_LABEL));
        Box::new(Teams { rank, events: [added] })
    };
    let points =
        [ExtensionPoint::PreFilter, ExtensionPoint::Filter, ExtensionPoint::PreScore, ExtensionPoint::Score];
    let mut registry = Registry::in_tree();
    registry.register(Registration::new("Teams", &points, make)).expect("a new name");
    registry
}

fn scheduler() -> Scheduler {
    let mut user = UserPlugins::default();
    user.multi_point.enabled.push(PluginRef { name: "Teams".to_owned(), weight: 100 });
    let plugins =
        PluginSet::new(&registry(), &user, &FeatureGates::default()).expect("the registry knows it");
    let mut args = Args::default();
    args.set_json("Teams", "\"tier\"".to_owned());
    let profile = Profile { plugins, args, ..Profile::default() };
    Scheduler::new(Config { profiles: vec![profile], ..Config::default() })
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn node(name: &str, pairs: &[(&str, &str)]) -> ObjectEvent {
    let allocatable = [("cpu", 4000), ("memory", 1 << 32), ("pods", 10)];
    ObjectEvent::NodeUpsert(Box::new(Node {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        labels: labels(pairs),
        allocatable: allocatable.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        ..Node::default()
    }))
}

fn pod(name: &str, team: &str) -> ObjectEvent {
    let mut pod = Pod {
        uid: format!("uid-{name}"),
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        labels: labels(&[("team", team)]),
        ..Pod::default()
    };
    "default-scheduler".clone_into(&mut pod.spec.scheduler_name);
    ObjectEvent::PodUpsert(Box::new(pod))
}

fn step(s: &mut Scheduler, at: i64, events: &[ObjectEvent]) -> Vec<Action> {
    let now = Time::from_seconds(at);
    events.iter().for_each(|e| s.handle_object(now, e));
    let mut actions = Vec::new();
    s.decide(now, &mut |a| actions.push(a));
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

#[test]
fn a_registered_plugin_filters_scores_and_gives_hints() {
    let mut s = scheduler();
    let nodes = [
        node("a", &[("team", "red"), ("tier", "1")]),
        node("b", &[("team", "red"), ("tier", "9")]),
        node("c", &[("team", "blue"), ("tier", "99")]),
    ];
    step(&mut s, 0, &nodes);
    let placed = step(&mut s, 1, &[pod("p", "red"), pod("q", "red"), pod("r", "blue")]);
    let want = [("p", "b"), ("q", "b"), ("r", "c")].map(|(p, n)| (p.to_owned(), n.to_owned()));
    assert_eq!(binds(&placed), want, "its filter and its score decide");

    let actions = step(&mut s, 2, &[pod("g", "green")]);
    let message = actions.iter().find_map(|a| match a {
        Action::Unschedulable { message, .. } => Some(message.clone()),
        _ => None,
    });
    let message = message.expect("no node is green");
    assert!(message.contains("1 node a is not of the team, 1 node b is not of the team"), "{message}");
    let verdict = s.evaluate("uid-g", None).expect("waits");
    let plugins: Vec<_> =
        verdict.nodes.iter().map(|(_, r)| r.as_ref().and_then(|r| r.plugin.as_deref())).collect();
    assert_eq!(plugins, [Some("Teams"); 3], "verdicts bear its name");

    // An event that its hint does not care for, then one that it does.
    assert_eq!(binds(&step(&mut s, 20, &[node("d", &[("team", "red")])])), []);
    assert_eq!(s.queue_counts().unschedulable, 1);
    let placed = step(&mut s, 40, &[node("e", &[("team", "green")])]);
    assert_eq!(binds(&placed), [("g".to_owned(), "e".to_owned())]);
}

#[test]
fn profiles_are_checked_against_the_registry() {
    let mut user = UserPlugins::default();
    user.multi_point.enabled.push(PluginRef { name: "Teams".to_owned(), weight: 1 });
    let refused =
        PluginSet::new(&Registry::in_tree(), &user, &FeatureGates::default()).expect_err("not in-tree");
    assert_eq!(refused.to_string(), "plugin \"Teams\" does not exist");
    let plugins = PluginSet::new(&registry(), &user, &FeatureGates::default()).expect("registered");
    assert!(plugins.enabled(ExtensionPoint::Score, "Teams"));
    assert!(!plugins.enabled(ExtensionPoint::Bind, "Teams"), "only where it is registered for");
}
