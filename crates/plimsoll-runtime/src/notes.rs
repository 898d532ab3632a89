//! Kubernetes events (`events.k8s.io/v1`): recorded beside everything else, never in its way.
//!
//! Repeats of the same event within [`SERIES_WINDOW`] become a series on the first one. As in client-go
//! (`tools/events/event_broadcaster.go`) the first repeat is written, and what came after it when the series ends or has
//! gone on for [`REFRESH`]. Events are written when the API server has room ([`Room`]): a pod needs its node more than its event. They are best effort: those that wait
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
use plimsoll_state::Time;

/// Repeats within this time are one series (client-go's `finishTime`).
const SERIES_WINDOW: Duration = Duration::from_secs(360);
/// A series that goes on is written so often (client-go's `refreshTime`).
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// How often series are looked at.
const LOOK: Duration = Duration::from_secs(60);
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
    /// How many the API server knows of, and since when.
    written: (i64, Instant),
}

impl Series {
    /// Whether nothing has come for so long that the next one is an event of its own.
    fn is_over(&self) -> bool {
        self.last.elapsed() >= SERIES_WINDOW
    }

    /// Whether repeats should be written now.
    fn is_due(&self) -> bool {
        self.count > self.written.0 && (self.is_over() || self.written.1.elapsed() >= REFRESH)
    }

    /// Writes how many there were until now.
    fn write(&mut self, api: &Api, namespace: &str, place: Place) {
        self.written = (self.count, Instant::now());
        // When the last one came, in wall time.
        let ago = i64::try_from(self.last.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let last = clock::micro_text(Time(clock::now().0.saturating_sub(ago)));
        let patch = json!({"series": {"count": self.count, "lastObservedTime": last}});
        let (api, namespace, name) = (api.clone(), namespace.to_owned(), self.name.clone());
        tokio::spawn(async move {
            let written = api.patch(EVENTS, &namespace, &name, "", PatchKind::Merge, &patch).await;
            end(&api, place, written.map(drop), "an event series was not written");
        });
    }
}

type AllSeries = HashMap<EventRecord, Series>;

/// Writes what is due of all series and forgets those that are over.
async fn look(api: &Api, series: &mut AllSeries, room: &Room) {
    for (note, series) in series.iter_mut().filter(|(_, s)| s.is_due()) {
        match tokio::time::timeout(PATIENCE, room.begin()).await {
            Ok(place) => series.write(api, note.namespace(), place),
            // The rest waits for the next look.
            Err(_) => break,
        }
    }
    series.retain(|_, s| !s.is_over() || s.is_due());
}

async fn write(api: Api, rx: &mut mpsc::Receiver<(Instant, EventRecord)>, room: Room) {
    let mut series = AllSeries::new();
    let mut counter: u64 = 0;
    let mut looks = tokio::time::interval(LOOK);
    loop {
        let (recorded, note) = tokio::select! {
            note = rx.recv() => match note {
                Some(note) => note,
                None => return,
            },
            _ = looks.tick() => {
                look(&api, &mut series, &room).await;
                continue;
            }
        };
        let known = series.get_mut(&note).filter(|s| !s.is_over());
        if let Some(known) = known {
            known.count += 1;
            known.last = Instant::now();
            if known.written.0 > 1 {
                continue;
            }
        }
        let left = PATIENCE.saturating_sub(recorded.elapsed());
        let Ok(place) = tokio::time::timeout(left, room.begin()).await else {
            tracing::debug!("an event was dropped: the API server has no room for it");
            continue;
        };
        if let Some(known) = series.get_mut(&note).filter(|s| !s.is_over()) {
            known.write(&api, note.namespace(), place);
            continue;
        }
        if series.len() >= SERIES_MAX {
            series.retain(|_, s| !s.is_over());
            if series.len() >= SERIES_MAX {
                series.clear();
            }
        }
        let (api, now) = (api.clone(), clock::now());
        counter += 1;
        // Time and counter make the name unique among our own events, as client-go's nanosecond suffix does.
        let suffix = (now.0 as u64).wrapping_add(counter);
        let name = format!("{}.{suffix:016x}", note.regarding.name);
        let event = note.to_json(&name, now);
        let last = Instant::now();
        series.insert(note, Series { name, count: 1, last, written: (1, last) });
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
    async fn a_series_is_written_at_its_first_repeat_and_its_end() {
        let server = Arc::new(Slow::default());
        let (recorder, writing) =
            Recorder::new(Api::direct(Arc::new(Arc::clone(&server)), "test"), Room::default());
        let writing = tokio::spawn(writing.run());
        let mut writes = Vec::new();
        for times in [1, 1, 98, 0] {
            (0..times).for_each(|_| recorder.record(note(0)));
            tokio::time::sleep(if times == 0 { SERIES_WINDOW + LOOK } else { LOOK }).await;
            writes.push(server.done.swap(0, Ordering::SeqCst));
        }
        assert_eq!(writes, [1, 1, 0, 1]);
        recorder.record(note(0));
        tokio::time::sleep(LOOK).await;
        assert_eq!(server.done.load(Ordering::SeqCst), 1, "an event of its own");
        drop(recorder);
        writing.await.unwrap();
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
