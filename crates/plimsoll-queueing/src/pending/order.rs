//! All waiting workloads of a ClusterQueue in the order in which it would take them, whether they take their turn or not
//! (Kueue `pkg/cache/queue/cluster_queue.go`, `Snapshot`).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::{Pending, Rank};
use crate::ids::{LocalQueueId, WorkloadId};

/// What a LocalQueue used, in the order of numbers.
#[derive(Clone, Copy, Debug)]
struct Usage(f64);

impl Ord for Usage {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Usage {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Usage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Usage {}

/// Place of a workload: usage of its LocalQueue, whether it is another one than the sticky workload, its rank.
type Place = (Usage, bool, Rank);

/// Places in ascending order.
type Run<'a> = Box<dyn Iterator<Item = Place> + 'a>;

/// Merges the runs of a queue: the first workloads cost no more when many others wait.
pub(crate) struct InOrder<'a> {
    runs: Vec<Run<'a>>,
    /// The first place of each run that has one.
    firsts: BinaryHeap<Reverse<(Place, usize)>>,
}

impl Iterator for InOrder<'_> {
    type Item = WorkloadId;

    fn next(&mut self) -> Option<WorkloadId> {
        let Reverse(((_, _, rank), run)) = self.firsts.pop()?;
        let next = self.runs.get_mut(run).and_then(Iterator::next);
        self.firsts.extend(next.map(|place| Reverse((place, run))));
        Some(rank.id)
    }
}

impl Pending {
    /// All waiting workloads in order. `delayed`: ranks of those that may not run yet, which the queue does not keep.
    /// `usage`: what LocalQueues used, where those that used less go first.
    pub(crate) fn in_order<'a>(
        &'a self,
        usage: Option<&dyn Fn(LocalQueueId) -> f64>,
        delayed: impl Fn(WorkloadId) -> Option<(Rank, LocalQueueId)>,
    ) -> InOrder<'a> {
        let usage = |lq| Usage(usage.map_or(0.0, |usage| usage(lq)));
        let sticky = self.sticky;
        let mut runs: Vec<Run<'a>> = Vec::new();
        for ((_, lq), bucket) in &self.buckets {
            let usage = usage(*lq);
            for set in [&bucket.active, &bucket.inadmissible] {
                let others = set.iter().filter(move |rank| Some(rank.id) != sticky);
                runs.push(Box::new(others.map(move |rank| (usage, true, rank.clone()))));
            }
        }
        let place = |(rank, lq): (Rank, LocalQueueId)| (usage(lq), Some(rank.id) != sticky, rank);
        let first = sticky.and_then(|id| self.positions.get(&id)).cloned();
        let mut rest: Vec<Place> = first.map(|(rank, (_, lq))| place((rank, lq))).into_iter().collect();
        rest.extend(self.delayed.iter().filter_map(|&id| delayed(id)).map(place));
        rest.sort_unstable();
        runs.push(Box::new(rest.into_iter()));
        let firsts =
            runs.iter_mut().enumerate().filter_map(|(i, run)| Some(Reverse((run.next()?, i)))).collect();
        InOrder { runs, firsts }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::SchedulingHashId;
    use plimsoll_state::time::Time;

    fn rank(id: u32, priority: i64, since: i64) -> Rank {
        let uid = Arc::from(format!("u{id}"));
        let (order, priority, score) = (0, Reverse(priority), Reverse(0));
        Rank { order, priority, score, since: Time(since), uid, id: WorkloadId(id) }
    }

    fn order(p: &Pending, usage: Option<&dyn Fn(LocalQueueId) -> f64>) -> Vec<u32> {
        let delayed = |id: WorkloadId| Some((rank(id.0, 5, 0), LocalQueueId(0)));
        p.in_order(usage, delayed).map(|id| id.0).collect()
    }

    #[test]
    fn all_that_wait_are_merged_by_rank_after_the_sticky_one() {
        let mut p = Pending::default();
        let (h, l) = (SchedulingHashId, LocalQueueId);
        p.activate(rank(1, 5, 3), h(1), l(0));
        p.insert_inadmissible(rank(2, 9, 4), h(1), l(0));
        p.activate(rank(3, 5, 1), h(2), l(1));
        p.insert_inadmissible(rank(4, 1, 0), h(2), l(1));
        p.delay(WorkloadId(5));
        assert_eq!(order(&p, None), [2, 5, 3, 1, 4]);
        p.sticky = Some(WorkloadId(1));
        assert_eq!(order(&p, None), [1, 2, 5, 3, 4]);
        // As the workload that is taken next, the sticky one is first in its LocalQueue only.
        let usage = |lq: LocalQueueId| if lq == l(1) { 0.5 } else { 1.0 };
        assert_eq!(order(&p, Some(&usage)), [3, 4, 1, 2, 5]);
        assert_eq!(p.first(Some(&usage)), Some(WorkloadId(3)));
    }
}
