use super::super::{Action, Config, Extender, ExtenderAnswer as Answer, Profile};
use super::*;
use crate::testing::Event;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    Container, Node, NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, Pod, Requirement,
};

fn node(name: &str) -> Event {
    let mut n = Node { name: name.into(), uid: name.into(), ready: true, ..Node::default() };
    n.allocatable = [("cpu", 1000), ("memory", 1 << 30), ("pods", 10)].map(|(k, v)| (k.to_owned(), v)).into();
    Event::Object(ObjectEvent::NodeUpsert(Box::new(n)))
}

fn pod(name: &str, resource: &str, amount: i64, priority: i32) -> Pod {
    let mut c = Container { name: "main".into(), ..Container::default() };
    c.requests.insert(resource.into(), amount);
    let mut p = Pod { uid: name.into(), namespace: "ns".into(), name: name.into(), ..Pod::default() };
    p.spec.scheduler_name = "default-scheduler".into();
    p.spec.containers = vec![c];
    p.spec.priority = priority;
    p
}

fn upsert(pod: Pod) -> Event {
    Event::Object(ObjectEvent::PodUpsert(Box::new(pod)))
}

fn extender(verbs: &str) -> Extender {
    let verb = |c: char| if verbs.contains(c) { c.to_string() } else { String::new() };
    Extender {
        url_prefix: "http://x".into(),
        filter_verb: verb('f'),
        prioritize_verb: verb('p'),
        preempt_verb: verb('e'),
        bind_verb: verb('b'),
        weight: 1,
        timeout: Duration::from_seconds(5),
        ignorable: verbs.contains('i'),
        ..Extender::default()
    }
}

/// The scheduler, stepped once a second. The tests play the extenders, one answer at a time.
struct Harness {
    place: Scheduler,
    second: i64,
}

impl Harness {
    fn new(extenders: Vec<Extender>) -> Self {
        Self { place: Scheduler::new(Config { extenders, ..Config::default() }), second: 0 }
    }

    fn step(&mut self, events: Vec<Event>) -> Vec<Action> {
        self.second += 1;
        let now = Time::from_seconds(self.second);
        for e in events {
            self.place.apply(now, e);
        }
        let mut out = Vec::new();
        self.place.decide(now, &mut |a| out.push(a));
        self.place.check();
        out
    }

    /// Answers the question in `actions`.
    fn answer(&mut self, actions: &[Action], answer: Result<Answer, String>) -> Vec<Action> {
        let (uid, extender, call, _) = asked(actions);
        self.step(vec![Event::Answer(crate::Event::Extended { uid, extender, call, answer })])
    }
}

fn asked(actions: &[Action]) -> (String, usize, u64, ExtenderCall) {
    let found = actions.iter().find_map(|a| match a {
        Action::Extend { pod, extender, call, what } => {
            Some((pod.uid.clone(), *extender, *call, what.clone()))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("nothing is asked: {actions:?}"))
}

fn bound(actions: &[Action]) -> Option<String> {
    actions.iter().find_map(|a| if let Action::Bind { node, .. } = a { Some(node.clone()) } else { None })
}

fn told(actions: &[Action]) -> (&'static str, String) {
    let found = actions.iter().find_map(|a| match a {
        Action::Unschedulable { reason, message, .. } => Some((reason.as_str(), message.clone())),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("nothing is told: {actions:?}"))
}

fn keep(nodes: &[&str]) -> Result<Answer, String> {
    let nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
    Ok(Answer::Filter { nodes, failed: Vec::new(), unresolvable: Vec::new() })
}

fn three() -> Vec<Event> {
    vec![node("a"), node("b"), node("c")]
}

#[test]
fn filters_come_one_after_another_and_scores_decide() {
    let mut w = Harness::new(vec![extender("fp"), extender("f")]);
    w.step(three());
    let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
    assert_eq!(asked(&out).3, ExtenderCall::Filter(vec!["a".into(), "b".into(), "c".into()]));
    let out = w.answer(&out, keep(&["b", "c"]));
    assert_eq!(asked(&out).1, 1);
    assert_eq!(asked(&out).3, ExtenderCall::Filter(vec!["b".into(), "c".into()]));
    let out = w.answer(&out, keep(&["b", "c"]));
    assert!(matches!(asked(&out).3, ExtenderCall::Prioritize(_)));
    let out = w.answer(&out, Ok(Answer::Prioritize(vec![("b".into(), 1), ("c".into(), 9)])));
    assert_eq!(bound(&out).as_deref(), Some("c"));
}

#[test]
fn cycles_are_serial_and_uninteresting_pods_are_not_shown() {
    let mut managing = extender("f");
    managing.managed_resources = vec!["example.com/x".into()];
    let mut w = Harness::new(vec![managing]);
    w.step(three());
    assert!(bound(&w.step(vec![upsert(pod("plain", "cpu", 100, 0))])).is_some());
    let mut n = Node { name: "x".into(), uid: "x".into(), ready: true, ..Node::default() };
    n.allocatable = [("cpu", 1000), ("pods", 9), ("example.com/x", 4)].map(|(k, v)| (k.to_owned(), v)).into();
    w.step(vec![Event::Object(ObjectEvent::NodeUpsert(Box::new(n)))]);
    let first = w.step(vec![upsert(pod("p", "example.com/x", 1, 1)), upsert(pod("late", "cpu", 100, 0))]);
    assert_eq!(asked(&first).0, "p");
    assert_eq!(bound(&first), None);
    assert!(w.step(Vec::new()).is_empty(), "one cycle at a time");
    let out = w.answer(&first, keep(&["x"]));
    assert_eq!(out.iter().filter(|a| matches!(a, Action::Bind { .. })).count(), 2);
}

#[test]
fn verdicts_of_an_extender_are_reported_and_any_event_wakes_the_pod() {
    let mut w = Harness::new(vec![extender("f")]);
    w.step(three());
    let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
    let failed = vec![("a".into(), "too hot".into()), ("b".into(), "too hot".into())];
    let unresolvable = vec![("b".into(), "broken".into())];
    let out = w.answer(&out, Ok(Answer::Filter { nodes: Vec::new(), failed, unresolvable }));
    let (reason, message) = told(&out);
    assert_eq!(reason, "Unschedulable");
    assert!(message.starts_with("0/3 nodes are available: 1 broken, 1 too hot."), "{message}");
    assert_eq!(w.place.queue_counts().unschedulable, 1);
    let out = w.step(vec![node("d")]);
    assert_eq!(asked(&out).0, "p");
}

#[test]
fn errors_stop_the_cycle_unless_the_extender_is_ignorable() {
    type Row = (&'static str, Result<Answer, String>, Result<&'static str, &'static str>);
    let rows: [Row; 6] = [
        ("f", Err("code 500".into()), Err("code 500")),
        ("fi", Err("code 500".into()), Ok("bound")),
        ("fi", keep(&["z"]), Ok("bound")),
        ("fi", Ok(Answer::Bound), Ok("bound")),
        ("f", keep(&["z"]), Err("claims a filtered node \"z\" which is not found in the input node list")),
        ("f", Ok(Answer::Bound), Err("another question")),
    ];
    for (verbs, answer, want) in rows {
        let mut w = Harness::new(vec![extender(verbs)]);
        w.step(vec![node("a")]);
        let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
        let out = w.answer(&out, answer);
        match want {
            Ok(_) => assert_eq!(bound(&out).as_deref(), Some("a")),
            Err(text) => {
                let (reason, message) = told(&out);
                assert_eq!(reason, "SchedulerError");
                assert!(message.contains(text), "{message}");
                assert_eq!(w.place.queue_counts().backoff, 1);
            }
        }
    }
}

/// Others would wait for its node as long as the extender fails.
#[test]
fn an_error_ends_the_nomination() {
    let mut managing = extender("f");
    managing.managed_resources = vec!["example.com/x".into()];
    let mut w = Harness::new(vec![managing]);
    let mut n = Node { name: "a".into(), uid: "a".into(), ready: true, ..Node::default() };
    n.allocatable = [("cpu", 1000), ("pods", 9), ("example.com/x", 4)].map(|(k, v)| (k.to_owned(), v)).into();
    let mut p = pod("p", "cpu", 1000, 10);
    p.spec.containers[0].requests.insert("example.com/x".into(), 1);
    p.status.nominated_node_name = "a".into();
    let out = w.step(vec![Event::Object(ObjectEvent::NodeUpsert(Box::new(n))), upsert(p)]);
    let out = w.answer(&out, Err("code 500".into()));
    assert_eq!(told(&out).0, "SchedulerError");
    assert_eq!(bound(&w.step(vec![upsert(pod("q", "cpu", 1000, 0))])).as_deref(), Some("a"));
}

#[test]
fn an_answer_that_never_comes_is_given_up_on() {
    let mut w = Harness::new(vec![extender("f")]);
    w.step(vec![node("a")]);
    let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
    assert_eq!(w.place.next_wake(), Some(Time::from_seconds(2 + 35)));
    w.second = 40;
    assert_eq!(told(&w.step(Vec::new())).1, "context deadline exceeded");
    assert!(
        w.answer(&out, keep(&["a"])).iter().all(|a| bound(std::slice::from_ref(a)).is_none()),
        "too late"
    );
}

#[test]
fn what_happened_meanwhile_counts() {
    let rows: [(Event, Option<&str>); 3] = [
        (Event::Object(ObjectEvent::NodeDelete("a".into())), Some("b")),
        (Event::Object(ObjectEvent::PodDelete("p".into())), None),
        (
            {
                let mut p = pod("p", "cpu", 100, 0);
                p.spec.node_name = "b".into();
                upsert(p)
            },
            None,
        ),
    ];
    for (event, want) in rows {
        // Also what is seen after the answer, in the same step.
        for after in [false, true] {
            let mut w = Harness::new(vec![extender("f")]);
            w.step(vec![node("a"), node("b")]);
            let first = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
            let (uid, extender, call, _) = asked(&first);
            let answer = keep(&["a", "b"]);
            let answered = Event::Answer(crate::Event::Extended { uid, extender, call, answer });
            let events = if after { [answered, event.clone()] } else { [event.clone(), answered] };
            let out = w.step(events.into());
            assert_eq!(bound(&out).as_deref(), want, "{event:?}, after the answer: {after}");
            assert!(w.place.extending.is_none() && w.place.in_flight_events.is_empty());
        }
    }
}

#[test]
fn events_during_the_cycle_are_replayed_when_the_pod_comes_back() {
    for helpful in [true, false] {
        let mut w = Harness::new(vec![extender("f")]);
        w.step(vec![node("a")]);
        let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
        if helpful {
            w.step(vec![node("b")]);
        }
        w.step(Vec::new());
        let failed = vec![("a".into(), "no".into())];
        let out = w.answer(&out, Ok(Answer::Filter { nodes: Vec::new(), failed, unresolvable: Vec::new() }));
        if helpful {
            // The new node was not asked about: tried again at once.
            assert_eq!(asked(&out).3, ExtenderCall::Filter(vec!["a".into(), "b".into()]));
        } else {
            assert_eq!(w.place.queue_counts().unschedulable, 1, "{out:?}");
        }
    }
}

#[test]
fn an_extender_has_its_say_about_victims() {
    let rows: [(&str, Result<Answer, String>, &str); 8] = [
        ("e", Ok(Answer::Preempt(vec![("b".into(), vec!["vb".into()], 0)])), "vb"),
        ("e", Ok(Answer::Preempt(vec![("b".into(), vec!["vb".into(), "vc".into()], 0)])), "vb vc"),
        ("e", Ok(Answer::Preempt(vec![("b".into(), vec!["vc".into()], 0)])), "vc"),
        (
            "e",
            Ok(Answer::Preempt(vec![("b".into(), vec!["va".into()], 0)])),
            "preemption: extender: http://x claims to preempt pod (UID: va) on node: b, but the pod is not found on that node",
        ),
        (
            "e",
            Ok(Answer::Preempt(vec![("z".into(), vec!["va".into()], 0)])),
            "preemption: nodeinfo not found for node name \"z\"",
        ),
        ("e", Ok(Answer::Preempt(Vec::new())), "preemption: no candidate node for preemption"),
        ("e", Err("code 500".into()), "preemption: code 500"),
        (
            "e",
            Ok(Answer::Preempt(vec![("a".into(), Vec::new(), 0)])),
            "preemption: expected at least one victim pod on node \"a\"",
        ),
    ];
    for (verbs, answer, want) in rows {
        let mut w = Harness::new(vec![extender(verbs)]);
        let on = |name: &str, node: &str, cpu: i64| {
            let mut p = pod(name, "cpu", cpu, 0);
            p.spec.node_name = node.into();
            upsert(p)
        };
        w.step(vec![node("a"), node("b"), on("va", "a", 1000), on("vb", "b", 1000), on("vc", "b", 0)]);
        let out = w.step(vec![upsert(pod("p", "cpu", 500, 10))]);
        let ExtenderCall::Preempt(plans) = asked(&out).3 else { panic!("{out:?}") };
        assert_eq!(plans.len(), 2);
        let out = w.answer(&out, answer);
        let victims = out.iter().filter_map(|a| match a {
            Action::Preempt { victim, .. } => Some(victim.uid.as_str()),
            _ => None,
        });
        let victims = victims.collect::<Vec<_>>().join(" ");
        if want.starts_with('v') {
            assert_eq!(victims, want);
        } else {
            assert_eq!(victims, "");
            assert!(told(&out).1.ends_with(want), "{:?}", told(&out));
        }
    }
}

#[test]
fn an_extender_binds_and_may_be_replaced_when_it_is_ignorable() {
    for (verbs, answer, ok) in [
        ("b", Ok(Answer::Bound), true),
        ("b", Err("no".to_owned()), false),
        ("bi", Err("no".to_owned()), true),
    ] {
        let ignorable = verbs.contains('i');
        let mut w = Harness::new(vec![extender(verbs)]);
        w.step(vec![node("a")]);
        let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
        assert_eq!(asked(&out).3, ExtenderCall::Bind("a".into()));
        let out = w.answer(&out, answer);
        if !ok {
            assert_eq!(told(&out), ("SchedulerError", "no".to_owned()));
        } else if ignorable {
            assert_eq!(bound(&out).as_deref(), Some("a"));
        } else {
            let Some(Action::Record { event, .. }) = out.first() else { panic!("{out:?}") };
            assert_eq!(event.message, "Successfully assigned ns/p to a");
        }
    }
}

#[test]
fn the_next_extender_binds_where_an_ignorable_one_fails() {
    let mut w = Harness::new(vec![extender("bi"), extender("f"), extender("b")]);
    w.step(vec![node("a")]);
    let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
    let out = w.answer(&out, keep(&["a"]));
    assert_eq!((asked(&out).1, asked(&out).3), (0, ExtenderCall::Bind("a".into())));
    let out = w.answer(&out, Err("no".to_owned()));
    assert_eq!((asked(&out).1, asked(&out).3), (2, ExtenderCall::Bind("a".into())));
    let out = w.answer(&out, Ok(Answer::Bound));
    assert!(
        matches!(out.first(), Some(Action::Record { event, .. }) if event.reason == "Scheduled"),
        "{out:?}"
    );
}

#[test]
fn no_pod_is_bound_to_a_node_that_has_gone_meanwhile() {
    let mut w = Harness::new(vec![extender("bi")]);
    w.step(vec![node("a")]);
    let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
    assert_eq!(asked(&out).3, ExtenderCall::Bind("a".into()));
    let gone = w.step(vec![Event::Object(ObjectEvent::NodeDelete("a".into()))]);
    assert!(gone.is_empty(), "{gone:?}");
    let out = w.answer(&out, Err("no".to_owned()));
    assert_eq!(bound(&out), None);
    assert_eq!(told(&out), ("SchedulerError", "node \"a\" not found".to_owned()));
}

#[test]
fn a_percentage_limits_the_search() {
    let profile = Profile { percentage_of_nodes_to_score: 50, ..Profile::default() };
    for (percentage, nodes, want) in
        [(50, 300, 150), (10, 300, 100), (0, 300, 300), (100, 300, 300), (50, 90, 90)]
    {
        let profile = Profile { percentage_of_nodes_to_score: percentage, ..profile.clone() };
        let mut place = Scheduler::new(Config { profiles: vec![profile], ..Config::default() });
        let now = Time::from_seconds(1);
        for i in 0..nodes {
            place.apply(now, node(&format!("n{i}")));
        }
        // With one pod after another preferring empty nodes, the search has to move on to fill the cluster evenly.
        let mut used = BTreeSet::new();
        for i in 0..2 * want {
            place.apply(now, upsert(pod(&format!("p{i}"), "cpu", 100, 0)));
            place.decide(now, &mut |a| used.extend(bound(&[a])));
        }
        assert_eq!(
            used.len(),
            nodes.min(2 * want),
            "{percentage} % of {nodes}: the search starts where the last one ended"
        );
        place.check();
        let started = place.next_start;
        let sampled = percentage > 0 && percentage < 100 && nodes >= 100;
        let searches = 2 * want;
        assert_eq!(started, if sampled { searches * want % nodes } else { 0 });
    }
}

/// Extenders see the nodes of the sample that are feasible. Without one, no other node is evaluated in that attempt.
#[test]
fn extenders_filter_a_sample() {
    let profiles = vec![Profile { percentage_of_nodes_to_score: 50, ..Profile::default() }];
    let config = Config { profiles, extenders: vec![extender("f")], ..Config::default() };
    let mut w = Harness { place: Scheduler::new(config), second: 0 };
    w.step((0..300).map(|i| node(&format!("n{i}"))).collect());
    let filtered = |out: &[Action]| match asked(out).3 {
        ExtenderCall::Filter(nodes) => nodes,
        other => panic!("{other:?}"),
    };
    let out = w.step(vec![upsert(pod("p", "cpu", 100, 0))]);
    let first = filtered(&out);
    assert_eq!(first.len(), 150);
    let failed = first.iter().map(|n| (n.clone(), "no".to_owned())).collect();
    let out = w.answer(&out, Ok(Answer::Filter { nodes: Vec::new(), failed, unresolvable: Vec::new() }));
    let (_, message) = told(&out);
    assert!(message.starts_with("0/300 nodes are available: 150 no."), "{message}");
    assert_eq!(w.place.queue_counts().unschedulable, 1);
    // The next search starts where that one ended.
    let second = filtered(&w.step(vec![upsert(pod("q", "cpu", 100, 0))]));
    assert_eq!(second.len(), 150);
    assert!(second.iter().all(|node| !first.contains(node)));
}

/// The sample is one of the nodes that PreFilter leaves, and the next search starts after it, counted over all nodes.
#[test]
fn a_percentage_is_one_of_the_nodes_that_prefilter_leaves() {
    for (named, want) in [(250, 125), (150, 100), (60, 60)] {
        let profile = Profile { percentage_of_nodes_to_score: 50, ..Profile::default() };
        let mut place = Scheduler::new(Config { profiles: vec![profile], ..Config::default() });
        let now = Time::from_seconds(1);
        for i in 0..300 {
            place.apply(now, node(&format!("n{i}")));
        }
        for (searches, name) in (1..).zip(["p", "q", "r"]) {
            let mut one = pod(name, "cpu", 100, 0);
            let term = |i| {
                let (key, operator) = ("metadata.name".to_owned(), Operator::In);
                let field = Requirement { key, operator, values: vec![format!("n{i}")] };
                NodeSelectorTerm { fields: vec![field], ..NodeSelectorTerm::default() }
            };
            let required = Some(NodeSelector { terms: (0..named).map(term).collect() });
            one.spec.affinity.node = Some(NodeAffinity { required, preferred: Vec::new() });
            place.apply(now, upsert(one));
            let mut used = None;
            place.decide(now, &mut |a| used = used.take().or_else(|| bound(&[a])));
            assert!(used.is_some());
            assert_eq!(place.next_start, searches * want % 300, "{named} nodes");
        }
    }
}
