//! Kubernetes events (`events.k8s.io/v1`): recorded beside everything else, never in its way.
//!
//! Repeats of the same event within [`SERIES_WINDOW`] become a series on the first one, as in client-go. Events are written
//! when the API server has room ([`Room`]): a pod needs its node more than its event. They are best effort: those that wait
//! for longer than [`PATIENCE`] and those that come when too many wait are dropped (kube-scheduler's recorder writes 50
//! events a second by default, keeps 1000, and drops the rest).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::event::EventRecord;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::api::{Api, EVENTS, Error, PatchKind};
use crate::clock;
use crate::room::{Place, Room};

/// Repeats within this time are one series (client-go's `refreshTime` and `finishTime`).
const SERIES_WINDOW: Duration = Duration::from_secs(360);
/// Most events that wait to be written: as many as a large job has pods, at about 300 bytes each.
const BACKLOG: usize = 65_536;
/// Most series that are remembered.
const SERIES_MAX: usize = 4096;
/// An event that could not be written for so long is news no more.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to record events; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    tx: mpsc::Sender<(Instant, EventRecord)>,
}

impl Recorder {
    /// A recorder, and what writes for it until all recorders are gone.
    pub fn new(api: Api, room: Room) -> (Self, Writer) {
        let (tx, rx) = mpsc::channel(BACKLOG);
        (Self { tx }, Writer { api, rx: Arc::new(tokio::sync::Mutex::new(rx)), room })
    }

    /// Records an event, unless too many wait.
    pub fn record(&self, note: EventRecord) {
        crate::decisions::event(&note);
        if self.tx.try_send((Instant::now(), note)).is_err() {
            tracing::debug!("an event was dropped");
        }
    }
}

/// Writes events; clones take over from each other.
#[derive(Clone, Debug)]
pub struct Writer {
    api: Api,
    rx: Arc<tokio::sync::Mutex<mpsc::Receiver<(Instant, EventRecord)>>>,
    room: Room,
}

impl Writer {
    /// Writes until all recorders are gone.
    pub async fn run(self) {
        write(self.api, &mut *self.rx.lock().await, self.room).await;
    }
}

struct Series {
    name: String,
    count: i64,
    last: Instant,
}

async fn write(api: Api, rx: &mut mpsc::Receiver<(Instant, EventRecord)>, room: Room) {
    let mut series: HashMap<EventRecord, Series> = HashMap::new();
    let mut counter: u64 = 0;
    while let Some((recorded, note)) = rx.recv().await {
        let left = PATIENCE.saturating_sub(recorded.elapsed());
        let Ok(place) = tokio::time::timeout(left, room.begin()).await else {
            tracing::debug!("an event was dropped: the API server has no room for it");
            continue;
        };
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
                let written = api.patch(EVENTS, &namespace, &name, "", PatchKind::Merge, &patch).await;
                end(&api, place, written.map(drop), "an event series was not written");
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
            let written = api.create_unseen(EVENTS, &event).await;
            end(&api, place, written, "an event was not written");
        });
    }
}

/// What a limit of this client held up says nothing about the server.
fn end(api: &Api, place: Place, written: Result<(), Error>, what: &str) {
    if let Err(e) = &written {
        tracing::debug!(error = %e, "{what}");
    }
    if !api.is_limited() {
        place.done(written.is_err_and(|e| e.is_too_many()));
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

    fn note(n: usize) -> EventRecord {
        EventRecord {
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
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_while_the_server_has_no_room() {
        let server = Arc::new(Slow::default());
        let room = Room::default();
        let (recorder, writing) =
            Recorder::new(Api::direct(Arc::new(Arc::clone(&server)), "test"), room.clone());
        let writing = tokio::spawn(writing.run());
        (0..40).for_each(|n| recorder.record(note(n)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(server.done.load(Ordering::SeqCst), 40, "none is lost");
        assert!(server.most.swap(0, Ordering::SeqCst) > 1, "many at a time");
        let deciding = room.decision();
        (0..1000).for_each(|n| recorder.record(note(40 + n)));
        tokio::time::sleep(Duration::from_secs(15)).await;
        drop(deciding);
        let done = server.done.load(Ordering::SeqCst) - 40;
        assert!((100..300).contains(&done), "few, and later none: {done}");
        assert_eq!(server.most.swap(0, Ordering::SeqCst), 1, "one at a time");
        drop(recorder);
        writing.await.unwrap();
        assert_eq!(server.done.load(Ordering::SeqCst) - 40, done, "what waited too long is dropped");
    }
}
