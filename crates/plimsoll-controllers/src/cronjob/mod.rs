//! The CronJob controller: makes Jobs when their time has come.

pub mod model;
pub mod schedule;
pub mod sync;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Propagation,
    Subject, Target, WorkQueue, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use model::{Child, CronJob};
use sync::Plan;

/// The CronJob controller.
pub struct CronJobController {
    client: Arc<dyn Client>,
    clock: Clock,
    crons: Informer<CronJob>,
    jobs: Informer<Child>,
    recorder: EventRecorder,
}

/// The UID of the CronJob that controls a Job.
fn owner_index(job: &Child) -> Option<String> {
    job.metadata.controller().filter(|o| o.kind == "CronJob").map(|o| o.uid.clone())
}

impl CronJobController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock.clone(), "cronjob-controller"),
            client,
            clock,
            crons: Informer::new(&reader, &resources::CRON_JOBS.storage, |_| None),
            jobs: Informer::new(&reader, &resources::JOBS.storage, owner_index),
        }
    }

    async fn sync_cron(&self, path: &str) -> Outcome {
        let Some(cron) = self.crons.get(path) else { return Ok(None) };
        let jobs = self.jobs.indexed(&cron.metadata.uid);
        let mut plan = sync::plan(CronJob::clone(&cron), &jobs, self.clock.now());
        let subject = Subject::of("batch/v1", "CronJob", &cron.metadata);
        for event in plan.events.drain(..) {
            self.recorder.record(subject.clone(), event);
        }
        for old in std::mem::take(&mut plan.replace) {
            self.delete_job(&subject, &old.namespace, &old.name, &old.uid).await?;
        }
        self.create_job(&subject, &mut plan).await?;
        for old in std::mem::take(&mut plan.cleanup) {
            let meta = &old.metadata;
            self.delete_job(&subject, &meta.namespace, &meta.name, &meta.uid).await?;
        }
        if plan.changed {
            self.write_status(&plan).await?;
        }
        Ok(plan.again)
    }

    async fn create_job(&self, subject: &Subject, plan: &mut Plan) -> Result<(), ApiError> {
        let Some((job, at)) = plan.create.take() else { return Ok(()) };
        let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let namespace = &subject.namespace;
        match self.client.create(Target::create(&resources::JOBS, namespace), job).await {
            Ok(made) => {
                plan.created(&made, at);
                let event = Event::new(EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
                self.recorder.record(subject.clone(), event);
                Ok(())
            }
            Err(error) if error.reason == "AlreadyExists" => {
                // Made before the status could be written: it is ours, or the name is taken.
                match self.existing(namespace, &name, &subject.uid)? {
                    Some(job) => plan.created(&job, at),
                    None => return Err(error),
                }
                Ok(())
            }
            Err(error) => {
                let message = format!("Error creating job: {error}");
                let event = Event::new(EventType::Warning, "FailedCreate", message);
                self.recorder.record(subject.clone(), event);
                Err(error)
            }
        }
    }

    fn existing(&self, namespace: &str, name: &str, owner: &str) -> Result<Option<Value>, ApiError> {
        let record = self.client.reader().get(&resources::JOBS.key(namespace, name));
        let job = record.map(|r| r.value()).transpose().map_err(|e| ApiError::internal(&e))?;
        let owned = |job: &Value| {
            let owners = job["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|o| o["uid"] == owner && o["controller"] == true)
        };
        Ok(job.filter(owned))
    }

    async fn delete_job(
        &self,
        subject: &Subject,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ApiError> {
        let target = Target::object(&resources::JOBS, namespace, name);
        let deletion = Deletion::of_uid(uid).with(Propagation::Background);
        match self.client.delete(target, deletion).await {
            Ok(()) => {
                let event = Event::new(EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}"));
                self.recorder.record(subject.clone(), event);
                Ok(())
            }
            Err(error) if error.code == 404 || error.code == 409 => Ok(()),
            Err(error) => {
                let message = format!("Deleted job: {error}");
                self.recorder
                    .record(subject.clone(), Event::new(EventType::Warning, "FailedDelete", message));
                Err(error)
            }
        }
    }

    async fn write_status(&self, plan: &Plan) -> Result<(), ApiError> {
        let meta = &plan.cron.metadata;
        let key = resources::CRON_JOBS.key(&meta.namespace, &meta.name);
        let record = self.client.reader().latest(&key).filter(|r| r.uid() == meta.uid);
        let Some(record) = record else { return Ok(()) };
        let mut object = record.value()?;
        object["status"] = serde_json::to_value(&plan.cron.status).map_err(ApiError::internal)?;
        object["metadata"]["resourceVersion"] = json!(meta.resource_version);
        let target = Target::object(&resources::CRON_JOBS, &meta.namespace, &meta.name).part("status");
        self.client.update(target, object).await.map(drop)
    }
}

impl Controller for CronJobController {
    fn name(&self) -> &'static str {
        "cronjob"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.crons.signal(), self.jobs.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.crons.refresh(|seen| queue.add(seen.path));
        self.jobs.refresh(|seen| {
            for job in [seen.old, seen.new].into_iter().flatten() {
                if let Some(owner) = job.metadata.controller().filter(|o| o.kind == "CronJob") {
                    queue.add(&format!("{}/{}", job.metadata.namespace, owner.name));
                }
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_cron(key))
    }
}
