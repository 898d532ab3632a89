//! Gate `SchedulerLibraryIntegration`: kube-scheduler's filters choose the nodes of a topology (Kueue `scheduler_tas_test.go`
//! and `scheduling_simulator_test.go`).

use super::balanced_tests::nodes;
use super::tests::{Harness, gates, job, request};
use crate::Workload;
use plimsoll_state::ObjectEvent;
use plimsoll_state::model::{
    Container, ContainerPort, Node, Phase, Pod, PodSpec, Taint, TaintEffect, Toleration,
};

const HOST: &str = "kubernetes.io/hostname";
const FLAT: &[&str] = &[HOST];
const RACKS: &[&str] = &["rack"];

fn with(gate: bool, levels: &[&str], nodes: Vec<Node>) -> Harness {
    Harness::with(gates(|g| g.scheduler_library = gate), &[], levels, nodes)
}

/// Two nodes or racks, x1 and x2, with a CPU each.
fn two(levels: &[&str], change: impl FnOnce(&mut Node)) -> Vec<Node> {
    let mut nodes = nodes(levels, "x1=1 x2=1");
    change(&mut nodes[0]);
    nodes
}

fn taint(key: &str) -> Taint {
    Taint { key: key.into(), value: String::new(), effect: TaintEffect::NoSchedule }
}

fn tolerating(mut wl: Workload, key: &str) -> Workload {
    wl.pod_sets[0].spec.tolerations.push(Toleration { key: key.into(), ..Toleration::default() });
    wl
}

fn ports(port: u16) -> Vec<ContainerPort> {
    vec![ContainerPort { host_port: port, ..ContainerPort::default() }]
}

/// A pod on x1, of a job with places or of another one.
fn pod(port: u16, topology_aware: bool) -> Pod {
    let container = Container { ports: ports(port), ..Container::default() };
    let spec = PodSpec { node_name: "x1".into(), containers: vec![container], ..PodSpec::default() };
    Pod {
        namespace: "n".into(),
        name: "p".into(),
        uid: "uid-p".into(),
        topology_aware,
        spec,
        ..Pod::default()
    }
}

#[test]
fn nodes_are_those_that_the_filters_leave() {
    const CORDON: &str = "node.kubernetes.io/unschedulable";
    const NOT_READY: &str = "node.kubernetes.io/not-ready";
    let cordoned = |n: &mut Node| n.unschedulable = true;
    let tainted = |n: &mut Node| (n.unschedulable, n.taints) = (true, vec![taint(CORDON)]);
    let silent = |n: &mut Node| n.ready = false;
    let lost = |n: &mut Node| (n.ready, n.taints) = (false, vec![taint(NOT_READY)]);
    type Change = fn(&mut Node);
    // Levels, what x1 is like, what the pods tolerate, the place with the gate and without.
    let table: [(&[&str], Change, &str, &str, &str); 11] = [
        (FLAT, |_| {}, "", "x1=1", "x1=1"),
        (FLAT, cordoned, "", "x2=1", "x2=1"),
        (FLAT, cordoned, CORDON, "x1=1", "x2=1"),
        (FLAT, tainted, CORDON, "x1=1", "x2=1"),
        (FLAT, tainted, NOT_READY, "x2=1", "x2=1"),
        // Not the condition keeps pods away from a node, but the taint that comes with it.
        (FLAT, silent, "", "x1=1", "x2=1"),
        (FLAT, lost, "", "x2=1", "x2=1"),
        (FLAT, lost, NOT_READY, "x1=1", "x2=1"),
        // Where no level is the node, nothing filters them.
        (RACKS, cordoned, "", "x2=1", "x2=1"),
        (RACKS, cordoned, CORDON, "x2=1", "x2=1"),
        (RACKS, lost, NOT_READY, "x2=1", "x2=1"),
    ];
    for (n, (levels, change, tolerated, on, off)) in table.into_iter().enumerate() {
        for (gate, want) in [(true, on), (false, off)] {
            let mut w = with(gate, levels, two(levels, change));
            let wl = job("j", 1, request(Some(levels[0]), None, &[]));
            w.submit(if tolerated.is_empty() { wl } else { tolerating(wl, tolerated) });
            assert_eq!(w.places("j"), want, "row {n}, gate {gate}");
        }
    }
}

/// Kueue hands the pod template alone to its library.
#[test]
fn tolerations_of_the_flavor_count_for_the_filters() {
    for gate in [true, false] {
        let mut w = with(gate, FLAT, two(FLAT, |n| n.taints = vec![taint("k")]));
        let toleration = Toleration { key: "k".into(), ..Toleration::default() };
        w.change_flavor(|f| f.tolerations = vec![toleration]);
        w.submit(job("j", 1, request(Some(HOST), None, &[])));
        assert_eq!(w.places("j"), "x1=1", "gate {gate}");
    }
}

#[test]
fn host_ports_in_use_exclude_a_node() {
    // The port in use, the port that is wanted (0: none), the place with the gate.
    for (used, wanted, on) in
        [(8080, 8080, "x2=1"), (8080, 9090, "x1=1"), (8080, 0, "x1=1"), (0, 8080, "x1=1")]
    {
        for (gate, want) in [(true, on), (false, "x1=1")] {
            for topology_aware in [true, false] {
                let mut w = with(gate, FLAT, two(FLAT, |_| {}));
                if used != 0 {
                    w.show(ObjectEvent::PodUpsert(Box::new(pod(used, topology_aware))));
                }
                let mut wl = job("j", 1, request(Some(HOST), None, &[]));
                if wanted != 0 {
                    wl.pod_sets[0].spec.containers[0].ports = ports(wanted);
                }
                w.submit(wl);
                assert_eq!(w.places("j"), want, "{used} {wanted} gate {gate}");
            }
        }
    }
}

#[test]
fn a_freed_host_port_is_used_by_who_waits_for_it() {
    let mut ended = pod(80, true);
    ended.status.phase = Phase::Succeeded;
    for event in [ObjectEvent::PodUpsert(Box::new(ended)), ObjectEvent::PodDelete("uid-p".into())] {
        let mut w = with(true, FLAT, nodes(FLAT, "x1=1"));
        w.show(ObjectEvent::PodUpsert(Box::new(pod(80, true))));
        let mut wl = job("j", 1, request(Some(HOST), None, &[]));
        wl.pod_sets[0].spec.containers[0].ports = ports(80);
        w.submit(wl);
        assert_eq!(w.places("j"), "");
        w.show(event);
        w.wait(2);
        assert_eq!(w.places("j"), "x1=1");
    }
}

/// Kueue counts the nodes that its library excludes, and names them beside other reasons only.
#[test]
fn excluded_nodes_are_counted_in_kueues_words() {
    let told = |gate: bool, nodes: Vec<Node>| {
        let mut w = with(gate, FLAT, nodes);
        w.submit(job("j", 1, request(Some(HOST), None, &[])));
        w.condition("j", "QuotaReserved")
    };
    let tainted = |text: &str| {
        let mut nodes = nodes(FLAT, text);
        nodes[0].taints = vec![taint("k")];
        nodes
    };
    for (gate, nodes, want) in [
        (false, tainted("x1=1"), ". Total nodes: 1; excluded: taint \"k:NoSchedule\": 1"),
        (true, tainted("x1=1"), "doesn't allow to fit any of 1 pod(s)"),
        (
            true,
            tainted("x1=1 x2=0"),
            ". Total nodes: 2; excluded: resource \"cpu\": 1, schedulerLibraryNoFit: 1",
        ),
    ] {
        let text = told(gate, nodes);
        assert!(text.ends_with(want), "{text}");
    }
}
