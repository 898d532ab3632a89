//! Scenarios through the one entry, and random ones whose derived state is compared with a rebuild.

use super::*;
use crate::testing::Event;
use plimsoll_state::model;
use plimsoll_state::model::{Container, ContainerPort, Phase, PodSpec, Taint, TaintEffect};
use plimsoll_state::model::{Node, Pod};
use plimsoll_state::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent};

pub(super) fn node(name: &str, cpu: i64) -> Event {
    Event::Object(ObjectEvent::NodeUpsert(Box::new(plain_node(name, cpu))))
}

pub(super) fn plain_node(name: &str, cpu: i64) -> Node {
    let mut n = Node { name: name.into(), uid: format!("uid-{name}"), ready: true, ..Node::default() };
    n.allocatable.insert("cpu".into(), cpu);
    n.allocatable.insert("memory".into(), 1 << 30);
    n.allocatable.insert("pods".into(), 10);
    n
}

pub(super) fn pod(name: &str, cpu: i64) -> Pod {
    let mut c = Container { name: "main".into(), ..Container::default() };
    c.requests.insert("cpu".into(), cpu);
    Pod {
        uid: format!("uid-{name}"),
        namespace: "ns".into(),
        name: name.into(),
        spec: PodSpec {
            scheduler_name: "default-scheduler".into(),
            containers: vec![c],
            ..PodSpec::default()
        },
        ..Pod::default()
    }
}

pub(super) fn upsert(pod: Pod) -> Event {
    Event::Object(ObjectEvent::PodUpsert(Box::new(pod)))
}

pub(super) fn engine() -> Scheduler {
    Scheduler::new(Config::default())
}

/// A placement that looks at all nodes for every pod, and one that keeps ranks.
fn both() -> [Scheduler; 2] {
    [Scheduler::new(Config::default()).without_ranks(), Scheduler::new(Config::default())]
}

pub(super) fn step(e: &mut Scheduler, at: i64, events: Vec<Event>) -> Vec<Action> {
    let now = Time::from_seconds(at);
    events.into_iter().for_each(|event| e.apply(now, event));
    let mut actions = Vec::new();
    e.decide(now, &mut |a| actions.push(a));
    e.check();
    actions
}

/// The actions of a step.
pub(super) fn decide(p: &mut Scheduler, now: Time) -> Vec<Action> {
    let mut actions = Vec::new();
    p.decide(now, &mut |a| actions.push(a));
    actions
}

pub(super) fn binds(actions: &[Action]) -> Vec<(String, String)> {
    let bind = |a: &Action| match a {
        Action::Bind { pod, node } => Some((pod.name.clone(), node.clone())),
        _ => None,
    };
    actions.iter().filter_map(bind).collect()
}

pub(super) fn message(actions: &[Action]) -> Option<(&'static str, String)> {
    actions.iter().find_map(|a| match a {
        Action::Unschedulable { reason, message, .. } => Some((reason.as_str(), message.clone())),
        _ => None,
    })
}

#[test]
fn a_pod_is_bound_and_reported_once() {
    let mut e = engine();
    let out = step(&mut e, 0, vec![node("a", 1000), upsert(pod("p", 500))]);
    assert_eq!(binds(&out), [("p".to_owned(), "a".to_owned())]);
    let out = step(&mut e, 1, vec![Event::Answer(crate::Event::Bound("uid-p".into()))]);
    let Some(Action::Record { event, .. }) = out.first() else { panic!("{out:?}") };
    assert_eq!(event.message, "Successfully assigned ns/p to a");
    let mut bound = pod("p", 500);
    bound.spec.node_name = "a".into();
    assert!(step(&mut e, 2, vec![upsert(bound)]).is_empty());
    let counts = e.queue_counts();
    assert_eq!(counts, QueueCounts::default());
}

#[test]
fn what_does_not_fit_waits_with_upstreams_message_and_is_woken_by_a_deletion() {
    let mut e = engine();
    step(&mut e, 0, vec![node("a", 1000), node("b", 100), upsert(pod("p", 800))]);
    let out = step(&mut e, 1, vec![upsert(pod("q", 800))]);
    let (reason, text) = message(&out).expect("told");
    assert_eq!(reason, "Unschedulable");
    assert_eq!(
        text,
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are \
         available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
    // Backed off for a second, but nothing else is active: taken early.
    let out = step(&mut e, 1, vec![Event::Object(ObjectEvent::PodDelete("uid-p".into()))]);
    assert_eq!(binds(&out), [("q".to_owned(), "a".to_owned())]);
}

#[test]
fn the_condition_is_written_once_per_change() {
    let mut e = engine();
    let out = step(&mut e, 0, vec![node("a", 100), upsert(pod("p", 800))]);
    assert!(message(&out).is_some());
    let out = step(&mut e, 400, vec![]);
    assert!(message(&out).is_none());
    assert!(matches!(out.as_slice(), [Action::Record { .. }]), "{out:?}");
}

#[test]
fn gated_pods_wait_for_their_gates() {
    let mut e = engine();
    let mut p = pod("p", 100);
    p.spec.scheduling_gates = vec!["x".into()];
    assert!(step(&mut e, 0, vec![node("a", 1000), upsert(p.clone())]).is_empty());
    assert_eq!(e.queue_counts().gated, 1);
    p.spec.scheduling_gates.clear();
    assert_eq!(binds(&step(&mut e, 1, vec![upsert(p)])).len(), 1);
}

#[test]
fn a_failed_binding_is_undone_and_tried_again_after_its_backoff() {
    let mut e = engine();
    step(&mut e, 0, vec![node("a", 1000), upsert(pod("p", 800))]);
    let failed = Event::Answer(crate::Event::BindFailed { uid: "uid-p".into(), message: "conflict".into() });
    let out = step(&mut e, 1, vec![failed]);
    let want = "running Bind plugin \"DefaultBinder\": conflict";
    assert_eq!(message(&out), Some(("SchedulerError", want.to_owned())));
    assert_eq!(e.next_wake(), Some(Time::from_seconds(3)));
    assert!(binds(&step(&mut e, 2, vec![])).is_empty());
    assert_eq!(binds(&step(&mut e, 3, vec![])).len(), 1);
}

#[test]
fn pods_of_other_schedulers_are_counted_but_not_placed() {
    let mut e = engine();
    let mut p = pod("p", 800);
    p.spec.scheduler_name = "other".into();
    assert!(step(&mut e, 0, vec![node("a", 1000), upsert(p.clone())]).is_empty());
    p.spec.node_name = "a".into();
    step(&mut e, 1, vec![upsert(p)]);
    let out = step(&mut e, 2, vec![upsert(pod("q", 800))]);
    assert!(binds(&out).is_empty());
    assert!(message(&out).is_some());
}

#[test]
fn without_nodes_the_pod_waits_for_its_error_backoff() {
    let mut e = engine();
    let out = step(&mut e, 0, vec![upsert(pod("p", 1))]);
    let want = ("Unschedulable", "no nodes available to schedule pods".to_owned());
    assert_eq!(message(&out), Some(want));
    assert!(binds(&step(&mut e, 1, vec![node("a", 1000)])).is_empty());
    assert_eq!(binds(&step(&mut e, 2, vec![])).len(), 1);
}

#[test]
fn a_more_important_pod_preempts() {
    let mut e = engine();
    step(&mut e, 0, vec![node("a", 1000), upsert(pod("low", 800))]);
    let mut low = pod("low", 800);
    low.spec.node_name = "a".into();
    let mut high = pod("high", 800);
    high.spec.priority = 10;
    let out = step(
        &mut e,
        1,
        vec![Event::Answer(crate::Event::Bound("uid-low".into())), upsert(low), upsert(high)],
    );
    let victim = out.iter().find_map(|a| match a {
        Action::Preempt { victim, .. } => Some(victim.name.clone()),
        _ => None,
    });
    assert_eq!(victim.as_deref(), Some("low"));
    let nominated = out.iter().find_map(|a| match a {
        Action::Unschedulable { nominated_node, .. } => nominated_node.clone(),
        _ => None,
    });
    assert_eq!(nominated.as_deref(), Some("a"));
    // A less important newcomer doesn't take the room of the nominated pod.
    let out = step(
        &mut e,
        2,
        vec![Event::Object(ObjectEvent::PodDelete("uid-low".into())), upsert(pod("late", 800))],
    );
    assert_eq!(binds(&out), [("high".to_owned(), "a".to_owned())]);
}

/// Of two pods of a priority the one that started later goes, also where the outcome of an earlier search is kept.
#[test]
fn victims_follow_start_times() {
    let placed = |name: &str, cpu, priority, started| {
        let mut one = pod(name, cpu);
        one.spec.node_name = name[..1].into();
        one.spec.priority = priority;
        one.status.start_time = Some(Time::from_seconds(started));
        upsert(one)
    };
    let high = |name: &str| {
        let mut one = pod(name, 600);
        one.spec.priority = 10;
        upsert(one)
    };
    for mut e in both() {
        let mut events: Vec<Event> = ["a", "b", "c"].into_iter().map(|name| node(name, 1000)).collect();
        events.extend([placed("a1", 800, 0, 1), placed("c1", 800, 0, 1)]);
        events.extend([placed("b1", 400, 5, 10), placed("b2", 400, 5, 20)]);
        step(&mut e, 0, events);
        // Of the same kind: what was found out about node b is kept, and a and c are nominated.
        step(&mut e, 1, vec![high("h1")]);
        step(&mut e, 2, vec![high("h2")]);
        let out = step(&mut e, 3, vec![placed("b1", 400, 5, 30), high("h3")]);
        let victims = out.iter().filter_map(|a| match a {
            Action::Preempt { victim, .. } => Some(victim.name.as_str()),
            _ => None,
        });
        assert_eq!(victims.collect::<Vec<_>>(), ["b1"], "{out:?}");
    }
}

/// A random history: nodes and pods come, change and go; bindings fail now and then.
fn history(seed: u64, length: usize) -> Vec<(i64, Vec<Event>)> {
    let mut rng = plimsoll_state::rng::Rng::new(seed);
    let mut out = Vec::new();
    for i in 0..length {
        let at = i as i64;
        let n = rng.below(6);
        let p = rng.below(40);
        let name = format!("p{p}");
        let event = match rng.below(12) {
            0 => node(&format!("n{n}"), i64::from(1 + rng.below(4)) * 1000),
            1 => Event::Object(ObjectEvent::NodeDelete(format!("n{n}"))),
            2 => Event::Object(ObjectEvent::PodDelete(format!("uid-{name}"))),
            3 => Event::Answer(crate::Event::Bound(format!("uid-{name}"))),
            4 => Event::Answer(crate::Event::BindFailed { uid: format!("uid-{name}"), message: "no".into() }),
            kind => {
                let mut one = pod(&name, i64::from(rng.below(9)) * 200);
                one.spec.priority = i32::try_from(rng.below(3)).expect("small") * 10;
                match kind {
                    5 => one.spec.node_name = format!("n{n}"),
                    6 => one.spec.scheduling_gates = vec!["g".into()],
                    7 => one.status.phase = Phase::Succeeded,
                    8 => one.spec.containers[0]
                        .ports
                        .push(ContainerPort { host_port: 80, ..ContainerPort::default() }),
                    9 => one.deleting = true,
                    10 => one.status.nominated_node_name = format!("n{n}"),
                    _ => {
                        one.spec.containers[0].requests.insert("x/gpu".into(), 1);
                    }
                }
                upsert(one)
            }
        };
        let mut events = vec![event];
        if rng.below(10) == 0 {
            let mut tainted = Node { name: format!("n{n}"), ..Node::default() };
            tainted.allocatable.insert("pods".into(), 3);
            tainted.allocatable.insert("cpu".into(), 4000);
            tainted.taints =
                vec![Taint { key: "k".into(), value: String::new(), effect: TaintEffect::NoSchedule }];
            events.push(Event::Object(ObjectEvent::NodeUpsert(Box::new(tainted))));
        }
        out.push((at, events));
    }
    out
}

#[test]
fn the_same_journal_gives_the_same_actions_and_a_consistent_state() {
    for seed in 0..20 {
        let run = || {
            let mut e = engine();
            let mut all = Vec::new();
            for (at, events) in history(seed, 300) {
                all.push(step(&mut e, at, events));
                e.check();
            }
            format!("{all:?}")
        };
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// Like [`history`], with soft preferences, and with many pods of few kinds.
pub(super) fn busy_history(seed: u64, length: usize) -> Vec<Vec<Event>> {
    let mut rng = plimsoll_state::rng::Rng::new(seed);
    let mut out = Vec::new();
    for i in 0..length {
        let n = rng.below(30);
        let event = match rng.below(20) {
            0 | 1 => {
                let mut one = plain_node(&format!("n{n}"), i64::from(1 + rng.below(6)) * 1000);
                one.labels.insert("zone".into(), format!("z{}", rng.below(3)));
                one.unschedulable = rng.below(8) == 0;
                for _ in 0..rng.below(3) {
                    let effect = [TaintEffect::PreferNoSchedule, TaintEffect::NoSchedule]
                        [usize::from(rng.below(5) == 0)];
                    one.taints.push(Taint {
                        key: format!("t{}", rng.below(4)),
                        value: String::new(),
                        effect,
                    });
                }
                Event::Object(ObjectEvent::NodeUpsert(Box::new(one)))
            }
            2 => Event::Object(ObjectEvent::NodeDelete(format!("n{n}"))),
            3..=6 => Event::Object(ObjectEvent::PodDelete(format!("uid-p{}", rng.below(i as u32 + 1)))),
            7 => Event::Answer(crate::Event::BindFailed {
                uid: format!("uid-p{}", i.saturating_sub(1)),
                message: "no".into(),
            }),
            _ => upsert(busy_pod(&mut rng, i)),
        };
        out.push(vec![event]);
    }
    out
}

fn busy_pod(rng: &mut plimsoll_state::rng::Rng, i: usize) -> Pod {
    let mut one = pod(&format!("p{i}"), i64::from(1 + rng.below(3)) * 300);
    one.spec.priority = i32::try_from(rng.below(3)).expect("small");
    if rng.below(3) == 0 {
        let requirement = plimsoll_state::model::Requirement {
            key: "zone".into(),
            operator: plimsoll_state::model::Operator::In,
            values: vec![format!("z{}", rng.below(2))],
        };
        let term =
            plimsoll_state::model::NodeSelectorTerm { expressions: vec![requirement], fields: Vec::new() };
        let preferred = vec![plimsoll_state::model::PreferredSchedulingTerm { weight: 10, term }];
        one.spec.affinity.node = Some(plimsoll_state::model::NodeAffinity { required: None, preferred });
    }
    if rng.below(6) == 0 {
        one.spec.containers[0].ports = vec![ContainerPort { host_port: 80, ..ContainerPort::default() }];
    }
    one
}

#[test]
fn ranks_decide_as_a_full_scan_does() {
    for seed in 0..6 {
        let [mut plain, mut ranked] = both();
        for (at, events) in busy_history(seed, 250).into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            let run = |p: &mut Scheduler| {
                for e in events.clone() {
                    p.apply(now, e);
                }
                let mut actions = Vec::new();
                p.decide(now, &mut |a| actions.push(a));
                if at % 25 == 0 {
                    p.check();
                }
                actions
            };
            let (want, got) = (run(&mut plain), run(&mut ranked));
            assert_eq!(want, got, "seed {seed}, step {at}");
        }
    }
}

pub(super) fn object(o: ClusterObject) -> Event {
    Event::Object(ObjectEvent::ObjectUpsert(Box::new(o)))
}

pub(super) fn waiting_claim() -> model::PersistentVolumeClaim {
    model::PersistentVolumeClaim {
        namespace: "ns".into(),
        name: "data".into(),
        uid: "c".into(),
        request: Some(5),
        storage_class: "local".into(),
        ..model::PersistentVolumeClaim::default()
    }
}

pub(super) fn volume_world() -> Vec<Event> {
    let class = model::StorageClass {
        name: "local".into(),
        provisioner: "kubernetes.io/no-provisioner".into(),
        binding_mode: Some(model::BindingMode::WaitForFirstConsumer),
        allowed_topologies: Vec::new(),
        default: false,
    };
    let volume = model::PersistentVolume {
        name: "pv".into(),
        capacity: 10,
        storage_class: "local".into(),
        available: true,
        ..model::PersistentVolume::default()
    };
    let mut p = pod("p", 100);
    let source = model::VolumeSource::Claim { name: "data".into(), read_only: false };
    p.spec.volumes.push(model::Volume { name: "v".into(), source });
    vec![
        node("a", 1000),
        object(ClusterObject::StorageClass(class)),
        object(ClusterObject::Volume(volume)),
        object(ClusterObject::Claim(waiting_claim())),
        upsert(p),
    ]
}

#[test]
fn volumes_are_bound_before_the_pod() {
    let mut e = engine();
    let out = step(&mut e, 0, volume_world());
    let [Action::Nominate { .. }, Action::Prepare { node, what, .. }] = out.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(node, "a");
    assert_eq!(what.bindings, [(("ns".to_owned(), "data".to_owned()), "pv".to_owned())]);
    assert!(step(&mut e, 1, vec![Event::Answer(crate::Event::Prepared("uid-p".into()))]).is_empty());
    let bound =
        model::PersistentVolumeClaim { volume_name: "pv".into(), bind_completed: true, ..waiting_claim() };
    let out = step(&mut e, 2, vec![object(ClusterObject::Claim(bound))]);
    assert_eq!(binds(&out), [("p".to_owned(), "a".to_owned())]);
}

#[test]
fn waiting_for_volumes_ends() {
    let mut e = engine();
    step(&mut e, 0, volume_world());
    step(&mut e, 1, vec![Event::Answer(crate::Event::Prepared("uid-p".into()))]);
    assert_eq!(e.next_wake(), Some(Time::from_seconds(600)));
    let out = step(&mut e, 600, vec![]);
    let want = "running PreBind plugin \"VolumeBinding\": binding volumes: context deadline exceeded";
    assert_eq!(message(&out), Some(("SchedulerError", want.to_owned())));
}

/// A node with one device.
pub(super) fn device_world() -> Vec<Event> {
    let slice = model::ResourceSlice {
        name: "s".into(),
        driver: "d".into(),
        pool: "a".into(),
        slice_count: 1,
        reach: Some(model::Reach::Node("a".into())),
        devices: vec![model::Device { name: "0".into(), ..model::Device::default() }],
        ..model::ResourceSlice::default()
    };
    let class = model::DeviceClass { name: "chips".into(), ..model::DeviceClass::default() };
    vec![
        node("a", 1000),
        object(ClusterObject::DeviceSlice(slice)),
        object(ClusterObject::DeviceClass(class)),
    ]
}

/// A pod and its claim for one device.
pub(super) fn with_device(name: &str) -> [Event; 2] {
    let alternative = model::DeviceAlternative {
        name: String::new(),
        class: "chips".into(),
        selectors: Vec::new(),
        count: model::DeviceCount::Exactly(1),
        tolerations: Vec::new(),
        admin: false,
        shares_capacity: false,
    };
    let request =
        model::DeviceRequest { name: "x".into(), prioritized: false, alternatives: vec![alternative] };
    let claim = object(ClusterObject::DeviceClaim(model::ResourceClaim {
        namespace: "ns".into(),
        name: name.into(),
        uid: name.into(),
        requests: vec![request],
        ..model::ResourceClaim::default()
    }));
    let mut p = pod(name, 100);
    let source = model::PodClaimSource::Claim(name.into());
    p.spec.resource_claims.push(model::PodResourceClaim { name: "r".into(), source });
    [claim, upsert(p)]
}

/// The devices that are to be written, each the first of its pod.
pub(super) fn prepared(out: &[Action]) -> Vec<&str> {
    let mut devices = Vec::new();
    for action in out {
        if let Action::Prepare { what, .. } = action {
            devices.extend(what.devices.iter().take(1).flat_map(|g| &g.devices).map(|d| d.device.as_str()));
        }
    }
    devices
}

#[test]
fn devices_are_given_once() {
    let mut e = engine();
    let mut events = device_world();
    events.extend([with_device("p"), with_device("q")].into_iter().flatten());
    let out = step(&mut e, 0, events);
    assert_eq!(prepared(&out), ["0"]);
    let (_, text) = message(&out).expect("the other waits");
    assert!(text.starts_with("0/1 nodes are available: 1 cannot allocate all claims."), "{text}");
    assert_eq!(binds(&step(&mut e, 1, vec![Event::Answer(crate::Event::Prepared("uid-p".into()))])).len(), 1);
}

/// The write may still succeed.
#[test]
fn devices_that_are_written_for_a_pod_that_is_gone_are_not_free() {
    let mut e = engine();
    let mut events = device_world();
    events.extend(with_device("p"));
    assert_eq!(prepared(&step(&mut e, 0, events)), ["0"]);
    step(&mut e, 1, vec![Event::Object(ObjectEvent::PodDelete("uid-p".into()))]);
    assert_eq!(prepared(&step(&mut e, 2, with_device("q").into())), [""; 0]);
    let failed = crate::Event::BindFailed { uid: "uid-p".into(), message: "no".into() };
    step(&mut e, 3, vec![Event::Answer(failed)]);
    assert_eq!(prepared(&step(&mut e, 4, with_device("r").into())), ["0"]);
}

/// Pods and nodes coming, going and changing labels, with affinity of all kinds, spreading and Services.
pub(super) fn related_history(seed: u64, length: usize) -> Vec<Vec<Event>> {
    let mut rng = plimsoll_state::rng::Rng::new(seed);
    let mut out = Vec::new();
    let quiet = seed.is_multiple_of(3);
    let mut first: Vec<Event> = (0..24).map(|n| related_node(&mut rng, n, quiet)).collect();
    if seed.is_multiple_of(2) {
        first.push(service("s0", "app", "a0"));
    }
    out.push(first);
    for i in 0..length {
        let n = rng.below(24);
        let event = match rng.below(if quiet { 64 } else { 40 }) {
            0 => related_node(&mut rng, n, quiet),
            1 if !quiet => Event::Object(ObjectEvent::NodeDelete(format!("n{n}"))),
            2 => Event::Answer(crate::Event::BindFailed {
                uid: format!("uid-p{}", i.saturating_sub(1)),
                message: "no".into(),
            }),
            3 => service(&format!("s{}", rng.below(2)), "app", &format!("a{}", rng.below(3))),
            4 => {
                let labels = [("team".to_owned(), format!("t{}", rng.below(2)))].into();
                object(ClusterObject::Namespace { name: "ns".into(), labels })
            }
            5 => Event::Object(ObjectEvent::ObjectDelete(ClusterObjectKey {
                kind: ClusterObjectKind::Service,
                namespace: "ns".into(),
                name: "s0".into(),
            })),
            6..=11 => Event::Object(ObjectEvent::PodDelete(format!("uid-p{}", rng.below(i as u32 + 1)))),
            12 | 13 => {
                let which = rng.below(i as u32 + 1) as usize;
                let mut one = related_pod(&mut rng, which);
                one.deleting = rng.below(2) == 0;
                one.spec.node_name = format!("n{n}");
                upsert(one)
            }
            _ => upsert(related_pod(&mut rng, i)),
        };
        out.push(vec![event]);
    }
    out
}

fn service(name: &str, key: &str, value: &str) -> Event {
    let selector = [(key.to_owned(), value.to_owned())].into();
    object(ClusterObject::Service { namespace: "ns".into(), name: name.into(), selector })
}

fn related_node(rng: &mut plimsoll_state::rng::Rng, n: u32, quiet: bool) -> Event {
    let mut one = plain_node(&format!("n{n}"), i64::from(2 + rng.below(4)) * 1000);
    one.labels.insert("kubernetes.io/hostname".into(), if n == 3 { "n4".into() } else { format!("n{n}") });
    if rng.below(12) > 0 {
        one.labels.insert("topology.kubernetes.io/zone".into(), format!("z{}", n % 3));
    }
    if !quiet || rng.below(4) == 0 {
        one.labels.insert("rack".into(), ["", "r1", "r2", "r3"][rng.below(4) as usize].into());
    }
    if rng.below(6) == 0 {
        let effect = [TaintEffect::PreferNoSchedule, TaintEffect::NoSchedule][rng.below(2) as usize];
        one.taints.push(Taint { key: "t".into(), value: String::new(), effect });
    }
    Event::Object(ObjectEvent::NodeUpsert(Box::new(one)))
}

fn related_pod(rng: &mut plimsoll_state::rng::Rng, i: usize) -> Pod {
    use plimsoll_state::model::{
        LabelSelector, Operator, PodAffinity, PodAffinityTerm, Requirement, SpreadConstraint,
        UnsatisfiableAction, WeightedPodAffinityTerm,
    };
    const KEYS: [&str; 3] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"];
    // Few kinds, so that pods share ranks.
    let kind = rng.below(12);
    let mut one = pod(&format!("p{i}"), 200);
    one.spec.priority = i32::from(rng.below(9) == 0);
    one.labels.insert("app".into(), format!("a{}", kind % 3));
    let key = || KEYS[(kind / 3 % 3) as usize].to_owned();
    let selector = |app: u32| LabelSelector {
        requirements: vec![Requirement {
            key: "app".into(),
            operator: Operator::In,
            values: vec![format!("a{}", app % 3)],
        }],
    };
    let term = |app| PodAffinityTerm {
        selector: Some(selector(app)),
        topology_key: key(),
        namespace_selector: (kind == 7).then(|| LabelSelector {
            requirements: vec![Requirement {
                key: "team".into(),
                operator: Operator::In,
                values: vec!["t0".into()],
            }],
        }),
        ..PodAffinityTerm::default()
    };
    let required = |app| Some(PodAffinity { required: vec![term(app)], preferred: Vec::new() });
    let preferred = |app| {
        let preferred = vec![WeightedPodAffinityTerm { weight: 7, term: term(app) }];
        Some(PodAffinity { required: Vec::new(), preferred })
    };
    let spread = |hard: bool, skew| SpreadConstraint {
        max_skew: skew,
        topology_key: key(),
        when_unsatisfiable: if hard {
            UnsatisfiableAction::DoNotSchedule
        } else {
            UnsatisfiableAction::ScheduleAnyway
        },
        selector: Some(selector(kind)),
        min_domains: (hard && kind == 4).then_some(2),
        honor_node_affinity: true,
        honor_node_taints: kind.is_multiple_of(2),
        match_label_keys: Vec::new(),
    };
    match rng.below(8) {
        0 => one.spec.affinity.pod = required(kind),
        1 => one.spec.affinity.anti = required(kind),
        2 => one.spec.affinity.pod = preferred(kind + 1),
        3 => one.spec.affinity.anti = preferred(kind),
        4 => one.spec.spread = vec![spread(true, 1 + i32::from(kind.is_multiple_of(2)))],
        5 => one.spec.spread = vec![spread(false, 1), spread(true, 3)],
        6 => one.spec.spread = vec![spread(false, 2)],
        _ => {}
    }
    one
}

#[test]
fn counters_decide_as_a_full_scan_does() {
    for seed in 0..6 {
        let [mut plain, mut ranked] = both();
        let mut decisions = 0;
        for (at, events) in related_history(seed, 300).into_iter().enumerate() {
            let now = Time::from_seconds(at as i64 / 3);
            let run = |p: &mut Scheduler| {
                for e in events.clone() {
                    p.apply(now, e);
                }
                let mut actions = Vec::new();
                p.decide(now, &mut |a| actions.push(a));
                for action in &actions {
                    if let Action::Preempt { victim, .. } = action {
                        p.apply(now, Event::Object(ObjectEvent::PodDelete(victim.uid.clone())));
                    }
                }
                if at % 20 == 0 {
                    p.check_ranks();
                }
                actions
            };
            let (want, got) = (run(&mut plain), run(&mut ranked));
            decisions += binds(&want).len();
            assert_eq!(want, got, "seed {seed}, step {at}");
        }
        let by_ranks = ranked.ranks.clock as usize;
        assert!(by_ranks * 3 > decisions, "seed {seed}: {by_ranks} of {decisions} were ranked");
    }
}
