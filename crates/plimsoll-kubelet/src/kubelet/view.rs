//! The part of a Pod that a simulated kubelet reads.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::time::{Nanos, parse};

/// A missing value and `null` are the same in Kubernetes JSON.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}

/// A Pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodView {
    /// Metadata.
    pub metadata: Meta,
    /// Spec.
    pub spec: Spec,
    /// Status.
    pub status: Status,
}

/// Object metadata.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Meta {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Annotations.
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    /// When deletion was asked for.
    pub deletion_timestamp: Option<String>,
    /// Seconds it may take.
    pub deletion_grace_period_seconds: Option<i64>,
}

/// Pod spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// Node it is bound to.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// `Always`, `OnFailure` or `Never`.
    #[serde(deserialize_with = "nullable")]
    pub restart_policy: String,
    /// App containers.
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<Container>,
    /// Init containers and sidecars.
    #[serde(deserialize_with = "nullable")]
    pub init_containers: Vec<Container>,
    /// Containers that were added for debugging.
    #[serde(deserialize_with = "nullable")]
    pub ephemeral_containers: Vec<Container>,
    /// Seconds the pod may be active.
    pub active_deadline_seconds: Option<i64>,
    /// Whether it uses the node's network.
    #[serde(deserialize_with = "nullable")]
    pub host_network: bool,
}

/// Container of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Name.
    pub name: String,
    /// Image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// Entry point.
    #[serde(deserialize_with = "nullable")]
    pub command: Vec<String>,
    /// Arguments.
    #[serde(deserialize_with = "nullable")]
    pub args: Vec<String>,
    /// `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
    /// Requests and limits, for the quality of service class.
    #[serde(deserialize_with = "nullable")]
    pub resources: Resources,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Requests.
    #[serde(deserialize_with = "nullable")]
    pub requests: BTreeMap<String, serde_json::Value>,
    /// Limits.
    #[serde(deserialize_with = "nullable")]
    pub limits: BTreeMap<String, serde_json::Value>,
}

/// Pod status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// Phase.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// When the kubelet accepted it.
    pub start_time: Option<String>,
    /// Address.
    #[serde(rename = "podIP", deserialize_with = "nullable")]
    pub pod_ip: String,
    /// Quality of service class, set by the API server.
    #[serde(deserialize_with = "nullable")]
    pub qos_class: String,
    /// Conditions, for their transition times.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// App containers.
    #[serde(deserialize_with = "nullable")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Init containers.
    #[serde(deserialize_with = "nullable")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Ephemeral containers.
    #[serde(deserialize_with = "nullable")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status.
    pub status: String,
    /// When the status changed.
    pub last_transition_time: Option<String>,
}

/// State of a container as reported.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// How often it was restarted.
    #[serde(deserialize_with = "nullable")]
    pub restart_count: i64,
    /// What it does.
    #[serde(deserialize_with = "nullable")]
    pub state: State,
    /// What it did before.
    #[serde(deserialize_with = "nullable")]
    pub last_state: State,
}

/// One of the three states.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct State {
    /// It runs.
    pub running: Option<Running>,
    /// It has ended.
    pub terminated: Option<Terminated>,
}

/// A running container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Running {
    /// Since when.
    pub started_at: Option<String>,
}

/// A container that has ended.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    /// Exit code.
    pub exit_code: i32,
    /// Why.
    #[serde(deserialize_with = "nullable")]
    pub reason: String,
    /// Start.
    pub started_at: Option<String>,
    /// End.
    pub finished_at: Option<String>,
}

/// Conditions that a kubelet reports.
const KINDS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

impl PodView {
    /// Transition times of the conditions that a kubelet reports: (type, status, since).
    pub(super) fn transitions(&self) -> Vec<(&'static str, bool, Nanos)> {
        let found = |kind: &'static str| {
            let c = self.status.conditions.iter().find(|c| c.kind == kind)?;
            Some((kind, c.status == "True", c.last_transition_time.as_deref().and_then(parse)?))
        };
        KINDS.into_iter().filter_map(found).collect()
    }
}
