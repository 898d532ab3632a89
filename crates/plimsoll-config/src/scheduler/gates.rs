//! kube-scheduler's feature gates (`--feature-gates`, `pkg/features/kube_features.go`).

use super::ConfigError;
use crate::nearest;
use plimsoll_scheduler::{Config, FeatureGates, PluginSet, Profile, Registry, UserPlugins};

/// Gates of 1.36 that touch scheduling, and their defaults. Others of Kubernetes are not the scheduler's.
const KNOWN: [(&str, bool); 39] = [
    ("ClearingNominatedNodeNameAfterBinding", true),
    ("DRAAdminAccess", true),
    ("DRAConsumableCapacity", true),
    ("DRADeviceBindingConditions", true),
    ("DRADeviceTaintRules", false),
    ("DRADeviceTaints", true),
    ("DRAExtendedResource", true),
    ("DRAListTypeAttributes", false),
    ("DRANodeAllocatableResources", false),
    ("DRAPartitionableDevices", true),
    ("DRAPrioritizedList", true),
    ("DRAResourceClaimDeviceStatus", true),
    ("DRAResourceClaimGranularStatusAuthorization", true),
    ("DRAResourcePoolStatus", false),
    ("DRASchedulerFilterTimeout", true),
    ("DRAWorkloadResourceClaims", false),
    ("DynamicResourceAllocation", true),
    ("GangScheduling", false),
    ("GenericWorkload", false),
    ("InPlacePodLevelResourcesVerticalScaling", true),
    ("InPlacePodVerticalScaling", true),
    ("MatchLabelKeysInPodAffinity", true),
    ("MatchLabelKeysInPodTopologySpread", true),
    ("MatchLabelKeysInPodTopologySpreadSelectorMerge", true),
    ("NodeDeclaredFeatures", true),
    ("NodeInclusionPolicyInPodTopologySpread", true),
    ("NominatedNodeNameForExpectation", true),
    ("OpportunisticBatching", true),
    ("PodLevelResources", true),
    ("SchedulerAsyncAPICalls", false),
    ("SchedulerAsyncPreemption", true),
    ("SchedulerPopFromBackoffQ", true),
    ("SchedulerQueueingHints", true),
    ("StorageCapacityScoring", false),
    ("TaintTolerationComparisonOperators", false),
    ("TopologyAwareWorkloadScheduling", false),
    ("VolumeLimitScaling", false),
    ("WorkloadAwarePreemption", false),
    ("WorkloadWithJob", false),
];

/// Gates that need other ones (upstream `defaultKubernetesFeatureGateDependencies`).
const DEPENDENCIES: [(&str, &str); 2] =
    [("GangScheduling", "GenericWorkload"), ("TopologyAwareWorkloadScheduling", "GenericWorkload")];

/// Feature gates that placement knows: those of the in-tree plugins' registrations, and what these depend on. All are off by
/// default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(FeatureGates);

/// Whether a gate can be set; all others have to keep their defaults.
fn is_settable(gate: &str, registry: &Registry) -> bool {
    let needs = |other: &str| DEPENDENCIES.contains(&(other, gate));
    registry.feature_gates().any(|known| known == gate || needs(known))
}

impl Gates {
    /// Reads `Name=true,Other=false`.
    ///
    /// # Errors
    /// For unknown gates, values that are not booleans, gates that can't be set here, and gates without those they need.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut errors = Vec::new();
        let (mut set, registry) = (FeatureGates::default(), Registry::in_tree());
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                errors.push(format!("missing bool value for {part}"));
                continue;
            };
            let (name, value) = (name.trim(), value.trim());
            let Some((gate, default)) = KNOWN.iter().find(|(n, _)| *n == name) else {
                let hint = match nearest(name, KNOWN.iter().map(|(n, _)| *n)) {
                    Some(near) => format!(": did you mean {near}?"),
                    None => String::new(),
                };
                errors.push(format!("unrecognized feature gate: {name}{hint}"));
                continue;
            };
            let on = match value {
                "true" | "True" | "TRUE" | "t" | "T" | "1" => true,
                "false" | "False" | "FALSE" | "f" | "F" | "0" => false,
                _ => {
                    errors.push(format!(
                        "invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax: must \
                         be true or false"
                    ));
                    continue;
                }
            };
            match is_settable(gate, &registry) {
                true => set.set(gate, on),
                false if on == *default => {}
                false => errors.push(format!("feature gate {name}={on} is not supported by Plimsoll")),
            }
        }
        for (gate, needed) in DEPENDENCIES {
            if set.enabled(gate) && !set.enabled(needed) {
                errors.push(format!(
                    "{gate} is enabled, but depends on features that are disabled: [{needed}]"
                ));
            }
        }
        if errors.is_empty() { Ok(Self(set)) } else { Err(ConfigError::Invalid(errors)) }
    }

    /// The gates that change which plugins run.
    pub(super) const fn plugins(&self) -> &FeatureGates {
        &self.0
    }

    /// The profile of a configuration that names none.
    pub(super) fn default_profile(&self, registry: &Registry) -> Profile {
        match PluginSet::new(registry, &UserPlugins::default(), self.plugins()) {
            Ok(plugins) => Profile { plugins, ..Profile::default() },
            Err(_) => Profile::default(),
        }
    }

    /// What is configured without a file.
    pub fn default_config(&self) -> Config {
        Config { profiles: vec![self.default_profile(&Registry::in_tree())], ..Config::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_scheduler::ExtensionPoint;

    #[test]
    fn gates_are_read() {
        let cases = [
            ("", Ok(false)),
            ("GenericWorkload=true,GangScheduling=true", Ok(true)),
            ("GenericWorkload=true, GangScheduling=false", Ok(false)),
            ("SchedulerAsyncPreemption=true", Ok(false)),
            ("GangScheduling=true", Err("depends on features that are disabled: [GenericWorkload]")),
            (
                "TopologyAwareWorkloadScheduling=true",
                Err(
                    "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
                ),
            ),
            ("GenericWorkload=true,TopologyAwareWorkloadScheduling=true", Ok(false)),
            ("Nope=true", Err("unrecognized feature gate: Nope")),
            ("GangScheduling", Err("missing bool value for GangScheduling")),
            (
                "GangScheduling=yes",
                Err(
                    "invalid value of GangScheduling=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax",
                ),
            ),
            ("WorkloadAwarePreemption=true", Err("is not supported by Plimsoll")),
        ];
        for (text, want) in cases {
            match (Gates::parse(text), want) {
                (Ok(got), Ok(want)) => assert_eq!(got.plugins().enabled("GangScheduling"), want, "{text}"),
                (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{text}: {got}"),
                (got, want) => panic!("{text}: {got:?}, expected {want:?}"),
            }
        }
    }

    #[test]
    fn the_gate_adds_the_plugin_to_the_defaults() {
        let has = |gates: &Gates, text: &str| {
            let config = super::super::read_with(text, gates).expect("valid");
            let plugins = &config.profiles[0].plugins;
            [ExtensionPoint::PreEnqueue, ExtensionPoint::Permit].map(|p| plugins.enabled(p, "GangScheduling"))
        };
        let head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let (off, on) = (Gates::default(), Gates(["GangScheduling"].into_iter().collect()));
        let disabled =
            format!("{head}profiles:\n- plugins: {{permit: {{disabled: [{{name: GangScheduling}}]}}}}\n");
        let named =
            format!("{head}profiles:\n- plugins: {{multiPoint: {{enabled: [{{name: GangScheduling}}]}}}}\n");
        assert_eq!(has(&off, head), [false, false]);
        assert_eq!(has(&on, head), [true, true]);
        assert_eq!(has(&on, &disabled), [true, false]);
        assert_eq!(has(&on, &named), [true, true], "replaced in place");
    }
}
