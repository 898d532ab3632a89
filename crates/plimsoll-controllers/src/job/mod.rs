//! The Job controller: makes and deletes the pods of Jobs, counts them, and says when a Job is done.
//!
//! Decisions are in [`sync`] and [`plan`], functions of their arguments; this file carries them out.

pub mod backoff;
pub mod indexes;
pub mod model;
pub mod plan;
mod pods;
pub mod policy;
pub mod sync;
pub mod template;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{OwnerReference, Selector, controller_reference};
use plimsoll_client::{
    Backoff, Client, Clock, Controller, Event, EventRecorder, EventType, Informer, Outcome, Subject, Target,
    WorkQueue, modify, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::Pod;
use super::pod_control::{PodControl, adopt, let_go, slow_start};
use model::{Job, TRACKING_FINALIZER};
use plan::{Action, NewPod};
use sync::{Done, JobSync};

/// Changes of pods that come within this time are dealt with together.
const GATHER: SignedDuration = SignedDuration::from_millis(50);
/// Keys are `job/<path>` or `pod/<path>`.
const JOB: &str = "job/";
const POD: &str = "pod/";

/// The Job controller.
pub struct JobController {
    client: Arc<dyn Client>,
    clock: Clock,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    backoffs: Mutex<HashMap<String, backoff::Record>>,
    recorder: EventRecorder,
    pod_control: PodControl,
}

/// Label of pods of Jobs whose selector was generated: the UID of the Job.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// The UID of the Job that controls a pod. A pod without a controller is found by the Job that its label names, or else by
/// its namespace.
fn owner_index(pod: &Pod) -> Option<String> {
    let meta = &pod.metadata;
    match meta.controller() {
        Some(owner) if is_job(owner) => Some(owner.uid.clone()),
        Some(_) => None,
        None => Some(orphans(meta.labels.get(CONTROLLER_UID).unwrap_or(&meta.namespace))),
    }
}

/// Whether the selector matches only pods that were made for this very Job.
fn is_generated(selector: &Selector, job: &Job) -> bool {
    selector.match_labels.get(CONTROLLER_UID) == Some(&job.metadata.uid)
}

fn is_job(owner: &OwnerReference) -> bool {
    owner.kind == "Job" && owner.api_version.starts_with("batch/")
}

fn orphans(of: &str) -> String {
    format!("orphans/{of}")
}

impl JobController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        let recorder = EventRecorder::new(Arc::clone(&client), clock.clone(), "job-controller");
        Self {
            pod_control: PodControl::new(Arc::clone(&client), recorder.clone()),
            recorder,
            client,
            clock,
            jobs: Informer::new(&reader, &resources::JOBS.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, owner_index),
            backoffs: Mutex::default(),
        }
    }

    fn backoffs(&self) -> MutexGuard<'_, HashMap<String, backoff::Record>> {
        self.backoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subject(job: &Job) -> Subject {
        Subject::of("batch/v1", "Job", &job.metadata)
    }

    /// A pod has changed: its Job has work; one without a Job has a finalizer to lose.
    fn pod_changed(&self, pod: &Pod, queue: &mut WorkQueue, now: Timestamp) {
        let later = now.saturating_add(GATHER).unwrap_or(now);
        match pod.metadata.controller() {
            Some(owner) if is_job(owner) => {
                let path = format!("{}/{}", pod.metadata.namespace, owner.name);
                match self.jobs.get(&path).filter(|j| j.metadata.uid == owner.uid) {
                    Some(_) => queue.add_at(&format!("{JOB}{path}"), later),
                    None if pod.is_tracked() => queue.add(&format!("{POD}{}", pod.metadata.path())),
                    None => {}
                }
            }
            Some(_) => {}
            None => {
                if pod.is_tracked() {
                    queue.add(&format!("{POD}{}", pod.metadata.path()));
                }
                self.jobs.in_namespace(&pod.metadata.namespace, |job| {
                    if selector(job).is_some_and(|s| s.matches(&pod.metadata.labels)) {
                        queue.add_at(&format!("{JOB}{}", job.metadata.path()), later);
                    }
                });
            }
        }
    }

    async fn sync_job(&self, path: &str) -> Outcome {
        let Some(job) = self.jobs.get(path) else {
            self.backoffs().remove(path);
            return Ok(None);
        };
        if job.is_foreign() {
            return Ok(None);
        }
        if job.is_finished() {
            self.backoffs().remove(path);
            let left = self.pods.indexed(&job.metadata.uid);
            let (_, error) = self.release(left.iter().filter(|p| p.is_tracked())).await;
            return error.map_or(Ok(None), Err);
        }
        if job.spec.completion_mode.as_deref().is_some_and(|m| m != "Indexed" && m != "NonIndexed") {
            let message = "Skipped Job sync because completion mode is unknown";
            let event = Event::new(EventType::Warning, "UnknownCompletionMode", message);
            self.recorder.record(Self::subject(&job), event);
            return Ok(None);
        }
        let pods = self.claim(&job).await?;
        let backoff = self.backoffs().get(path).copied().unwrap_or_default();
        let sync = JobSync::begin(Job::clone(&job), pods, self.clock.now(), backoff);
        self.carry_out(path, sync).await
    }

    async fn carry_out(&self, path: &str, mut sync: JobSync) -> Outcome {
        let (done, mut failure) = self.act(&sync).await;
        let tracking = sync.track(done);
        let subject = Self::subject(&sync.job);
        for event in sync.events.drain(..) {
            self.recorder.record(subject.clone(), event);
        }
        if tracking.flush {
            self.write_status(&mut sync.job).await?;
            self.backoffs().insert(path.to_owned(), sync.backoff);
        }
        let (released, error) = self.release(tracking.release.iter()).await;
        let dirty = sync.released(released.iter().map(String::as_str));
        if let Some(error) = error {
            if dirty {
                self.write_status(&mut sync.job).await?;
            }
            return Err(error);
        }
        let finish = sync.finish(&tracking);
        if finish.flush {
            self.write_status(&mut sync.job).await?;
            for event in finish.events {
                self.recorder.record(subject.clone(), event);
            }
        }
        failure.take().map_or(Ok(sync.again), Err)
    }

    /// Makes or deletes pods.
    async fn act(&self, sync: &JobSync) -> (Done, Option<ApiError>) {
        match &sync.action {
            Action::None | Action::Wait => (Done::default(), None),
            Action::DeleteKeepingFinalizers(pods) => self.delete(&sync.job, pods, false).await,
            Action::Delete(pods) => self.delete(&sync.job, pods, true).await,
            Action::Create(pods) => self.create(&sync.job, pods).await,
        }
    }

    async fn create(&self, job: &Job, pods: &[NewPod]) -> (Done, Option<ApiError>) {
        let subject = Self::subject(job);
        let (created, failure) =
            slow_start(pods, |new| self.pod_control.create(&subject, template::pod(job, *new))).await;
        let created = i32::try_from(created).unwrap_or(i32::MAX);
        (Done { created, ..Done::default() }, failure)
    }

    async fn delete(&self, job: &Job, pods: &[Arc<Pod>], release: bool) -> (Done, Option<ApiError>) {
        let results = join_all(pods.iter().map(|pod| self.delete_one(job, pod, release))).await;
        let mut done = Done::default();
        let mut failure = None;
        for (pod, result) in pods.iter().zip(results) {
            match result {
                Ok(()) => done.deleted += 1,
                Err(error) => failure = Some(error),
            }
            done.deleted_ready += i32::from(pod.is_ready());
        }
        (done, failure)
    }

    async fn delete_one(&self, job: &Job, pod: &Pod, release: bool) -> Result<(), ApiError> {
        if release && pod.is_tracked() {
            self.release_one(pod).await?;
        }
        self.pod_control.delete(&Self::subject(job), &pod.metadata).await
    }

    /// Takes the finalizer of pods; the UIDs of those that have none now, and a failure if there was one.
    async fn release<'a>(&self, pods: impl Iterator<Item = &'a Arc<Pod>>) -> (Vec<String>, Option<ApiError>) {
        let pods: Vec<_> = pods.collect();
        let results = join_all(pods.iter().map(|pod| self.release_one(pod))).await;
        let mut released = Vec::new();
        let mut failure = None;
        for (pod, result) in pods.iter().zip(results) {
            match result {
                Ok(()) => released.push(pod.metadata.uid.clone()),
                Err(error) => failure = Some(error),
            }
        }
        (released, failure)
    }

    async fn release_one(&self, pod: &Pod) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        let target = Target::object(&resources::PODS, &meta.namespace, &meta.name);
        let released = modify(&*self.client, target, &meta.uid, remove_finalizer);
        match released.await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// The pods of a Job. Pods without a controller that its selector matches are adopted; pods that it doesn't match
    /// any more are let go.
    async fn claim(&self, job: &Job) -> Result<Vec<Arc<Pod>>, ApiError> {
        let mine = self.pods.indexed(&job.metadata.uid);
        let Some(selector) = selector(job) else { return Ok(mine) };
        let (client, finalizer) = (&*self.client, Some(TRACKING_FINALIZER));
        let mut kept = Vec::with_capacity(mine.len());
        for pod in mine {
            if selector.matches(&pod.metadata.labels) || job.metadata.deletion_timestamp.is_some() {
                kept.push(pod);
            } else {
                let_go(client, &resources::PODS, &pod.metadata, &job.metadata.uid, finalizer).await?;
            }
        }
        if job.metadata.deletion_timestamp.is_none() {
            let owner = controller_reference("batch/v1", "Job", &job.metadata);
            let mut orphaned = self.pods.indexed(&orphans(&job.metadata.uid));
            if !is_generated(selector, job) {
                orphaned.extend(self.pods.indexed(&orphans(&job.metadata.namespace)));
            }
            for pod in orphaned {
                let near = pod.metadata.namespace == job.metadata.namespace;
                if near && pod.is_active() && selector.matches(&pod.metadata.labels) {
                    // It is counted when the change comes back.
                    adopt(client, &resources::PODS, &pod.metadata, &owner, finalizer).await?;
                }
            }
        }
        Ok(kept)
    }

    /// Writes the status, at the version that it was made from.
    async fn write_status(&self, job: &mut Job) -> Result<(), ApiError> {
        let meta = &job.metadata;
        let key = resources::JOBS.key(&meta.namespace, &meta.name);
        let gone = || ApiError::not_found("batch", "jobs", &meta.name);
        let record = self.client.reader().latest(&key).filter(|r| r.uid() == meta.uid).ok_or_else(gone)?;
        let mut object = record.value()?;
        object["status"] = serde_json::to_value(&job.status).map_err(ApiError::internal)?;
        // Another writer in between means that the decision was made on an old state: once more.
        object["metadata"]["resourceVersion"] = json!(meta.resource_version);
        let target = Target::object(&resources::JOBS, &meta.namespace, &meta.name).part("status");
        let written = self.client.update(target, object).await?;
        written["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut job.metadata.resource_version);
        Ok(())
    }

    /// A pod that has a finalizer of ours and no Job that would count it.
    async fn sync_orphan(&self, path: &str) -> Outcome {
        let Some(pod) = self.pods.get(path).filter(|p| p.is_tracked()) else { return Ok(None) };
        if let Some(owner) = pod.metadata.controller() {
            if !is_job(owner) {
                return Ok(None);
            }
            let job = self.jobs.get(&format!("{}/{}", pod.metadata.namespace, owner.name));
            let job = job.filter(|j| j.metadata.uid == owner.uid);
            if job.is_some_and(|j| j.is_foreign() || !j.is_finished()) {
                return Ok(None);
            }
        }
        self.release_one(&pod).await.map(|()| None)
    }
}

fn selector(job: &Job) -> Option<&Selector> {
    // Without a selector (validation refuses that) nothing is claimed.
    job.spec.selector.as_ref().filter(|s| !s.match_labels.is_empty() || !s.match_expressions.is_empty())
}

fn remove_finalizer(object: &mut Value) -> bool {
    let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() else { return false };
    let before = finalizers.len();
    finalizers.retain(|f| f != TRACKING_FINALIZER);
    finalizers.len() != before
}

impl Controller for JobController {
    fn name(&self) -> &'static str {
        "job"
    }

    fn backoff(&self) -> Backoff {
        Backoff { base: SignedDuration::from_millis(100), max: SignedDuration::from_mins(1) }
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.jobs.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, now: Timestamp) {
        let mut gone = Vec::new();
        self.jobs.refresh(|seen| {
            queue.add(&format!("{JOB}{}", seen.path));
            if let Some(old) = seen.old
                && seen.new.is_none_or(|new| new.metadata.uid != old.metadata.uid)
            {
                gone.push(old.metadata.uid.clone());
            }
        });
        let mut changed = Vec::new();
        self.pods.refresh(|seen| {
            // A pod that changes hands concerns both.
            let pods = [seen.old, seen.new].into_iter().flatten();
            changed.extend(pods.cloned());
        });
        for pod in changed {
            self.pod_changed(&pod, queue, now);
        }
        for pod in gone.iter().flat_map(|uid| self.pods.indexed(uid)).filter(|p| p.is_tracked()) {
            queue.add(&format!("{POD}{}", pod.metadata.path()));
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            if let Some(path) = key.strip_prefix(JOB) {
                self.sync_job(path).await
            } else if let Some(path) = key.strip_prefix(POD) {
                self.sync_orphan(path).await
            } else {
                Ok(None)
            }
        })
    }
}
