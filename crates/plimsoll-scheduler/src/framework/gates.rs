//! Feature gates of kube-scheduler that change which plugins run (upstream `pkg/features/kube_features.go`).

use super::ExtensionPoint;
use std::collections::BTreeSet;

/// With this gate, plugins at PlacementGenerate and PlacementScore run (KEP-5732).
pub(super) const TOPOLOGY_AWARE_WORKLOAD_SCHEDULING: &str = "TopologyAwareWorkloadScheduling";

/// The feature gates that are on, by name. The registration of a plugin names the one that turns it on
/// ([`Registration::by_default_behind`](super::Registration::by_default_behind)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates(BTreeSet<&'static str>);

impl FeatureGates {
    /// Turns a gate on or off.
    pub fn set(&mut self, gate: &'static str, on: bool) {
        if on {
            self.0.insert(gate);
        } else {
            self.0.remove(gate);
        }
    }

    /// Whether a gate is on.
    pub fn enabled(&self, gate: &str) -> bool {
        self.0.contains(gate)
    }

    /// Whether plugins run at a point.
    pub(super) fn runs(&self, point: ExtensionPoint) -> bool {
        let placements = [ExtensionPoint::PlacementGenerate, ExtensionPoint::PlacementScore];
        !placements.contains(&point) || self.enabled(TOPOLOGY_AWARE_WORKLOAD_SCHEDULING)
    }
}

impl FromIterator<&'static str> for FeatureGates {
    fn from_iter<I: IntoIterator<Item = &'static str>>(gates: I) -> Self {
        Self(gates.into_iter().collect())
    }
}
