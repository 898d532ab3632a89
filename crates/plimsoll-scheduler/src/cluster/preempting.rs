//! Preemptions under way: pods whose victims are asked to go and are still there (upstream `IsPodRunningPreemption` of
//! `framework/preemption/executor.go`).
//!
//! Such a pod stays out of the queue. Each victim of another preemption that goes would make it be tried again, and it
//! would ask for victims again that are about to go.

use plimsoll_state::intern::Map;

use super::{Cluster, PodId};

/// Preemptors and the victims that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Preempting {
    /// Pods that wait for a victim to go.
    by_victim: Map<PodId, Vec<PodId>>,
    /// How many victims a pod waits for.
    pending: Map<PodId, usize>,
    /// Pods that wait for no victim any more, since this was last taken.
    released: Vec<PodId>,
    /// How often pods tried to preempt others.
    pub attempts: u64,
}

impl Preempting {
    /// A pod waits for a victim to go.
    pub fn ask(&mut self, victim: PodId, preemptor: PodId) {
        let waiting = self.by_victim.entry(victim).or_default();
        if !waiting.contains(&preemptor) {
            waiting.push(preemptor);
            *self.pending.entry(preemptor).or_default() += 1;
        }
    }

    /// Whether a pod is asked to go.
    pub fn is_asked(&self, victim: PodId) -> bool {
        self.by_victim.contains_key(&victim)
    }

    /// Whether a pod waits for victims.
    pub fn is_waiting(&self, preemptor: PodId) -> bool {
        self.pending.contains_key(&preemptor)
    }

    /// A victim is on its way out, or stays. Gives the pods that waited for it.
    pub fn settle(&mut self, victim: PodId) -> Vec<PodId> {
        let Some(waiting) = self.by_victim.remove(&victim) else { return Vec::new() };
        for preemptor in &waiting {
            if let Some(pending) = self.pending.get_mut(preemptor) {
                *pending -= 1;
                if *pending == 0 {
                    self.pending.remove(preemptor);
                    self.released.push(*preemptor);
                }
            }
        }
        waiting
    }

    /// Whether there are pods that [`Self::take_released`] would give.
    pub const fn has_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// The pods that wait for no victim any more, since this was last called.
    pub fn take_released(&mut self) -> Vec<PodId> {
        std::mem::take(&mut self.released)
    }

    /// A pod is gone, with all that it was in preemptions.
    pub fn forget(&mut self, pod: PodId) {
        self.settle(pod);
        if self.pending.remove(&pod).is_some() {
            self.by_victim.retain(|_, waiting| {
                waiting.retain(|p| *p != pod);
                !waiting.is_empty()
            });
        }
    }
}

impl Cluster {
    /// Whether a pod stays out of the queue until its victims are gone. Pods of groups come back after their backoff: the
    /// group waits, not each of its pods.
    pub fn is_held_for_preemption(&self, pod: PodId) -> bool {
        let alone = || self.pods[pod].extra.as_ref().is_none_or(|e| e.group.is_empty());
        self.preempting.is_waiting(pod) && alone()
    }
}
