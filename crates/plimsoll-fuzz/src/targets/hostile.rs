//! Objects that no API server would let in, made from bytes.

use plimsoll_state::ClusterObject;
use plimsoll_state::model::{
    Affinity, Container, ContainerPort, LabelSelector, Node, NodeAffinity, NodeSelector, NodeSelectorTerm,
    Operator, PersistentVolume, PersistentVolumeClaim, Phase, Pod, PodAffinity, PodAffinityTerm,
    PodClaimSource, PodResourceClaim, PreemptionPolicy, PreferredSchedulingTerm, Protocol, Requirement,
    Resources, RestartPolicy, SpreadConstraint, StorageClass, StringMap, Taint, TaintEffect, Toleration,
    TolerationOperator, UnsatisfiableAction, Volume, VolumeSource, WeightedPodAffinityTerm,
};
use plimsoll_state::{Duration, Time};

use crate::Cursor;

const NAMES: &[&str] =
    &["a", "b", "c", "", "zone", "kubernetes.io/hostname", "metadata.name", "\u{0}", "ä/ö"];
const RESOURCES: &[&str] =
    &["cpu", "memory", "pods", "ephemeral-storage", "example.com/x", "hugepages-2Mi", ""];
const AMOUNTS: &[i64] = &[0, 1, -1, 100, 4000, 1 << 34, i64::MAX, i64::MIN, i64::MAX / 2, -5000];
const SMALL: &[i32] = &[0, 1, -1, 2, 100, 101, i32::MAX, i32::MIN];

/// A name out of few, so that things meet; sometimes longer than any limit.
pub fn name(c: &mut Cursor<'_>) -> String {
    if c.byte() == 255 { "x".repeat(70_000) } else { c.pick(NAMES).to_owned() }
}

/// One of twelve identities.
pub fn id(c: &mut Cursor<'_>) -> String {
    format!("u{}", c.below(12))
}

/// The name of one of eight nodes, or none.
pub fn node_name(c: &mut Cursor<'_>) -> String {
    format!("n{}", c.below(8))
}

/// How many of something: few, or as many as a request body of a few hundred KiB can hold.
fn many<T: Clone>(c: &mut Cursor<'_>, most: usize, make: impl FnMut(&mut Cursor<'_>) -> T) -> Vec<T> {
    let flood = c.byte() == 255;
    let mut list = c.list(most, make);
    if let (true, Some(first)) = (flood, list.first().cloned()) {
        list.resize(2_000, first);
    }
    list
}

fn map(c: &mut Cursor<'_>) -> StringMap {
    c.list(3, |c| (name(c), name(c))).into_iter().collect()
}

fn amounts(c: &mut Cursor<'_>) -> Resources {
    c.list(4, |c| (c.pick(RESOURCES).to_owned(), c.pick(AMOUNTS))).into_iter().collect()
}

fn requirement(c: &mut Cursor<'_>) -> Requirement {
    use Operator as O;
    let values = ["", "1", "-9223372036854775809", "b"];
    Requirement {
        key: name(c),
        operator: c.pick(&[O::In, O::NotIn, O::Exists, O::DoesNotExist, O::Gt, O::Lt]),
        values: many(c, 3, |c| c.pick(&values).to_owned()),
    }
}

fn selector(c: &mut Cursor<'_>) -> LabelSelector {
    LabelSelector { requirements: many(c, 2, requirement) }
}

fn maybe<T>(c: &mut Cursor<'_>, make: impl FnOnce(&mut Cursor<'_>) -> T) -> Option<T> {
    c.once_in(3).then(|| make(c))
}

fn term(c: &mut Cursor<'_>) -> NodeSelectorTerm {
    NodeSelectorTerm { expressions: c.list(2, requirement), fields: c.list(1, requirement) }
}

fn effect(c: &mut Cursor<'_>) -> TaintEffect {
    c.pick(&[TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute])
}

/// A node with any amounts, labels and taints.
pub fn node(c: &mut Cursor<'_>) -> Node {
    let mut node = Node {
        name: node_name(c),
        uid: id(c),
        labels: map(c),
        unschedulable: c.once_in(8),
        taints: c.list(1, |c| Taint { key: name(c), value: name(c), effect: effect(c) }),
        allocatable: amounts(c),
        ready: true,
        ..Node::default()
    };
    if !c.once_in(4) {
        let usual = [("cpu", 4000), ("memory", 1 << 34), ("pods", 6)];
        node.allocatable.extend(usual.map(|(k, v)| (k.to_owned(), v)));
        node.labels.insert("zone".to_owned(), c.pick(&["a", "b"]).to_owned());
    }
    node
}

fn container(c: &mut Cursor<'_>) -> Container {
    let port = |c: &mut Cursor<'_>| ContainerPort {
        host_port: c.pick(&[0, 80, u16::MAX]),
        host_ip: c.pick(&["", "0.0.0.0", "::", "127.0.0.1", "no address"]).to_owned(),
        protocol: c.pick(&[Protocol::Tcp, Protocol::Udp, Protocol::Sctp]),
    };
    Container {
        name: name(c),
        image: name(c),
        requests: amounts(c),
        limits: amounts(c),
        ports: many(c, 1, port),
        restart_policy: maybe(c, |c| c.pick(&[RestartPolicy::Always, RestartPolicy::Never])),
        ..Container::default()
    }
}

fn pod_term(c: &mut Cursor<'_>) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: maybe(c, selector),
        namespaces: c.list(2, name),
        namespace_selector: maybe(c, selector),
        topology_key: name(c),
    }
}

fn pod_affinity(c: &mut Cursor<'_>) -> PodAffinity {
    PodAffinity {
        required: many(c, 2, pod_term),
        preferred: c.list(2, |c| WeightedPodAffinityTerm { weight: c.pick(SMALL), term: pod_term(c) }),
    }
}

fn node_affinity(c: &mut Cursor<'_>) -> NodeAffinity {
    NodeAffinity {
        required: maybe(c, |c| NodeSelector { terms: many(c, 2, term) }),
        preferred: c.list(2, |c| PreferredSchedulingTerm { weight: c.pick(SMALL), term: term(c) }),
    }
}

fn spread(c: &mut Cursor<'_>) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: c.pick(SMALL),
        topology_key: c.pick(&["zone", "kubernetes.io/hostname", "", "a"]).to_owned(),
        when_unsatisfiable: c
            .pick(&[UnsatisfiableAction::DoNotSchedule, UnsatisfiableAction::ScheduleAnyway]),
        selector: maybe(c, selector),
        min_domains: maybe(c, |c| c.pick(SMALL)),
        honor_node_affinity: c.once_in(2),
        honor_node_taints: c.once_in(2),
        match_label_keys: c.list(2, name),
    }
}

fn volume(c: &mut Cursor<'_>) -> Volume {
    let read_only = c.once_in(2);
    let source = match c.below(4) {
        0 => VolumeSource::Claim { name: name(c), read_only },
        1 => VolumeSource::Ephemeral(None),
        2 => VolumeSource::GcePersistentDisk { name: name(c), read_only },
        _ => VolumeSource::Csi { driver: name(c) },
    };
    Volume { name: name(c), source }
}

/// A pod with anything in it; every second one is plain apart from its amounts.
pub fn pod(c: &mut Cursor<'_>) -> Pod {
    let mut pod = Pod { uid: id(c), namespace: c.pick(&["ns", "", "other"]).to_owned(), ..Pod::default() };
    pod.name = format!("p-{}", pod.uid);
    pod.labels = map(c);
    pod.creation_time = Time(c.pick(AMOUNTS));
    pod.deleting = c.once_in(10);
    pod.spec.scheduler_name =
        c.pick(&["default-scheduler", "default-scheduler", "second", "nobody"]).to_owned();
    pod.spec.priority = c.pick(SMALL);
    pod.spec.containers = many(c, 2, container);
    if c.once_in(4) {
        pod.spec.node_name = node_name(c);
    }
    pod.status.phase =
        c.pick(&[Phase::Pending, Phase::Pending, Phase::Pending, Phase::Running, Phase::Failed]);
    pod.status.nominated_node_name = if c.once_in(6) { node_name(c) } else { String::new() };
    if c.once_in(2) {
        return pod;
    }
    pod.spec.preemption_policy = c.pick(&[PreemptionPolicy::PreemptLowerPriority, PreemptionPolicy::Never]);
    pod.spec.node_selector = if c.once_in(4) { map(c) } else { StringMap::new() };
    pod.spec.affinity =
        Affinity { node: maybe(c, node_affinity), pod: maybe(c, pod_affinity), anti: maybe(c, pod_affinity) };
    pod.spec.spread = many(c, 2, spread);
    let operators = [TolerationOperator::Equal, TolerationOperator::Exists];
    pod.spec.tolerations = many(c, 1, |c| Toleration {
        key: name(c),
        operator: c.pick(&operators),
        value: name(c),
        effect: maybe(c, effect),
        temporary: c.pick(&[false, true]),
    });
    pod.spec.init_containers = c.list(2, container);
    pod.spec.overhead = amounts(c);
    pod.spec.pod_requests = maybe(c, amounts);
    pod.spec.scheduling_gates = if c.once_in(6) { c.list(2, name) } else { Vec::new() };
    pod.spec.volumes = c.list(2, volume);
    pod.group = if c.once_in(2) { name(c) } else { String::new() };
    if c.once_in(4) {
        let source = |c: &mut Cursor<'_>| PodClaimSource::Claim(name(c));
        pod.spec.resource_claims = c.list(2, |c| PodResourceClaim { name: name(c), source: source(c) });
    }
    pod
}

/// Another object that placement looks at.
pub fn object(c: &mut Cursor<'_>) -> ClusterObject {
    let namespace = c.pick(&["ns", "", "other"]).to_owned();
    match c.below(7) {
        6 => {
            let (name, min_count) = (name(c), maybe(c, |c| c.below(4) as u32));
            let topology_key = min_count.filter(|n| n % 2 == 1).map(|_| "zone".to_owned());
            ClusterObject::PodGroup { namespace, name, min_count, topology_key }
        }
        0 => ClusterObject::Namespace { name: namespace, labels: map(c) },
        1 => ClusterObject::Service { namespace, name: name(c), selector: map(c) },
        2 => ClusterObject::Volume(PersistentVolume {
            name: name(c),
            capacity: c.pick(AMOUNTS),
            storage_class: name(c),
            node_affinity: maybe(c, |c| NodeSelector { terms: c.list(2, term) }),
            available: true,
            ..PersistentVolume::default()
        }),
        3 => ClusterObject::Claim(PersistentVolumeClaim {
            namespace,
            name: name(c),
            request: maybe(c, |c| c.pick(AMOUNTS)),
            storage_class: name(c),
            volume_name: name(c),
            bind_completed: c.once_in(2),
            selected_node: maybe(c, node_name),
            ..PersistentVolumeClaim::default()
        }),
        4 => ClusterObject::StorageClass(StorageClass {
            name: name(c),
            provisioner: name(c),
            ..Default::default()
        }),
        _ => ClusterObject::Budget {
            namespace,
            name: name(c),
            selector: maybe(c, selector),
            allowed: c.pick(AMOUNTS),
            disrupted: c.list(2, name),
        },
    }
}

/// A span of time: usually forward and short, sometimes a jump of any size and direction.
pub fn span(c: &mut Cursor<'_>) -> Duration {
    match c.below(8) {
        0 => Duration(c.number()),
        1 => Duration::from_seconds(-30),
        2 => Duration::from_seconds(400),
        _ => Duration::from_millis(i64::from(c.byte()) * 20),
    }
}
