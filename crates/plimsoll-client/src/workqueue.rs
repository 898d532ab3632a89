//! Work queues (client-go's `util/workqueue`): each key is queued at most once, is never worked on twice at the same time,
//! and comes again after a backoff that grows while it fails.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

/// What is worked on.
pub trait Key: Clone + Debug + Ord + Hash + Send + Sync + 'static {}

impl<K: Clone + Debug + Ord + Hash + Send + Sync + 'static> Key for K {}

/// Keys to be worked on. Times are arguments: the queue has no clock.
#[derive(Debug)]
pub struct WorkQueue<K = String> {
    ready: VecDeque<K>,
    /// Keys in `ready`.
    queued: HashSet<K>,
    /// Keys that are being worked on; `true`: added again meanwhile.
    active: HashMap<K, bool>,
    /// Keys for later, by time.
    later: BTreeSet<(Timestamp, K)>,
    due: HashMap<K, Timestamp>,
    failures: HashMap<K, u32>,
    backoff: Backoff,
    /// Whether a key that failed and was added meanwhile comes at once.
    changed_at_once: bool,
}

/// Time between failures: doubles from `base` to `max`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub base: SignedDuration,
    /// At most.
    pub max: SignedDuration,
}

impl Backoff {
    /// The delay after so many failures in a row (at least one).
    pub fn delay(&self, failures: u32) -> SignedDuration {
        let doublings = failures.saturating_sub(1).min(30);
        self.base.checked_mul(1 << doublings).map_or(self.max, |d| d.min(self.max))
    }
}

impl<K: Key> WorkQueue<K> {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            ready: VecDeque::new(),
            queued: HashSet::new(),
            active: HashMap::new(),
            later: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            backoff,
            changed_at_once: false,
        }
    }

    /// Retries a key that fails at once if it was added while it was worked on, as client-go does, instead of after its
    /// backoff.
    #[must_use]
    pub fn retrying_changed_keys_at_once(self) -> Self {
        Self { changed_at_once: true, ..self }
    }

    /// Enqueues a key.
    pub fn add<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(again) = self.active.get_mut(key) {
            *again = true;
        } else if !self.queued.contains(key) {
            self.queued.insert(key.to_owned());
            self.ready.push_back(key.to_owned());
        }
    }

    /// Enqueues a key at a time. An earlier time wins.
    pub fn add_at<Q>(&mut self, key: &Q, at: Timestamp)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        match self.due.get(key) {
            Some(due) if *due <= at => return,
            Some(due) => {
                self.later.remove(&(*due, key.to_owned()));
            }
            None => {}
        }
        self.due.insert(key.to_owned(), at);
        self.later.insert((at, key.to_owned()));
    }

    /// The next key to work on.
    pub fn pop(&mut self, now: Timestamp) -> Option<K> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            self.add_first_delayed();
        }
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.active.insert(key.clone(), false);
        Some(key)
    }

    fn add_first_delayed(&mut self) {
        if let Some((_, key)) = self.later.pop_first() {
            self.due.remove(&key);
            self.add(&key);
        }
    }

    /// Enqueues all keys that wait for their time.
    pub fn flush_delayed(&mut self) {
        while !self.later.is_empty() {
            self.add_first_delayed();
        }
    }

    /// Enqueues the keys again that were being worked on.
    pub fn requeue_active(&mut self) {
        let active: Vec<K> = self.active.drain().map(|(key, _)| key).collect();
        active.iter().for_each(|key| self.add(key));
    }

    /// Work on a key has succeeded.
    pub fn done<Q>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.failures.remove(key);
        if self.active.remove(key) == Some(true) {
            self.add(key);
        }
    }

    /// Work on a key has failed: it comes again after a backoff, which is returned.
    pub fn failed<Q>(&mut self, key: &Q, now: Timestamp) -> SignedDuration
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let failures = self.failures.entry(key.to_owned()).or_insert(0);
        *failures = failures.saturating_add(1);
        let delay = self.backoff.delay(*failures);
        if self.active.remove(key) == Some(true) && self.changed_at_once {
            self.add(key);
            return SignedDuration::ZERO;
        }
        self.add_at(key, now.saturating_add(delay).unwrap_or(Timestamp::MAX));
        delay
    }

    /// When there will be something to work on; [`Timestamp::MIN`]: now; `None`: not before a key is added.
    pub fn next_due(&self) -> Option<Timestamp> {
        if !self.ready.is_empty() {
            return Some(Timestamp::MIN);
        }
        self.later.first().map(|(at, _)| *at)
    }

    /// Whether no key is queued, now or later, and none is being worked on.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.active.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn queue() -> WorkQueue {
        WorkQueue::new(Backoff { base: SignedDuration::from_secs(1), max: SignedDuration::from_secs(5) })
    }

    #[test]
    fn a_key_is_worked_on_once_and_again_if_asked_meanwhile() {
        let mut q = queue();
        q.add("a");
        q.add("a");
        q.add("b");
        assert_eq!(q.pop(at(0)).as_deref(), Some("a"));
        q.add("a");
        assert_eq!(q.pop(at(0)).as_deref(), Some("b"));
        assert_eq!(q.pop(at(0)), None);
        q.done("a");
        assert_eq!(q.pop(at(0)).as_deref(), Some("a"));
        q.done("a");
        q.done("b");
        assert!(q.is_idle());
    }

    #[test]
    fn later_keys_come_when_due_and_the_earlier_time_wins() {
        let mut q = queue();
        q.add_at("a", at(10));
        q.add_at("a", at(5));
        q.add_at("a", at(7));
        assert_eq!(q.next_due(), Some(at(5)));
        assert_eq!(q.pop(at(4)), None);
        assert_eq!(q.pop(at(5)).as_deref(), Some("a"));
        q.done("a");
        assert_eq!(q.next_due(), None);
    }

    #[test]
    fn failures_wait_longer_and_longer() {
        let mut q = queue();
        q.add("a");
        let mut now = at(0);
        for expected in [1, 2, 4, 5, 5] {
            assert_eq!(q.pop(now).as_deref(), Some("a"));
            assert_eq!(q.failed("a", now), SignedDuration::from_secs(expected));
            assert_eq!(q.pop(now), None);
            now = now.saturating_add(SignedDuration::from_secs(expected)).unwrap();
        }
        assert_eq!(q.pop(now).as_deref(), Some("a"));
        q.done("a");
        q.add("a");
        assert_eq!(q.pop(now).as_deref(), Some("a"));
        assert_eq!(q.failed("a", now), SignedDuration::from_secs(1));
    }

    #[test]
    fn a_failed_key_that_changed_meanwhile_comes_after_its_backoff_or_at_once() {
        for (mut q, expected) in [(queue(), None), (queue().retrying_changed_keys_at_once(), Some("a"))] {
            q.add("a");
            q.pop(at(0));
            q.add("a");
            q.failed("a", at(0));
            assert_eq!(q.pop(at(0)).as_deref(), expected);
        }
    }

    #[test]
    fn active_and_delayed_keys_are_queued_again_on_request() {
        let mut q = queue();
        q.add("a");
        q.add_at("b", at(50));
        assert_eq!(q.pop(at(0)).as_deref(), Some("a"));
        q.requeue_active();
        q.flush_delayed();
        assert_eq!([q.pop(at(0)), q.pop(at(0)), q.pop(at(0))], [Some("a".into()), Some("b".into()), None]);
    }
}
