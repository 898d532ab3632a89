//! Pods, as far as controllers read them.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_apimachinery::meta::{Meta, Time, nullable};
use serde::Deserialize;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: PodSpec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: PodStatus,
}

/// `spec` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// Node.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// Init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<InitContainer>,
    /// Claims of devices.
    #[serde(deserialize_with = "nullable")]
    pub resource_claims: Vec<PodClaim>,
}

/// A claim of devices, or the name that one got.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodClaim {
    /// Name in the pod.
    pub name: String,
    /// The ResourceClaim.
    pub resource_claim_name: Option<String>,
    /// The template that it is made from.
    pub resource_claim_template_name: Option<String>,
}

/// An init container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InitContainer {
    /// Name.
    pub name: String,
    /// `Always` for a sidecar.
    pub restart_policy: Option<String>,
}

/// `status` of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// Phase.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<PodCondition>,
    /// Containers.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Claims made from templates.
    #[serde(deserialize_with = "nullable")]
    pub resource_claim_statuses: Vec<PodClaim>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status.
    pub status: String,
    /// When its status changed.
    pub last_transition_time: Option<Time>,
}

/// State of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// Restarts.
    #[serde(deserialize_with = "nullable")]
    pub restart_count: i32,
    /// State.
    #[serde(deserialize_with = "nullable")]
    pub state: ContainerState,
}

/// `state` of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// It has ended.
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    /// Exit code.
    #[serde(deserialize_with = "nullable")]
    pub exit_code: i32,
    /// When.
    pub finished_at: Option<Time>,
}

impl Pod {
    /// Whether its phase is final.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Neither ended nor on its way out.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_none()
    }

    /// On its way out, not ended yet.
    pub fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_some()
    }

    /// Whether its phase is `Succeeded`.
    pub fn has_succeeded(&self) -> bool {
        self.status.phase == "Succeeded"
    }

    /// Whether its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
    }

    /// Restarts of all its containers.
    pub fn restarts(&self) -> i32 {
        self.statuses().map(|s| s.restart_count).fold(0, i32::saturating_add)
    }

    fn statuses(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.status.init_container_statuses.iter().chain(&self.status.container_statuses)
    }

    /// Since when it is ready; `None`: it isn't, or that is unknown.
    pub fn ready_since(&self) -> Option<Timestamp> {
        let ready = self.status.conditions.iter().find(|c| c.kind == "Ready" && c.status == "True");
        ready.and_then(|c| c.last_transition_time).map(|t| t.0)
    }
}

impl Pod {
    /// How far it has got: bound, phase, ready.
    pub fn stage(&self) -> (bool, u8, bool) {
        let phase = match self.status.phase.as_str() {
            "Unknown" => 1,
            "Running" => 2,
            _ => 0,
        };
        (!self.spec.node_name.is_empty(), phase, self.is_ready())
    }

    /// Restarts of the container that has most.
    pub fn most_restarts(&self) -> i32 {
        self.statuses().map(|s| s.restart_count).max().unwrap_or(0)
    }
}

/// Index of pods by [`Meta::owner_index`].
pub fn by_owner(pod: &Pod) -> Option<String> {
    Some(pod.metadata.owner_index())
}

/// Index of pods by their node.
pub fn by_node(pod: &Pod) -> Option<String> {
    Some(pod.spec.node_name.clone()).filter(|n| !n.is_empty())
}

/// Order in which active pods are given up: those that have got least far first (`controller.ActivePods`).
pub fn removal_order(a: &Arc<Pod>, b: &Arc<Pod>) -> Ordering {
    let created = |p: &Pod| p.metadata.creation_timestamp.map(|t| t.0);
    a.stage()
        .cmp(&b.stage())
        .then_with(|| youngest_first(a.ready_since(), b.ready_since()))
        .then_with(|| b.most_restarts().cmp(&a.most_restarts()))
        .then_with(|| youngest_first(created(a), created(b)))
}

/// No time first, then from late to early.
pub fn youngest_first(a: Option<Timestamp>, b: Option<Timestamp>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => b.cmp(&a),
    }
}
