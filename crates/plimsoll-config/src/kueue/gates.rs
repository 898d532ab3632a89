//! Feature gates by name (Kueue's `pkg/features/kube_features.go`).

use std::collections::BTreeMap;

use plimsoll_queueing::Gates;

use crate::nearest;

/// What setting a gate does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is honoured.
    Works,
    /// It only changes how Kueue computes something; either value is fine.
    NoEffect,
    /// Only the default is supported.
    Fixed,
    /// Upstream no longer lets it be changed.
    Locked,
}
use Kind::{Fixed, Locked, NoEffect, Works};

/// Name, default, what setting it does here.
#[rustfmt::skip]
const GATES: &[(&str, bool, Kind)] = &[
    ("PartialAdmission", true, Works),
    ("FlavorFungibility", true, Works),
    ("PrioritySortingWithinCohort", true, Works),
    ("VisibilityOnDemand", true, Fixed),
    ("MultiKueue", true, Fixed),
    ("TopologyAwareScheduling", true, Works),
    ("TASFailedNodeReplacement", true, Works),
    ("TASFailedNodeReplacementFailFast", true, Works),
    ("TASReplaceNodeOnPodTermination", true, Works),
    ("AdmissionFairSharing", true, Works),
    ("TASProfileMixed", true, Works),
    ("MultiKueueAdaptersForCustomJobs", true, Fixed),
    ("ReclaimablePods", true, Works),
    ("LocalQueueMetrics", true, Works),
    ("FairSharingPreemptWithinNominal", true, Works),
    ("FairSharingPrioritizeNonBorrowing", true, Works),
    ("RemoveFinalizersWithStrictPatch", true, NoEffect),
    ("TASReplaceNodeOnNodeTaints", true, Works),
    ("AssignQueueLabelsForPods", true, Fixed),
    ("ElasticJobsViaWorkloadSlices", true, Works),
    ("KueueDRAIntegration", true, Works),
    ("KueueDRARejectWorkloadsWhenDRADisabled", true, Works),
    ("SchedulingEquivalenceHashing", true, Works),
    ("FinishOrphanedWorkloads", true, Fixed),
    ("MetricForWorkloadCreationLatency", true, NoEffect),
    ("WorkloadIdentifierAnnotations", true, Works),
    ("MetricsForCohorts", true, NoEffect),
    ("TASHandleOverlappingFlavors", true, Fixed),
    ("PodIntegrationValidateGroupOwner", true, Fixed),
    ("ValidateRayAndSparkJobUpdates", true, Works),
    ("SkipReassignmentForPodOwnedWorkloads", true, Works),
    ("TASAssignmentsEncodingByHostnamePrefix", true, Fixed),
    ("KueueDRAIntegrationExtendedResource", true, Works),
    ("KueueDRAIntegrationPartitionableDevices", true, Works),
    ("TASMultiLayerTopology", true, Fixed),
    ("AdmissionGatedBy", true, Fixed),
    ("MultiKueueIncrementalDispatcherConfig", true, Fixed),
    ("MultiKueueIncrementalDispatcherRespectConfigOrder", true, Fixed),
    ("QuotaCheckStrategy", true, Works),
    ("CleanupProvisioningRequestsOnEviction", true, Works),
    ("UnadmittedWorkloadsObservability", true, Fixed),
    ("TASRecomputeAssignmentWithinSchedulingCycle", true, Works),
    ("DeferRayServiceFinalizationForRedisCleanup", true, Fixed),
    ("TASCacheNodeMatchResults", true, NoEffect),
    ("TASCachingRemainingResources", true, NoEffect),
    ("VectorizedResourceRequests", true, NoEffect),
    ("TASCacheTopologyTree", true, NoEffect),
    ("MultiKueueKubeConfigPathValidation", true, Works),
    ("WorkloadPriorityClassDefaulting", true, Works),
    ("WorkloadValidateResourcesAreNonNegative", true, Fixed),
    ("TASValidateWorkloadSliceSize", true, Fixed),
    ("WorkloadValidationForPodSetMetadata", true, Fixed),
    ("LWSImmutableGroupSize", true, Works),
    ("FlavorFungibilityPreserveScanProgress", true, Works),
    ("SkipAncestorCheckForDeletedWorkloads", true, Fixed),
    ("MultiKueueRemoteSpecSync", true, Fixed),
    ("RecomputeAssignmentUponPreemptionTargetsOverlap", true, Works),
    ("UnadmittedWorkloadsExplicitStatus", false, Works),
    ("ManagedJobsNamespaceSelectorAlwaysRespected", true, Locked),
    ("TLSOptions", true, Locked),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", false, Works),
    ("DisableWaitForPodsReady", false, Works),
    ("WorkloadRequestUseMergePatch", false, NoEffect),
    ("TASBalancedPlacement", false, Works),
    ("MultiKueueClusterProfile", false, Works),
    ("FailureRecoveryPolicy", false, Works),
    ("ElasticJobsViaWorkloadSlicesWithTAS", false, NoEffect),
    ("ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp", false, Works),
    ("PartialPreemption", false, Works),
    ("CustomMetricLabels", false, Works),
    ("SparkApplicationIntegration", false, Works),
    ("MultiKueueOrchestratedPreemption", false, Works),
    ("PriorityBoost", false, Works),
    ("ShortWorkloadNames", false, Works),
    ("FastQuotaReleaseInPodIntegration", false, Works),
    ("QuotaReleaseStrategy", false, Works),
    ("RejectUpdatesToCQWithInvalidOnFlavors", false, Works),
    ("ConcurrentAdmission", false, Works),
    ("TASRespectNodeAffinityPreferred", false, Works),
    ("MultiKueueManagerQuotaAutomation", false, Works),
    ("KueueDRAIntegrationConsumableCapacity", false, Works),
    ("SchedulerLibraryIntegration", false, Works),
    ("PrioritizePreemptorWorkloads", false, Works),
    ("ConfigurablePreemptions", false, Works),
    ("FairSharingReevaluatePreemptionCandidates", false, Works),
    ("MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster", true, Works),
    ("ReservedResourceNameValidation", true, Works),
    ("SchedulingEquivalenceHashingIgnorePodSetName", true, NoEffect),
    ("DynamicQuotaOrchestration", false, Fixed),
];

/// A gate that needs another one.
#[rustfmt::skip]
const NEEDS: &[(&str, &str)] = &[
    ("TASFailedNodeReplacement", "TopologyAwareScheduling"),
    ("TASFailedNodeReplacementFailFast", "TASFailedNodeReplacement"),
    ("TASReplaceNodeOnPodTermination", "TASFailedNodeReplacement"),
    ("TASReplaceNodeOnNodeTaints", "TopologyAwareScheduling"),
    ("TASReplaceNodeDueToNotReadyOverFixedTime", "TASFailedNodeReplacement"),
    ("TASProfileMixed", "TopologyAwareScheduling"),
    ("TASHandleOverlappingFlavors", "TopologyAwareScheduling"),
    ("TASMultiLayerTopology", "TopologyAwareScheduling"),
    ("TASRecomputeAssignmentWithinSchedulingCycle", "TopologyAwareScheduling"),
    ("TASBalancedPlacement", "TopologyAwareScheduling"),
    ("TASRespectNodeAffinityPreferred", "TopologyAwareScheduling"),
    ("ElasticJobsViaWorkloadSlicesWithTAS", "TopologyAwareScheduling"),
    ("ElasticJobsViaWorkloadSlicesWithTAS", "ElasticJobsViaWorkloadSlices"),
    ("ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp", "ElasticJobsViaWorkloadSlices"),
    ("KueueDRAIntegrationExtendedResource", "KueueDRAIntegration"),
    ("KueueDRAIntegrationPartitionableDevices", "KueueDRAIntegration"),
    ("KueueDRAIntegrationConsumableCapacity", "KueueDRAIntegration"),
    ("UnadmittedWorkloadsExplicitStatus", "UnadmittedWorkloadsObservability"),
    ("FlavorFungibilityPreserveScanProgress", "FlavorFungibility"),
    ("SchedulingEquivalenceHashingIgnorePodSetName", "SchedulingEquivalenceHashing"),
    ("MultiKueueOrchestratedPreemption", "MultiKueue"),
];

/// Values of all gates.
#[derive(Clone, Debug)]
pub struct FeatureGates(BTreeMap<&'static str, bool>);

impl FeatureGates {
    /// The defaults with `set` on top; otherwise texts of everything that is wrong with it, in upstream's words
    /// (`k8s.io/component-base/featuregate`), each with the path of the gate.
    ///
    /// # Errors
    /// Unknown names, locked gates, values that are not supported here, gates without what they need.
    pub fn new(set: &BTreeMap<String, bool>) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut refuse = |name: &str, on: bool, why: String| {
            errors.push(format!("featureGates[{name}]: Invalid value: {on}: {why}"));
        };
        let mut all: BTreeMap<&'static str, bool> = GATES.iter().map(|(n, on, _)| (*n, *on)).collect();
        for (name, &on) in set {
            let Some((known, default, kind)) = GATES.iter().find(|(n, _, _)| n == name) else {
                let hint = match nearest(name, GATES.iter().map(|(n, ..)| *n)) {
                    Some(near) => format!(": did you mean {near}?"),
                    None => String::new(),
                };
                refuse(name, on, format!("unrecognized feature gate: {name}{hint}"));
                continue;
            };
            match kind {
                Locked if on != *default => refuse(
                    name,
                    on,
                    format!("cannot set feature gate {name} to {on}, feature is locked to {default}"),
                ),
                Fixed if on != *default => {
                    refuse(name, on, format!("feature gate {name}={on} is not supported by Plimsoll"));
                }
                Works | NoEffect | Fixed | Locked => {
                    all.insert(known, on);
                }
            }
        }
        for (gate, needed) in NEEDS {
            let is_on = |name: &str| all.get(name).copied().unwrap_or(false);
            if set.get(*gate) == Some(&true) && !is_on(needed) {
                refuse(
                    gate,
                    true,
                    format!("{gate} is enabled, but depends on features that are disabled: [{needed}]"),
                );
            }
        }
        if errors.is_empty() { Ok(Self(all)) } else { Err(errors) }
    }

    /// Whether a gate is on; `false` for an unknown name.
    pub fn is_on(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }

    /// The gates that decide something in the engine.
    pub fn engine(&self) -> Gates {
        let mut gates = Gates::default();
        for (name, on) in &self.0 {
            set_engine(&mut gates, name, *on);
        }
        gates
    }
}

fn set_engine(gates: &mut Gates, name: &str, on: bool) {
    match name {
        "ElasticJobsViaWorkloadSlices" => gates.elastic_jobs = on,
        "ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp" => gates.partial_scale_up = on,
        "PriorityBoost" => gates.priority_boost = on,
        "ConcurrentAdmission" => gates.concurrent_admission = on,
        "ConfigurablePreemptions" => gates.configurable_preemptions = on,
        "MultiKueueOrchestratedPreemption" => gates.preemption_gates = on,
        "FairSharingPreemptWithinNominal" => gates.fair_preempt_within_nominal = on,
        "FairSharingPrioritizeNonBorrowing" => gates.fair_prioritize_non_borrowing = on,
        "FairSharingReevaluatePreemptionCandidates" => gates.fair_reevaluate = on,
        "FlavorFungibility" => gates.flavor_fungibility = on,
        "FlavorFungibilityPreserveScanProgress" => gates.preserve_scan_progress = on,
        "KueueDRAIntegration" => gates.device_quota = on,
        "KueueDRAIntegrationConsumableCapacity" => gates.device_capacities = on,
        "KueueDRAIntegrationExtendedResource" => gates.device_extended = on,
        "KueueDRAIntegrationPartitionableDevices" => gates.device_counters = on,
        "KueueDRARejectWorkloadsWhenDRADisabled" => gates.device_refusal = on,
        "PartialAdmission" => gates.partial_admission = on,
        "PartialPreemption" => gates.partial_preemption = on,
        "PrioritizePreemptorWorkloads" => gates.prioritize_preemptors = on,
        "PrioritySortingWithinCohort" => gates.priority_sorting_within_cohort = on,
        "ReclaimablePods" => gates.reclaimable_pods = on,
        "RecomputeAssignmentUponPreemptionTargetsOverlap" => gates.recompute_on_overlap = on,
        "SchedulingEquivalenceHashing" => gates.equivalence_hashing = on,
        "SchedulerLibraryIntegration" => gates.scheduler_library = on,
        "SkipReassignmentForPodOwnedWorkloads" => gates.skip_reassignment_for_pods = on,
        "TASRespectNodeAffinityPreferred" => gates.tas_preferred_affinity = on,
        "TASBalancedPlacement" => gates.tas_balanced = on,
        "TASFailedNodeReplacement" => gates.replace_nodes = on,
        "TASFailedNodeReplacementFailFast" => gates.replace_fail_fast = on,
        "TASReplaceNodeDueToNotReadyOverFixedTime" => gates.replace_after_fixed_time = on,
        "TASReplaceNodeOnNodeTaints" => gates.replace_on_taints = on,
        "TASReplaceNodeOnPodTermination" => gates.replace_on_pod_termination = on,
        "TASProfileMixed" => gates.tas_profile_mixed = on,
        "TASRecomputeAssignmentWithinSchedulingCycle" => gates.tas_recompute = on,
        "TopologyAwareScheduling" => gates.topology = on,
        "UnadmittedWorkloadsExplicitStatus" => gates.explicit_status = on,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, bool)]) -> BTreeMap<String, bool> {
        pairs.iter().map(|(n, on)| ((*n).to_owned(), *on)).collect()
    }

    #[test]
    fn defaults_are_the_engines() {
        let gates = FeatureGates::new(&BTreeMap::new()).expect("defaults");
        assert_eq!(gates.engine(), Gates::default());
        assert!(gates.is_on("TopologyAwareScheduling") && !gates.is_on("TASBalancedPlacement"));
    }

    #[test]
    fn names_and_values_are_checked() {
        let off = FeatureGates::new(&set(&[("PartialAdmission", false)])).expect("honoured");
        assert!(!off.engine().partial_admission);
        let on = FeatureGates::new(&set(&[("SchedulerLibraryIntegration", true)])).expect("honoured");
        assert!(on.engine().scheduler_library && !Gates::default().scheduler_library);
        let on = FeatureGates::new(&set(&[("FairSharingReevaluatePreemptionCandidates", true)]));
        assert!(on.expect("honoured").engine().fair_reevaluate && !Gates::default().fair_reevaluate);
        let table = [
            (set(&[("NoSuchGate", true)]), "unrecognized feature gate: NoSuchGate"),
            (set(&[("VisibilityOnDemand", false)]), "is not supported by Plimsoll"),
            (set(&[("DynamicQuotaOrchestration", true)]), "is not supported by Plimsoll"),
            (set(&[("TLSOptions", false)]), "feature is locked to true"),
            (
                set(&[("TopologyAwareScheduling", false), ("TASProfileMixed", true)]),
                "TASProfileMixed is enabled, but depends on features that are disabled: [TopologyAwareScheduling]",
            ),
        ];
        for (gates, want) in table {
            let errors = FeatureGates::new(&gates).expect_err(want);
            assert!(errors.iter().any(|e| e.contains(want)), "{errors:?}");
        }
    }
}
