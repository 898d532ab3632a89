//! Binding claims: to a volume that fits, or to one that is provisioned.

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::default_class::default_storage_class_name;
use plimsoll_apimachinery::meta::text;
use plimsoll_client::{EventType, Outcome, Target, modify, resources};
use serde_json::{Value, json};

use super::matching::{self, class, is_claimed_by};
use super::objects::{
    annotation, claim_reference, has_finalizer, ignore_not_found, is_leaving, name, set_annotation, target,
    uid, without_nulls,
};
use super::{CLAIM_PROTECTION, PROVISIONED_BY, PROVISIONER, VolumeController};

/// The driver its volumes name; names of drivers have no slash.
const DRIVER: &str = "simulated.plimsoll.dev";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

impl VolumeController {
    pub(super) async fn sync_claim(&self, path: &str) -> Outcome {
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

    /// Binds a claim to a volume that fits, or has one provisioned.
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
            // Provisioners watch this annotation; the change enqueues the claim.
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
            // Another claim was bound first: the change enqueues this one.
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
}
