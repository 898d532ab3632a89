//! When an evicted job releases its quota (Kueue KEP-6143 and KEP-10076).

use crate::resource::{PODS, Resource};

/// When an evicted job releases its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaReleaseStrategy {
    /// When its pods are being deleted.
    OnQuotaReleased,
    /// When its pods have ended.
    OnTerminal,
}

/// The strategies of jobs that have a choice. All others have [`QuotaReleaseStrategy::OnQuotaReleased`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRelease {
    /// Of pods and pod groups, those of StatefulSets and LeaderWorkerSets included.
    pub pods: QuotaReleaseStrategy,
}

impl Default for QuotaRelease {
    fn default() -> Self {
        Self { pods: QuotaReleaseStrategy::OnTerminal }
    }
}

impl QuotaRelease {
    /// The strategy of jobs of this resource.
    pub fn of(self, resource: Resource) -> QuotaReleaseStrategy {
        if resource == PODS { self.pods } else { QuotaReleaseStrategy::OnQuotaReleased }
    }
}
