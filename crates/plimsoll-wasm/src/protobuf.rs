//! Pods and nodes in protobuf, as guests decode them: the messages of `k8s.io/api/core/v1/generated.proto` without an
//! envelope. Fields that the scheduler does not keep are absent.

use plimsoll_state::Time;
use plimsoll_state::model::{
    Container, ContainerPort, ImageState, Node, OwnerRef, Phase, Pod, Protocol, Resources, RestartPolicy,
    StringMap, Taint, TaintEffect, Toleration, TolerationOperator,
};

/// A message that is being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn int(&mut self, field: u32, value: i64) {
        self.key(field, 0);
        self.varint(value.cast_unsigned());
    }

    fn bool(&mut self, field: u32, value: bool) {
        if value {
            self.int(field, 1);
        }
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A text; an empty one is left out.
    fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn map(&mut self, field: u32, map: &StringMap) {
        for (key, value) in map {
            self.message(field, |m| {
                m.bytes(1, key.as_bytes());
                m.bytes(2, value.as_bytes());
            });
        }
    }

    fn resources(&mut self, field: u32, resources: &Resources) {
        for (name, amount) in resources {
            let quantity = match amount {
                // Whole CPUs as Kubernetes writes them.
                milli if name == "cpu" && milli % 1000 == 0 => (milli / 1000).to_string(),
                milli if name == "cpu" => format!("{milli}m"),
                amount => amount.to_string(),
            };
            self.message(field, |m| {
                m.bytes(1, name.as_bytes());
                m.message(2, |m| m.text(1, &quantity));
            });
        }
    }

    fn time(&mut self, field: u32, time: Time) {
        let (seconds, nanos) = (time.0.div_euclid(1_000_000_000), time.0.rem_euclid(1_000_000_000));
        self.message(field, |m| {
            m.int(1, seconds);
            m.int(2, nanos);
        });
    }
}

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
    m.text(19, &spec.scheduler_name);
    spec.init_containers.iter().for_each(|c| m.message(20, |m| container(m, c)));
    spec.tolerations.iter().for_each(|t| m.message(22, |m| toleration(m, t)));
    m.text(24, &spec.priority_class_name);
    m.int(25, spec.priority.into());
    m.text(29, &spec.runtime_class_name);
    m.resources(32, &spec.overhead);
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
pub fn encode_pod(of: &Pod) -> std::sync::Arc<[u8]> {
    pod(of).into()
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
