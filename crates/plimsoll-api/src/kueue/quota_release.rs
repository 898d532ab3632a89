//! When an evicted job releases its quota (Kueue KEP-6143 and KEP-10076).

use crate::resource::{JOBS, PODS, Resource};

/// When an evicted job releases its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaReleaseStrategy {
    /// When its pods are being deleted, or its status says that none is active.
    OnQuotaReleased,
    /// When all its pods have ended.
    OnTerminal,
}

/// The strategies of jobs that have a choice. All others have [`QuotaReleaseStrategy::OnQuotaReleased`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRelease {
    /// Of `batch/v1` Jobs. By default pods that terminate don't count.
    pub jobs: QuotaReleaseStrategy,
    /// Of pods and pod groups, those of StatefulSets and LeaderWorkerSets included. By default pods that terminate count.
    pub pods: QuotaReleaseStrategy,
}

impl Default for QuotaRelease {
    fn default() -> Self {
        Self { jobs: QuotaReleaseStrategy::OnQuotaReleased, pods: QuotaReleaseStrategy::OnTerminal }
    }
}

impl QuotaRelease {
    /// The strategy of jobs of this resource.
    pub fn of(self, resource: Resource) -> QuotaReleaseStrategy {
        match resource {
            JOBS => self.jobs,
            PODS => self.pods,
            _ => QuotaReleaseStrategy::OnQuotaReleased,
        }
    }
}
