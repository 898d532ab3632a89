//! Partial preemption (Kueue KEP-975): of candidates that can shrink, no more pods go than the preemptor needs.

use super::{PreemptionContext, Target};
use crate::cycle::Cycle;
use crate::cycle::victim::Lacking;

impl Cycle<'_> {
    /// Says of each target that can shrink to how many pods, the last one first: to as many as the need leaves to it. All
    /// targets are removed. A target without whose other pods the need does not fit is evicted.
    pub(super) fn shrink_targets(&mut self, need: &PreemptionContext, targets: &mut [Target], borrow: bool) {
        if !self.state.config.gates.partial_preemption {
            return;
        }
        for t in targets.iter_mut().rev() {
            let Some(shrinkable) = self.state.shrinkable(t.id) else { continue };
            // What nodes lack is found by whole workloads, and what was asked for stands until it is done.
            let exact = t.lacking == Lacking::Quota && !shrinkable.asked;
            let enough = match exact {
                true => self.fits_with(need, *t, Some(shrinkable.least), borrow),
                false => shrinkable.asked || !self.state.evicts_whole,
            };
            let (mut fitting, mut too_many) = (enough.then_some(shrinkable.least), shrinkable.effective);
            while let Some(fits) = fitting.filter(|fits| exact && too_many - fits > 1) {
                let middle = fits + (too_many - fits) / 2;
                if self.fits_with(need, *t, Some(middle), borrow) {
                    fitting = Some(middle);
                } else {
                    too_many = middle;
                }
            }
            self.remove_but_for(*t, fitting);
            t.shrinks_to = fitting;
        }
    }

    /// Removes a target again, but for this many pods of it.
    fn remove_but_for(&mut self, t: Target, to: Option<i32>) {
        self.state.simulate_workload_addition(t.id);
        self.state.shrunk_to.insert(t.id, to);
        self.state.simulate_workload_removal(t.id);
    }

    /// Whether the need fits when a target keeps this many pods.
    fn fits_with(&mut self, need: &PreemptionContext, t: Target, to: Option<i32>, borrow: bool) -> bool {
        let mark = self.state.mark();
        let before = self.state.shrunk_to.get(&t.id).copied();
        self.remove_but_for(t, to);
        let fits = self.quota_need_fits(need, borrow);
        self.state.rollback(mark);
        match before {
            Some(before) => self.state.shrunk_to.insert(t.id, before),
            None => self.state.shrunk_to.remove(&t.id),
        };
        fits
    }

    /// Before a search: candidates shrink to the least that they accept, those that entries before preempt as far as these need
    /// it.
    pub(super) fn forget_shrinking(&mut self) {
        let preempted = &self.preempted;
        self.state.shrunk_to.retain(|id, _| preempted.contains(id));
    }

    /// The removal of these targets leaves as many pods as they are asked to shrink to.
    pub(in crate::cycle) fn expect_to_shrink(&mut self, targets: &[Target]) {
        if !self.state.config.gates.partial_preemption {
            return;
        }
        for t in targets.iter().filter(|t| !self.preempted.contains(&t.id)) {
            self.state.shrunk_to.insert(t.id, t.shrinks_to);
        }
    }
}
