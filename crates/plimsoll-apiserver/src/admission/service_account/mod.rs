//! ServiceAccount (`plugin/pkg/admission/serviceaccount`): pods run as an account that exists, get its pull secrets,
//! and mount a token of it.

mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_apimachinery::ApiError;
use rand::RngExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::pipeline::generate_name;
use crate::store::{Key, Record};
use crate::write::Write;

pub(super) use secrets::{has_config_maps, has_secrets};

/// The account of pods that name none.
const DEFAULT: &str = "default";
/// Prefix of the name of the volume with the token.
const VOLUME: &str = "kube-api-access-";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Marks pods that kubelets show for those that they run from files.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
/// Lifetime that is asked for tokens: an hour, and seven seconds by which upstream tells these tokens from others
/// (`WarnOnlyBoundTokenExpirationSeconds`).
const EXPIRATION_SECONDS: i64 = 3607;
/// How often upstream sleeps until it gives up on a default account, between 100 and 200 ms each time.
const SLEEPS: u64 = 9;

/// What of an account matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Account {
    metadata: Metadata,
    automount_service_account_token: Option<bool>,
    image_pull_secrets: Option<Vec<Reference>>,
    secrets: Option<Vec<Reference>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    name: String,
}

impl Account {
    /// Whether pods may refer to the secrets of the account only (`enforceMountableSecrets`).
    fn enforces_mountable(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let value = annotations.and_then(|a| a.get(ENFORCE_MOUNTABLE)).map_or("", String::as_str);
        // `strconv.ParseBool`.
        matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
    }
}

fn is_mirror(pod: &Value) -> bool {
    !pod["metadata"]["annotations"][MIRROR].is_null()
}

fn is_pod(w: &Write) -> bool {
    w.kind.plural == "pods" && w.kind.gvk.group.is_empty() && w.subresource.is_empty()
}

/// Gives a new pod its account, pull secrets and token.
///
/// # Errors
/// 403 for an account that does not exist; for a default account after a wait, because its controller makes it soon
/// after its namespace.
pub async fn admit(w: &Write, pod: &mut Value, operation: Operation) -> Result<(), ApiError> {
    if operation != Operation::Create || !is_pod(w) || !pod["spec"].is_object() {
        return Ok(());
    }
    // Upstream looks at references here already, before the object is validated.
    if is_mirror(pod) {
        return validate(w, pod, operation);
    }
    let named = pod["spec"]["serviceAccountName"].as_str().filter(|n| !n.is_empty());
    let name = named.unwrap_or(DEFAULT).to_owned();
    let Some(record) = wait_for(w, &name).await else { return Err(missing(w, pod, &name)) };
    let account = read(&record)?;
    pod["spec"]["serviceAccountName"] = json!(name);
    // The deprecated field shows the same.
    pod["spec"]["serviceAccount"] = json!(name);
    let automount = pod["spec"]["automountServiceAccountToken"].as_bool();
    if automount.or(account.automount_service_account_token).unwrap_or(true) {
        mount_token(&mut pod["spec"]);
    }
    let own = pod["spec"]["imagePullSecrets"].as_array().is_some_and(|own| !own.is_empty());
    let pull = account.image_pull_secrets.as_deref().filter(|secrets| !own && !secrets.is_empty());
    if let Some(pull) = pull {
        pod["spec"]["imagePullSecrets"] = pull.iter().map(|s| json!({"name": s.name})).collect();
    }
    if !account.enforces_mountable() {
        return Ok(());
    }
    secrets::of_pod(pod, &name, &account).map_err(|why| forbidden(w, pod, &why))
}

/// Checks what a pod refers to when it is created or gets ephemeral containers.
///
/// # Errors
/// 403 for a missing account, secrets that the account does not let its pods use, and for mirror pods that use any.
pub fn validate(w: &Write, pod: &Value, operation: Operation) -> Result<(), ApiError> {
    let s = subject(w);
    if !s.group.is_empty() || s.plural != "pods" {
        return Ok(());
    }
    let ephemeral = match (operation, s.subresource) {
        (Operation::Create, "") => false,
        (Operation::Update, "ephemeralcontainers") => true,
        _ => return Ok(()),
    };
    if !ephemeral && is_mirror(pod) {
        return secrets::mirror(pod).map_err(|why| forbidden(w, pod, why));
    }
    let name = pod["spec"]["serviceAccountName"].as_str().unwrap_or("");
    if name.is_empty() {
        let pod_name = pod["metadata"]["name"].as_str().unwrap_or("");
        let why = format!("no service account specified for pod {}/{pod_name}", w.namespace);
        return Err(forbidden(w, pod, &why));
    }
    let Some(record) = w.server.store().latest(&key(w, name)) else { return Err(missing(w, pod, name)) };
    let account = read(&record)?;
    if !account.enforces_mountable() {
        return Ok(());
    }
    if ephemeral {
        // Upstream's error has no status of its own here, and becomes this one.
        let checked = secrets::of_ephemeral_containers(pod, name, &account);
        return checked.map_err(|why| ApiError::new(500, "", why));
    }
    secrets::of_pod(pod, name, &account).map_err(|why| forbidden(w, pod, &why))
}

fn key(w: &Write, name: &str) -> Key {
    Key::new("/serviceaccounts", w.namespace.as_str(), name)
}

fn read(record: &Record) -> Result<Account, ApiError> {
    serde_json::from_slice(&record.json).map_err(ApiError::internal)
}

fn missing(w: &Write, pod: &Value, name: &str) -> ApiError {
    let why = format!(
        "error looking up service account {}/{name}: serviceaccount \"{name}\" not found",
        w.namespace
    );
    forbidden(w, pod, &why)
}

/// The account. Upstream asks ten times for a default one (`getServiceAccount`); here its creation ends the wait.
async fn wait_for(w: &Write, name: &str) -> Option<Arc<Record>> {
    let (store, key) = (w.server.store(), key(w, name));
    let there = store.latest(&key);
    if there.is_some() || name != DEFAULT {
        return there;
    }
    let mut changed = store.signal();
    let made = async {
        loop {
            let there = store.latest(&key);
            if there.is_some() || changed.changed().await.is_err() {
                return there;
            }
        }
    };
    let patience = Duration::from_millis(SLEEPS * rand::rng().random_range(100..200));
    tokio::time::timeout(patience, made).await.ok().flatten()
}

/// Mounts the token into all containers that mount nothing else there.
fn mount_token(spec: &mut Value) {
    let volumes = spec["volumes"].as_array().map_or(&[][..], Vec::as_slice);
    let present = volumes.iter().filter_map(|v| v["name"].as_str()).find(|n| n.starts_with(VOLUME));
    let name = present.map(str::to_owned);
    let (is_new, name) = (name.is_none(), name.unwrap_or_else(|| generate_name(VOLUME)));
    let mut mounted = false;
    for field in ["initContainers", "containers"] {
        let Some(containers) = spec.get_mut(field).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter(|c| c.is_object()) {
            let mounts = container["volumeMounts"].as_array().map_or(&[][..], Vec::as_slice);
            if mounts.iter().any(|m| m["mountPath"] == MOUNT_PATH) {
                continue;
            }
            push(container, "volumeMounts", json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
            mounted = true;
        }
    }
    if is_new && mounted {
        push(spec, "volumes", token_volume(&name));
    }
}

fn push(object: &mut Value, field: &str, value: Value) {
    match object[field].as_array_mut() {
        Some(list) => list.push(value),
        None => object[field] = json!([value]),
    }
}

/// `TokenVolumeSource`, with its defaults.
fn token_volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": EXPIRATION_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}
