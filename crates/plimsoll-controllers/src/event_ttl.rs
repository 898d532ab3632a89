//! Events go some time after they were last written, as with the API server's `--event-ttl`.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::Time;
use plimsoll_client::{Client, Clock, Controller, Deletion, Informer, Outcome, Target, WorkQueue, resources};
use serde::Deserialize;
use tokio::sync::watch::Receiver;

/// How long an event stays by default.
pub const DEFAULT_TTL: Duration = Duration::from_hours(1);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Event {
    metadata: EventMeta,
    last_timestamp: Option<Time>,
    series: Option<Series>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EventMeta {
    uid: String,
    creation_timestamp: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Series {
    last_observed_time: Option<Time>,
}

/// The controller.
pub struct EventTtl {
    client: Arc<dyn Client>,
    clock: Clock,
    ttl: Duration,
    events: Informer<Event>,
}

impl EventTtl {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock, ttl: Duration) -> Self {
        let events = Informer::new(client.reader(), &resources::EVENTS.storage, |_| None);
        Self { client, clock, ttl, events }
    }
}

fn expires(event: &Event, ttl: Duration) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|s| s.last_observed_time);
    let last = event.metadata.creation_timestamp.max(event.last_timestamp).max(series)?;
    last.0.checked_add(ttl).ok()
}

impl Controller for EventTtl {
    fn name(&self) -> &'static str {
        "event-ttl"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.events.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.events.refresh(|seen| {
            if let Some(at) = seen.new.and_then(|event| expires(event, self.ttl)) {
                queue.add_at(seen.path, at);
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Some(event) = self.events.get(key) else { return Ok(None) };
            let Some(at) = expires(&event, self.ttl) else { return Ok(None) };
            let left = at.duration_since(self.clock.now());
            if left > SignedDuration::ZERO {
                return Ok(Some(left));
            }
            let Some((namespace, name)) = key.split_once('/') else { return Ok(None) };
            let target = Target::object(&resources::EVENTS, namespace, name);
            match self.client.delete(target, Deletion::of_uid(&event.metadata.uid)).await {
                Err(error) if error.code != 404 => Err(error),
                _ => Ok(None),
            }
        })
    }
}
