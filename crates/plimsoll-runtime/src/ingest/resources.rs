//! What is watched.

use plimsoll_jobs::{Config, CustomKind};

use crate::api::{self, Resource};
use crate::roles::Roles;

/// Resources without which nothing can be decided.
pub const REQUIRED: [Resource; 8] = [
    api::PODS,
    api::NODES,
    api::NAMESPACES,
    api::JOBS,
    api::WORKLOADS,
    api::CLUSTER_QUEUES,
    api::LOCAL_QUEUES,
    api::FLAVORS,
];

/// What is watched for these roles; PodGroups only for profiles that schedule gangs, `nodes` also for topologies, jobs of
/// kinds that CustomResourceDefinitions add as `jobs` has their frameworks, nodes for its failure recovery too. A resource that the cluster does not serve
/// according to its discovery counts as empty.
pub fn resources(roles: Roles, gangs: bool, nodes: bool, jobs: &Config) -> Vec<Resource> {
    let mut all = vec![api::NAMESPACES, api::PODS];
    if nodes || recovers(roles, jobs) {
        all.push(api::NODES);
    }
    if roles.placement {
        all.extend([
            api::SERVICES,
            api::REPLICATION_CONTROLLERS,
            api::REPLICA_SETS,
            api::STATEFUL_SETS,
            api::BUDGETS,
            api::VOLUMES,
            api::VOLUME_CLAIMS,
            api::STORAGE_CLASSES,
            api::CSI_NODES,
            api::CSI_DRIVERS,
            api::CSI_CAPACITIES,
            api::ATTACHMENTS,
            api::DEVICE_CLAIMS,
            api::DEVICE_SLICES,
            api::DEVICE_CLASSES,
        ]);
    }
    if roles.placement && gangs {
        all.push(api::POD_GROUPS);
    }
    if roles.queueing {
        all.extend([
            api::JOBS,
            api::PRIORITY_CLASSES,
            api::LIMIT_RANGES,
            api::RUNTIME_CLASSES,
            api::WORKLOADS,
            api::CLUSTER_QUEUES,
            api::LOCAL_QUEUES,
            api::COHORTS,
            api::QUOTA_LOANS,
            api::FLAVORS,
            api::WORKLOAD_PRIORITY_CLASSES,
            api::ADMISSION_CHECKS,
            api::PROVISIONING_CONFIGS,
            api::PROVISIONING_REQUESTS,
            api::POD_TEMPLATES,
            api::MULTIKUEUE_CONFIGS,
            api::MULTIKUEUE_CLUSTERS,
            api::TOPOLOGIES,
            api::RUN_WINDOWS,
            api::JOB_KINDS,
            api::CLAIM_TEMPLATES,
        ]);
        let custom = CustomKind::all().filter(|kind| jobs.has_framework(kind.framework()));
        all.extend(custom.map(CustomKind::preferred));
        if !roles.placement {
            all.extend([api::DEVICE_SLICES, api::DEVICE_CLASSES, api::STATEFUL_SETS]);
        }
    }
    all
}

/// Whether pods are deleted from unreachable nodes.
pub const fn recovers(roles: Roles, jobs: &Config) -> bool {
    roles.queueing && jobs.failure_recovery
}
