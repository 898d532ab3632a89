//! Node features that a pod spec needs (KEP-5328, component-helpers
//! `nodedeclaredfeatures`).

use plimsoll_state::model::PodSpec;

/// Containers that restart all containers of the pod when they end.
pub const RESTART_ALL_CONTAINERS: &str = "RestartAllContainersOnContainerExits";
/// A user namespace together with the host's network.
pub const USER_NAMESPACES_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

/// The features that a new pod of this spec needs, sorted.
pub fn required(spec: &PodSpec) -> Box<[&'static str]> {
    let mut out = Vec::new();
    if spec.containers.iter().chain(&spec.init_containers).any(|c| c.restarts_all_containers) {
        out.push(RESTART_ALL_CONTAINERS);
    }
    if spec.host_network && spec.host_users == Some(false) {
        out.push(USER_NAMESPACES_HOST_NETWORK);
    }
    out.into()
}
