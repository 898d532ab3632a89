//! Host ports (upstream `HostPortInfo` in `staging/src/k8s.io/kube-scheduler/framework/types.go`).

use plimsoll_state::intern::{Interner, Sym};
use plimsoll_state::model::{PodSpec, Protocol, RestartPolicy};

/// A port on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Address; the empty string stands for all addresses.
    pub ip: Sym,
    /// Protocol.
    pub protocol: Protocol,
    /// Number, not 0.
    pub port: u16,
}

impl HostPort {
    /// Whether both can't be in use at once.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == Sym::EMPTY || other.ip == Sym::EMPTY)
    }
}

/// The host ports of app containers and sidecars.
pub fn host_ports(spec: &PodSpec, strings: &mut Interner) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().filter(|c| c.restart_policy == Some(RestartPolicy::Always));
    let mut out = Vec::new();
    for p in spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports) {
        if p.host_port > 0 {
            let ip = if p.host_ip == "0.0.0.0" { "" } else { &p.host_ip };
            out.push(HostPort { ip: strings.intern(ip), protocol: p.protocol, port: p.host_port });
        }
    }
    out.into()
}

/// Whether any port of `a` conflicts with any of `b`.
pub fn conflict(a: &[HostPort], b: &[HostPort]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.conflicts(y)))
}
