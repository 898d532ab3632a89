//! Events that controllers record, with upstream's limits: repeated ones are counted, many similar ones are combined, and
//! one object gets only so many (`client-go` `tools/record`).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::{Meta, Time};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::api::{Client, Target, modify};
use crate::clock::Clock;
use crate::resource::resources;
use crate::supervise::caught;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Expected.
    Normal,
    /// Something that may need attention.
    Warning,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type.
    pub kind: EventType,
    /// Reason, a single word.
    pub reason: String,
    /// Text.
    pub message: String,
}

impl Event {
    /// An event.
    pub fn new(kind: EventType, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), message: message.into() }
    }
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    /// `group/version`.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl Subject {
    /// An object.
    pub fn of(api_version: &'static str, kind: &'static str, meta: &Meta) -> Self {
        let Meta { namespace, name, uid, .. } = meta.clone();
        Self { api_version, kind, namespace, name, uid }
    }
}

/// Most events that wait to be written; further ones are dropped.
const QUEUE: usize = 1000;
/// Events of one object at once, after which it gets one in [`REFILL`].
const BURST: f64 = 25.0;
const REFILL: SignedDuration = SignedDuration::from_secs(300);
/// Different messages of the same reason before they are combined, and for how long that is remembered.
const MAX_SIMILAR: usize = 10;
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Objects whose limits are remembered; beyond, the memory starts anew.
const MAX_REMEMBERED: usize = 4096;

/// Records events of one component, in the background.
#[derive(Clone)]
pub struct EventRecorder {
    sender: mpsc::Sender<(Subject, Event)>,
}

impl EventRecorder {
    /// A recorder; its task ends when the last clone is gone.
    pub fn new(client: Arc<dyn Client>, clock: Clock, component: &'static str) -> Self {
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let sink = Sink { client, clock, component, memory: Mutex::default() };
        tokio::spawn(async move {
            while let Some((subject, event)) = receiver.recv().await {
                // It says what is wrong itself; the next event is another matter.
                let _ = caught("writing an event", sink.record(&subject, &event)).await;
            }
        });
        Self { sender }
    }

    /// Records an event. Never waits; under pressure events are lost, as upstream.
    pub fn record(&self, subject: Subject, event: Event) {
        if self.sender.try_send((subject, event)).is_err() {
            tracing::debug!("an event was dropped");
        }
    }
}

struct Sink {
    client: Arc<dyn Client>,
    clock: Clock,
    component: &'static str,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    tokens: HashMap<Subject, (f64, Timestamp)>,
    similar: HashMap<(Subject, EventType, String), Similar>,
    /// Name and UID of the event that was written for this text.
    written: HashMap<(Subject, Event2), (String, String)>,
}

/// An [`Event`] as a key.
type Event2 = (EventType, String, String);

struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

impl Memory {
    /// Whether the object may have another event.
    fn admit(&mut self, subject: &Subject, now: Timestamp) -> bool {
        if self.tokens.len() > MAX_REMEMBERED {
            self.tokens.clear();
        }
        let (tokens, last) = self.tokens.entry(subject.clone()).or_insert((BURST, now));
        let refill = now.duration_since(*last).as_secs_f64() / REFILL.as_secs_f64();
        (*tokens, *last) = ((*tokens + refill.max(0.0)).min(BURST), now);
        let admitted = *tokens >= 1.0;
        if admitted {
            *tokens -= 1.0;
        }
        admitted
    }

    /// The event, or the combined one in its place: what it is known by, and its text.
    fn combine(&mut self, subject: &Subject, event: &Event, now: Timestamp) -> (Event2, String) {
        if self.similar.len() > MAX_REMEMBERED {
            self.similar.clear();
        }
        let group = (subject.clone(), event.kind, event.reason.clone());
        let fresh = || Similar { messages: BTreeSet::new(), last: now };
        let similar = self.similar.entry(group).or_insert_with(fresh);
        if now.duration_since(similar.last) > SIMILAR_WINDOW {
            *similar = fresh();
        }
        similar.last = now;
        similar.messages.insert(event.message.clone());
        if similar.messages.len() < MAX_SIMILAR {
            return ((event.kind, event.reason.clone(), event.message.clone()), event.message.clone());
        }
        // The oldest text makes room, so that the set stays at the limit.
        similar.messages.pop_first();
        let text = format!("(combined from similar events): {}", event.message);
        ((event.kind, event.reason.clone(), String::new()), text)
    }
}

impl Sink {
    async fn record(&self, subject: &Subject, event: &Event) {
        let now = self.clock.now();
        let (key, text, known) = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            let (key, text) = memory.combine(subject, event, now);
            if !memory.admit(subject, now) {
                return;
            }
            let known = memory.written.get(&(subject.clone(), key.clone())).cloned();
            (key, text, known)
        };
        if let Some((name, uid)) = known
            && self.repeat(subject, &name, &uid, &text, now).await
        {
            return;
        }
        let namespace = if subject.namespace.is_empty() { "default" } else { &subject.namespace };
        let object = self.object(subject, event, namespace, &text, now);
        match self.client.create(Target::create(&resources::EVENTS, namespace), object).await {
            Ok(made) => {
                let text = |key: &str| made["metadata"][key].as_str().unwrap_or_default().to_owned();
                let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
                if memory.written.len() > MAX_REMEMBERED {
                    memory.written.clear();
                }
                memory.written.insert((subject.clone(), key), (text("name"), text("uid")));
            }
            // A namespace that is going away takes no events.
            Err(error) => tracing::debug!(%error, reason = event.reason, "an event was refused"),
        }
    }

    /// Counts up an event that is there already; whether it was.
    async fn repeat(&self, subject: &Subject, name: &str, uid: &str, text: &str, now: Timestamp) -> bool {
        let namespace = if subject.namespace.is_empty() { "default" } else { &subject.namespace };
        let target = Target::object(&resources::EVENTS, namespace, name);
        let at = json!(Time::whole(now));
        let counted = modify(&*self.client, target, uid, |event| {
            event["count"] = json!(event["count"].as_i64().unwrap_or(1).saturating_add(1));
            event["lastTimestamp"] = at.clone();
            event["message"] = json!(text);
            true
        });
        counted.await.is_ok()
    }

    fn object(&self, subject: &Subject, event: &Event, namespace: &str, text: &str, now: Timestamp) -> Value {
        let at = json!(Time::whole(now));
        let kind = match event.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        let mut involved = json!({
            "apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name, "uid": subject.uid,
        });
        if !subject.namespace.is_empty() {
            involved["namespace"] = json!(subject.namespace);
        }
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {
                "name": format!("{}.{:x}", subject.name, now.as_nanosecond()),
                "namespace": namespace,
            },
            "involvedObject": involved,
            "reason": event.reason, "message": text, "type": kind,
            "source": {"component": self.component},
            "reportingComponent": self.component, "reportingInstance": "",
            "firstTimestamp": at, "lastTimestamp": at, "count": 1,
        })
    }
}
