//! Workloads of one ClusterQueue that wait for quota.
//!
//! A workload is *active* (it takes its turn), *parked* (it can't run until something changes) or *delayed*
//! (it may not run before some time or condition). Workloads of the same shape from the same LocalQueue
//! share a bucket, so that parking a whole class and waking it costs nothing per workload.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ids::Map;
use plimsoll_state::time::Time;

/// Number of a workload.
pub(crate) type WlId = u32;
/// Number of a scheduling shape: workloads of the same shape get the same verdict.
pub(crate) type ShapeId = u32;
/// Number of a LocalQueue.
pub(crate) type LqId = u32;

/// Order within a ClusterQueue: higher priority, then older, then UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) priority: Reverse<i64>,
    pub(crate) since: Time,
    pub(crate) uid: Arc<str>,
    pub(crate) id: WlId,
}

type BucketKey = (ShapeId, LqId);

#[derive(Debug, Default)]
struct Bucket {
    active: BTreeSet<Rank>,
    parked: BTreeSet<Rank>,
}

/// Where a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Takes its turn.
    Active,
    /// Can't run until something changes.
    Parked,
    /// May not run yet.
    Delayed,
}

/// The waiting workloads of one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    buckets: BTreeMap<BucketKey, Bucket>,
    /// First active workload of every bucket that has one.
    heads: BTreeSet<(Rank, BucketKey)>,
    delayed: BTreeSet<WlId>,
    spots: Map<WlId, (Rank, BucketKey)>,
    /// Shapes that can't run until something changes, and why.
    stopped: BTreeMap<ShapeId, (&'static str, Arc<str>)>,
    /// The workload that waits for its victims to go and therefore stays first.
    pub(crate) sticky: Option<WlId>,
}

impl Pending {
    /// How many wait at all.
    pub(crate) fn len(&self) -> usize {
        self.spots.len() + self.delayed.len()
    }

    /// How many are in turn.
    pub(crate) fn in_turn(&self) -> usize {
        self.buckets.values().map(|b| b.active.len()).sum()
    }

    /// Counts those in turn per LocalQueue.
    pub(crate) fn count_in_turn(&self, counts: &mut BTreeMap<LqId, usize>) {
        for ((_, lq), b) in &self.buckets {
            *counts.entry(*lq).or_insert(0) += b.active.len();
        }
    }

    /// How many shapes have workloads in turn, and how many parked ones.
    pub(crate) fn shapes(&self) -> (usize, usize) {
        let count = |has: &dyn Fn(&Bucket) -> bool| {
            let mut last = None;
            self.buckets.iter().filter(|(k, b)| has(b) && last.replace(k.0) != Some(k.0)).count()
        };
        (count(&|b| !b.active.is_empty()), count(&|b| !b.parked.is_empty()))
    }

    /// All that wait, in no particular order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WlId> + '_ {
        let ranked = self.buckets.values().flat_map(|b| b.active.iter().chain(&b.parked).map(|r| r.id));
        ranked.chain(self.delayed.iter().copied())
    }

    pub(crate) fn spot(&self, id: WlId) -> Option<Spot> {
        if self.delayed.contains(&id) {
            return Some(Spot::Delayed);
        }
        let (rank, key) = self.spots.get(&id)?;
        let bucket = self.buckets.get(key)?;
        Some(if bucket.active.contains(rank) { Spot::Active } else { Spot::Parked })
    }

    /// Puts a workload in turn, wherever it was.
    pub(crate) fn activate(&mut self, rank: Rank, shape: ShapeId, lq: LqId) {
        self.remove(rank.id);
        let key = (shape, lq);
        self.spots.insert(rank.id, (rank.clone(), key));
        let bucket = self.buckets.entry(key).or_default();
        let first = bucket.active.first().cloned();
        bucket.active.insert(rank.clone());
        if first.as_ref().is_none_or(|f| rank < *f) {
            if let Some(f) = first {
                self.heads.remove(&(f, key));
            }
            self.heads.insert((rank, key));
        }
    }

    /// Parks a workload, wherever it was.
    pub(crate) fn park(&mut self, rank: Rank, shape: ShapeId, lq: LqId) {
        self.remove(rank.id);
        let key = (shape, lq);
        self.spots.insert(rank.id, (rank.clone(), key));
        self.buckets.entry(key).or_default().parked.insert(rank);
    }

    /// Puts a workload aside until it is put elsewhere.
    pub(crate) fn delay(&mut self, id: WlId) {
        self.remove(id);
        self.delayed.insert(id);
    }

    /// Takes a workload out; whether it was there. Stickiness stays.
    pub(crate) fn remove(&mut self, id: WlId) -> bool {
        if self.delayed.remove(&id) {
            return true;
        }
        let Some((rank, key)) = self.spots.remove(&id) else { return false };
        let Some(bucket) = self.buckets.get_mut(&key) else { return false };
        if bucket.active.remove(&rank) {
            if self.heads.remove(&(rank, key))
                && let Some(next) = bucket.active.first()
            {
                self.heads.insert((next.clone(), key));
            }
        } else {
            bucket.parked.remove(&rank);
        }
        if bucket.active.is_empty() && bucket.parked.is_empty() {
            self.buckets.remove(&key);
        }
        true
    }

    /// Takes out the workload whose turn it is. With `usage`, LocalQueues that used less go first.
    pub(crate) fn pop(&mut self, usage: Option<&dyn Fn(LqId) -> f64>) -> Option<WlId> {
        let id = self.first(usage)?;
        self.remove(id);
        Some(id)
    }

    fn first(&self, usage: Option<&dyn Fn(LqId) -> f64>) -> Option<WlId> {
        let sticky = self.sticky.filter(|&s| self.spot(s) == Some(Spot::Active));
        let Some(usage) = usage else {
            return sticky.or_else(|| self.heads.first().map(|(r, _)| r.id));
        };
        let sticky_lq = sticky.and_then(|s| self.spots.get(&s)).map(|(_, key)| key.1);
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

    /// Parks everything of a shape and remembers why, until [`Pending::wake`].
    pub(crate) fn stop_shape(&mut self, shape: ShapeId, reason: &'static str, message: &str) -> Vec<WlId> {
        self.stopped.insert(shape, (reason, Arc::from(message)));
        let mut moved = Vec::new();
        for (key, bucket) in self.buckets.range_mut((shape, 0)..=(shape, LqId::MAX)) {
            if let Some(first) = bucket.active.first() {
                self.heads.remove(&(first.clone(), *key));
            }
            moved.extend(bucket.active.iter().map(|r| r.id));
            bucket.parked.append(&mut bucket.active);
        }
        moved
    }

    /// Why a shape is stopped, if it is: reason and message.
    pub(crate) fn stopped(&self, shape: ShapeId) -> Option<(&'static str, &Arc<str>)> {
        self.stopped.get(&shape).map(|(reason, message)| (*reason, message))
    }

    /// Puts all parked workloads of LocalQueues for which `allowed` holds back in turn, and forgets which
    /// shapes were stopped. Returns whether anything moved.
    pub(crate) fn wake(&mut self, allowed: impl Fn(LqId) -> bool) -> bool {
        self.stopped.clear();
        let mut moved = false;
        for (key, bucket) in &mut self.buckets {
            if bucket.parked.is_empty() || !allowed(key.1) {
                continue;
            }
            moved = true;
            if let Some(first) = bucket.active.first() {
                self.heads.remove(&(first.clone(), *key));
            }
            if bucket.active.is_empty() {
                std::mem::swap(&mut bucket.active, &mut bucket.parked);
            } else {
                bucket.active.append(&mut bucket.parked);
            }
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
            && self.buckets.values().map(|b| b.active.len() + b.parked.len()).sum::<usize>()
                == self.spots.len()
            && self.spots.values().all(|(r, k)| {
                self.buckets.get(k).is_some_and(|b| b.active.contains(r) != b.parked.contains(r))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(id: WlId, priority: i64) -> Rank {
        Rank { priority: Reverse(priority), since: Time(0), uid: Arc::from(format!("u{id}")), id }
    }

    #[test]
    fn parks_and_wakes_whole_shapes() {
        let mut p = Pending::default();
        p.activate(rank(1, 5), 7, 0);
        p.activate(rank(2, 9), 7, 1);
        p.activate(rank(3, 1), 8, 0);
        assert_eq!(p.pop(None), Some(2));
        p.park(rank(2, 9), 7, 1);
        assert_eq!(p.stop_shape(7, "NoFit", "too small"), vec![1]);
        let why = p.stopped(7).map(|(reason, message)| (reason, &**message));
        assert_eq!((p.len(), p.spot(1), why), (3, Some(Spot::Parked), Some(("NoFit", "too small"))));
        assert!(p.check());
        assert!(p.wake(|lq| lq == 0));
        assert_eq!((p.spot(1), p.spot(2)), (Some(Spot::Active), Some(Spot::Parked)));
        assert_eq!((p.pop(None), p.pop(None), p.pop(None)), (Some(1), Some(3), None));
        assert!(p.check());
    }

    #[test]
    fn sticky_and_usage_come_before_rank() {
        let mut p = Pending::default();
        p.activate(rank(1, 5), 1, 0);
        p.activate(rank(2, 9), 2, 0);
        p.activate(rank(3, 0), 3, 1);
        p.sticky = Some(1);
        let usage = |lq: LqId| if lq == 1 { 1.0 } else { 2.0 };
        assert_eq!(p.pop(Some(&usage)), Some(3));
        assert_eq!(p.pop(Some(&usage)), Some(1));
        assert_eq!(p.pop(None), Some(2));
    }
}
