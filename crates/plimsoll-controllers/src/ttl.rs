//! Deletes finished Jobs when their `ttlSecondsAfterFinished` is over.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Informer, Outcome, Propagation, Target, WorkQueue, resources,
};
use tokio::sync::watch::Receiver;

use super::job::model::Job;

/// The TTL controller.
pub struct TtlController {
    client: Arc<dyn Client>,
    clock: Clock,
    jobs: Informer<Job>,
}

impl TtlController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let jobs = Informer::new(client.reader(), &resources::JOBS.storage, |_| None);
        Self { client, clock, jobs }
    }
}

/// When a Job may go; `None`: never, as things are.
fn expires(job: &Job) -> Option<Timestamp> {
    let ttl = SignedDuration::from_secs(i64::from(job.spec.ttl_seconds_after_finished?));
    let end =
        job.status.conditions.iter().find(|c| (c.kind == "Complete" || c.kind == "Failed") && c.is_true())?;
    end.last_transition_time?.0.checked_add(ttl).ok().filter(|_| job.metadata.deletion_timestamp.is_none())
}

impl Controller for TtlController {
    fn name(&self) -> &'static str {
        "ttl-after-finished"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.jobs.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.jobs.refresh(|seen| {
            if let Some(at) = seen.new.and_then(|job| expires(job)) {
                queue.add_at(seen.path, at);
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let Some(job) = self.jobs.get(key) else { return Ok(None) };
            let Some(at) = expires(&job) else { return Ok(None) };
            let left = at.duration_since(self.clock.now());
            if left > SignedDuration::ZERO {
                return Ok(Some(left));
            }
            let meta = &job.metadata;
            let target = Target::object(&resources::JOBS, &meta.namespace, &meta.name);
            let mut deletion = Deletion::of_uid(&meta.uid).with(Propagation::Foreground);
            deletion.resource_version = Some(meta.resource_version.clone());
            match self.client.delete(target, deletion).await {
                Err(error) if error.code != 404 => Err(error),
                _ => Ok(None),
            }
        })
    }
}
