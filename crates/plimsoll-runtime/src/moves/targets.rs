//! Shards to which something is to be given. What is given to a shard that no process leads stands still until one does, so nothing is: the
//! name may be misspelt, and as long as the leader before has it, the move can be called off.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_api::json;
use tokio::time::Instant;

use super::PATIENCE;
use crate::api::{Api, LEASES};
use crate::event_recorder::Recorder;
use crate::settings::ShardLeases;

/// For how long it is not asked again after a shard without a leader.
const AGAIN: Duration = Duration::from_secs(2);

/// What is known of shards that are to get something.
#[derive(Debug)]
pub struct Targets {
    /// `None`: there are no elections, and so no way to know.
    leases: Option<ShardLeases>,
    without: BTreeMap<String, Lacking>,
}

/// A shard without a leader.
#[derive(Debug)]
struct Lacking {
    why: String,
    asked: Instant,
    reported: Option<Instant>,
}

impl Targets {
    pub const fn new(leases: Option<ShardLeases>) -> Self {
        Self { leases, without: BTreeMap::new() }
    }

    /// Whether a process leads a shard, as its Lease says. It may be late: then what is given waits for the next leader.
    pub async fn is_led(&mut self, api: &Api, shard: &str) -> bool {
        let Some(leases) = &self.leases else { return true };
        if self.without.get(shard).is_some_and(|known| known.asked.elapsed() < AGAIN) {
            return false;
        }
        let name = leases.name_of(shard);
        let why = match api.get(LEASES, &leases.namespace, &name).await {
            Ok(lease) if !json::text(&lease, &["spec", "holderIdentity"]).is_empty() => {
                self.without.remove(shard);
                return true;
            }
            Ok(_) => format!("Lease {}/{name} has no holder", leases.namespace),
            // An account may be allowed to see the Leases of known shards alone.
            Err(error) => format!("Lease {}/{name} can't be read: {error}", leases.namespace),
        };
        let reported = self.without.get(shard).and_then(|known| known.reported);
        self.without.insert(shard.to_owned(), Lacking { why, asked: Instant::now(), reported });
        false
    }

    /// Says, from time to time, that an object is not given to a shard because no process leads that.
    pub fn report(
        &mut self,
        shard: &str,
        regarding: impl FnOnce() -> Option<ObjectReference>,
        recorder: &Recorder,
    ) {
        let Some(lacking) = self.without.get_mut(shard) else { return };
        if lacking.reported.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        let Some(regarding) = regarding() else { return };
        lacking.reported = Some(Instant::now());
        let message = format!(
            "not given to shard {shard}, which no process leads: {}. Remove the annotation or restore the label to call the move off",
            lacking.why
        );
        tracing::warn!(kind = regarding.kind, name = regarding.name, "{message}");
        recorder.record(EventRecord {
            regarding,
            warning: true,
            reason: "ShardWithoutLeader".into(),
            action: "ShardWithoutLeader".into(),
            message,
            reporting_controller: "kueue-admission",
            reporting_instance: String::new(),
        });
    }
}
