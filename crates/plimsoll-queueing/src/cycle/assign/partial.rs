//! Partial admission: fewer pods where podsets allow it (Kueue KEP-420).

use crate::Queueing;
use crate::ids::WorkloadId;

/// Pod counts between what is asked for and what is acceptable, in equal steps for all podsets.
pub(crate) struct Reducer {
    full: Vec<i32>,
    delta: Vec<i64>,
    total: i64,
}

impl Reducer {
    /// Counts of the workload; `None` when no podset may shrink.
    pub(crate) fn new(q: &Queueing, id: WorkloadId) -> Option<Self> {
        let pod_sets = &q.wl(id)?.obj.pod_sets;
        let full: Vec<i32> = pod_sets.iter().map(|p| p.count).collect();
        let delta: Vec<i64> =
            pod_sets.iter().map(|p| i64::from(p.count) - i64::from(p.min_count.unwrap_or(p.count))).collect();
        let shrinks = pod_sets.iter().any(|p| p.count > p.min_count.unwrap_or(p.count));
        let total: i64 = delta.iter().sum();
        (shrinks && total > 0).then_some(Self { full, delta, total })
    }

    /// The counts after `step` of `total` steps.
    fn counts(&self, step: i64) -> Vec<i32> {
        let less = |d: i64| i32::try_from(d * step / self.total).unwrap_or(0);
        self.full.iter().zip(&self.delta).map(|(f, d)| f - less(*d)).collect()
    }

    /// The result for the smallest reduction for which `fits` has one, by binary search.
    pub(crate) fn search<R>(&self, mut fits: impl FnMut(&[i32]) -> Option<R>) -> Option<R> {
        let (mut low, mut high, mut best) = (0, self.total + 1, None);
        while low < high {
            let middle = low + (high - low) / 2;
            match fits(&self.counts(middle)) {
                Some(r) => (high, best) = (middle, Some((middle, r))),
                None => low = middle + 1,
            }
        }
        best.filter(|(step, _)| *step == low).map(|(_, r)| r)
    }
}
