//! Kubernetes events (`events.k8s.io/v1`): recorded beside everything else, never in its way.
//!
//! Repeats of the same event ([`EventRecord::series`]) within [`SERIES_WINDOW`] become a series on the first one. As in client-go
//! (`tools/events/event_broadcaster.go`) the first repeat is written, and what came after it when the series ends or has
//! gone on for [`REFRESH`].
//!
//! An event costs the API server as much as a decision, and a pod needs its node more than its event. So events are written
//! when the API server is not busy, and while many decisions are being written only a few a second
//! ([`Throttle::acquire_for_event`]); the rest waits for a pause. While more than [`FEW`] wait, of an object's events that had
//! to wait for [`HELD_UP`] only the newest is written, and none about a workload that has finished meanwhile: its conditions
//! say the same. Events are best effort: those that wait for longer than [`PATIENCE`], and the oldest when too many wait, are
//! dropped (client-go's recorder keeps 1000 and drops those that come then; its client writes 50 a second by default).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_state::Time;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::api::{Api, EVENTS, Error, PatchKind};
use crate::clock;
use crate::throttle::{Permit, Throttle};

/// Repeats within this time are one series (client-go's `finishTime`).
const SERIES_WINDOW: Duration = Duration::from_secs(360);
/// A series that goes on is written so often (client-go's `refreshTime`).
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// How often series are looked at.
const LOOK: Duration = Duration::from_secs(60);
/// Most events that wait to be written: as many as a large job has pods, at about 300 bytes each.
const BACKLOG: usize = 65_536;
/// Most series that are remembered. client-go forgets none before its time: each event of a series that was forgotten is written.
const SERIES_MAX: usize = BACKLOG;
/// So many events may wait without one being given up for another: as many as client-go keeps
/// (`tools/record/event.go`, `maxQueuedEvents`).
const FEW: usize = 1000;
/// An event that waits for so long has been overtaken by newer ones about its object.
const HELD_UP: Duration = Duration::from_secs(1);
/// How often those in front are looked at that wait for a permit.
const PRUNE: Duration = Duration::from_millis(100);
/// An event that could not be written for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long is waited before an event is written again that the API server could not take.
const RETRIES: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];

/// Whether nothing more needs to be reported about an object.
pub type Ended = Arc<dyn Fn(&ObjectReference) -> bool + Send + Sync>;

/// An event on its way to the writer.
#[derive(Debug)]
struct Recorded {
    since: Instant,
    /// When it happened, in wall time.
    at: Time,
    event: EventRecord,
}

/// The way to record events; cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    tx: mpsc::Sender<Recorded>,
}

impl Recorder {
    /// A recorder, and its writer, which ends when all recorders are gone.
    pub fn new(api: Api, throttle: Throttle) -> (Self, Writer) {
        let (tx, rx) = mpsc::channel(BACKLOG);
        let rx = Arc::new(tokio::sync::Mutex::new(rx));
        (Self { tx }, Writer { api, rx, throttle, ended: Arc::new(|_| false) })
    }

    /// Records an event, unless too many wait.
    pub fn record(&self, event: EventRecord) {
        crate::decisions::event(&event);
        let recorded = Recorded { since: Instant::now(), at: clock::now(), event };
        if self.tx.try_send(recorded).is_err() {
            tracing::debug!("an event was dropped");
        }
    }
}

/// Writes events; clones take over from each other.
#[derive(Clone)]
pub struct Writer {
    api: Api,
    rx: Arc<tokio::sync::Mutex<mpsc::Receiver<Recorded>>>,
    throttle: Throttle,
    ended: Ended,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Drops events that were held up and are about objects that have ended meanwhile.
    #[must_use]
    pub fn until(self, ended: Ended) -> Self {
        Self { ended, ..self }
    }

    /// Writes until all recorders are gone.
    pub async fn run(self) {
        let mut rx = self.rx.lock().await;
        let mut backlog = Backlog::default();
        let mut looks = tokio::time::interval(LOOK);
        let mut open = true;
        let mut prunes = tokio::time::interval(PRUNE);
        prunes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let waits = !backlog.waiting.is_empty();
            if !open && !waits {
                return;
            }
            tokio::select! {
                recorded = rx.recv(), if open => match recorded {
                    Some(recorded) => backlog.take_in(recorded),
                    None => open = false,
                },
                permit = self.throttle.acquire_for_event(), if waits => {
                    backlog.prune(&self.ended);
                    backlog.write(&self.api, permit);
                }
                _ = prunes.tick(), if waits => backlog.prune(&self.ended),
                _ = looks.tick() => backlog.look(),
            }
        }
    }
}

#[derive(Debug)]
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
    fn write(&mut self, api: &Api, (event, at): (EventRecord, Time), permit: Permit) {
        self.written = (self.count, Instant::now());
        // When the last one came, in wall time.
        let ago = i64::try_from(self.last.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let last = clock::micro_text(Time(clock::now().0.saturating_sub(ago)));
        let patch = json!({"series": {"count": self.count, "lastObservedTime": last}});
        let (api, name) = (api.clone(), self.name.clone());
        tokio::spawn(async move {
            let written = api.patch(EVENTS, event.namespace(), &name, "", PatchKind::Merge, &patch).await;
            let written = match written {
                // The first one never got there.
                Err(e) if e.is_not_found() => {
                    let mut object = event.to_json(&name, at);
                    object["series"] = patch["series"].clone();
                    api.create_unseen(EVENTS, &object).await
                }
                written => written.map(drop),
            };
            end(&api, permit, &written, "an event series was not written");
        });
    }
}

/// The object that an Event is about, in whatever version.
fn object(event: &EventRecord) -> ObjectReference {
    ObjectReference { resource_version: String::new(), ..event.regarding.clone() }
}

/// Events that wait, and the series of written ones.
#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<Recorded>,
    /// How many of an object's events wait.
    of: HashMap<ObjectReference, usize>,
    /// By [`EventRecord::series`].
    series: HashMap<EventRecord, Series>,
    written: u64,
}

impl Backlog {
    fn take_in(&mut self, recorded: Recorded) {
        let repeats = recorded.event.series();
        if let Some(known) = self.series.get_mut(&repeats) {
            if known.is_over() {
                self.series.remove(&repeats);
            } else {
                known.count += 1;
                known.last = Instant::now();
                // The first repeat is written, the others with the end of the series.
                if known.written.0 > 1 {
                    return;
                }
            }
        }
        if self.waiting.len() >= BACKLOG {
            self.pop();
            tracing::debug!("an event was dropped: too many wait");
        }
        self.push(recorded);
    }

    fn push(&mut self, recorded: Recorded) {
        *self.of.entry(object(&recorded.event)).or_default() += 1;
        self.waiting.push_back(recorded);
    }

    fn pop(&mut self) -> Option<Recorded> {
        let recorded = self.waiting.pop_front()?;
        let object = object(&recorded.event);
        if let Some(left) = self.of.get_mut(&object) {
            *left -= 1;
            if *left == 0 {
                self.of.remove(&object);
            }
        }
        Some(recorded)
    }

    /// Drops events in front that need not be written any more.
    fn prune(&mut self, ended: &Ended) {
        while let Some(first) = self.waiting.front() {
            let waited = first.since.elapsed();
            let many = self.waiting.len() > FEW;
            let overtaken = || {
                let about = object(&first.event);
                self.of.get(&about).is_some_and(|n| *n > 1) || ended(&about)
            };
            if waited < PATIENCE && (!many || waited < HELD_UP || !overtaken()) {
                return;
            }
            self.pop();
        }
    }

    /// Queues series that are due and forgets those that are over.
    fn look(&mut self) {
        let due: Vec<EventRecord> =
            self.series.iter().filter(|(_, s)| s.is_due()).map(|(event, _)| event.clone()).collect();
        let (since, at) = (Instant::now(), clock::now());
        due.into_iter().for_each(|event| self.push(Recorded { since, at, event }));
        self.series.retain(|_, s| !s.is_over() || s.is_due());
    }

    /// Forgets series that are over, and half of them when all go on: those of which nothing came for longest.
    fn forget(&mut self) {
        self.series.retain(|_, s| !s.is_over());
        if self.series.len() < SERIES_MAX {
            return;
        }
        let mut last: Vec<Instant> = self.series.values().map(|s| s.last).collect();
        let half = last.len() / 2;
        let (_, middle, _) = last.select_nth_unstable(half);
        let middle = *middle;
        self.series.retain(|_, s| s.last > middle);
    }

    /// Writes the event in front.
    fn write(&mut self, api: &Api, permit: Permit) {
        let Some(Recorded { at, event, .. }) = self.pop() else { return };
        let repeats = event.series();
        if let Some(known) = self.series.get_mut(&repeats) {
            if known.count > known.written.0 {
                known.write(api, (event, at), permit);
            }
            return;
        }
        if self.series.len() >= SERIES_MAX {
            self.forget();
        }
        self.written += 1;
        // Time and counter make the name unique among our own events, as client-go's nanosecond suffix does.
        let suffix = (clock::now().0 as u64).wrapping_add(self.written);
        let name = event_name(&event.regarding.name, suffix);
        let object = event.to_json(&name, at);
        let last = Instant::now();
        self.series.insert(repeats, Series { name, count: 1, last, written: (1, last) });
        let api = api.clone();
        tokio::spawn(async move {
            let mut written = api.create_unseen(EVENTS, &object).await;
            end(&api, permit, &written, "an event was not written");
            for pause in RETRIES {
                // Its name is its own: when it is there, it was written.
                if !written.is_err_and(|e| e.is_transient() && !e.is_too_many()) {
                    return;
                }
                tokio::time::sleep(pause).await;
                written = api.create_unseen(EVENTS, &object).await;
            }
        });
    }
}

/// The name of an event about an object; at most 253 characters, as many as the object's own name may have.
fn event_name(about: &str, suffix: u64) -> String {
    const MOST: usize = 253 - 17;
    let about = about.get(..MOST).unwrap_or(about).trim_end_matches(['.', '-']);
    format!("{about}.{suffix:016x}")
}

/// What a limit of this client held up says nothing about the server.
fn end(api: &Api, permit: Permit, written: &Result<(), Error>, what: &str) {
    if let Err(e) = written {
        tracing::debug!(error = %e, "{what}");
    }
    if !api.is_limited() {
        permit.done(written.as_ref().is_err_and(Error::is_too_many));
    }
}

#[cfg(test)]
mod tests;
