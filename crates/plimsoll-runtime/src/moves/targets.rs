//! Shards to which something is to be given. What is given to a shard that no process leads stands still until one does, so nothing is: the
//! name may be misspelt, and as long as the leader before has it, the move can be called off.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_api::event::{EventRecord, ObjectReference};
use serde_json::Value;
use tokio::time::Instant;

use super::PATIENCE;
use crate::api::{Api, LEASES};
use crate::event_recorder::Recorder;
use crate::lease::{LEASE, SeenLease, holder};
use crate::settings::ShardLeases;

/// For how long it is not asked again after a shard without a leader.
const AGAIN: Duration = Duration::from_secs(2);

/// What is known of shards that are to get something.
#[derive(Debug)]
pub struct Targets {
    /// `None`: there are no elections, and so no way to know.
    leases: Option<ShardLeases>,
    shards: BTreeMap<String, Target>,
}

/// What is known of a shard.
#[derive(Debug, Default)]
struct Target {
    lease: SeenLease,
    /// When it was found without a leader, or not known whether it has one.
    asked: Option<Instant>,
    /// Why it has no leader, if that is known.
    lacks: Option<String>,
    reported: Option<Instant>,
}

impl Target {
    /// Takes in the Lease; whether a process leads the shard.
    fn see(&mut self, lease: &Value, name: &str) -> bool {
        self.lease.see(lease);
        self.lacks = None;
        if holder(lease).is_empty() {
            self.lacks = Some(format!("Lease {name} has no holder"));
        } else if !self.lease.is_held(lease, LEASE) {
            self.lacks = Some(format!("{} does not renew Lease {name}", holder(lease)));
        }
        self.lacks.is_none() && self.lease.is_renewed()
    }
}

impl Targets {
    pub const fn new(leases: Option<ShardLeases>) -> Self {
        Self { leases, shards: BTreeMap::new() }
    }

    /// Whether a process leads a shard: whether its Lease is renewed, which takes some seconds to see. It may end in the same moment: then
    /// what is given waits for the next leader.
    pub async fn is_led(&mut self, api: &Api, shard: &str) -> bool {
        let Some(leases) = &self.leases else { return true };
        let target = self.shards.entry(shard.to_owned()).or_default();
        if target.asked.is_some_and(|asked| asked.elapsed() < AGAIN) {
            return false;
        }
        let name = leases.name_of(shard);
        let lock = format!("{}/{name}", leases.namespace);
        let led = match api.get(LEASES, &leases.namespace, &name).await {
            Ok(lease) => target.see(&lease, &lock),
            // An account may be allowed to see the Leases of known shards alone.
            Err(error) => {
                target.lacks = Some(format!("Lease {lock} can't be read: {error}"));
                false
            }
        };
        target.asked = (!led).then(Instant::now);
        led
    }

    /// Says, from time to time, that an object is not given to a shard because no process leads that.
    pub fn report(
        &mut self,
        shard: &str,
        regarding: impl FnOnce() -> Option<ObjectReference>,
        recorder: &Recorder,
    ) {
        let Some(target) = self.shards.get_mut(shard) else { return };
        let Some(why) = &target.lacks else { return };
        if target.reported.is_some_and(|at| at.elapsed() < PATIENCE) {
            return;
        }
        let Some(regarding) = regarding() else { return };
        target.reported = Some(Instant::now());
        let message = format!(
            "not given to shard {shard}, which no process leads: {why}. Remove the annotation or restore the label to call the move off"
        );
        tracing::warn!(kind = regarding.kind, name = regarding.name, "{message}");
        recorder.record(EventRecord {
            regarding,
            warning: true,
            reason: "ShardWithoutLeader".into(),
            action: "ShardWithoutLeader".into(),
            message,
            reporting_controller: "kueue-admission".into(),
            reporting_instance: String::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn a_shard_is_led_while_its_lease_is_renewed() {
        let lease = |version: &str, holder: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}});
        let mut target = Target::default();
        assert!(!target.see(&lease("1", "p"), "n/l") && target.lacks.is_none(), "it may have been killed");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(target.see(&lease("2", "p"), "n/l"));
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(target.see(&lease("2", "p"), "n/l"));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!target.see(&lease("2", "p"), "n/l"));
        assert_eq!(target.lacks.as_deref(), Some("p does not renew Lease n/l"));
        assert!(!target.see(&lease("3", ""), "n/l"));
        assert_eq!(target.lacks.as_deref(), Some("Lease n/l has no holder"));
    }
}
