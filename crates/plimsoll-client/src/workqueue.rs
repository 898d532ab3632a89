//! Work queues: each key at most once, never twice at the same time, failures later and later.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

/// Keys that wait for work, as `client-go`'s rate limiting queue keeps them.
#[derive(Debug)]
pub struct WorkQueue {
    ready: VecDeque<String>,
    /// Keys in `ready`.
    waiting: HashSet<String>,
    /// Keys that are being worked on; `true`: asked for again meanwhile.
    active: HashMap<String, bool>,
    /// Keys for later, by time.
    later: BTreeSet<(Timestamp, String)>,
    due: BTreeMap<String, Timestamp>,
    failures: HashMap<String, u32>,
    backoff: Backoff,
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

impl WorkQueue {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            active: HashMap::new(),
            later: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: HashMap::new(),
            backoff,
        }
    }

    /// Asks for work on a key, now.
    pub fn add(&mut self, key: &str) {
        if let Some(again) = self.active.get_mut(key) {
            *again = true;
        } else if self.waiting.insert(key.to_owned()) {
            self.ready.push_back(key.to_owned());
        }
    }

    /// Asks for work on a key at a time. An earlier time wins.
    pub fn add_at(&mut self, key: &str, at: Timestamp) {
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
    pub fn pop(&mut self, now: Timestamp) -> Option<String> {
        while let Some((at, key)) = self.later.first().cloned() {
            if at > now {
                break;
            }
            self.later.pop_first();
            self.due.remove(&key);
            self.add(&key);
        }
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.active.insert(key.clone(), false);
        Some(key)
    }

    /// Work on a key has ended well.
    pub fn done(&mut self, key: &str) {
        self.failures.remove(key);
        self.finish(key);
    }

    /// Work on a key has failed: it comes again after a backoff, even if it was asked for meanwhile.
    pub fn failed(&mut self, key: &str, now: Timestamp) -> SignedDuration {
        let failures = self.failures.entry(key.to_owned()).or_insert(0);
        *failures = failures.saturating_add(1);
        let delay = self.backoff.delay(*failures);
        self.active.remove(key);
        self.add_at(key, now.saturating_add(delay).unwrap_or(Timestamp::MAX));
        delay
    }

    fn finish(&mut self, key: &str) {
        if self.active.remove(key) == Some(true) {
            self.add(key);
        }
    }

    /// When there will be something to do; `None`: not before somebody asks.
    pub fn next_due(&self) -> Option<Timestamp> {
        if !self.ready.is_empty() {
            return Some(Timestamp::MIN);
        }
        self.later.first().map(|(at, _)| *at)
    }

    /// Whether nothing is asked for, now or later, and nothing is being worked on.
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
}
