//! Kubernetes events (`events.k8s.io/v1`): recorded beside everything else, never in its way.
//!
//! Repeats of the same event within [`SERIES_WINDOW`] become a series on the first one, as in client-go. While many
//! decisions are being written, events are written one at a time, some hundreds a second, and the rest waits: a pod needs
//! its node more than its event (kube-scheduler's recorder writes 50 events a second by default, and drops the rest).
//! Events are best effort: when too many wait, new ones are dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_api::event::EventRecord;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::api::{Api, EVENTS, PatchKind};
use crate::clock;

/// Repeats within this time are one series (client-go's `refreshTime` and `finishTime`).
const SERIES_WINDOW: Duration = Duration::from_secs(360);
/// Most events that wait to be written: as many as a large job has pods, at about 300 bytes each.
const BACKLOG: usize = 65_536;
/// Most series that are remembered.
const SERIES_MAX: usize = 4096;
/// Most writes under way.
const CONCURRENCY: u32 = 16;
/// Pause between events in the meantime.
const PAUSE: Duration = Duration::from_millis(1);
/// For so long after a decision was written, more are expected.
const LULL: Duration = Duration::from_millis(100);
/// The way to record events; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    tx: mpsc::Sender<EventRecord>,
    /// When something more important was written last.
    decided: Arc<Mutex<Option<Instant>>>,
}

impl Recorder {
    /// A recorder, and what writes for it until all recorders are gone.
    pub fn new(api: Api) -> (Self, Writer) {
        let (tx, rx) = mpsc::channel(BACKLOG);
        let decided: Arc<Mutex<Option<Instant>>> = Arc::default();
        let writer = Writer { api, rx: Arc::new(tokio::sync::Mutex::new(rx)), decided: Arc::clone(&decided) };
        (Self { tx, decided }, writer)
    }

    /// Says that decisions are being written, which go first.
    pub fn yield_to_decisions(&self) {
        *lock(&self.decided) = Some(Instant::now());
    }

    /// Records an event, unless too many wait.
    pub fn record(&self, note: EventRecord) {
        crate::decisions::event(&note);
        if self.tx.try_send(note).is_err() {
            tracing::debug!("an event was dropped");
        }
    }
}

/// Writes events; clones take over from each other.
#[derive(Clone, Debug)]
pub struct Writer {
    api: Api,
    rx: Arc<tokio::sync::Mutex<mpsc::Receiver<EventRecord>>>,
    decided: Arc<Mutex<Option<Instant>>>,
}

impl Writer {
    /// Writes until all recorders are gone.
    pub async fn run(self) {
        write(self.api, &mut *self.rx.lock().await, self.decided).await;
    }
}

struct Series {
    name: String,
    count: i64,
    last: Instant,
}

fn lock(decided: &Mutex<Option<Instant>>) -> MutexGuard<'_, Option<Instant>> {
    decided.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn write(api: Api, rx: &mut mpsc::Receiver<EventRecord>, decided: Arc<Mutex<Option<Instant>>>) {
    let mut series: HashMap<EventRecord, Series> = HashMap::new();
    let slots = Arc::new(Semaphore::new(CONCURRENCY as usize));
    let mut counter: u64 = 0;
    while let Some(note) = rx.recv().await {
        let busy = lock(&decided).is_some_and(|at| at.elapsed() < LULL);
        let share = if busy { CONCURRENCY } else { 1 };
        if busy {
            tokio::time::sleep(PAUSE).await;
        }
        let Ok(slot) = slots.clone().acquire_many_owned(share).await else { return };
        let now = clock::now();
        if series.len() >= SERIES_MAX {
            series.retain(|_, s| s.last.elapsed() < SERIES_WINDOW);
            if series.len() >= SERIES_MAX {
                series.clear();
            }
        }
        let api = api.clone();
        let known = series.get_mut(&note).filter(|s| s.last.elapsed() < SERIES_WINDOW);
        if let Some(known) = known {
            known.count += 1;
            known.last = Instant::now();
            let patch = json!({"series": {"count": known.count, "lastObservedTime": clock::micro_text(now)}});
            let (namespace, name) = (note.namespace().to_owned(), known.name.clone());
            tokio::spawn(async move {
                let _slot = slot;
                if let Err(e) = api.patch(EVENTS, &namespace, &name, "", PatchKind::Merge, &patch).await {
                    tracing::debug!(error = %e, "an event series was not written");
                }
            });
            continue;
        }
        counter += 1;
        // Time and counter make the name unique among our own events, as client-go's nanosecond suffix does.
        let suffix = (now.0 as u64).wrapping_add(counter);
        let name = format!("{}.{suffix:016x}", note.regarding.name);
        let event = note.to_json(&name, now);
        series.insert(note, Series { name, count: 1, last: Instant::now() });
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(e) = api.create_unseen(EVENTS, &event).await {
                tracing::debug!(error = %e, "an event was not written");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::StreamExt;
    use futures::future::BoxFuture;
    use futures::stream::BoxStream;
    use http::{Request, StatusCode};

    use plimsoll_api::event::ObjectReference;

    use super::*;
    use crate::api::Direct;

    /// A server that takes its time, and notes how many requests it has at once.
    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
        done: AtomicUsize,
    }

    impl Direct for Arc<Slow> {
        fn call(
            &self,
            _request: Request<Vec<u8>>,
        ) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
            let server = Arc::clone(self);
            Box::pin(async move {
                let now = server.now.fetch_add(1, Ordering::SeqCst) + 1;
                server.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                server.now.fetch_sub(1, Ordering::SeqCst);
                server.done.fetch_add(1, Ordering::SeqCst);
                (StatusCode::CREATED, futures::stream::empty().boxed())
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_while_decisions_are_written() {
        let server = Arc::new(Slow::default());
        let (recorder, writing) = Recorder::new(Api::direct(Arc::new(Arc::clone(&server)), "test"));
        let note = |n: usize| EventRecord {
            regarding: ObjectReference {
                kind: "Pod".into(),
                name: format!("p{n}"),
                ..ObjectReference::default()
            },
            warning: false,
            reason: "Scheduled".into(),
            action: String::new(),
            message: String::new(),
            reporting_controller: "x",
            reporting_instance: String::new(),
        };
        let writing = tokio::spawn(writing.run());
        let until = async |done: usize, busy: bool| {
            while server.done.load(Ordering::SeqCst) < done {
                if busy {
                    recorder.yield_to_decisions();
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            server.most.swap(0, Ordering::SeqCst)
        };
        recorder.yield_to_decisions();
        (0..40).for_each(|n| recorder.record(note(n)));
        assert_eq!(until(10, true).await, 1, "one at a time while decisions are written");
        // The lull.
        tokio::time::sleep(LULL).await;
        assert!(until(40, false).await > 1, "many at a time when none are");
        drop(recorder);
        writing.await.unwrap();
        assert_eq!(server.done.load(Ordering::SeqCst), 40, "none is lost");
    }
}
