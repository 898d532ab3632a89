//! Workloads of one ClusterQueue that wait for quota.
//!
//! A workload is *active* (it takes its turn), *inadmissible* (it can't run until something changes) or *delayed*
//! (it may not run before some time or condition). Workloads of the same scheduling hash from the same LocalQueue
//! share a bucket, so that requeueing a whole class costs nothing per workload.

mod order;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::amount::Amount;
use super::ids::{FlavorResource, LocalQueueId, SchedulingHashId, WorkloadId};
use plimsoll_state::parted::PartedMap;
use plimsoll_state::time::Time;

/// Order within a ClusterQueue: higher priority, then older, then UID; rules of the configuration come before and after the
/// priority.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) order: i32,
    pub(crate) priority: Reverse<i64>,
    pub(crate) score: Reverse<i32>,
    pub(crate) since: Time,
    pub(crate) uid: Arc<str>,
    pub(crate) id: WorkloadId,
}

/// What is missing, if the quota tree alone says that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// How much of each column that doesn't fit.
    pub(crate) columns: Vec<(FlavorResource, Amount)>,
    /// How often nodes had changed, where it needs places in a topology: whether there would be some without other workloads is
    /// part of the reason why it waits.
    pub(crate) nodes: u64,
}

type BucketKey = (SchedulingHashId, LocalQueueId);

/// The keys of all buckets of a scheduling hash.
fn buckets_of(hash: SchedulingHashId) -> RangeInclusive<BucketKey> {
    (hash, LocalQueueId(0))..=(hash, LocalQueueId(u32::MAX))
}

#[derive(Debug, Default)]
struct Bucket {
    active: BTreeSet<Rank>,
    inadmissible: BTreeSet<Rank>,
    /// Those that came since all of the scheduling hash were made inadmissible last: they don't know why.
    news: BTreeSet<WorkloadId>,
}

/// Moves all workloads of `from` into `to`, one by one those of the smaller set: mostly one is empty or holds the head alone.
/// (`BTreeSet::append` makes both anew.)
fn pour(from: &mut BTreeSet<Rank>, to: &mut BTreeSet<Rank>) {
    if from.len() > to.len() {
        std::mem::swap(from, to);
    }
    to.extend(std::mem::take(from));
}

/// Why workloads of a scheduling hash can't run.
#[derive(Debug)]
struct Stopped {
    reason: &'static str,
    message: Arc<str>,
    /// What was missing, if the quota tree alone says that.
    shortage: Option<Shortage>,
    /// Whether that still holds, or quota became free since.
    holds: bool,
}

/// Where a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePosition {
    /// Takes its turn.
    Active,
    /// Can't run until something changes.
    Inadmissible,
    /// May not run yet.
    Delayed,
}

/// The waiting workloads of one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    buckets: BTreeMap<BucketKey, Bucket>,
    /// First active workload of every bucket that has one.
    heads: BTreeSet<(Rank, BucketKey)>,
    delayed: BTreeSet<WorkloadId>,
    positions: PartedMap<WorkloadId, (Rank, BucketKey)>,
    /// Scheduling hashes that can't run until something changes, and why.
    stopped: BTreeMap<SchedulingHashId, Stopped>,
    /// The workload that waits for its victims to go and therefore stays first.
    pub(crate) sticky: Option<WorkloadId>,
    /// The workload that preempted others last and still waits, with the generation that did (Kueue `preemptorWorkload`).
    pub(crate) preemptor: Option<(WorkloadId, i64)>,
}

impl Pending {
    /// How many wait at all.
    pub(crate) fn len(&self) -> usize {
        self.positions.len() + self.delayed.len()
    }

    /// How many are in turn.
    pub(crate) fn in_turn(&self) -> usize {
        self.buckets.values().map(|b| b.active.len()).sum()
    }

    /// Counts those in turn per LocalQueue.
    pub(crate) fn count_in_turn(&self, counts: &mut BTreeMap<LocalQueueId, usize>) {
        for ((_, lq), b) in &self.buckets {
            *counts.entry(*lq).or_insert(0) += b.active.len();
        }
    }

    /// How many scheduling hashes have workloads in turn, and how many inadmissible ones. Those of a queue that is not `active` are
    /// all inadmissible.
    pub(crate) fn scheduling_hashes(&self, active: bool) -> (usize, usize) {
        let count = |has: &dyn Fn(&Bucket) -> bool| {
            let mut last = None;
            self.buckets.iter().filter(|(k, b)| has(b) && last.replace(k.0) != Some(k.0)).count()
        };
        if !active {
            return (0, count(&|b| !b.active.is_empty() || !b.inadmissible.is_empty()));
        }
        (count(&|b| !b.active.is_empty()), count(&|b| !b.inadmissible.is_empty()))
    }

    /// All that wait, in no particular order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        let ranked = self.buckets.values().flat_map(|b| b.active.iter().chain(&b.inadmissible).map(|r| r.id));
        ranked.chain(self.delayed.iter().copied())
    }

    pub(crate) fn position(&self, id: WorkloadId) -> Option<QueuePosition> {
        if self.delayed.contains(&id) {
            return Some(QueuePosition::Delayed);
        }
        let (rank, key) = self.positions.get(&id)?;
        let bucket = self.buckets.get(key)?;
        Some(if bucket.active.contains(rank) { QueuePosition::Active } else { QueuePosition::Inadmissible })
    }

    /// Puts a workload in turn, wherever it was.
    pub(crate) fn activate(&mut self, rank: Rank, scheduling_hash: SchedulingHashId, lq: LocalQueueId) {
        self.remove(rank.id);
        let key = (scheduling_hash, lq);
        self.positions.insert(rank.id, (rank.clone(), key));
        let bucket = self.buckets.entry(key).or_default();
        bucket.news.insert(rank.id);
        let first = bucket.active.first().cloned();
        bucket.active.insert(rank.clone());
        if first.as_ref().is_none_or(|f| rank < *f) {
            if let Some(f) = first {
                self.heads.remove(&(f, key));
            }
            self.heads.insert((rank, key));
        }
    }

    /// Makes a workload inadmissible, wherever it was.
    pub(crate) fn insert_inadmissible(
        &mut self,
        rank: Rank,
        scheduling_hash: SchedulingHashId,
        lq: LocalQueueId,
    ) {
        self.remove(rank.id);
        let key = (scheduling_hash, lq);
        self.positions.insert(rank.id, (rank.clone(), key));
        self.buckets.entry(key).or_default().inadmissible.insert(rank);
    }

    /// Puts a workload aside until it is put elsewhere.
    pub(crate) fn delay(&mut self, id: WorkloadId) {
        self.remove(id);
        self.delayed.insert(id);
    }

    /// Takes a workload out; whether it was there. Stickiness stays.
    pub(crate) fn remove(&mut self, id: WorkloadId) -> bool {
        if self.delayed.remove(&id) {
            return true;
        }
        let Some((rank, key)) = self.positions.remove(&id) else { return false };
        let Some(bucket) = self.buckets.get_mut(&key) else { return false };
        bucket.news.remove(&rank.id);
        if bucket.active.remove(&rank) {
            if self.heads.remove(&(rank, key))
                && let Some(next) = bucket.active.first()
            {
                self.heads.insert((next.clone(), key));
            }
        } else {
            bucket.inadmissible.remove(&rank);
        }
        if bucket.active.is_empty() && bucket.inadmissible.is_empty() {
            self.buckets.remove(&key);
        }
        true
    }

    /// The workload whose turn it is. With `usage`, LocalQueues that used less go first.
    pub(crate) fn first(&self, usage: Option<&dyn Fn(LocalQueueId) -> f64>) -> Option<WorkloadId> {
        let sticky = self.sticky.filter(|&s| self.position(s) == Some(QueuePosition::Active));
        let Some(usage) = usage else {
            return sticky.or_else(|| self.heads.first().map(|(r, _)| r.id));
        };
        let sticky_lq = sticky.and_then(|s| self.positions.get(&s)).map(|(_, key)| key.1);
        let best = self.heads.iter().min_by(|(a, ka), (b, kb)| {
            usage(ka.1)
                .total_cmp(&usage(kb.1))
                .then_with(|| (sticky_lq != Some(ka.1)).cmp(&(sticky_lq != Some(kb.1))))
                .then_with(|| a.cmp(b))
        });
        let (rank, key) = best?;
        Some(sticky.filter(|_| sticky_lq == Some(key.1)).unwrap_or(rank.id))
    }

    /// Whether something is in turn.
    pub(crate) fn has_head(&self) -> bool {
        !self.heads.is_empty()
    }

    /// Makes all workloads of a scheduling hash inadmissible and remembers why (Kueue `handleInadmissibleHash`). Gives those that may not
    /// know that yet, in order of ids: all of them if the reason is another one than before, else those that have come since.
    pub(crate) fn handle_inadmissible_hash(
        &mut self,
        scheduling_hash: SchedulingHashId,
        reason: &'static str,
        message: &str,
        shortage: Option<Shortage>,
    ) -> Vec<WorkloadId> {
        let stopped = Stopped { reason, message: Arc::from(message), shortage, holds: true };
        let before = self.stopped.insert(scheduling_hash, stopped);
        let all = before.is_none_or(|before| before.reason != reason);
        let mut moved = Vec::new();
        for (key, bucket) in self.buckets.range_mut(buckets_of(scheduling_hash)) {
            if let Some(first) = bucket.active.first() {
                self.heads.remove(&(first.clone(), *key));
            }
            moved.extend(std::mem::take(&mut bucket.news));
            if all {
                moved.extend(bucket.active.iter().map(|r| r.id));
            }
            pour(&mut bucket.active, &mut bucket.inadmissible);
        }
        moved.sort_unstable();
        moved.dedup();
        moved
    }

    /// Counts a workload that waits among those that have come, as it still has to be told why.
    pub(crate) fn tell_again(&mut self, id: WorkloadId) {
        if let Some((_, key)) = self.positions.get(&id)
            && let Some(bucket) = self.buckets.get_mut(key)
        {
            bucket.news.insert(id);
        }
    }

    /// Whether the same is missing for a scheduling hash as before quota became free, so that the reason is the same, too. Not
    /// where other workloads of the hash came since, which don't know it.
    pub(crate) fn is_inadmissible_again(
        &self,
        scheduling_hash: SchedulingHashId,
        shortage: &Shortage,
    ) -> bool {
        let same = |s: &Stopped| s.shortage.as_ref() == Some(shortage);
        self.stopped.get(&scheduling_hash).is_some_and(same)
            && !self.buckets.range(buckets_of(scheduling_hash)).any(|(_, b)| !b.news.is_empty())
    }

    /// [`Pending::handle_inadmissible_hash`] for the reason of before.
    pub(crate) fn handle_inadmissible_hash_again(&mut self, scheduling_hash: SchedulingHashId) {
        let Some(stopped) = self.stopped.get_mut(&scheduling_hash) else { return };
        stopped.holds = true;
        for (key, bucket) in self.buckets.range_mut(buckets_of(scheduling_hash)) {
            if let Some(first) = bucket.active.first() {
                self.heads.remove(&(first.clone(), *key));
            }
            pour(&mut bucket.active, &mut bucket.inadmissible);
        }
    }

    /// The workload whose turn it is, where LocalQueues' usage doesn't matter.
    pub(crate) fn head(&self) -> Option<WorkloadId> {
        self.first(None)
    }

    /// Why workloads of a hash are skipped, if they are: reason and message.
    pub(crate) fn stopped(&self, scheduling_hash: SchedulingHashId) -> Option<(&'static str, &Arc<str>)> {
        self.stopped.get(&scheduling_hash).filter(|s| s.holds).map(|s| (s.reason, &s.message))
    }

    /// Puts all inadmissible workloads of LocalQueues for which `allowed` holds back in turn, and forgets which
    /// hashes are skipped. `changed`: their reasons, too, as more changed than what is free. Returns whether anything
    /// moved.
    pub(crate) fn requeue_inadmissible(
        &mut self,
        changed: bool,
        allowed: impl Fn(LocalQueueId) -> bool,
    ) -> bool {
        if changed {
            self.stopped.clear();
        }
        let buckets = &self.buckets;
        self.stopped.retain(|&hash, stopped| {
            stopped.holds = false;
            buckets.range(buckets_of(hash)).next().is_some()
        });
        let mut moved = false;
        for (key, bucket) in &mut self.buckets {
            if bucket.inadmissible.is_empty() || !allowed(key.1) {
                continue;
            }
            moved = true;
            if let Some(first) = bucket.active.first() {
                self.heads.remove(&(first.clone(), *key));
            }
            pour(&mut bucket.inadmissible, &mut bucket.active);
            if let Some(first) = bucket.active.first() {
                self.heads.insert((first.clone(), *key));
            }
        }
        moved
    }

    /// Whether the indexes agree with each other.
    pub(crate) fn check(&self) -> bool {
        let heads: BTreeSet<(Rank, BucketKey)> =
            self.buckets.iter().filter_map(|(k, b)| Some((b.active.first()?.clone(), *k))).collect();
        heads == self.heads
            && self.buckets.values().map(|b| b.active.len() + b.inadmissible.len()).sum::<usize>()
                == self.positions.len()
            && self.buckets.iter().all(|(key, b)| {
                let here = |id| self.positions.get(id).is_some_and(|(_, k)| k == key);
                b.news.iter().all(here)
            })
            && self.positions.values().all(|(r, k)| {
                self.buckets.get(k).is_some_and(|b| b.active.contains(r) != b.inadmissible.contains(r))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pending {
        fn pop(&mut self, usage: Option<&dyn Fn(LocalQueueId) -> f64>) -> Option<WorkloadId> {
            self.first(usage).inspect(|&id| {
                self.remove(id);
            })
        }
    }

    const fn w(id: u32) -> WorkloadId {
        WorkloadId(id)
    }

    const fn h(id: u32) -> SchedulingHashId {
        SchedulingHashId(id)
    }

    const fn l(id: u32) -> LocalQueueId {
        LocalQueueId(id)
    }

    fn rank(id: u32, priority: i64) -> Rank {
        let (order, score) = (0, Reverse(0));
        Rank {
            order,
            priority: Reverse(priority),
            score,
            since: Time(0),
            uid: Arc::from(format!("u{id}")),
            id: w(id),
        }
    }

    #[test]
    fn inadmissible_hashes_are_requeued_as_a_whole() {
        let mut p = Pending::default();
        p.activate(rank(1, 5), h(7), l(0));
        p.activate(rank(2, 9), h(7), l(1));
        p.activate(rank(3, 1), h(8), l(0));
        assert_eq!(p.pop(None), Some(w(2)));
        p.insert_inadmissible(rank(2, 9), h(7), l(1));
        assert_eq!(p.handle_inadmissible_hash(h(7), "NoFit", "too small", None), vec![w(1)]);
        let why = p.stopped(h(7)).map(|(reason, message)| (reason, &**message));
        assert_eq!(
            (p.len(), p.position(w(1)), why),
            (3, Some(QueuePosition::Inadmissible), Some(("NoFit", "too small")))
        );
        assert!(p.check());
        assert!(p.requeue_inadmissible(true, |lq| lq == l(0)));
        assert_eq!(
            (p.position(w(1)), p.position(w(2))),
            (Some(QueuePosition::Active), Some(QueuePosition::Inadmissible))
        );
        assert_eq!((p.pop(None), p.pop(None), p.pop(None)), (Some(w(1)), Some(w(3)), None));
        assert!(p.check());
    }

    #[test]
    fn each_workload_is_told_once_why_its_hash_waits() {
        let mut p = Pending::default();
        (1..=3).for_each(|id| p.activate(rank(id, 0), h(7), l(id % 2)));
        let told = |p: &mut Pending, reason| p.handle_inadmissible_hash(h(7), reason, "too small", None);
        let again = |p: &mut Pending| p.requeue_inadmissible(false, |_| true);
        assert_eq!(told(&mut p, "NoFit"), [w(1), w(2), w(3)]);
        assert!(again(&mut p));
        p.activate(rank(4, 9), h(7), l(0));
        assert_eq!(told(&mut p, "NoFit"), [w(4)], "the others know");
        p.tell_again(w(2));
        assert!(p.check() && !p.is_inadmissible_again(h(7), &Shortage::default()));
        assert!(again(&mut p));
        assert_eq!(told(&mut p, "NoFit"), [w(2)]);
        assert!(again(&mut p));
        assert_eq!(told(&mut p, "Other"), [w(1), w(2), w(3), w(4)], "for another reason");
        assert!(p.remove(w(4)) && p.check());
    }

    #[test]
    fn sticky_and_usage_come_before_rank() {
        let mut p = Pending::default();
        p.activate(rank(1, 5), h(1), l(0));
        p.activate(rank(2, 9), h(2), l(0));
        p.activate(rank(3, 0), h(3), l(1));
        p.sticky = Some(w(1));
        let usage = |lq: LocalQueueId| if lq == l(1) { 1.0 } else { 2.0 };
        assert_eq!(p.pop(Some(&usage)), Some(w(3)));
        assert_eq!(p.pop(Some(&usage)), Some(w(1)));
        assert_eq!(p.pop(None), Some(w(2)));
    }
}
