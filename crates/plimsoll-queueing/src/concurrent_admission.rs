//! Concurrent admission (Kueue KEP-8691): a workload is admitted by variants, one for each flavor of its ClusterQueue.
//!
//! A *parent* is neither queued nor charged: its variants are, each with one flavor, and the variant that is admitted holds
//! the quota of the parent's pods. Parents and variants are created and kept in line by the job controllers
//! (`concurrent_admission.rs` of plimsoll-jobs). Here is what the scheduler has to know: which flavors a variant may get, and
//! which of its siblings is admitted.

use crate::Queueing;
use crate::Reporter;
use crate::cond;
use crate::conditions::FLAVOR_MIGRATION;
use crate::ids::{ClusterQueueId, FlavorId, WorkloadId};
use crate::model::FlavorMigration;
use crate::state::WorkloadInfo;
use plimsoll_state::time::Time;

impl WorkloadInfo {
    /// The flavor that a variant is for: the first that it may get.
    fn variant_flavor(&self) -> Option<&str> {
        self.obj.allowed_flavors.as_ref()?.first().map(String::as_str)
    }
}

impl Queueing {
    /// How workloads of a ClusterQueue move between flavors, if they are admitted by variants.
    pub(crate) fn flavor_migration(&self, cq: ClusterQueueId) -> Option<&FlavorMigration> {
        let spec = self.cq(cq).spec.as_ref().filter(|_| self.config.gates.concurrent_admission)?;
        spec.concurrent_admission.as_ref()
    }

    /// Whether a workload is to be admitted by variants, also before it has the label that says so.
    pub(crate) fn is_parent_to_be(&self, wl: &WorkloadInfo) -> bool {
        let cq = self.lq(wl.lq()).cq;
        wl.obj.variant_of.is_empty() && cq.is_some_and(|cq| self.flavor_migration(cq).is_some())
    }

    /// Why a workload may not get a flavor, if it is a variant for another one.
    pub(crate) fn disallowed_flavor_text(&self, id: WorkloadId, flavor: FlavorId) -> Option<String> {
        let allowed = self.wl(id)?.obj.allowed_flavors.as_ref()?;
        let name = self.ids.flavor_name(flavor);
        (!allowed.iter().any(|a| a == name)).then(|| {
            format!("skipping flavor {name} due to WorkloadAllowedResourceFlavorAnnotation annotation")
        })
    }

    /// The place of a flavor in the first resource group of a ClusterQueue: the lower, the more favorable.
    pub(crate) fn flavor_place(&self, cq: ClusterQueueId, flavor: &str) -> Option<usize> {
        let flavors = &self.cq(cq).rules.groups.first()?.flavors;
        flavors.iter().position(|&f| self.ids.flavor_name(f) == flavor)
    }

    /// The place of a variant's flavor.
    pub(crate) fn variant_place(&self, cq: ClusterQueueId, id: WorkloadId) -> Option<usize> {
        self.flavor_place(cq, self.wl(id)?.variant_flavor()?)
    }

    /// The admitted sibling of a variant whose flavor has such a place, if there is one (Kueue `findAdmittedSibling`).
    pub(crate) fn admitted_sibling(
        &self,
        cq: ClusterQueueId,
        id: WorkloadId,
        place: impl Fn(usize) -> bool,
    ) -> Option<WorkloadId> {
        let parent = &self.wl(id)?.obj.variant_of;
        self.holders(cq).find(|&other| {
            let sibling = self.wl(other).filter(|w| other != id && w.obj.variant_of == *parent);
            sibling.is_some_and(|w| w.obj.status.is_true(cond::ADMITTED))
                && self.variant_place(cq, other).is_some_and(&place)
        })
    }

    /// Evicts a variant for a sibling with a more favorable flavor (Kueue `issueMigration`). It holds its quota until the
    /// parent has stopped.
    pub(crate) fn evict_for_migration(&mut self, from: WorkloadId, to: WorkloadId, now: Time) {
        let leaving = |w: &WorkloadInfo| w.obj.status.is_true(cond::EVICTED);
        if self.wl(from).is_none_or(leaving) {
            return;
        }
        let Some(uid) = self.wl(to).map(|w| w.obj.uid.clone()) else { return };
        let message = format!(
            "Evicted to accommodate a workload (UID: {uid}) due to migration to more favorable resource flavor"
        );
        self.evict(from, (FLAVOR_MIGRATION, ""), &message, Reporter::Scheduler, now);
    }
}

#[cfg(test)]
mod tests;
