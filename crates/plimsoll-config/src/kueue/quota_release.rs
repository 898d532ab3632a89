//! When evicted jobs release their quota.

use plimsoll_api::kueue::{QuotaRelease, QuotaReleaseStrategy};

use super::FeatureGates;

/// The strategies that the gates ask for.
pub(super) fn read(gates: &FeatureGates) -> QuotaRelease {
    match gates.is_on("FastQuotaReleaseInPodIntegration") {
        true => QuotaRelease { pods: QuotaReleaseStrategy::OnQuotaReleased },
        false => QuotaRelease::default(),
    }
}
