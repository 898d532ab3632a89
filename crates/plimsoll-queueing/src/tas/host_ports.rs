//! Host ports that pods use on nodes, for the gate `SchedulerLibraryIntegration` (kube-scheduler's NodePorts).

use std::collections::BTreeMap;

use plimsoll_state::model::{ContainerPort, Pod, PodSpec, RestartPolicy};
use plimsoll_state::parted::PartedMap;

/// The host ports of pods, by node. Only pods with host ports are kept.
#[derive(Debug, Default)]
pub(super) struct HostPorts {
    /// The pods with their ports, by UID.
    on_nodes: BTreeMap<String, BTreeMap<String, Vec<ContainerPort>>>,
    /// Nodes of pods, by UID.
    nodes: PartedMap<String, String>,
}

/// What became of the ports of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortChange {
    /// They are as before.
    None,
    /// It uses ports that it did not use.
    Used,
    /// It uses none any more.
    Freed,
}

/// The host ports of app containers and sidecars (kube-scheduler `util.GetHostPorts`).
fn of(spec: &PodSpec) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = spec.init_containers.iter().filter(|c| c.restart_policy == Some(RestartPolicy::Always));
    spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports).filter(|p| p.host_port > 0)
}

/// Whether both can't be in use on one node.
fn conflict(a: &ContainerPort, b: &ContainerPort) -> bool {
    let is_any = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
    let meet = a.host_ip == b.host_ip || is_any(&a.host_ip) || is_any(&b.host_ip);
    a.host_port == b.host_port && a.protocol == b.protocol && meet
}

impl HostPorts {
    /// Whether a pod would want a port on a node that another pod uses.
    pub(super) fn conflict(&self, node: &str, spec: &PodSpec) -> bool {
        self.on_nodes.get(node).is_some_and(|pods| {
            pods.values().flatten().any(|used| of(spec).any(|wanted| conflict(used, wanted)))
        })
    }

    /// Notes a pod. One that has no node, or has ended, uses none.
    pub(super) fn pod_seen(&mut self, pod: &Pod) -> PortChange {
        let node = &pod.spec.node_name;
        let counts = !node.is_empty() && !pod.status.phase.is_terminal() && of(&pod.spec).next().is_some();
        // Neither the ports of a pod nor its node change.
        if counts && self.nodes.contains_key(&pod.uid) {
            return PortChange::None;
        }
        if !counts {
            return self.pod_gone(&pod.uid);
        }
        let ports = of(&pod.spec).cloned().collect();
        self.on_nodes.entry(node.clone()).or_default().insert(pod.uid.clone(), ports);
        self.nodes.insert(pod.uid.clone(), node.clone());
        PortChange::Used
    }

    /// Forgets a pod.
    pub(super) fn pod_gone(&mut self, uid: &str) -> PortChange {
        let Some(node) = self.nodes.remove(uid) else { return PortChange::None };
        if let Some(pods) = self.on_nodes.get_mut(&node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.on_nodes.remove(&node);
            }
        }
        PortChange::Freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_state::model::{Container, Phase, Protocol};

    fn port(port: u16, ip: &str, protocol: Protocol) -> ContainerPort {
        ContainerPort { host_port: port, host_ip: ip.into(), protocol }
    }

    fn pod(uid: &str, node: &str, ports: Vec<ContainerPort>) -> Pod {
        let container = Container { ports, ..Container::default() };
        let spec = PodSpec { node_name: node.into(), containers: vec![container], ..PodSpec::default() };
        Pod { uid: uid.into(), spec, ..Pod::default() }
    }

    /// Kueue's `TestNodePortsFeasibility` and kube-scheduler's rules for addresses and protocols.
    #[test]
    fn ports_conflict_on_one_node() {
        let tcp = |n| vec![port(n, "", Protocol::Tcp)];
        let mut ports = HostPorts::default();
        assert!(!ports.conflict("node1", &pod("", "", tcp(8080)).spec));
        assert_eq!(ports.pod_seen(&pod("uid-1", "node1", tcp(8080))), PortChange::Used);
        for (node, wanted, conflicts) in [
            ("node1", tcp(8080), true),
            ("node2", tcp(8080), false),
            ("node1", tcp(9090), false),
            ("node1", Vec::new(), false),
            ("node1", vec![port(8080, "", Protocol::Udp)], false),
            ("node1", vec![port(8080, "127.0.0.1", Protocol::Tcp)], true),
            ("node1", vec![port(9090, "", Protocol::Tcp), port(8080, "0.0.0.0", Protocol::Tcp)], true),
        ] {
            assert_eq!(
                ports.conflict(node, &pod("", "", wanted.clone()).spec),
                conflicts,
                "{node} {wanted:?}"
            );
        }
        let local = |ip: &str| vec![port(80, ip, Protocol::Tcp)];
        ports.pod_seen(&pod("uid-2", "node2", local("10.0.0.1")));
        assert!(!ports.conflict("node2", &pod("", "", local("10.0.0.2")).spec));
        assert!(ports.conflict("node2", &pod("", "", local("0.0.0.0")).spec));
    }

    #[test]
    fn ports_are_in_use_as_long_as_their_pod_runs() {
        let tcp = vec![port(80, "", Protocol::Tcp)];
        let mut ports = HostPorts::default();
        assert_eq!(ports.pod_seen(&pod("a", "", tcp.clone())), PortChange::None, "not on a node");
        let mut running = pod("a", "n", tcp.clone());
        assert_eq!(ports.pod_seen(&running), PortChange::Used);
        assert_eq!(ports.pod_seen(&running), PortChange::None);
        running.status.phase = Phase::Succeeded;
        assert_eq!(ports.pod_seen(&running), PortChange::Freed);
        assert_eq!(ports.pod_gone("a"), PortChange::None);
        let mut sidecar = pod("b", "n", Vec::new());
        let init = Container { ports: tcp, ..Container::default() };
        sidecar.spec.init_containers = vec![init.clone()];
        assert_eq!(ports.pod_seen(&sidecar), PortChange::None, "it ends before others begin");
        sidecar.spec.init_containers =
            vec![Container { restart_policy: Some(RestartPolicy::Always), ..init }];
        assert_eq!(ports.pod_seen(&sidecar), PortChange::Used);
        assert_eq!(ports.pod_gone("b"), PortChange::Freed);
        assert!(ports.on_nodes.is_empty() && ports.nodes.is_empty());
    }
}
