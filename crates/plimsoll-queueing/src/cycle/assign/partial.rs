//! Partial admission: fewer pods where podsets allow it (Kueue KEP-420), and partial scale-up of elastic jobs (KEP-12100).

use crate::Queueing;
use crate::ids::WorkloadId;
use crate::pod_sets::PodSetResources;

/// Pod counts between what is asked for and what is acceptable.
#[derive(Debug)]
pub(crate) struct Reducer {
    full: Vec<i32>,
    delta: Vec<i64>,
    total: i64,
    /// Pods per podset of a slice that is to be replaced and keeps its quota meanwhile.
    held: Option<Vec<i32>>,
    /// Whether the last podsets shrink first; otherwise all shrink in equal steps.
    ordered: bool,
}

impl Reducer {
    /// Counts of the workload; `None` when no podset may shrink. `replaced`: what the slice before it holds.
    pub(crate) fn new(q: &Queueing, id: WorkloadId, replaced: Option<&[PodSetResources]>) -> Option<Self> {
        let wl = &q.wl(id)?.obj;
        // Most workloads have no least counts, and each that does not fit comes here.
        if !wl.pod_sets.iter().any(|p| p.min_count.is_some_and(|least| least < p.count)) {
            return None;
        }
        let bounds: Vec<(i32, Option<i32>)> = wl.pod_sets.iter().map(|p| (p.count, p.min_count)).collect();
        let held = replaced.map(|list| list.iter().map(|total| total.count).collect());
        Self::with(&bounds, held, wl.replaces.is_some())
    }

    /// For podsets with these counts and least counts.
    fn with(bounds: &[(i32, Option<i32>)], held: Option<Vec<i32>>, ordered: bool) -> Option<Self> {
        let full: Vec<i32> = bounds.iter().map(|(count, _)| *count).collect();
        let held_by = |i: usize| held.as_ref().and_then(|h| h.get(i)).copied().unwrap_or(0);
        // No running pod loses its quota by the replacement of its slice.
        let floor = |(i, (count, min)): (usize, &(i32, Option<i32>))| match min {
            Some(min) => (*min).max(held_by(i)).min(*count),
            None => *count,
        };
        let floors = bounds.iter().enumerate().map(floor);
        let delta: Vec<i64> =
            full.iter().zip(floors).map(|(f, least)| i64::from(*f) - i64::from(least)).collect();
        let total: i64 = delta.iter().sum();
        (total > 0).then_some(Self { full, delta, total, held, ordered })
    }

    /// The counts after `step` of `total` steps.
    fn counts(&self, step: i64) -> Vec<i32> {
        if self.ordered {
            return self.counts_in_order(step);
        }
        let less = |d: i64| i32::try_from(d * step / self.total).unwrap_or(0);
        self.full.iter().zip(&self.delta).map(|(f, d)| f - less(*d)).collect()
    }

    /// The counts with `step` pods less, taken from the last podsets first.
    fn counts_in_order(&self, step: i64) -> Vec<i32> {
        let (mut counts, mut left) = (self.full.clone(), step);
        for (count, delta) in counts.iter_mut().zip(&self.delta).rev() {
            let cut = left.min(*delta);
            *count -= i32::try_from(cut).unwrap_or(0);
            left -= cut;
        }
        counts
    }

    /// The result for the largest counts for which `fits` has one: by binary search for the smallest reduction, then, where it
    /// was in order, by growing each podset from the first to the last as far as that fits. A slice has to get more pods than
    /// the one that it replaces.
    pub(crate) fn search<R>(&self, mut fits: impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
        let (mut low, mut high, mut best) = (0, self.total + 1, None);
        while low < high {
            let middle = low + (high - low) / 2;
            let counts = self.counts(middle);
            match fits(&counts) {
                Some(r) => (high, best) = (middle, Some((middle, counts, r))),
                None => low = middle + 1,
            }
        }
        let (_, mut counts, mut found) = best.filter(|(step, ..)| *step == low)?;
        let reduced = counts.iter().zip(&self.full).filter(|(n, full)| n < full).count();
        // With one podset, growing is a reduction that did not fit.
        if self.ordered && reduced > 1 {
            for i in 0..counts.len() {
                if let Some(better) = self.grow(&mut counts, i, &mut fits) {
                    found = better;
                }
            }
        }
        self.grows(&counts).then_some(found)
    }

    /// Grows one podset as far as that fits; the result for it, if that is more than before.
    fn grow<R>(&self, counts: &mut [i32], i: usize, fits: &mut impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
        let (&least, &full) = (counts.get(i)?, self.full.get(i)?);
        let mut attempt = |n: i32| {
            let mut trial = counts.to_vec();
            if let Some(count) = trial.get_mut(i) {
                *count = n;
            }
            fits(&trial)
        };
        let (mut fitting, mut too_many, mut best) = (least, full, None);
        if least < full {
            // The whole is the common case.
            best = attempt(full);
            if best.is_some() {
                fitting = full;
            }
        }
        while too_many - fitting > 1 {
            let middle = fitting + (too_many - fitting) / 2;
            match attempt(middle) {
                Some(r) => (fitting, best) = (middle, Some(r)),
                None => too_many = middle,
            }
        }
        *counts.get_mut(i)? = fitting;
        best
    }

    /// Whether these are more pods than the slice has that is to be replaced, which goes on otherwise.
    fn grows(&self, counts: &[i32]) -> bool {
        let Some(held) = &self.held else { return true };
        counts.iter().zip(held).any(|(n, held)| n > held)
    }
}

#[cfg(test)]
mod tests;
