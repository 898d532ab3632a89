//! ResourceClaims: made from templates for pods that ask for them, and given back when pods are done
//! (`pkg/controller/resourceclaim` upstream).

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Meta, controller_reference, nullable};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Resource,
    Subject, Target, WorkQueue, modify, resources,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::{Pod, PodClaim};

/// Annotation of claims made for a pod: which of its claims it is.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps allocated claims until they are given back.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
const POD: &str = "pod:";
const CLAIM: &str = "claim:";

static TEMPLATES: Resource = Resource::builtin(
    "resource.k8s.io",
    "v1",
    "resourceclaimtemplates",
    "resource.k8s.io/resourceclaimtemplates",
);

/// A claim.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    allocation: Option<serde::de::IgnoredAny>,
    #[serde(deserialize_with = "nullable")]
    reserved_for: Vec<Consumer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Consumer {
    #[serde(deserialize_with = "nullable")]
    api_group: String,
    resource: String,
    name: String,
    uid: String,
}

/// The controller.
pub struct ClaimController {
    client: Arc<dyn Client>,
    pods: Informer<Pod>,
    claims: Informer<Claim>,
    templates: Informer<Meta2>,
    recorder: EventRecorder,
}

/// Any object of which only the existence counts.
#[derive(Clone, Debug, Default, Deserialize)]
struct Meta2 {}

fn owner_index(claim: &Claim) -> Option<String> {
    claim.metadata.controller().filter(|o| o.kind == "Pod").map(|o| o.uid.clone())
}

impl ClaimController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock, "resource_claim"),
            // Few pods have claims: those are found by their namespace.
            pods: Informer::new(&reader, &resources::PODS.storage, |pod: &Pod| {
                (!pod.spec.resource_claims.is_empty()).then(|| pod.metadata.namespace.clone())
            }),
            claims: Informer::new(&reader, &resources::RESOURCE_CLAIMS.storage, owner_index),
            templates: Informer::new(&reader, &TEMPLATES.storage, |_| None),
            client,
        }
    }

    async fn sync_pod(&self, path: &str) -> Outcome {
        let Some(pod) = self.pods.get(path) else { return Ok(None) };
        let owned = self.claims.indexed(&pod.metadata.uid);
        if pod.is_terminal() {
            for claim in owned.iter().filter(|c| c.metadata.deletion_timestamp.is_none()) {
                self.delete(&claim.metadata).await?;
            }
            return Ok(None);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut made = Vec::new();
        for claim in &pod.spec.resource_claims {
            let Some(template) = &claim.resource_claim_template_name else { continue };
            if pod.status.resource_claim_statuses.iter().any(|s| s.name == claim.name) {
                continue;
            }
            let mine = owned.iter().find(|c| c.metadata.annotations.get(POD_CLAIM) == Some(&claim.name));
            let name = match mine {
                Some(claim) => claim.metadata.name.clone(),
                None => match self.make(&pod, claim, template).await {
                    Ok(name) => name,
                    Err(error) => {
                        let message = format!("PodResourceClaim {}: {error}", claim.name);
                        let subject = Subject::of("v1", "Pod", &pod.metadata);
                        let event = Event::new(EventType::Warning, "FailedResourceClaimCreation", message);
                        self.recorder.record(subject, event);
                        return Err(error);
                    }
                },
            };
            made.push(json!({"name": claim.name, "resourceClaimName": name}));
        }
        if made.is_empty() {
            return Ok(None);
        }
        let target = Target::object(&resources::PODS, &pod.metadata.namespace, &pod.metadata.name);
        let written = modify(&*self.client, target.part("status"), &pod.metadata.uid, |object| {
            let list = &mut object["status"]["resourceClaimStatuses"];
            if !list.is_array() {
                *list = json!([]);
            }
            for entry in &made {
                if let Some(list) = list.as_array_mut() {
                    list.retain(|e| e["name"] != entry["name"]);
                    list.push(entry.clone());
                }
            }
            true
        });
        ignore_not_found(written.await).map(|()| None)
    }

    /// Makes a claim; its name.
    async fn make(&self, pod: &Pod, claim: &PodClaim, template: &str) -> Result<String, ApiError> {
        let namespace = &pod.metadata.namespace;
        let record = self.client.reader().get(&TEMPLATES.key(namespace, template));
        let record = record.ok_or_else(|| {
            let mut error = ApiError::not_found("resource.k8s.io", "resourceclaimtemplate", template);
            error.message = format!("resource claim template {template:?}: {}", error.message);
            error
        })?;
        let template: Value = record.value()?;
        let inner = &template["spec"];
        let mut metadata = json!({
            "generateName": format!("{}-{}-", pod.metadata.name, claim.name), "namespace": namespace,
            "ownerReferences": [controller_reference("v1", "Pod", &pod.metadata)],
            "annotations": {},
        });
        for key in ["labels", "annotations"] {
            if inner["metadata"][key].is_object() {
                metadata[key] = inner["metadata"][key].clone();
            }
        }
        metadata["annotations"][POD_CLAIM] = json!(claim.name);
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": inner["spec"],
        });
        let made = self.client.create(Target::create(&resources::RESOURCE_CLAIMS, namespace), object).await?;
        Ok(made["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    }

    async fn delete(&self, meta: &Meta) -> Result<(), ApiError> {
        let target = Target::object(&resources::RESOURCE_CLAIMS, &meta.namespace, &meta.name);
        ignore_not_found(self.client.delete(target, Deletion::of_uid(&meta.uid)).await)
    }

    /// Whether a consumer may still use what it reserved.
    fn is_in_use(&self, namespace: &str, consumer: &Consumer) -> bool {
        if !consumer.api_group.is_empty() || consumer.resource != "pods" {
            return true;
        }
        let pod = self.pods.get(&format!("{namespace}/{}", consumer.name));
        pod.is_some_and(|p| p.metadata.uid == consumer.uid && !p.is_terminal())
    }

    async fn sync_claim(&self, path: &str) -> Outcome {
        let Some(claim) = self.claims.get(path) else { return Ok(None) };
        let meta = &claim.metadata;
        let mut used = claim.status.reserved_for.iter().filter(|c| self.is_in_use(&meta.namespace, c));
        let users: Vec<String> = used.by_ref().map(|c| c.uid.clone()).collect();
        let fewer = users.len() < claim.status.reserved_for.len();
        let ours = meta.has_finalizer(FINALIZER);
        let leaving = meta.deletion_timestamp.is_some();
        let free = users.is_empty() && ours && (fewer || leaving);
        let target = Target::object(&resources::RESOURCE_CLAIMS, &meta.namespace, &meta.name);
        if fewer || (free && claim.status.allocation.is_some()) {
            let written = modify(&*self.client, target.part("status"), &meta.uid, |object| {
                // The scheduler may have written meanwhile: then the change enqueues the pod.
                if object["metadata"]["resourceVersion"] != meta.resource_version.as_str() {
                    return false;
                }
                let status = &mut object["status"];
                if let Some(list) = status["reservedFor"].as_array_mut() {
                    list.retain(|c| users.iter().any(|uid| c["uid"] == uid.as_str()));
                }
                if let Some(status) = status.as_object_mut().filter(|_| free) {
                    status.remove("allocation");
                    status.remove("reservedFor");
                }
                true
            });
            ignore_not_found(written.await)?;
        }
        if free {
            let written = modify(&*self.client, target, &meta.uid, |object| {
                let reserved = object["status"]["reservedFor"].as_array().is_some_and(|l| !l.is_empty());
                if reserved || !object["status"]["allocation"].is_null() {
                    return false;
                }
                let finalizers = object["metadata"]["finalizers"].as_array_mut();
                finalizers.is_some_and(|list| {
                    list.retain(|f| f != FINALIZER);
                    true
                })
            });
            ignore_not_found(written.await)?;
        }
        Ok(None)
    }
}

fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code != 404 => Err(error),
        _ => Ok(()),
    }
}

impl Controller for ClaimController {
    fn name(&self) -> &'static str {
        "resource-claim"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.pods.signal(), self.claims.signal(), self.templates.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        let mut done = Vec::new();
        self.pods.refresh(|seen| {
            let Some(pod) = seen.new.or(seen.old).filter(|p| !p.spec.resource_claims.is_empty()) else {
                return;
            };
            if seen.new.is_some() {
                queue.add(&format!("{POD}{}", seen.path));
            }
            if seen.new.is_none_or(|p| p.is_terminal()) {
                done.push(Arc::clone(pod));
            }
        });
        self.claims.refresh(|seen| {
            queue.add(&format!("{CLAIM}{}", seen.path));
            let owner = seen.old.or(seen.new).and_then(|c| c.metadata.controller().cloned());
            if let (Some(old), Some(owner)) = (seen.old, owner.filter(|o| o.kind == "Pod")) {
                queue.add(&format!("{POD}{}/{}", old.metadata.namespace, owner.name));
            }
        });
        for pod in done {
            let claims = pod.spec.resource_claims.iter().filter_map(|c| c.resource_claim_name.as_ref());
            let made =
                pod.status.resource_claim_statuses.iter().filter_map(|s| s.resource_claim_name.as_ref());
            for name in claims.chain(made) {
                queue.add(&format!("{CLAIM}{}/{name}", pod.metadata.namespace));
            }
        }
        // Pods may have waited for a template.
        self.templates.refresh(|seen| {
            let Some((namespace, _)) = seen.path.split_once('/').filter(|_| seen.new.is_some()) else {
                return;
            };
            for pod in self.pods.indexed(namespace) {
                queue.add(&format!("{POD}{}", pod.metadata.path()));
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match (key.strip_prefix(POD), key.strip_prefix(CLAIM)) {
                (Some(path), _) => self.sync_pod(path).await,
                (_, Some(path)) => self.sync_claim(path).await,
                _ => Ok(None),
            }
        })
    }
}
