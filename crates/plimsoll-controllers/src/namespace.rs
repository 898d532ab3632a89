//! Namespaces: what they contain is deleted before they go (`pkg/controller/namespace` upstream), and what every
//! namespace contains is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::{Meta, Object, Time, nullable};
use plimsoll_apimachinery::{ApiError, Kind};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Informer, Outcome, Propagation, Resource, Target, WorkQueue, modify,
    resources,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

/// `spec.finalizers` entry of ours.
const FINALIZER: &str = "kubernetes";
/// Time until a namespace that isn't empty yet is reconciled again.
const RETRY: SignedDuration = SignedDuration::from_millis(250);
/// The ConfigMap and the ServiceAccount of every namespace.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Where other API servers learn whose certificates they may trust.
const TRUST: &str = "extension-apiserver-authentication";
const ACCOUNT: &str = "default";
/// Objects deleted at the same time.
const BATCH: usize = 100;

/// A namespace.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    metadata: Meta,
    #[serde(deserialize_with = "nullable")]
    spec: NamespaceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamespaceSpec {
    #[serde(deserialize_with = "nullable")]
    finalizers: Vec<String>,
}

/// What every namespace gets.
#[derive(Clone, Debug, Default)]
pub struct NamespaceOptions {
    /// PEM of the certificate authority: makes the ConfigMap `kube-root-ca.crt`, and in `kube-system` also
    /// `extension-apiserver-authentication`.
    pub root_ca: Option<String>,
    /// Makes the ServiceAccount `default`.
    pub service_account: bool,
}

/// The namespace controller.
pub struct NamespaceController {
    client: Arc<dyn Client>,
    clock: Clock,
    options: NamespaceOptions,
    namespaces: Informer<Namespace>,
    config_maps: Informer<Object>,
    accounts: Informer<Object>,
}

/// What is left in a namespace.
#[derive(Debug, Default)]
struct Remaining {
    /// `plural.group` → objects.
    objects: BTreeMap<String, usize>,
    /// Finalizer → objects that wait for it.
    finalizers: BTreeMap<String, usize>,
    /// What could not be deleted.
    failures: Vec<String>,
}

impl NamespaceController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock, options: NamespaceOptions) -> Self {
        let namespaces = Informer::new(client.reader(), &resources::NAMESPACES.storage, |_| None);
        let config_maps = Informer::new(client.reader(), &resources::CONFIG_MAPS.storage, |_| None);
        let accounts = Informer::new(client.reader(), &resources::SERVICE_ACCOUNTS.storage, |_| None);
        Self { client, clock, options, namespaces, config_maps, accounts }
    }

    async fn sync_namespace(&self, name: &str) -> Outcome {
        let Some(namespace) = self.namespaces.get(name) else { return Ok(None) };
        if namespace.metadata.deletion_timestamp.is_none() {
            return self.furnish(name).await.map(|()| None);
        }
        if !namespace.spec.finalizers.iter().any(|f| f == FINALIZER) {
            return Ok(None);
        }
        let kinds = self.contents();
        // Pods first: other objects may keep them from working until they are gone.
        let (pods, others): (Vec<_>, Vec<_>) =
            kinds.into_iter().partition(|k| k.storage == resources::PODS.storage);
        let mut remaining = Remaining::default();
        self.empty(name, &pods, &mut remaining).await;
        if remaining.objects.is_empty() {
            self.empty(name, &others, &mut remaining).await;
        }
        self.write_conditions(&namespace, &remaining).await?;
        if !remaining.objects.is_empty() {
            return Ok(Some(RETRY));
        }
        self.finalize(&namespace).await.map(|()| None)
    }

    /// Kinds that live in namespaces, one for each resource, in the preferred version (client-go's
    /// `ServerPreferredNamespacedResources`): another one may need a conversion webhook whose server has gone.
    fn contents(&self) -> Vec<Arc<Kind>> {
        let table = self.client.kinds();
        let rank = |kind: &Kind| {
            let group = table.groups().iter().find(|(group, _)| *group == kind.gvk.group);
            group.and_then(|(_, versions)| versions.iter().position(|v| *v == kind.gvk.version))
        };
        let mut kinds: BTreeMap<String, Arc<Kind>> = BTreeMap::new();
        for kind in table.iter().filter(|k| k.namespaced && k.verbs.iter().any(|v| v == "delete")) {
            let chosen = kinds.entry(kind.storage.clone()).or_insert_with(|| Arc::clone(kind));
            if chosen.gvk.group == kind.gvk.group && rank(kind) < rank(chosen) {
                *chosen = Arc::clone(kind);
            }
        }
        kinds.into_values().collect()
    }

    /// Asks for the deletion of everything of these kinds, and counts what is left.
    async fn empty(&self, namespace: &str, kinds: &[Arc<Kind>], remaining: &mut Remaining) {
        for kind in kinds {
            let resource = Resource::of(kind);
            let there = self.client.reader().list(&kind.storage, Some(namespace));
            let mut waiting = Vec::new();
            for record in there.iter() {
                let Ok(object) = serde_json::from_slice::<Object>(record.json()) else { continue };
                if object.metadata.deletion_timestamp.is_none() {
                    waiting.push(object.metadata);
                }
            }
            for batch in waiting.chunks(BATCH) {
                let deletions = batch.iter().map(|meta| self.delete(&resource, meta));
                for failure in join_all(deletions).await.into_iter().filter_map(Result::err) {
                    remaining.failures.push(failure.message);
                }
            }
            let left = self.client.reader().list(&kind.storage, Some(namespace));
            if left.is_empty() {
                continue;
            }
            let name = format!("{}.{}", kind.plural, kind.gvk.group);
            remaining.objects.insert(name, left.len());
            for record in left.iter() {
                let object = serde_json::from_slice::<Object>(record.json());
                for finalizer in object.into_iter().flat_map(|o| o.metadata.finalizers) {
                    *remaining.finalizers.entry(finalizer).or_default() += 1;
                }
            }
        }
    }

    async fn delete(&self, resource: &Resource, meta: &Meta) -> Result<(), ApiError> {
        let target = Target::object(resource, &meta.namespace, &meta.name);
        let deletion = Deletion::of_uid(&meta.uid).with(Propagation::Background);
        match self.client.delete(target, deletion).await {
            Err(error) if error.code != 404 && error.code != 409 => Err(error),
            _ => Ok(()),
        }
    }

    async fn write_conditions(&self, namespace: &Namespace, remaining: &Remaining) -> Result<(), ApiError> {
        let now = json!(Time::whole(self.clock.now()));
        let wanted = conditions(remaining);
        let target = Target::object(&resources::NAMESPACES, "", &namespace.metadata.name).part("status");
        let written = modify(&*self.client, target, &namespace.metadata.uid, |object| {
            let mut changed = object["status"]["phase"] != "Terminating";
            object["status"]["phase"] = json!("Terminating");
            for condition in &wanted {
                changed |= set_condition(&mut object["status"]["conditions"], condition, &now);
            }
            changed
        });
        match written.await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    async fn finalize(&self, namespace: &Namespace) -> Result<(), ApiError> {
        let target = Target::object(&resources::NAMESPACES, "", &namespace.metadata.name).part("finalize");
        let finalized = modify(&*self.client, target, &namespace.metadata.uid, |object| {
            if let Some(finalizers) = object["spec"]["finalizers"].as_array_mut() {
                finalizers.retain(|f| f != FINALIZER);
            }
            true
        });
        match finalized.await {
            Err(error) if error.code != 404 => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes what every namespace has.
    async fn furnish(&self, namespace: &str) -> Result<(), ApiError> {
        if let Some(ca) = &self.options.root_ca {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": ROOT_CA, "namespace": namespace,
                    "annotations": {
                        "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
                    },
                },
                "data": {"ca.crt": ca},
            });
            self.ensure(&resources::CONFIG_MAPS, namespace, ROOT_CA, object).await?;
            if namespace == "kube-system" {
                self.ensure(&resources::CONFIG_MAPS, namespace, TRUST, trust(ca)).await?;
            }
        }
        if self.options.service_account {
            let metadata = json!({"name": ACCOUNT, "namespace": namespace});
            let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
            self.ensure(&resources::SERVICE_ACCOUNTS, namespace, ACCOUNT, object).await?;
        }
        Ok(())
    }

    async fn ensure(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        object: Value,
    ) -> Result<(), ApiError> {
        if let Some(there) = self.client.reader().latest(&resource.key(namespace, name)) {
            let data = object["data"].clone();
            let change = |there: &mut Value| {
                let changed = !data.is_null() && there["data"] != data;
                there["data"] = if changed { data.clone() } else { there["data"].take() };
                changed
            };
            return modify(&*self.client, Target::object(resource, namespace, name), there.uid(), change)
                .await;
        }
        match self.client.create(Target::create(resource, namespace), object).await {
            Err(error) if error.reason != "AlreadyExists" => Err(error),
            _ => Ok(()),
        }
    }
}

/// Clients have certificates of our authority, and so would a proxy in front of another API server (upstream's
/// clusterauthenticationtrust controller; names as kubeadm sets them).
fn trust(ca: &str) -> Value {
    let data = json!({
        "client-ca-file": ca,
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-client-ca-file": ca,
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    });
    let metadata = json!({"name": TRUST, "namespace": "kube-system"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

/// The conditions of a namespace that is going, upstream's reasons and messages.
fn conditions(remaining: &Remaining) -> [Value; 5] {
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    };
    let failure = if remaining.failures.is_empty() {
        let message = "All content successfully deleted, may be waiting on finalization";
        condition("NamespaceDeletionContentFailure", false, "ContentDeleted", message.to_owned())
    } else {
        let message = format!(
            "Failed to delete all resource types, {} remaining: {}",
            remaining.failures.len(),
            remaining.failures.join(", ")
        );
        condition("NamespaceDeletionContentFailure", true, "ContentDeletionFailed", message)
    };
    let list = |items: &BTreeMap<String, usize>, between: &str| {
        let items: Vec<_> =
            items.iter().map(|(k, n)| format!("{k} {between} {n} resource instances")).collect();
        items.join(", ")
    };
    let content = if remaining.objects.is_empty() {
        let message = "All content successfully removed".to_owned();
        condition("NamespaceContentRemaining", false, "ContentRemoved", message)
    } else {
        let message = format!("Some resources are remaining: {}", list(&remaining.objects, "has"));
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
    };
    let finalizers = if remaining.finalizers.is_empty() {
        let message = "All content-preserving finalizers finished".to_owned();
        condition("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message)
    } else {
        let message = format!(
            "Some content in the namespace has finalizers remaining: {}",
            list(&remaining.finalizers, "in")
        );
        condition("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
    };
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        failure,
        content,
        finalizers,
    ]
}

/// Sets a condition; whether that changed anything. The time changes with the status only.
fn set_condition(conditions: &mut Value, wanted: &Value, now: &Value) -> bool {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return false };
    let mut new = wanted.clone();
    new["lastTransitionTime"] = now.clone();
    let Some(old) = list.iter_mut().find(|c| c["type"] == wanted["type"]) else {
        list.push(new);
        return true;
    };
    if ["status", "reason", "message"].iter().all(|k| old[*k] == wanted[*k]) {
        return false;
    }
    if old["status"] == wanted["status"] {
        new["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    *old = new;
    true
}

impl Controller for NamespaceController {
    fn name(&self) -> &'static str {
        "namespace"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.namespaces.signal(), self.config_maps.signal(), self.accounts.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.namespaces.refresh(|seen| queue.add(seen.path));
        // What every namespace has comes back when it is deleted or changed.
        for (informer, name) in [(&self.config_maps, ROOT_CA), (&self.accounts, ACCOUNT)] {
            informer.refresh(|seen| {
                if let Some((namespace, _)) = seen.path.split_once('/').filter(|(_, n)| *n == name) {
                    queue.add(namespace);
                }
            });
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_namespace(key))
    }
}
