//! PersistentVolumes and their claims: binding, simulated provisioning, reclaiming, protection while in use
//! (`pkg/controller/volume/persistentvolume`, `pvcprotection` and `pvprotection` upstream).

pub mod matching;

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::default_class::default_storage_class_name;
use plimsoll_apimachinery::meta::{Meta, text};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Resource,
    Subject, Target, WorkQueue, modify, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::Pod;
use matching::{class, is_claimed_by};
use serde::Deserialize;

/// Provisioner of storage classes whose volumes exist in name only.
pub const PROVISIONER: &str = "plimsoll.dev/simulated";

/// The driver its volumes name; names of drivers have no slash.
const DRIVER: &str = "simulated.plimsoll.dev";

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
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

fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", "annotations", key])
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == finalizer))
}

fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The claim that a volume names, as a key.
fn claim_of(volume: &Value) -> Option<String> {
    let reference = &volume["spec"]["claimRef"];
    reference
        .is_object()
        .then(|| format!("{}/{}", text(reference, &["namespace"]), text(reference, &["name"])))
}

fn target<'a>(object: &'a Value, resource: &'static Resource) -> Target<'a> {
    Target::object(resource, namespace(object), name(object))
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

    async fn sync_claim(&self, path: &str) -> Outcome {
        let Some(claim) = self.claims.get(path) else { return Ok(None) };
        if is_leaving(&claim) && has_finalizer(&claim, CLAIM_PROTECTION) && !self.is_used(&claim) {
            self.unprotect(&claim, &resources::CLAIMS, CLAIM_PROTECTION).await?;
            return Ok(None);
        }
        let wanted = text(&claim, &["spec", "volumeName"]);
        if !annotation(&claim, BIND_COMPLETED).is_empty() {
            match self.volumes.get(wanted) {
                Some(volume) if volume["spec"]["claimRef"].is_null() || is_claimed_by(&volume, &claim) => {
                    self.bind(&volume, &claim).await?;
                }
                Some(_) => {
                    let message = "Two claims are bound to the same volume, this one is bound incorrectly";
                    self.lose(&claim, "ClaimMisbound", message).await?;
                }
                None => {
                    let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                    self.lose(&claim, "ClaimLost", message).await?;
                }
            }
            return Ok(None);
        }
        if is_leaving(&claim) {
            return Ok(None);
        }
        if wanted.is_empty() {
            return self.find(&claim).await.map(|()| None);
        }
        if let Some(volume) = self.volumes.get(wanted)
            && (volume["spec"]["claimRef"].is_null() || is_claimed_by(&volume, &claim))
        {
            self.bind(&volume, &claim).await?;
        }
        Ok(None)
    }

    /// Looks for a volume, or has one made.
    async fn find(&self, claim: &Value) -> Result<(), ApiError> {
        let class = self.classes.get(class(claim));
        let waits = class.as_ref().is_some_and(|c| c["volumeBindingMode"] == "WaitForFirstConsumer")
            && annotation(claim, SELECTED_NODE).is_empty();
        let all = self.volumes.all();
        if let Some(volume) = matching::best(all.iter().map(|v| &**v), claim, waits) {
            return self.bind(volume, claim).await;
        }
        if self.take_default_class(claim).await? {
            return Ok(());
        }
        let Some(class) = class else {
            let known = matching::class(claim);
            let (reason, message) = if known.is_empty() {
                let none = "no persistent volumes available for this claim and no storage class is set";
                ("FailedBinding", none.to_owned())
            } else {
                ("ProvisioningFailed", format!("storageclass.storage.k8s.io {known:?} not found"))
            };
            let kind = if known.is_empty() { EventType::Normal } else { EventType::Warning };
            self.event(claim, kind, reason, message);
            return Ok(());
        };
        if waits {
            let message = "waiting for first consumer to be created before binding".to_owned();
            self.event(claim, EventType::Normal, "WaitForFirstConsumer", message);
            return Ok(());
        }
        self.provision(claim, &class).await
    }

    /// A claim from before there was a default class gets it now (`assignDefaultStorageClass`); the change brings it back.
    async fn take_default_class(&self, claim: &Value) -> Result<bool, ApiError> {
        if !claim["spec"]["storageClassName"].is_null() || !annotation(claim, BETA_CLASS).is_empty() {
            return Ok(false);
        }
        let Some(class) = default_storage_class_name(&**self.client.reader()) else { return Ok(false) };
        let given = modify(&*self.client, target(claim, &resources::CLAIMS), uid(claim), |object| {
            let open = object["spec"]["storageClassName"].is_null();
            if open {
                object["spec"]["storageClassName"] = json!(class);
            }
            open
        });
        ignore_not_found(given.await).map(|()| true)
    }

    async fn provision(&self, claim: &Value, class: &Value) -> Result<(), ApiError> {
        let provisioner = text(class, &["provisioner"]);
        if annotation(claim, STORAGE_PROVISIONER) != provisioner {
            // Provisioners look for this; the change brings us back.
            let marked = modify(&*self.client, target(claim, &resources::CLAIMS), uid(claim), |object| {
                set_annotation(object, STORAGE_PROVISIONER, provisioner);
                true
            });
            return ignore_not_found(marked.await);
        }
        if provisioner != PROVISIONER {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is running \
                 and correctly registered."
            );
            self.event(claim, EventType::Normal, "ExternalProvisioning", message);
            return Ok(());
        }
        let called = format!("pvc-{}", uid(claim));
        let spec = &claim["spec"];
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": called, "annotations": {PROVISIONED_BY: PROVISIONER}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"], "volumeMode": spec["volumeMode"],
                "storageClassName": name(class), "mountOptions": class["mountOptions"],
                "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
                "csi": {"driver": DRIVER, "volumeHandle": called},
                "claimRef": claim_reference(claim),
            },
        });
        match self.client.create(Target::create(&resources::VOLUMES, ""), without_nulls(volume)).await {
            Ok(_) => {
                let message = format!("Successfully provisioned volume {called}");
                self.event(claim, EventType::Normal, "ProvisioningSucceeded", message);
                Ok(())
            }
            Err(error) if error.reason == "AlreadyExists" => Ok(()),
            Err(error) => {
                let message = format!("Failed to create provisioned volume {called}: {error}");
                self.event(claim, EventType::Warning, "ProvisioningFailed", message);
                Err(error)
            }
        }
    }

    /// Ties both to each other, the volume first.
    async fn bind(&self, volume: &Value, claim: &Value) -> Result<(), ApiError> {
        let reference = claim_reference(claim);
        let (claim_uid, volume_name) = (uid(claim), name(volume));
        let bound = modify(&*self.client, target(volume, &resources::VOLUMES), uid(volume), |object| {
            let there = &object["spec"]["claimRef"];
            if there["uid"] == claim_uid || !(there.is_null() || is_claimed_by(object, claim)) {
                return false;
            }
            if there.is_null() {
                set_annotation(object, BOUND_BY_CONTROLLER, "yes");
            }
            object["spec"]["claimRef"] = reference.clone();
            true
        });
        bound.await?;
        let record = self.client.reader().latest(&resources::VOLUMES.key("", volume_name));
        let current = record.and_then(|r| r.value().ok()).unwrap_or_default();
        if current["spec"]["claimRef"]["uid"] != claim_uid {
            // Somebody else was faster: the change brings us back.
            return Ok(());
        }
        self.set_phase(&current, &resources::VOLUMES, "Bound").await?;
        let bound = modify(&*self.client, target(claim, &resources::CLAIMS), claim_uid, |object| {
            let named = text(object, &["spec", "volumeName"]) == volume_name;
            if named && !annotation(object, BIND_COMPLETED).is_empty() {
                return false;
            }
            if !named {
                set_annotation(object, BOUND_BY_CONTROLLER, "yes");
                object["spec"]["volumeName"] = json!(volume_name);
            }
            set_annotation(object, BIND_COMPLETED, "yes");
            true
        });
        bound.await?;
        let spec = &volume["spec"];
        let (modes, capacity) = (spec["accessModes"].clone(), spec["capacity"].clone());
        let status = target(claim, &resources::CLAIMS).part("status");
        let written = modify(&*self.client, status, claim_uid, |object| {
            let status = &mut object["status"];
            let same = status["phase"] == "Bound"
                && status["accessModes"] == modes
                && status["capacity"].is_object();
            status["phase"] = json!("Bound");
            status["accessModes"] = modes.clone();
            if !status["capacity"].is_object() {
                status["capacity"] = capacity.clone();
            }
            !same
        });
        ignore_not_found(written.await)
    }

    async fn lose(&self, claim: &Value, reason: &str, message: &str) -> Result<(), ApiError> {
        if claim["status"]["phase"] != "Lost" {
            self.set_phase(claim, &resources::CLAIMS, "Lost").await?;
            self.event(claim, EventType::Warning, reason, message.to_owned());
        }
        Ok(())
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

/// Whether a pod uses a claim (`podUsesPVC`): one that is on no node doesn't, as none will start it with a claim that is on
/// its way out. One that has ended does until it is deleted.
fn uses(pod: &Value, claim: &Value) -> bool {
    if text(pod, &["spec", "nodeName"]).is_empty() {
        return false;
    }
    // Its claims may go before it, so that neither waits for the other.
    let shut_down = is_leaving(pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    let mut owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let made_for_it = owners.any(|o| o["controller"] == true && o["uid"] == pod["metadata"]["uid"]);
    pod["spec"]["volumes"].as_array().into_iter().flatten().any(|v| {
        let generated = v["ephemeral"].is_object()
            && !shut_down
            && made_for_it
            && name(claim) == format!("{}-{}", name(pod), text(v, &["name"]));
        generated || text(v, &["persistentVolumeClaim", "claimName"]) == name(claim)
    })
}

fn claim_reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace(claim), "name": name(claim),
        "uid": uid(claim), "resourceVersion": text(claim, &["metadata", "resourceVersion"]),
    })
}

fn set_annotation(object: &mut Value, key: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][key] = json!(value);
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.retain(|_, v| !v.is_null());
    }
    object
}

fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code != 404 => Err(error),
        _ => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `podUsesPVC`.
    #[test]
    fn who_uses_a_claim() {
        let claim =
            json!({"metadata": {"name": "data", "ownerReferences": [{"uid": "u", "controller": true}]}});
        let named = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let own = json!({"name": "ta", "ephemeral": {}});
        let pod = |name: &str, uid: &str, node: &str, phase: &str, volume: &Value| {
            json!({"metadata": {"name": name, "uid": uid}, "spec": {"nodeName": node, "volumes": [volume]},
                "status": {"phase": phase}})
        };
        let mut shut_down = pod("da", "u", "n", "Running", &own);
        let mut claim_of_da = claim.clone();
        claim_of_da["metadata"]["name"] = json!("da-ta");
        let table = [
            (pod("p", "x", "n", "Running", &named), &claim, true),
            (pod("p", "x", "n", "Succeeded", &named), &claim, true),
            (pod("p", "x", "", "Pending", &named), &claim, false),
            (pod("p", "x", "n", "Running", &json!({"name": "v", "emptyDir": {}})), &claim, false),
            (shut_down.clone(), &claim_of_da, true),
            (pod("da", "other", "n", "Running", &own), &claim_of_da, false),
            (pod("da", "u", "", "Pending", &own), &claim_of_da, false),
        ];
        for (pod, claim, want) in table {
            assert_eq!(uses(&pod, claim), want, "{pod}");
        }
        shut_down["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        shut_down["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        assert!(!uses(&shut_down, &claim_of_da));
    }
}
