//! PersistentVolumes and their claims: binding, simulated provisioning, reclaiming, protection while in use
//! (`pkg/controller/volume/persistentvolume`, `pvcprotection` and `pvprotection` upstream).

mod claims;
pub mod matching;
mod objects;

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Meta, text};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Resource,
    Subject, WorkQueue, modify, resources,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::Pod;
use objects::{
    annotation, claim_of, has_finalizer, ignore_not_found, is_leaving, name, namespace, target, uid, uses,
};

/// Provisioner of storage classes whose volumes exist in name only.
pub const PROVISIONER: &str = "plimsoll.dev/simulated";

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const CLAIM: &str = "claim:";
const VOLUME: &str = "volume:";

/// The controller.
pub struct VolumeController {
    client: Arc<dyn Client>,
    claims: Informer<Value>,
    volumes: Informer<Value>,
    classes: Informer<Value>,
    pods: Informer<Pod>,
    recorder: EventRecorder,
}

impl VolumeController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock, "persistentvolume-controller"),
            claims: Informer::new(&reader, &resources::CLAIMS.storage, |_| None),
            volumes: Informer::new(&reader, &resources::VOLUMES.storage, |_| None),
            classes: Informer::new(&reader, &resources::STORAGE_CLASSES.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, |_| None),
            client,
        }
    }

    fn event(&self, claim: &Value, kind: EventType, reason: &str, message: String) {
        let meta = Meta::deserialize(&claim["metadata"]).unwrap_or_default();
        let subject = Subject::of("v1", "PersistentVolumeClaim", &meta);
        self.recorder.record(subject, Event::new(kind, reason, message));
    }

    async fn set_phase(
        &self,
        object: &Value,
        resource: &'static Resource,
        phase: &str,
    ) -> Result<(), ApiError> {
        let written = modify(&*self.client, target(object, resource).part("status"), uid(object), |object| {
            let changed = object["status"]["phase"] != phase;
            object["status"]["phase"] = json!(phase);
            changed
        });
        ignore_not_found(written.await)
    }

    async fn sync_volume(&self, path: &str) -> Outcome {
        let Some(volume) = self.volumes.get(path) else { return Ok(None) };
        let reference = &volume["spec"]["claimRef"];
        let owner = text(reference, &["uid"]);
        let claim = claim_of(&volume).and_then(|path| self.claims.get(&path)).filter(|c| uid(c) == owner);
        let phase = match (&claim, owner) {
            (Some(_), _) => "Bound",
            (None, "") => "Available",
            (None, _) => "Released",
        };
        if is_leaving(&volume) {
            if phase != "Bound" && has_finalizer(&volume, VOLUME_PROTECTION) {
                self.unprotect(&volume, &resources::VOLUMES, VOLUME_PROTECTION).await?;
            }
            return Ok(None);
        }
        // A bound volume gets its phase with its claim.
        if phase != "Bound" {
            self.set_phase(&volume, &resources::VOLUMES, phase).await?;
        }
        let ours = annotation(&volume, PROVISIONED_BY) == PROVISIONER;
        if phase == "Released" && ours && volume["spec"]["persistentVolumeReclaimPolicy"] == "Delete" {
            let deletion = Deletion::of_uid(uid(&volume));
            ignore_not_found(self.client.delete(target(&volume, &resources::VOLUMES), deletion).await)?;
        }
        Ok(None)
    }

    fn is_used(&self, claim: &Value) -> bool {
        let pods = self.client.reader().list(&resources::PODS.storage, Some(namespace(claim)));
        pods.iter().filter_map(|r| r.value().ok()).any(|pod| uses(&pod, claim))
    }

    async fn unprotect(
        &self,
        object: &Value,
        resource: &'static Resource,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        let freed = modify(&*self.client, target(object, resource), uid(object), |object| {
            let list = object["metadata"]["finalizers"].as_array_mut();
            list.is_some_and(|list| {
                let before = list.len();
                list.retain(|f| f != finalizer);
                list.len() != before
            })
        });
        ignore_not_found(freed.await)
    }
}

impl Controller for VolumeController {
    fn name(&self) -> &'static str {
        "persistentvolume-binder"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.claims.signal(), self.volumes.signal(), self.classes.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        let mut look_again = false;
        self.classes.refresh(|_| look_again = true);
        self.volumes.refresh(|seen| {
            queue.add(&format!("{VOLUME}{}", seen.path));
            look_again |= seen.new.is_some_and(|v| v["spec"]["claimRef"].is_null());
            for volume in [seen.old, seen.new].into_iter().flatten() {
                if let Some(path) = claim_of(volume) {
                    queue.add(&format!("{CLAIM}{path}"));
                }
            }
        });
        self.claims.refresh(|seen| {
            queue.add(&format!("{CLAIM}{}", seen.path));
            let claim = seen.new.or(seen.old);
            if let Some(volume) = claim.map(|c| text(c, &["spec", "volumeName"])).filter(|v| !v.is_empty()) {
                queue.add(&format!("{VOLUME}{volume}"));
            }
        });
        self.pods.refresh(|seen| {
            let Some(pod) = seen.new.or(seen.old) else { return };
            if seen.new.is_some_and(|p| p.metadata.deletion_grace_period_seconds != Some(0)) {
                return;
            }
            self.claims.in_namespace(&pod.metadata.namespace, |claim| {
                if is_leaving(claim) {
                    queue.add(&format!("{CLAIM}{}/{}", namespace(claim), name(claim)));
                }
            });
        });
        if look_again {
            let unbound = |c: &Value| text(c, &["spec", "volumeName"]).is_empty() && !is_leaving(c);
            for claim in self.claims.all_where(unbound) {
                queue.add(&format!("{CLAIM}{}/{}", namespace(&claim), name(&claim)));
            }
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            match (key.strip_prefix(CLAIM), key.strip_prefix(VOLUME)) {
                (Some(path), _) => self.sync_claim(path).await,
                (_, Some(path)) => self.sync_volume(path).await,
                _ => Ok(None),
            }
        })
    }
}
