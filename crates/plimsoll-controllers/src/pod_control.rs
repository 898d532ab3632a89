//! Making and deleting pods for an owner, with the events that upstream's `controller.RealPodControl` records.

use std::future::Future;
use std::sync::Arc;

use futures::future::join_all;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::Meta;
use plimsoll_client::{
    Client, Deletion, Event, EventRecorder, EventType, Resource, Subject, Target, modify, resources,
};
use serde_json::{Value, json};

/// Pods made in the first batch; each further batch is twice as large, as long as nothing fails.
const FIRST_BATCH: usize = 1;

/// Makes and deletes pods.
#[derive(Clone)]
pub struct PodControl {
    client: Arc<dyn Client>,
    recorder: EventRecorder,
}

impl PodControl {
    /// A control whose events come from this recorder.
    pub fn new(client: Arc<dyn Client>, recorder: EventRecorder) -> Self {
        Self { client, recorder }
    }

    /// Makes a pod.
    ///
    /// # Errors
    /// What the server answers, except that the namespace is going away: then there is nothing to be done about it.
    pub async fn create(&self, owner: &Subject, pod: Value) -> Result<(), ApiError> {
        match self.client.create(Target::create(&resources::PODS, &owner.namespace), pod).await {
            Ok(pod) => {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                self.event(owner, EventType::Normal, "SuccessfulCreate", format!("Created pod: {name}"));
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                self.event(owner, EventType::Warning, "FailedCreate", format!("Error creating: {error}"));
                Err(error)
            }
        }
    }

    /// Deletes a pod. One that is gone, or another of its name, is left alone.
    ///
    /// # Errors
    /// What the server answers.
    pub async fn delete(&self, owner: &Subject, pod: &Meta) -> Result<(), ApiError> {
        let target = Target::object(&resources::PODS, &pod.namespace, &pod.name);
        match self.client.delete(target, Deletion::of_uid(&pod.uid)).await {
            Ok(()) => {
                self.event(
                    owner,
                    EventType::Normal,
                    "SuccessfulDelete",
                    format!("Deleted pod: {}", pod.name),
                );
                Ok(())
            }
            Err(error) if error.code == 404 || error.code == 409 => Ok(()),
            Err(error) => {
                self.event(owner, EventType::Warning, "FailedDelete", format!("Error deleting: {error}"));
                Err(error)
            }
        }
    }

    fn event(&self, owner: &Subject, kind: EventType, reason: &str, message: String) {
        self.recorder.record(owner.clone(), Event::new(kind, reason, message));
    }
}

/// Whether a create was refused because the namespace is going away.
pub(super) fn is_namespace_terminating(error: &ApiError) -> bool {
    error.details.iter().flat_map(|d| &d.causes).any(|c| c.reason == "NamespaceTerminating")
}

/// Does something for each item, in batches that double as long as nothing fails, so that what would fail many times fails
/// a few times; gives the number of successes and a failure if there was one.
pub async fn slow_start<'a, T, F: Future<Output = Result<(), ApiError>>>(
    items: &'a [T],
    mut work: impl FnMut(&'a T) -> F,
) -> (usize, Option<ApiError>) {
    let (mut done, mut failure) = (0, None);
    let (mut rest, mut batch) = (items, FIRST_BATCH);
    while !rest.is_empty() && failure.is_none() {
        let (now, later) = rest.split_at(batch.min(rest.len()));
        for result in join_all(now.iter().map(&mut work)).await {
            match result {
                Ok(()) => done += 1,
                Err(error) => failure = Some(error),
            }
        }
        rest = later;
        batch = batch.saturating_mul(2);
    }
    (done, failure)
}

/// Adopts an object without a controller; `finalizer`: one that it gets.
///
/// # Errors
/// What the server answers, except that the object is gone.
pub async fn adopt(
    client: &dyn Client,
    resource: &Resource,
    object: &Meta,
    owner: &Value,
    finalizer: Option<&str>,
) -> Result<(), ApiError> {
    let target = Target::object(resource, &object.namespace, &object.name);
    let adopted = modify(client, target, &object.uid, |object| {
        let meta = &mut object["metadata"];
        push(&mut meta["ownerReferences"], owner.clone());
        if let Some(finalizer) = finalizer
            && !meta["finalizers"].as_array().is_some_and(|f| f.iter().any(|f| f == finalizer))
        {
            push(&mut meta["finalizers"], json!(finalizer));
        }
        true
    });
    adopted.await.or_else(ignore_not_found)
}

/// Lets go of an object that is one's own no more; `finalizer`: one that it loses.
///
/// # Errors
/// What the server answers, except that the object is gone.
pub async fn let_go(
    client: &dyn Client,
    resource: &Resource,
    object: &Meta,
    owner_uid: &str,
    finalizer: Option<&str>,
) -> Result<(), ApiError> {
    let target = Target::object(resource, &object.namespace, &object.name);
    let left = modify(client, target, &object.uid, |object| {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|o| o["uid"] != owner_uid);
        }
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|f| finalizer.is_none_or(|gone| f != gone));
        }
        true
    });
    left.await.or_else(ignore_not_found)
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn ignore_not_found(error: ApiError) -> Result<(), ApiError> {
    if error.code == 404 { Ok(()) } else { Err(error) }
}
