//! Workloads that are asked to shrink instead of being preempted (Kueue KEP-975). The request, `reclaimTargetCount`, releases
//! nothing: quota is released as the job's runtime lowers the number of pods in the spec.

use super::amount::Amount;
use super::cycle::victim::Target;
use super::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use super::model::{Admission, PodSetAssignment};
use super::state::WorkloadInfo;
use super::{KubernetesEvent, cond};
use crate::Queueing;
use plimsoll_state::time::Time;

/// The podset of a workload of which some pods can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shrinkable {
    /// Index of the podset.
    pub(crate) pod_set: usize,
    /// How many pods it has, or is asked to shrink to.
    pub(crate) effective: i32,
    /// How few it may be asked to have.
    pub(crate) least: i32,
    /// Whether it was asked to shrink and has not yet.
    pub(crate) asked: bool,
}

impl Queueing {
    /// [`Queueing::shrinkable_of`] by number.
    pub(crate) fn shrinkable(&self, id: WorkloadId) -> Option<Shrinkable> {
        self.wl(id).and_then(|w| self.shrinkable_of(w))
    }

    /// Whether a workload can shrink: it allows it, exactly one of its podsets has a least count, and more pods than that. What
    /// has places in a topology can't: nobody knows which of its pods would go.
    pub(crate) fn shrinkable_of(&self, w: &WorkloadInfo) -> Option<Shrinkable> {
        if !w.obj.partial_preemption || w.quota().is_none() || w.obj.status.is_true(cond::EVICTED) {
            return None;
        }
        let admission = w.obj.status.admission.as_ref()?;
        let mut scalable = w.obj.pod_sets.iter().enumerate().filter(|(_, p)| p.min_count.is_some());
        let (pod_set, declared) = scalable.next()?;
        let placed = w.total_requests().iter().any(|total| !total.places.is_empty());
        if placed || scalable.next().is_some() {
            return None;
        }
        let used = w.total_requests().get(pod_set)?.count;
        let target = admission.assignments.iter().find(|a| a.name == declared.name)?.reclaim_target;
        let asked = target.is_some_and(|t| t < used);
        let effective = target.map_or(used, |t| t.min(used));
        let least = if asked { effective } else { declared.min_count? };
        (asked || effective > least).then_some(Shrinkable { pod_set, effective, least, asked })
    }

    /// What the pods of a podset use beyond the first `to`, as far as it is charged.
    pub(crate) fn usage_above(
        &self,
        id: WorkloadId,
        pod_set: usize,
        to: i32,
    ) -> Vec<(FlavorResource, Amount)> {
        let mut usage = Vec::new();
        let total = self.wl(id).and_then(|w| w.total_requests().get(pod_set));
        let (Some(total), Some(reservation)) = (total, self.quota_reservation(id)) else { return usage };
        let surplus = i64::from(total.count.saturating_sub(to).max(0));
        for &(res, flavor) in &total.flavors {
            let Some(fr) = self.ids.find_pair(flavor, res) else { continue };
            let held = reservation.held.usage.iter().find(|(f, _)| *f == fr).map(|(_, a)| *a);
            let each = total.request(res) / i64::from(total.count.max(1));
            if let Some(held) = held {
                super::quota::add_usage(&mut usage, fr, Amount(each.saturating_mul(surplus)).min(held));
            }
        }
        usage
    }

    /// Asks a workload to shrink for another one; whether it was not asked before.
    pub(crate) fn ask_to_shrink(
        &mut self,
        (id, cq): (WorkloadId, ClusterQueueId),
        (t, to): (Target, i32),
        held: ClusterQueueId,
        now: Time,
    ) -> bool {
        let (Some(preemptor), Some(shrinkable)) = (self.wl(id), self.shrinkable(t.id)) else { return false };
        if shrinkable.asked {
            return false;
        }
        let name = self.wl(t.id).and_then(|w| w.obj.pod_sets.get(shrinkable.pod_set)).map(|p| p.name.clone());
        let Some(name) = name else { return false };
        let message = format!(
            "Asked to shrink podset {name} from {} to {to} pods to accommodate a workload (UID: {}, JobUID: {}) due to {}; \
             preemptor path: {}; preemptee path: {}",
            shrinkable.effective,
            preemptor.obj.uid,
            preemptor.obj.job_uid,
            t.reason.text(),
            self.path(cq),
            self.path(held),
        );
        let event = KubernetesEvent::of_scheduler(false, "PartiallyPreempted", message);
        self.edit(t.id, now, vec![event], |e| {
            let admission = e.status.admission.as_deref_mut().into_iter();
            for assigned in admission.flat_map(|a| &mut a.assignments).filter(|a| a.name == name) {
                assigned.reclaim_target = Some(to);
            }
        })
    }

    /// Whether a slice has more pods than the one before it where that was asked to shrink and has not yet. Admitting it would
    /// use the quota that the preemptor waits for (KEP-975: a request holds until the podset has shrunk).
    pub(crate) fn grows_against_request(&self, id: WorkloadId, before: WorkloadId) -> bool {
        let (Some(new), Some(old)) = (self.wl(id), self.wl(before)) else { return false };
        let Some(asked) = self.shrinkable_of(old).filter(|s| s.asked) else { return false };
        let (Some(podset), Some(total)) =
            (old.obj.pod_sets.get(asked.pod_set), old.total_requests().get(asked.pod_set))
        else {
            return false;
        };
        new.obj.pod_sets.iter().any(|p| p.name == podset.name && p.count > total.count)
    }

    /// A slice that replaces one that was asked to shrink is asked for what is left of it.
    pub(crate) fn pass_on_request(&self, id: WorkloadId, admission: &mut Admission) {
        let allows = self.wl(id).is_some_and(|w| w.obj.partial_preemption);
        let Some(old) = self.slice_before(id).filter(|_| allows).and_then(|old| self.wl(old)) else { return };
        let Some(asked) = self.shrinkable_of(old).filter(|s| s.asked) else { return };
        let Some(podset) = old.obj.pod_sets.get(asked.pod_set) else { return };
        let same = |a: &&mut PodSetAssignment| a.name == podset.name && a.count > asked.effective;
        for assigned in admission.assignments.iter_mut().filter(same) {
            assigned.reclaim_target = Some(asked.effective);
        }
    }

    /// Removes the request to shrink from podsets that have. Whether a write was made.
    pub(crate) fn reconcile_reclaim_targets(&mut self, id: WorkloadId, now: Time) -> bool {
        if !self.config.gates.partial_preemption {
            return false;
        }
        let Some(wl) = self.wl(id) else { return true };
        let shrunk = |name: &str, target: i32| {
            wl.obj.pod_sets.iter().find(|p| p.name == name).is_none_or(|p| p.count <= target)
        };
        let assigned = wl.obj.status.admission.iter().flat_map(|a| &a.assignments);
        let done: Vec<String> = assigned
            .filter(|a| a.reclaim_target.is_some_and(|target| shrunk(&a.name, target)))
            .map(|a| a.name.clone())
            .collect();
        if done.is_empty() {
            return false;
        }
        self.edit(id, now, Vec::new(), |e| {
            let admission = e.status.admission.as_deref_mut().into_iter();
            for assigned in admission.flat_map(|a| &mut a.assignments).filter(|a| done.contains(&a.name)) {
                assigned.reclaim_target = None;
            }
        })
    }
}

#[cfg(test)]
mod tests;
