//! A work queue that watches add to, and the loop of tasks that work on it (client-go's `RateLimitingInterface`,
//! controller-runtime's `MaxConcurrentReconciles`).

use std::fmt::{Debug, Display};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Jumps};
use crate::workqueue::{Backoff, Key, WorkQueue};

/// A [`WorkQueue`] shared by the watches that add keys and the tasks that work on them. Cheap to clone.
pub struct SharedQueue<K>(Arc<Inner<K>>);

struct Inner<K> {
    queue: Mutex<WorkQueue<K>>,
    added: Notify,
    clock: Clock,
}

impl<K> Clone for SharedQueue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Debug for SharedQueue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedQueue").finish_non_exhaustive()
    }
}

impl<K: Key> SharedQueue<K> {
    /// An empty queue. As in client-go, a key that was added while it was worked on is retried at once if that failed.
    pub fn new(backoff: Backoff, clock: Clock) -> Self {
        let queue = Mutex::new(WorkQueue::new(backoff).retrying_changed_keys_at_once());
        Self(Arc::new(Inner { queue, added: Notify::new(), clock }))
    }

    fn with<T>(&self, f: impl FnOnce(&mut WorkQueue<K>) -> T) -> T {
        f(&mut self.0.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enqueues a key.
    pub fn add(&self, key: &K) {
        self.with(|queue| queue.add(key));
        self.0.added.notify_one();
    }

    /// Enqueues a key after a time. If it is to come earlier anyway, nothing changes.
    pub fn add_after(&self, key: &K, after: Duration) {
        let at = self.0.clock.now().saturating_add(after).unwrap_or(jiff::Timestamp::MAX);
        self.with(|queue| queue.add_at(key, at));
        self.0.added.notify_one();
    }

    /// Enqueues the keys again that a loop was working on that is gone.
    pub fn requeue_active(&self) {
        self.with(WorkQueue::requeue_active);
        self.0.added.notify_one();
    }
}

/// Whether keys may be worked on: leader election, a health check.
pub trait Gate: Send + Sync {
    /// Whether they may now.
    fn is_open(&self) -> bool;

    /// Waits until they may again, or a moment. Cancel safe.
    fn opened(&self) -> impl Future<Output = ()> + Send;
}

/// Time that work under way gets to end at a stop.
const GRACE: Duration = Duration::from_secs(1);

/// Works on keys until `stop`, at most `workers` at a time and never on one key twice at a time; what has not ended a moment later is
/// dropped when this returns. A key whose work fails comes again after a backoff. When the clock jumps, keys that wait for their time are all worked on: early does no
/// harm, as what is to be done, and when, is decided anew each time.
pub async fn run<K: Key, E: Display + Send + 'static, F>(
    queue: &SharedQueue<K>,
    workers: usize,
    gate: &impl Gate,
    stop: &CancellationToken,
    work: impl Fn(K) -> F,
) where
    F: Future<Output = Result<(), E>> + Send + 'static,
{
    let Inner { added, clock, .. } = &*queue.0;
    let mut jumps = Jumps::of(clock.clone());
    let mut tasks = JoinSet::new();
    loop {
        let open = gate.is_open();
        while open
            && tasks.len() < workers
            && let Some(key) = queue.with(|q| q.pop(clock.now()))
        {
            let (queue, working) = (queue.clone(), work(key.clone()));
            tasks.spawn(async move { settle(&queue, &key, working.await) });
        }
        let free = open && tasks.len() < workers;
        let due = if free { queue.with(|q| q.next_due()) } else { None };
        tokio::select! {
            () = stop.cancelled() => break,
            () = added.notified(), if free => {}
            () = clock.sleep_until(due) => {}
            () = gate.opened(), if !open => {}
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            () = jumps.next() => queue.with(WorkQueue::flush_delayed),
        }
    }
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tracing::debug!("work was cut off by the stop");
    }
    tasks.shutdown().await;
}

fn settle<K: Key, E: Display>(queue: &SharedQueue<K>, key: &K, outcome: Result<(), E>) {
    match outcome {
        Ok(()) => queue.with(|q| q.done(key)),
        Err(error) => {
            let delay = queue.with(|q| q.failed(key, queue.0.clock.now()));
            tracing::debug!(?key, %error, ?delay, "sync failed, requeued");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use jiff::{SignedDuration, Timestamp};

    use super::*;

    #[derive(Default)]
    struct Leader(AtomicBool, Notify);

    impl Gate for Leader {
        fn is_open(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        async fn opened(&self) {
            self.1.notified().await;
        }
    }

    struct Bench {
        queue: SharedQueue<String>,
        clock: Clock,
        leader: Arc<Leader>,
        tries: Arc<AtomicUsize>,
        stop: CancellationToken,
    }

    /// Works on keys, each of which fails as often as its number says.
    fn bench() -> Bench {
        let clock = Clock::manual(Timestamp::UNIX_EPOCH);
        let backoff = Backoff { base: SignedDuration::from_secs(1), max: SignedDuration::from_secs(60) };
        let (queue, stop) = (SharedQueue::new(backoff, clock.clone()), CancellationToken::new());
        let (leader, tries) = (Arc::new(Leader::default()), Arc::new(AtomicUsize::new(0)));
        let bench = Bench { queue, clock, leader, tries, stop };
        let (queue, leader, tries, stop) =
            (bench.queue.clone(), Arc::clone(&bench.leader), Arc::clone(&bench.tries), bench.stop.clone());
        tokio::spawn(async move {
            let work = move |key: String| {
                let tries = Arc::clone(&tries);
                async move {
                    let fails: usize = key.parse().unwrap();
                    if tries.fetch_add(1, Ordering::SeqCst) < fails { Err("no") } else { Ok(()) }
                }
            };
            run(&queue, 2, &*leader, &stop, work).await;
        });
        bench
    }

    impl Bench {
        async fn until(&self, tries: usize) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(self.tries.load(Ordering::SeqCst), tries);
        }

        fn lead(&self) {
            self.leader.0.store(true, Ordering::SeqCst);
            self.leader.1.notify_one();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_waits_for_leadership_and_failures_for_their_backoff() {
        let bench = bench();
        bench.queue.add(&"2".to_owned());
        bench.until(0).await;
        bench.lead();
        bench.until(1).await;
        bench.clock.advance(SignedDuration::from_millis(900));
        bench.until(1).await;
        bench.clock.advance(SignedDuration::from_millis(200));
        bench.until(2).await;
        bench.clock.advance(SignedDuration::from_secs(2));
        bench.until(3).await;
        bench.clock.advance(SignedDuration::from_secs(600));
        bench.until(3).await;
        bench.stop.cancel();
    }

    /// A write that is cut off may still be carried out.
    #[tokio::test(start_paused = true)]
    async fn a_stop_gives_work_a_moment_and_drops_it_before_it_returns() {
        struct Work(Arc<AtomicUsize>);
        impl Drop for Work {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let backoff = Backoff { base: SignedDuration::from_secs(1), max: SignedDuration::from_secs(60) };
        let queue = SharedQueue::new(backoff, Clock::manual(Timestamp::UNIX_EPOCH));
        let (leader, stop) = (Leader(AtomicBool::new(true), Notify::new()), CancellationToken::new());
        let [ended, dropped] = [0, 0].map(|none| Arc::new(AtomicUsize::new(none)));
        for milliseconds in ["500", "60000"] {
            queue.add(&milliseconds.to_owned());
        }
        let (ends, drops) = (Arc::clone(&ended), Arc::clone(&dropped));
        let work = move |key: String| {
            let (ends, work) = (Arc::clone(&ends), Work(Arc::clone(&drops)));
            async move {
                let _work = work;
                tokio::time::sleep(Duration::from_millis(key.parse().unwrap())).await;
                ends.fetch_add(1, Ordering::SeqCst);
                Ok::<(), &str>(())
            }
        };
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            stop.cancel();
        };
        tokio::join!(run(&queue, 2, &leader, &stop, work), stopping);
        assert_eq!([&ended, &dropped].map(|count| count.load(Ordering::SeqCst)), [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_comes_at_the_earliest_of_its_times() {
        let bench = bench();
        bench.lead();
        let key = "0".to_owned();
        bench.queue.add_after(&key, Duration::from_secs(10));
        bench.queue.add_after(&key, Duration::from_secs(5));
        bench.queue.add_after(&key, Duration::from_secs(7));
        bench.clock.advance(SignedDuration::from_secs(5));
        bench.until(1).await;
        bench.clock.advance(SignedDuration::from_secs(20));
        bench.until(1).await;
        bench.stop.cancel();
    }
}
