//! Pods and nodes in protobuf, as guests decode them: the messages of `k8s.io/api/core/v1/generated.proto` without an
//! envelope. The host gives them with the events ([`EncodedObject`](plimsoll_state::model::EncodedObject)). Where it does not, as
//! for placeholders, they have what the scheduler keeps.

use std::sync::Arc;

use plimsoll_state::Time;
use plimsoll_state::model::{
    Affinity, Container, ContainerPort, ImageState, Node, OwnerRef, Phase, Pod, Protocol, RestartPolicy,
    Taint, TaintEffect, Toleration, TolerationOperator,
};

use crate::affinity::{affinity, spread};
use crate::message::Message;

/// `v1.Pod`.
pub(crate) fn pod(pod: &Pod) -> Vec<u8> {
    let mut out = Message::default();
    out.message(1, |m| {
        m.text(1, &pod.name);
        m.text(3, &pod.namespace);
        m.text(5, &pod.uid);
        if pod.creation_time != Time::default() {
            m.time(8, pod.creation_time);
        }
        m.map(11, &pod.labels);
        pod.owners.iter().for_each(|owner| m.message(13, |m| owner_reference(m, owner)));
    });
    out.message(2, |m| pod_spec(m, pod));
    out.message(3, |m| {
        m.text(1, phase(pod.status.phase));
        if let Some(time) = pod.status.start_time {
            m.time(7, time);
        }
        m.text(11, &pod.status.nominated_node_name);
    });
    out.0
}

fn owner_reference(m: &mut Message, owner: &OwnerRef) {
    m.text(1, &owner.kind);
    m.text(3, &owner.name);
    m.text(4, &owner.uid);
    m.text(5, &owner.api_version);
    m.bool(6, owner.controller);
}

fn pod_spec(m: &mut Message, pod: &Pod) {
    let spec = &pod.spec;
    spec.containers.iter().for_each(|c| m.message(2, |m| container(m, c)));
    m.map(7, &spec.node_selector);
    m.text(10, &spec.node_name);
    m.bool(11, spec.host_network);
    if spec.affinity != Affinity::default() {
        m.message(18, |m| affinity(m, &spec.affinity));
    }
    m.text(19, &spec.scheduler_name);
    spec.init_containers.iter().for_each(|c| m.message(20, |m| container(m, c)));
    spec.tolerations.iter().for_each(|t| m.message(22, |m| toleration(m, t)));
    m.text(24, &spec.priority_class_name);
    m.int(25, spec.priority.into());
    m.text(29, &spec.runtime_class_name);
    m.resources(32, &spec.overhead);
    spec.spread.iter().for_each(|constraint| m.message(33, |m| spread(m, constraint)));
    spec.scheduling_gates.iter().for_each(|gate| m.message(38, |m| m.text(1, gate)));
}

fn container(m: &mut Message, container: &Container) {
    m.text(1, &container.name);
    // Guests read the image without asking whether there is one.
    m.bytes(2, container.image.as_bytes());
    container.ports.iter().for_each(|port| m.message(6, |m| container_port(m, port)));
    m.message(8, |m| {
        m.resources(1, &container.limits);
        m.resources(2, &container.requests);
    });
    m.text(
        24,
        match container.restart_policy {
            Some(RestartPolicy::Always) => "Always",
            Some(RestartPolicy::OnFailure) => "OnFailure",
            Some(RestartPolicy::Never) => "Never",
            None => "",
        },
    );
}

fn container_port(m: &mut Message, port: &ContainerPort) {
    m.int(2, port.host_port.into());
    m.text(
        4,
        match port.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        },
    );
    m.text(5, &port.host_ip);
}

fn toleration(m: &mut Message, toleration: &Toleration) {
    m.text(1, &toleration.key);
    m.text(
        2,
        match toleration.operator {
            TolerationOperator::Exists => "Exists",
            TolerationOperator::Equal => "Equal",
        },
    );
    m.text(3, &toleration.value);
    m.text(4, toleration.effect.map_or("", effect));
}

const fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "Pending",
        Phase::Running => "Running",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}

/// `v1.Node`.
pub(crate) fn node(node: &Node) -> Vec<u8> {
    let mut out = Message::default();
    out.message(1, |m| {
        m.text(1, &node.name);
        m.text(5, &node.uid);
        m.map(11, &node.labels);
    });
    out.message(2, |m| {
        m.bool(4, node.unschedulable);
        node.taints.iter().for_each(|t| m.message(5, |m| taint(m, t)));
    });
    out.message(3, |m| {
        m.resources(2, &node.allocatable);
        node.images.iter().for_each(|i| m.message(8, |m| image(m, i)));
    });
    out.0
}

fn taint(m: &mut Message, taint: &Taint) {
    m.text(1, &taint.key);
    m.text(2, &taint.value);
    m.text(3, effect(taint.effect));
}

fn image(m: &mut Message, image: &ImageState) {
    image.names.iter().for_each(|name| m.bytes(1, name.as_bytes()));
    m.int(2, image.size_bytes);
}

/// `v1.NodeList` of encoded nodes.
pub(crate) fn node_list<'a>(nodes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Message::default();
    // The metadata of the list is not optional.
    out.message(1, |_| {});
    nodes.for_each(|node| out.bytes(2, node));
    out.0
}

/// A pod in protobuf, as guests get it.
pub fn encode_pod(of: &Pod) -> Arc<[u8]> {
    match &of.encoded {
        Some(whole) => Arc::clone(&whole.0),
        None => pod(of).into(),
    }
}

/// A pod in protobuf with the node that it is assumed to be on: decoders merge a message that comes again.
pub fn assume_pod(pod: &[u8], node: &str) -> Arc<[u8]> {
    let mut out = Message(pod.to_vec());
    out.message(2, |m| m.text(10, node));
    out.0.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_state::model::{
        LabelSelector, NodeAffinity, NodeSelector, NodeSelectorTerm, Operator, PodAffinity, PodAffinityTerm,
        PreferredSchedulingTerm, Requirement, Resources, SpreadConstraint, StringMap, UnsatisfiableAction,
        WeightedPodAffinityTerm,
    };
    use serde_json::{Value, json};

    /// A message as the embedded API server decodes it.
    fn decoded(kind: &str, message: &[u8]) -> Value {
        let mut unknown = Message::default();
        unknown.message(1, |m| {
            m.text(1, "v1");
            m.text(2, kind);
        });
        unknown.bytes(2, message);
        let body = [b"k8s\0", unknown.0.as_slice()].concat();
        plimsoll_apimachinery::proto::decode_body(&body).expect("a message of the API")
    }

    fn strings(pairs: &[(&str, &str)]) -> StringMap {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn resources(pairs: &[(&str, i64)]) -> Resources {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
    }

    #[test]
    fn pods_are_messages_of_the_api() {
        let port = ContainerPort { host_port: 80, host_ip: "10.0.0.1".to_owned(), protocol: Protocol::Udp };
        let container = |name: &str| Container {
            name: name.to_owned(),
            image: "i:1".to_owned(),
            requests: resources(&[("cpu", 1500), ("memory", 64)]),
            limits: resources(&[("example.com/gpu", 2)]),
            ports: vec![port.clone()],
            restart_policy: Some(RestartPolicy::Always),
            ..Container::default()
        };
        let mut of = Pod {
            name: "p".to_owned(),
            namespace: "ns".to_owned(),
            uid: "u".to_owned(),
            labels: strings(&[("a", "b"), ("c", "")]),
            owners: vec![OwnerRef {
                api_version: "batch/v1".to_owned(),
                kind: "Job".to_owned(),
                name: "j".to_owned(),
                uid: "v".to_owned(),
                controller: true,
            }],
            creation_time: Time::from_seconds(1_700_000_000),
            ..Pod::default()
        };
        let spec = &mut of.spec;
        spec.node_name = "n".to_owned();
        spec.scheduler_name = "s".to_owned();
        spec.priority = -7;
        spec.priority_class_name = "low".to_owned();
        spec.node_selector = strings(&[("k", "v")]);
        spec.containers = vec![container("c")];
        spec.init_containers = vec![Container { restart_policy: None, ..container("i") }];
        spec.tolerations = vec![Toleration {
            key: "t".to_owned(),
            operator: TolerationOperator::Exists,
            value: String::new(),
            effect: Some(TaintEffect::NoExecute),
            ..Toleration::default()
        }];
        spec.overhead = resources(&[("cpu", 250)]);
        spec.runtime_class_name = "r".to_owned();
        spec.scheduling_gates = vec!["g".to_owned()];
        spec.host_network = true;
        of.status.nominated_node_name = "m".to_owned();
        let shown = |name: &str| {
            json!({
                "name": name, "image": "i:1",
                "resources": {"limits": {"example.com/gpu": "2"}, "requests": {"cpu": "1500m", "memory": "64"}},
            })
        };
        let mut found = decoded("Pod", &pod(&of));
        for (list, names) in [("containers", "c"), ("initContainers", "i")] {
            let one = &mut found["spec"][list][0];
            assert_eq!(one["ports"][0]["hostPort"], 80);
            assert_eq!(
                (&one["ports"][0]["hostIP"], &one["ports"][0]["protocol"]),
                (&json!("10.0.0.1"), &json!("UDP"))
            );
            assert_eq!(one["restartPolicy"].as_str(), (list == "containers").then_some("Always"));
            let rest = one.as_object_mut().expect("an object");
            rest.retain(|field, _| matches!(field.as_str(), "name" | "image" | "resources"));
            assert_eq!(*one, shown(names));
        }
        let metadata = json!({
            "name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b", "c": ""},
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "v", "controller": true}],
        });
        assert_eq!(found["metadata"], metadata);
        let spec = found["spec"].as_object_mut().expect("an object");
        spec.retain(|field, _| !field.ends_with("ontainers"));
        let want = json!({
            "nodeName": "n", "schedulerName": "s", "priority": -7, "priorityClassName": "low", "nodeSelector": {"k": "v"},
            "tolerations": [{"key": "t", "operator": "Exists", "effect": "NoExecute"}], "overhead": {"cpu": "250m"},
            "runtimeClassName": "r", "schedulingGates": [{"name": "g"}], "hostNetwork": true,
        });
        assert_eq!(found["spec"], want);
        assert_eq!(found["status"], json!({"phase": "Pending", "nominatedNodeName": "m"}));
    }

    #[test]
    fn nodes_are_messages_of_the_api() {
        let of = Node {
            name: "n".to_owned(),
            uid: "u".to_owned(),
            labels: strings(&[("zone", "z")]),
            unschedulable: true,
            taints: vec![Taint {
                key: "t".to_owned(),
                value: "v".to_owned(),
                effect: TaintEffect::PreferNoSchedule,
            }],
            allocatable: resources(&[("cpu", 4000), ("pods", 110)]),
            images: vec![ImageState { names: vec!["a".to_owned(), "b".to_owned()], size_bytes: 1 << 40 }],
            ..Node::default()
        };
        let message = node(&of);
        let want = json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"zone": "z"}},
            "spec": {"unschedulable": true, "taints": [{"key": "t", "value": "v", "effect": "PreferNoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "4", "pods": "110"},
                "images": [{"names": ["a", "b"], "sizeBytes": 1_i64 << 40}],
            },
        });
        let mut found = decoded("Node", &message);
        // Fields that are always there in Go.
        let status = found["status"].as_object_mut().expect("an object");
        status.retain(|field, _| !matches!(field.as_str(), "daemonEndpoints" | "nodeInfo"));
        found
            .as_object_mut()
            .expect("an object")
            .retain(|field, _| !matches!(field.as_str(), "kind" | "apiVersion"));
        assert_eq!(found, want);
        let list = decoded("NodeList", &node_list([message.as_slice(), &message].into_iter()));
        assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
        assert_eq!(list["items"][1]["metadata"], want["metadata"]);
    }

    #[test]
    fn affinity_and_spread_constraints_are_messages_of_the_api() {
        let requirement = |key: &str, operator, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let zone = NodeSelectorTerm {
            expressions: vec![requirement("zone", Operator::In, &["a", "b"])],
            fields: vec![requirement("metadata.name", Operator::NotIn, &["n"])],
        };
        let term = PodAffinityTerm {
            selector: Some(LabelSelector { requirements: vec![requirement("app", Operator::Exists, &[])] }),
            namespaces: vec!["ns".to_owned()],
            namespace_selector: Some(LabelSelector::default()),
            topology_key: "zone".to_owned(),
        };
        let mut pod = Pod::default();
        pod.spec.affinity = Affinity {
            node: Some(NodeAffinity {
                required: Some(NodeSelector { terms: vec![zone.clone()] }),
                preferred: vec![PreferredSchedulingTerm { weight: 7, term: zone }],
            }),
            pod: Some(PodAffinity {
                required: Vec::new(),
                preferred: vec![WeightedPodAffinityTerm { weight: 9, term: term.clone() }],
            }),
            anti: Some(PodAffinity { required: vec![term], preferred: Vec::new() }),
        };
        pod.spec.spread = vec![SpreadConstraint {
            max_skew: 2,
            topology_key: "zone".to_owned(),
            when_unsatisfiable: UnsatisfiableAction::ScheduleAnyway,
            selector: Some(LabelSelector { requirements: vec![requirement("app", Operator::In, &["x"])] }),
            min_domains: Some(3),
            honor_node_affinity: true,
            honor_node_taints: false,
            match_label_keys: vec!["hash".to_owned()],
        }];
        let found = decoded("Pod", &super::pod(&pod));
        let zone = json!({
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}],
        });
        let term = json!({
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            "namespaces": ["ns"], "topologyKey": "zone", "namespaceSelector": {},
        });
        let affinity = json!({
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": zone}],
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9, "podAffinityTerm": term}],
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        });
        assert_eq!(found["spec"]["affinity"], affinity);
        let spread = json!([{
            "maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3,
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]},
            "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore", "matchLabelKeys": ["hash"],
        }]);
        assert_eq!(found["spec"]["topologySpreadConstraints"], spread);
    }
}
