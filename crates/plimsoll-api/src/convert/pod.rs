//! Pods and pod templates.

use super::selector::{label_selector, node_selector, term};
use super::storage;
use super::{
    ConvertError, Result, amount, bad, decode_either, decode_value, optional_time, owners, required,
};
use super::{string_map, time};
use crate::lean::pod as lean;
use crate::protobuf;
use plimsoll_state::Time;
use plimsoll_state::model::{
    Affinity, Container, ContainerPort, ContainerStatus, NodeAffinity, Phase, Pod, PodAffinity,
    PodAffinityTerm, PodClaimSource, PodCondition, PodResourceClaim, PodSpec, PodStatus, PreemptionPolicy,
    PreferredSchedulingTerm, Protocol, RestartPolicy, SpreadConstraint, TaintEffect, Toleration,
    TolerationOperator, UnsatisfiableAction, Volume, VolumeSource, WeightedPodAffinityTerm,
};

/// Annotation of workloads and pods of elastic jobs with the name of the first slice (Kueue `WorkloadSliceNameAnnotation`).
pub const FIRST_SLICE: &str = "kueue.x-k8s.io/workload-slice-name";

/// A Pod from its bytes, JSON or [`protobuf`].
///
/// # Errors
/// When the bytes are not a Pod, or a field has a value that can't be understood.
pub fn pod(bytes: &[u8]) -> std::result::Result<Pod, ConvertError> {
    let raw: lean::Pod = decode_either("Pod", &protobuf::POD, bytes)?;
    let m = raw.metadata;
    let topology_aware = m.annotations.as_ref().is_some_and(|a| TOPOLOGY.iter().any(|k| a.contains_key(*k)));
    let annotation = |key: &str| m.annotations.as_ref().and_then(|a| a.get(key).cloned()).flatten();
    let workload = annotation(FIRST_SLICE).or_else(|| annotation("kueue.x-k8s.io/workload"));
    let pod_set = m.labels.as_ref().and_then(|l| l.get("kueue.x-k8s.io/podset").cloned());
    let group = raw.spec.scheduling_group.as_ref().and_then(|g| g.pod_group_name.clone());
    Ok(Pod {
        topology_aware,
        group: group.unwrap_or_default(),
        workload: workload.unwrap_or_default(),
        pod_set: pod_set.flatten().unwrap_or_default(),
        uid: m.uid.unwrap_or_default(),
        namespace: m.namespace.unwrap_or_else(|| "default".to_owned()),
        name: required("metadata.name", m.name)?,
        labels: string_map(m.labels),
        owners: owners(m.owner_references),
        creation_time: match m.creation_timestamp {
            Some(t) => time("metadata.creationTimestamp", &t)?,
            None => Time::default(),
        },
        generation: m.generation.unwrap_or_default(),
        deleting: m.deletion_timestamp.is_some(),
        spec: of_pod(raw.spec)?,
        status: status(raw.status.unwrap_or_default())?,
        encoded: None,
    })
}

/// The spec of a pod that exists: what its claims are made from decides nothing any more.
fn of_pod(raw: lean::PodSpec) -> Result<PodSpec> {
    let mut spec = spec(raw)?;
    for volume in &mut spec.volumes {
        if let VolumeSource::Ephemeral(template) = &mut volume.source {
            *template = None;
        }
    }
    Ok(spec)
}

/// Annotations by which Kueue marks pods that it placed by topology.
const TOPOLOGY: [&str; 5] = [
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
    "kueue.x-k8s.io/podset-slice-required-topology",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints",
];

/// The scheduling-relevant part of a pod spec in its JSON form, for example `spec` of a pod template.
///
/// # Errors
/// When it is not a pod spec, or a field has a value that can't be understood.
pub fn pod_spec_from_value(value: &serde_json::Value) -> std::result::Result<PodSpec, ConvertError> {
    spec(decode_value("PodSpec", value)?)
}

fn spec(raw: lean::PodSpec) -> Result<PodSpec> {
    let resources = raw.resources;
    let (pod_requests, pod_limits) = match resources {
        None => (None, None),
        Some(r) => (
            r.requests.map(|r| amount::resources("spec.resources.requests", Some(r))).transpose()?,
            r.limits.map(|r| amount::resources("spec.resources.limits", Some(r))).transpose()?,
        ),
    };
    Ok(PodSpec {
        node_name: raw.node_name.unwrap_or_default(),
        scheduler_name: raw
            .scheduler_name
            .filter(|s| !s.is_empty())
            .unwrap_or_else(|| "default-scheduler".to_owned()),
        priority: raw.priority.unwrap_or(0),
        priority_class_name: raw.priority_class_name.unwrap_or_default(),
        preemption_policy: match raw.preemption_policy.as_deref() {
            None | Some("" | "PreemptLowerPriority") => PreemptionPolicy::PreemptLowerPriority,
            Some("Never") => PreemptionPolicy::Never,
            Some(other) => return bad("spec.preemptionPolicy", format!("Unsupported value: {other:?}")),
        },
        node_selector: string_map(raw.node_selector),
        affinity: affinity(raw.affinity.unwrap_or_default())?,
        tolerations: each(raw.tolerations, toleration)?,
        spread: each(raw.topology_spread_constraints, spread)?,
        containers: each(raw.containers, container)?,
        init_containers: each(raw.init_containers, container)?,
        overhead: amount::resources("spec.overhead", raw.overhead)?,
        runtime_class_name: raw.runtime_class_name.unwrap_or_default(),
        pod_requests,
        pod_limits,
        scheduling_gates: raw
            .scheduling_gates
            .unwrap_or_default()
            .into_iter()
            .map(|g| g.name.unwrap_or_default())
            .collect(),
        host_network: raw.host_network.unwrap_or(false),
        host_users: raw.host_users,
        volumes: raw
            .volumes
            .unwrap_or_default()
            .into_iter()
            .filter_map(|v| volume(v).transpose())
            .collect::<Result<_>>()?,
        resource_claims: raw.resource_claims.unwrap_or_default().into_iter().filter_map(claim).collect(),
    })
}

fn each<A, B>(list: Option<Vec<A>>, f: fn(A) -> Result<B>) -> Result<Vec<B>> {
    list.unwrap_or_default().into_iter().map(f).collect()
}

fn affinity(raw: lean::Affinity) -> Result<Affinity> {
    Ok(Affinity {
        node: raw.node_affinity.map(node_affinity).transpose()?,
        pod: raw.pod_affinity.map(pod_affinity).transpose()?,
        anti: raw.pod_anti_affinity.map(pod_affinity).transpose()?,
    })
}

/// Affinity to nodes; also used for `addedAffinity` in the configuration.
fn node_affinity(raw: lean::NodeAffinity) -> Result<NodeAffinity> {
    let preferred = |p: lean::PreferredTerm| {
        Ok(PreferredSchedulingTerm {
            weight: p.weight.unwrap_or(0),
            term: term("nodeAffinity.preference", p.preference.unwrap_or_default())?,
        })
    };
    Ok(NodeAffinity {
        required: raw.required.map(|r| node_selector("nodeAffinity.required", r)).transpose()?,
        preferred: each(raw.preferred, preferred)?,
    })
}

fn pod_affinity(raw: lean::PodAffinity) -> Result<PodAffinity> {
    let weighted = |w: lean::WeightedTerm| {
        Ok(WeightedPodAffinityTerm {
            weight: w.weight.unwrap_or(0),
            term: pod_affinity_term(w.pod_affinity_term.unwrap_or_default())?,
        })
    };
    Ok(PodAffinity {
        required: each(raw.required, pod_affinity_term)?,
        preferred: each(raw.preferred, weighted)?,
    })
}

fn pod_affinity_term(raw: lean::PodAffinityTerm) -> Result<PodAffinityTerm> {
    Ok(PodAffinityTerm {
        selector: raw.label_selector.map(|s| label_selector("labelSelector", s)).transpose()?,
        namespaces: raw.namespaces.unwrap_or_default(),
        namespace_selector: raw
            .namespace_selector
            .map(|s| label_selector("namespaceSelector", s))
            .transpose()?,
        topology_key: raw.topology_key.unwrap_or_default(),
    })
}

pub(crate) fn taint_effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// A toleration; used for pods and for flavors.
pub(crate) fn toleration(raw: lean::Toleration) -> Result<Toleration> {
    let effect = raw.effect.unwrap_or_default();
    let parsed = taint_effect(&effect);
    if parsed.is_none() && !effect.is_empty() {
        return bad("tolerations.effect", format!("Unsupported value: {effect:?}"));
    }
    Ok(Toleration {
        key: raw.key.unwrap_or_default(),
        operator: match raw.operator.as_deref() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some(other) => return bad("tolerations.operator", format!("Unsupported value: {other:?}")),
        },
        value: raw.value.unwrap_or_default(),
        effect: parsed,
        temporary: raw.toleration_seconds.is_some(),
    })
}

fn policy(field: &str, text: Option<&str>, default: bool) -> Result<bool> {
    match text {
        None | Some("") => Ok(default),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(other) => bad(field, format!("Unsupported value: {other:?}")),
    }
}

/// A spread constraint.
fn spread(raw: lean::Spread) -> Result<SpreadConstraint> {
    Ok(SpreadConstraint {
        max_skew: raw.max_skew.unwrap_or(0),
        topology_key: raw.topology_key.unwrap_or_default(),
        when_unsatisfiable: match raw.when_unsatisfiable.as_deref() {
            Some("DoNotSchedule") => UnsatisfiableAction::DoNotSchedule,
            Some("ScheduleAnyway") => UnsatisfiableAction::ScheduleAnyway,
            other => {
                let text = other.unwrap_or_default();
                return bad(
                    "topologySpreadConstraints.whenUnsatisfiable",
                    format!("Unsupported value: {text:?}"),
                );
            }
        },
        selector: raw.label_selector.map(|s| label_selector("labelSelector", s)).transpose()?,
        min_domains: raw.min_domains,
        honor_node_affinity: policy("nodeAffinityPolicy", raw.node_affinity_policy.as_deref(), true)?,
        honor_node_taints: policy("nodeTaintsPolicy", raw.node_taints_policy.as_deref(), false)?,
        match_label_keys: raw.match_label_keys.unwrap_or_default(),
    })
}

fn container(raw: lean::Container) -> Result<Container> {
    let resources = raw.resources.unwrap_or_default();
    let rules = raw.restart_policy_rules.unwrap_or_default();
    Ok(Container {
        name: raw.name.unwrap_or_default(),
        image: raw.image.unwrap_or_default(),
        requests: amount::resources("resources.requests", resources.requests)?,
        limits: amount::resources("resources.limits", resources.limits)?,
        ports: each(raw.ports, port)?,
        restart_policy: match raw.restart_policy.as_deref() {
            None | Some("") => None,
            Some("Always") => Some(RestartPolicy::Always),
            Some("OnFailure") => Some(RestartPolicy::OnFailure),
            Some("Never") => Some(RestartPolicy::Never),
            Some(other) => return bad("containers.restartPolicy", format!("Unsupported value: {other:?}")),
        },
        restarts_all_containers: rules.iter().any(|r| r.action.as_deref() == Some("RestartAllContainers")),
    })
}

fn port(raw: lean::Port) -> Result<ContainerPort> {
    let number = raw.host_port.unwrap_or(0);
    let Ok(host_port) = u16::try_from(number) else {
        return bad("ports.hostPort", "must be between 1 and 65535, inclusive");
    };
    Ok(ContainerPort {
        host_port,
        host_ip: raw.host_ip.unwrap_or_default(),
        protocol: match raw.protocol.as_deref() {
            None | Some("" | "TCP") => Protocol::Tcp,
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            Some(other) => return bad("ports.protocol", format!("Unsupported value: {other:?}")),
        },
    })
}

/// `None` for sources that decide nothing, such as secrets.
fn volume(raw: lean::Volume) -> Result<Option<Volume>> {
    let source = if let Some(c) = raw.persistent_volume_claim {
        VolumeSource::Claim {
            name: c.claim_name.unwrap_or_default(),
            read_only: c.read_only.unwrap_or(false),
        }
    } else if let Some(ephemeral) = raw.ephemeral {
        let template = ephemeral.volume_claim_template.and_then(|t| t.spec);
        VolumeSource::Ephemeral(template.map(storage::claim_template).transpose()?.map(Box::new))
    } else if let Some(c) = raw.csi {
        VolumeSource::Csi { driver: c.driver.unwrap_or_default() }
    } else if let Some(d) = raw.gce_persistent_disk {
        VolumeSource::GcePersistentDisk {
            name: d.pd_name.unwrap_or_default(),
            read_only: d.read_only.unwrap_or(false),
        }
    } else if let Some(d) = raw.aws_elastic_block_store {
        VolumeSource::AwsElasticBlockStore {
            id: d.volume_id.unwrap_or_default(),
            read_only: d.read_only.unwrap_or(false),
        }
    } else if let Some(d) = raw.iscsi {
        VolumeSource::Iscsi { iqn: d.iqn.unwrap_or_default(), read_only: d.read_only.unwrap_or(false) }
    } else if let Some(d) = raw.rbd {
        VolumeSource::Rbd {
            monitors: d.monitors.unwrap_or_default(),
            pool: d.pool.filter(|p| !p.is_empty()).unwrap_or_else(|| "rbd".to_owned()),
            image: d.image.unwrap_or_default(),
            read_only: d.read_only.unwrap_or(false),
        }
    } else {
        let Some(image) = raw.image else { return Ok(None) };
        VolumeSource::Image { reference: image.reference.unwrap_or_default() }
    };
    Ok(Some(Volume { name: raw.name.unwrap_or_default(), source }))
}

fn claim(raw: lean::ResourceClaim) -> Option<PodResourceClaim> {
    let source = match (raw.resource_claim_name, raw.resource_claim_template_name) {
        (Some(name), _) => PodClaimSource::Claim(name),
        (None, Some(template)) => PodClaimSource::Template(template),
        (None, None) => return None,
    };
    Some(PodResourceClaim { name: raw.name.unwrap_or_default(), source })
}

fn status(raw: lean::PodStatus) -> Result<PodStatus> {
    let mut containers = each(raw.container_statuses, container_status)?;
    containers.append(&mut each(raw.init_container_statuses, container_status)?);
    let conditions = raw.conditions.unwrap_or_default();
    Ok(PodStatus {
        phase: match raw.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            // `Unknown` still occupies its node, as a pending pod would.
            _ => Phase::Pending,
        },
        nominated_node_name: raw.nominated_node_name.unwrap_or_default(),
        start_time: optional_time("status.startTime", raw.start_time)?,
        conditions: conditions
            .into_iter()
            .map(|c| PodCondition {
                kind: c.kind.unwrap_or_default(),
                is_true: c.status.as_deref() == Some("True"),
                reason: c.reason.unwrap_or_default(),
            })
            .collect(),
        containers,
        allocated: raw
            .allocated_resources
            .map(|r| amount::resources("status.allocatedResources", Some(r)))
            .transpose()?,
        actuated: raw.resources.map(|r| amount::resources("status.resources", r.requests)).transpose()?,
        claim_statuses: raw
            .resource_claim_statuses
            .unwrap_or_default()
            .into_iter()
            .map(|c| (c.name.unwrap_or_default(), c.resource_claim_name))
            .collect(),
    })
}

fn container_status(raw: lean::ContainerStatus) -> Result<ContainerStatus> {
    Ok(ContainerStatus {
        name: raw.name.unwrap_or_default(),
        allocated: raw
            .allocated_resources
            .map(|r| amount::resources("containerStatuses.allocatedResources", Some(r)))
            .transpose()?,
        actuated: raw
            .resources
            .map(|r| amount::resources("containerStatuses.resources.requests", r.requests))
            .transpose()?,
    })
}
