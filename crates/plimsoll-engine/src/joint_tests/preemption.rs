//! Preemption for nodes: by Kueue's rules, where it helps, and no more than that.

use crate::Event;
use crate::testing::{Fixture, cluster_queue, pod, pod_set, spec};
use plimsoll_queueing::{
    ClusterQueue, Config, FlavorQuotas, PodSet, PreemptionPolicy, QueueingStrategy, ResourceGroup,
    ResourceQuota,
};
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    AccessMode, ClaimRef, ClusterObject, LabelSelector, Operator, PersistentVolume, PersistentVolumeClaim,
    Pod, PodAffinity, PodAffinityTerm, Requirement, Volume, VolumeSource,
};
use proptest::prelude::*;

/// A ClusterQueue that preempts within itself.
pub(super) fn preempting(name: &str, flavors: &[(&str, i64)]) -> ClusterQueue {
    let mut queue = cluster_queue(name, flavors);
    queue.preemption.within_cluster_queue = PreemptionPolicy::LowerPriority;
    queue
}

/// Quota for everything, nodes with these CPUs, and single pods of priority 0 with these CPUs.
fn world(nodes: &[i64], singles: &[i64]) -> Fixture {
    let mut w = Fixture::with_queues(true, Config::default(), &[preempting("c", &[("f", 1_000_000)])]);
    for (i, cpu) in nodes.iter().enumerate() {
        w.node(&format!("n{i}"), *cpu);
    }
    for (i, cpu) in singles.iter().enumerate() {
        w.submit_to("c", &format!("s{i}"), 0, vec![pod_set("main", 1, *cpu)]);
    }
    w
}

#[test]
fn victims_are_those_that_leave_room_for_a_pod() {
    // Two pods on each node; the gang's pods need whole nodes.
    let mut w = world(&[2, 2, 2], &[1, 1, 1, 1, 1, 1]);
    assert_eq!(w.bound.len(), 6);
    w.submit_to("c", "gang", 10, vec![pod_set("main", 2, 2)]);
    assert_eq!(w.preempted.len(), 4, "{:?}", w.preempted);
    assert!(w.bound.contains("gang-0") && w.bound.contains("gang-1"));
    assert!(w.stuck.is_empty());
    // Those that stay are together on a node.
    let staying: Vec<&str> =
        w.pods.iter().filter(|(n, _)| *n != "gang").map(|(_, p)| p[0].spec.node_name.as_str()).collect();
    assert_eq!((staying.len(), staying.iter().all(|n| *n == staying[0])), (2, true));
}

/// Pods of all slices of an elastic job bear the name of the first one.
#[test]
fn an_elastic_job_that_has_grown_leaves_its_nodes() {
    let mut w = world(&[2], &[]);
    w.submit("grown", 2, 1);
    if let Some(workload) = w.workloads.get_mut("grown") {
        workload.first_slice = "first".into();
    }
    w.tell("grown");
    w.pods.values_mut().flatten().for_each(|p| p.workload = "first".into());
    w.touch_bound_pods(0);
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 2)]);
    assert_eq!((w.preempted.as_slice(), w.bound.contains("high-0")), (&["grown".to_owned()][..], true));
}

/// A search for victims that failed is made again once something has changed that victims depend on.
#[test]
fn a_search_for_victims_that_failed_is_not_repeated_in_vain() {
    let mut queue = preempting("c", &[("f", 1_000)]);
    queue.strategy = QueueingStrategy::StrictFifo;
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.node("a", 2);
    w.submit("low", 2, 1);
    w.submit_to("c", "large", 10, vec![pod_set("main", 1, 3)]);
    let searches = |w: &Fixture| w.engine.queueing().map_or(0, |q| q.victim_searches());
    let before = searches(&w);
    assert!(before > 0);
    for i in 0..5 {
        w.submit(&format!("later-{i}"), 1, 1);
        assert_eq!(w.reason("large").0, "WaitingForNodes");
    }
    assert_eq!(searches(&w), before);
    w.node("b", 2);
    w.submit("more", 1, 1);
    assert!(searches(&w) > before);
}

/// More victims than a search takes before it asks whether all candidates would be enough.
#[test]
fn many_victims_are_found_and_none_where_all_would_be_too_few() {
    let mut w = world(&[6, 6, 6], &[1; 18]);
    assert_eq!(w.bound.len(), 18);
    w.submit_to("c", "too-large", 20, vec![pod_set("main", 1, 7)]);
    assert_eq!((w.preempted.len(), w.reason("too-large").0.as_str()), (0, "WaitingForNodes"));
    w.submit_to("c", "gang", 10, vec![pod_set("main", 2, 6)]);
    assert_eq!(w.preempted.len(), 12, "{:?}", w.preempted);
    assert!(w.bound.contains("gang-0") && w.bound.contains("gang-1"));
    assert!(w.stuck.is_empty());
    // What grows is tried again.
    w.node("n0", 13);
    assert!(w.bound.contains("too-large-0"), "{:?}", w.reason("too-large"));
}

#[test]
fn without_the_right_to_preempt_a_workload_waits() {
    let mut w = world(&[2], &[1, 1]);
    w.submit_to("c", "equal", 0, vec![pod_set("main", 1, 2)]);
    assert_eq!((w.preempted.len(), w.reason("equal").0.as_str()), (0, "WaitingForNodes"));
    let mut w = Fixture::new(true);
    w.node("n0", 2);
    w.submit("low", 2, 1);
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 2)]);
    assert_eq!((w.preempted.len(), w.reason("high").0.as_str()), (0, "WaitingForNodes"));
}

#[test]
fn nothing_is_preempted_for_pods_that_would_not_fit_then() {
    let mut w = world(&[2, 2], &[1, 1, 1, 1]);
    w.submit_to("c", "large", 10, vec![pod_set("main", 1, 3)]);
    assert_eq!((w.preempted.len(), w.reason("large").0.as_str()), (0, "WaitingForNodes"));
    // Also not for quota: by quota alone one pod would go.
    let queue = preempting("c", &[("f", 4)]);
    for joint in [false, true] {
        let mut w = Fixture::with_queues(joint, Config::default(), std::slice::from_ref(&queue));
        w.node("n0", 2);
        w.node("n1", 2);
        (0..4).for_each(|i| w.submit(&format!("s{i}"), 1, 1));
        w.submit_to("c", "large", 10, vec![pod_set("main", 1, 3)]);
        assert_eq!(w.preempted.is_empty(), joint, "joint admission: {joint}");
    }
}

/// Each podset fits by itself; the nodes have capacity for everything.
#[test]
fn podsets_are_preempted_for_together() {
    let queue = preempting("c", &[("f", 8)]);
    for joint in [false, true] {
        let mut w = Fixture::with_queues(joint, Config::default(), std::slice::from_ref(&queue));
        w.node("n0", 20);
        w.submit("low", 4, 1);
        w.submit_to("c", "high", 10, vec![pod_set("driver", 1, 4), pod_set("worker", 1, 4)]);
        assert_eq!(w.preempted.len(), 1, "joint admission: {joint}");
    }
}

/// Only the number of pods is exhausted; and quota of a second resource group, whose nodes the pods of the first keep full.
#[test]
fn every_resource_counts_for_preemption() {
    let quota = |resource: &str, nominal| ResourceQuota {
        resource: resource.into(),
        nominal,
        borrowing_limit: None,
        lending_limit: None,
    };
    let mut few_pods = preempting("c", &[("f", 100)]);
    few_pods.resource_groups[0].covered.push("pods".into());
    few_pods.resource_groups[0].flavors[0].resources.push(quota("pods", 2));
    for joint in [false, true] {
        let mut w = Fixture::with_queues(joint, Config::default(), std::slice::from_ref(&few_pods));
        w.node("n0", 20);
        (0..2).for_each(|i| w.submit(&format!("s{i}"), 1, 1));
        w.submit_to("c", "high", 10, vec![pod_set("main", 1, 1)]);
        assert_eq!(w.preempted.len(), 1, "joint admission: {joint}");
    }

    let mut two_groups = preempting("c", &[("f", 2)]);
    let flavors = vec![FlavorQuotas { flavor: "g".into(), resources: vec![quota("memory", 1 << 20)] }];
    two_groups.resource_groups.push(ResourceGroup { covered: vec!["memory".into()], flavors });
    let mut with_memory = pod_set("main", 1, 2);
    with_memory.spec.containers[0].requests.insert("memory".into(), 1 << 10);
    for joint in [false, true] {
        let mut w = Fixture::with_queues(joint, Config::default(), std::slice::from_ref(&two_groups));
        w.node_of("n0", 2, "g");
        (0..2).for_each(|i| w.submit(&format!("s{i}"), 1, 1));
        w.submit_to("c", "high", 10, vec![with_memory.clone()]);
        assert_eq!(w.preempted.len(), 2, "joint admission: {joint}, {:?}", w.reason("high"));
    }
}

#[test]
fn what_victims_leave_is_kept_until_they_are_gone() {
    let mut w = world(&[2], &[1, 1]);
    w.lingers = true;
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 2)]);
    assert_eq!(w.preempted.len(), 2);
    // Their quota is free, their pods aren't gone: nobody else is preempted, and nobody takes the node.
    w.node("n1", 1);
    w.submit_to("c", "other", 5, vec![pod_set("main", 2, 1)]);
    assert_eq!(w.preempted.len(), 2, "{:?}", w.preempted);
    w.let_go();
    assert!(w.bound.contains("high-0"), "{:?}", w.reason("high"));
    assert_eq!(w.stuck.len(), 0);
    assert_eq!(w.reason("other").0, "WaitingForNodes");
}

/// Victims that still run and hold their quota: the preemptor waits for them, and takes no others meanwhile.
#[test]
fn victims_that_still_hold_quota_are_waited_for() {
    // By nodes alone, by quota alone, and by both.
    for (quota, cpu) in [(1_000, 2), (4, 1), (4, 2)] {
        let mut w = Fixture::with_queues(true, Config::default(), &[preempting("c", &[("f", quota)])]);
        (0..if quota == 4 && cpu == 1 { 3 } else { 2 }).for_each(|i| w.node(&format!("n{i}"), 2));
        (0..4).for_each(|i| w.submit(&format!("s{i}"), 1, 1));
        w.holds_quota = true;
        w.submit_to("c", "high", 10, vec![pod_set("main", 1, cpu)]);
        let victims = usize::try_from(cpu).unwrap_or(0);
        assert_eq!(w.preempted.len(), victims, "quota {quota}, {cpu} CPUs: {:?}", w.preempted);
        // Other workloads come, and find nothing to preempt either.
        for i in 0..3 {
            w.submit_to("c", &format!("later{i}"), 5, vec![pod_set("main", 1, 3)]);
            w.submit(&format!("equal{i}"), 1, 1);
            assert_eq!(w.preempted.len(), victims, "quota {quota}, {cpu} CPUs: {:?}", w.preempted);
        }
        w.let_go();
        assert!(w.bound.contains("high-0"), "quota {quota}, {cpu} CPUs: {:?}", w.reason("high"));
        assert_eq!((w.preempted.len(), w.stuck.len()), (victims, 0), "quota {quota}, {cpu} CPUs");
    }
}

/// What a claim before it keeps free is no reason to preempt: `small` would fit on `n0` but for the claim of `large`, which
/// may preempt nobody, and on `n1` in place of a single pod.
#[test]
fn a_workload_that_waits_for_a_claim_only_preempts_nobody() {
    let queues = [preempting("c", &[("f", 1_000)]), cluster_queue("d", &[("f", 1_000)])];
    for claimed in [false, true] {
        let mut w = Fixture::with_queues(true, Config::default(), &queues);
        w.node("n1", 1);
        w.submit("single", 1, 1);
        w.node("n0", 4);
        w.submit_to("d", "there", 0, vec![pod_set("main", 1, if claimed { 2 } else { 4 })]);
        assert_eq!(w.bound.len(), 2);
        w.submit_to("d", "large", 20, vec![pod_set("main", 1, 4)]);
        w.submit_to("c", "small", 10, vec![pod_set("main", 1, 1)]);
        assert_eq!(w.preempted.is_empty(), claimed, "{:?}", w.preempted);
        if claimed {
            let (reason, message) = w.reason("small");
            assert!(reason == "WaitingForNodes" && message.contains("n/large waits for nodes"), "{message}");
            w.finish("there");
            assert!(w.bound.contains("large-0"), "{:?}", w.reason("large"));
        }
    }
}

/// While its victims leave a flavor, a workload preempts none in another one.
#[test]
fn one_that_waits_for_its_victims_preempts_no_others() {
    let mut queue = preempting("c", &[("f", 8), ("g", 8)]);
    queue.fungibility.try_next_when_can_preempt = true;
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.node_of("n0", 2, "f");
    w.node_of("n1", 2, "g");
    (0..4).for_each(|i| w.submit(&format!("s{i}"), 1, 1));
    assert_eq!(w.bound.len(), 4);
    w.lingers = true;
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 1)]);
    assert_eq!(w.preempted.len(), 1, "{:?}", w.preempted);
    // Others come and go meanwhile.
    w.submit("later", 1, 1);
    w.run();
    assert_eq!(w.preempted.len(), 1, "{:?}", w.preempted);
    w.let_go();
    assert!(w.bound.contains("high-0"), "{:?}", w.reason("high"));
    assert_eq!(w.preempted.len(), 1, "{:?}", w.preempted);
}

/// Of workloads of one priority those go that lose the least work where only nodes are missing.
#[test]
fn the_smallest_loss_is_preempted_for_nodes() {
    let queue = preempting("c", &[("f", 1_000)]);
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.node("n0", 8);
    w.submit("single", 1, 1);
    w.submit("gang", 7, 1);
    assert_eq!(w.bound.len(), 8);
    w.now += 60;
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 1)]);
    assert_eq!(w.preempted, ["single"], "Kueue's order would take the gang, which was admitted last");
}

#[test]
fn quota_and_nodes_are_preempted_for_together() {
    // Quota for five; a victim that frees quota on the wrong node doesn't help.
    let queue = preempting("c", &[("f", 5)]);
    let mut w = Fixture::with_queues(true, Config::default(), &[queue]);
    w.node("n0", 2);
    w.submit("a", 1, 2);
    w.node("n1", 3);
    (0..3).for_each(|i| w.submit(&format!("s{i}"), 1, 1));
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 3)]);
    assert_eq!(w.preempted, ["s2", "s1", "s0"], "in the order of candidates, the newest first");
    assert!(w.bound.contains("high-0"));
}

/// Selects the pods of podsets of a name.
fn selects(pod_set: &str) -> LabelSelector {
    let (key, values) = ("kueue.x-k8s.io/podset".into(), vec![pod_set.into()]);
    LabelSelector { requirements: vec![Requirement { key, operator: Operator::In, values }] }
}

/// Of the pods of podsets `main` so many may be disrupted.
fn budget(w: &mut Fixture, allowed: i64) {
    let object = ClusterObject::Budget {
        namespace: "n".into(),
        name: "b".into(),
        selector: Some(selects("main")),
        allowed,
        disrupted: Vec::new(),
    };
    w.events.push(Event::Object(ObjectEvent::ObjectUpsert(Box::new(object))));
    w.run();
}

/// Two pods that a budget allows to go each, but not both.
#[test]
fn budgets_count_all_victims_together() {
    let mut w = world(&[1, 1, 1], &[]);
    w.submit_to("c", "free", 0, vec![pod_set("other", 1, 1)]);
    w.submit("older", 1, 1);
    w.submit("newer", 1, 1);
    budget(&mut w, 1);
    w.submit_to("c", "high", 10, vec![pod_set("high", 2, 1)]);
    w.preempted.sort_unstable();
    assert_eq!(w.preempted, ["free", "newer"]);
    assert!(w.bound.contains("high-0") && w.bound.contains("high-1"));
}

/// A workload that `high` needs gone although it is on another node than the one that `high` needs, and the newest candidate.
fn check_victim_on_another_node(w: &mut Fixture, other: &PodSet, high: PodSet) {
    w.node("large", 2);
    w.submit("in-the-way", 1, 2);
    w.node("small", 1);
    w.submit_to("c", "other", 0, vec![other.clone()]);
    assert_eq!(w.bound.len(), 2, "{:?}", w.reason("other"));
    w.submit_to("c", "high", 10, vec![high]);
    assert_eq!(w.preempted, ["other", "in-the-way"], "both at once, in the order of candidates");
    assert!(w.bound.contains("high-0"), "{:?}", w.reason("high"));
    assert!(w.stuck.is_empty());
}

#[test]
fn a_victim_whose_anti_affinity_keeps_the_preemptor_off_other_nodes_goes() {
    let mut other = pod_set("other", 1, 1);
    let term = PodAffinityTerm {
        selector: Some(selects("high")),
        topology_key: "flavor".into(),
        ..PodAffinityTerm::default()
    };
    other.spec.affinity.anti = Some(PodAffinity { required: vec![term], ..PodAffinity::default() });
    check_victim_on_another_node(&mut world(&[], &[]), &other, pod_set("high", 1, 2));
}

#[test]
fn a_victim_that_uses_the_preemptors_volume_alone_goes() {
    let mut w = world(&[], &[]);
    let claim = PersistentVolumeClaim {
        namespace: "n".into(),
        name: "data".into(),
        uid: "data".into(),
        access_modes: vec![AccessMode::ReadWriteOncePod],
        volume_name: "disk".into(),
        bind_completed: true,
        ..PersistentVolumeClaim::default()
    };
    let bound_to = ClaimRef { namespace: "n".into(), name: "data".into(), uid: "data".into() };
    let volume = PersistentVolume {
        name: "disk".into(),
        access_modes: vec![AccessMode::ReadWriteOncePod],
        claim: Some(bound_to),
        ..PersistentVolume::default()
    };
    for object in [ClusterObject::Volume(volume), ClusterObject::Claim(claim)] {
        w.events.push(Event::Object(ObjectEvent::ObjectUpsert(Box::new(object))));
    }
    let with_data = |mut podset: PodSet| {
        let source = VolumeSource::Claim { name: "data".into(), read_only: false };
        podset.spec.volumes.push(Volume { name: "data".into(), source });
        podset
    };
    let (other, high) = (with_data(pod_set("other", 1, 1)), with_data(pod_set("high", 1, 2)));
    check_victim_on_another_node(&mut w, &other, high);
}

/// The first podset needs quota, the second has no node; both are decided together at the end.
#[test]
fn a_podset_without_nodes_after_preemption_is_tried_when_nodes_come() {
    let mut w = Fixture::with_queues(true, Config::default(), &[preempting("c", &[("f", 4)])]);
    w.node("n0", 4);
    w.submit("low", 1, 2);
    let mut worker = pod_set("worker", 1, 1);
    worker.spec.node_selector.insert("flavor".into(), "g".into());
    w.submit_to("c", "high", 10, vec![pod_set("driver", 1, 3), worker]);
    assert!(w.preempted.is_empty());
    let (_, message) = w.reason("high");
    assert!(message.ends_with("couldn't place all pods after preemption"), "{message}");
    w.node_of("n1", 1, "g");
    assert_eq!(w.preempted, ["low"], "{:?}", w.reason("high"));
    assert!(w.bound.contains("high-0") && w.bound.contains("high-1"));
}

/// Two preemptors of different ClusterQueues choose the same victim in one cycle; what it leaves is enough for both.
#[test]
fn two_preemptors_of_a_cycle_share_what_their_victim_leaves() {
    for joint in [false, true] {
        let queues = ["a", "b", "low"].map(|name| {
            let mut queue = cluster_queue(name, &[("f", if name == "low" { 0 } else { 4 })]);
            queue.cohort = "all".into();
            queue.preemption.reclaim_within_cohort = PreemptionPolicy::Any;
            queue
        });
        let mut w = Fixture::with_queues(joint, Config::default(), &queues);
        w.node("n0", 4);
        w.submit_to("low", "older", 0, vec![pod_set("main", 1, 4)]);
        w.node("n1", 4);
        w.submit_to("low", "newer", 0, vec![pod_set("main", 1, 4)]);
        assert_eq!(w.bound.len(), 2);
        w.submit_together(&[("a", "first"), ("b", "second")], &[pod_set("main", 1, 2)]);
        assert_eq!(w.preempted, ["newer"], "joint admission: {joint}");
        assert!(w.bound.contains("first-0") && w.bound.contains("second-0"), "{:?}", w.bound);
    }
}

#[test]
fn budgets_and_priorities_of_pods_are_respected() {
    // The newest candidate is protected by a budget, an older one is not.
    let mut w = world(&[1, 1], &[]);
    w.submit_to("c", "free", 0, vec![pod_set("other", 1, 1)]);
    w.submit_to("c", "protected", 0, vec![pod_set("main", 1, 1)]);
    budget(&mut w, 0);
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 1)]);
    assert_eq!(w.preempted, ["free"]);
    // Where nothing else helps it goes.
    w.submit_to("c", "higher", 5, vec![pod_set("main", 1, 1)]);
    assert_eq!(w.preempted, ["free", "protected"]);
    // A pod of a higher priority than the preemptor's stays.
    let mut w = world(&[1], &[]);
    let mut important = pod_set("main", 1, 1);
    important.spec.priority = 100;
    w.submit_to("c", "low", 0, vec![important]);
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 1)]);
    assert_eq!((w.preempted.len(), w.reason("high").0.as_str()), (0, "WaitingForNodes"));
}

#[test]
fn pods_of_no_queue_are_not_preempted() {
    let mut w = world(&[2], &[1]);
    let single = Pod { workload: String::new(), pod_set: String::new(), ..pod("single", 0, &spec(1)) };
    w.events.push(Event::Object(ObjectEvent::PodUpsert(Box::new(single))));
    w.run();
    w.submit_to("c", "high", 10, vec![pod_set("main", 1, 2)]);
    assert_eq!((w.preempted.len(), w.reason("high").0.as_str()), (0, "WaitingForNodes"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A preemptor starts with all its pods if nothing disturbs it, and preempts only what it needs.
    #[test]
    fn nothing_preempts_in_vain(
        nodes in prop::collection::vec(1i64..6, 1..5),
        singles in prop::collection::vec(1i64..4, 0..12),
        gangs in prop::collection::vec((1i32..4, 1i64..5, 1i32..4), 1..4),
        quota in 4i64..30,
        lingers in prop::bool::ANY,
    ) {
        let mut w = Fixture::with_queues(true, Config::default(), &[preempting("c", &[("f", quota)])]);
        nodes.iter().enumerate().for_each(|(i, cpu)| w.node(&format!("n{i}"), *cpu));
        for (i, cpu) in singles.iter().enumerate() {
            w.submit_to("c", &format!("s{i}"), 0, vec![pod_set("main", 1, *cpu)]);
        }
        w.lingers = lingers;
        for (i, (count, cpu, priority)) in gangs.iter().enumerate() {
            let (name, before) = (format!("g{i}"), w.preempted.len());
            w.submit_to("c", &name, *priority, vec![pod_set("main", *count, *cpu)]);
            w.let_go();
            let preempted = w.preempted.len() - before;
            let placed = w.pods.get(&name).into_iter().flatten().filter(|p| !p.spec.node_name.is_empty());
            let whole = placed.count() == usize::try_from(*count).unwrap_or(0);
            prop_assert!(preempted == 0 || whole, "{name}: {:?} {:?}", w.preempted, w.reason(&name));
            prop_assert!(w.stuck.is_empty(), "{:?}", w.stuck);
        }
    }
}
