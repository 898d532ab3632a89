//! Secrets that pods refer to.

use serde_json::Value;

use super::{Account, Reference};

/// Fields of volumes that refer to secrets (`VisitPodSecretNames`): the volume, the field with the reference, and the
/// name in it.
const VOLUMES: [(&str, &str, &str); 11] = [
    ("azureFile", "", "secretName"),
    ("cephfs", "secretRef", "name"),
    ("cinder", "secretRef", "name"),
    ("flexVolume", "secretRef", "name"),
    ("rbd", "secretRef", "name"),
    ("secret", "", "secretName"),
    ("scaleIO", "secretRef", "name"),
    ("iscsi", "secretRef", "name"),
    ("storageos", "secretRef", "name"),
    ("csi", "nodePublishSecretRef", "name"),
    ("projected", "", ""),
];

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

/// What mirror pods may not have, because no API stands between their author and the kubelet.
pub fn mirror(pod: &Value) -> Result<(), &'static str> {
    let spec = &pod["spec"];
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Err("a mirror pod may not reference service accounts");
    }
    if has_secrets(pod) {
        return Err("a mirror pod may not reference secrets");
    }
    let projected = list(&spec["volumes"]).iter().flat_map(|v| list(&v["projected"]["sources"]));
    if projected.into_iter().any(|source| !source["serviceAccountToken"].is_null()) {
        return Err("a mirror pod may not use ServiceAccountToken volume projections");
    }
    Ok(())
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let spec = &pod["spec"];
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |f| list(&spec[f]))
}

/// Whether a pod refers to any Secret (`VisitPodSecretNames`).
pub fn has_secrets(pod: &Value) -> bool {
    !list(&pod["spec"]["imagePullSecrets"]).is_empty()
        || containers(pod).any(|c| references(c).next().is_some())
        || list(&pod["spec"]["volumes"]).iter().any(holds_secret)
}

/// Whether a pod refers to any ConfigMap (`VisitPodConfigmapNames`).
pub fn has_config_maps(pod: &Value) -> bool {
    let in_environment = |c: &Value| {
        list(&c["env"]).iter().any(|env| env["valueFrom"]["configMapKeyRef"].is_object())
            || list(&c["envFrom"]).iter().any(|from| from["configMapRef"].is_object())
    };
    let in_volume = |v: &Value| {
        let mut sources = list(&v["projected"]["sources"]).iter();
        v["configMap"].is_object() || sources.any(|source| source["configMap"].is_object())
    };
    containers(pod).any(in_environment) || list(&pod["spec"]["volumes"]).iter().any(in_volume)
}

fn holds_secret(volume: &Value) -> bool {
    VOLUMES.iter().any(|(kind, reference, name)| {
        let source = &volume[kind];
        match (*kind, *reference) {
            ("projected", _) => list(&source["sources"]).iter().any(|s| !s["secret"].is_null()),
            (_, "") => source[name].as_str().is_some_and(|n| !n.is_empty()),
            (_, reference) => !source[reference].is_null(),
        }
    })
}

/// The names of secrets in the environment of a container, each with the variable that it is for, if it is for one.
fn references(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let text = |v: &'_ Value| v.is_object();
    let one = list(&container["env"]).iter().filter_map(move |env| {
        let secret = &env["valueFrom"]["secretKeyRef"];
        text(secret)
            .then(|| (Some(env["name"].as_str().unwrap_or("")), secret["name"].as_str().unwrap_or("")))
    });
    let all = list(&container["envFrom"]).iter().filter_map(move |from| {
        let secret = &from["secretRef"];
        text(secret).then(|| (None, secret["name"].as_str().unwrap_or("")))
    });
    one.chain(all)
}

/// `limitSecretReferences`.
pub fn of_pod(pod: &Value, name: &str, account: &Account) -> Result<(), String> {
    let spec = &pod["spec"];
    let lacks = format!("is not allowed because service account {name} does not reference that");
    for volume in list(&spec["volumes"]).iter().filter(|v| v["secret"].is_object()) {
        let secret = volume["secret"]["secretName"].as_str().unwrap_or("");
        if !has(account.secrets.as_deref(), secret) {
            return Err(format!("volume with secret.secretName=\"{secret}\" {lacks} secret"));
        }
    }
    for (field, what) in [("initContainers", "init container"), ("containers", "container")] {
        of_containers(list(&spec[field]), what, name, account)?;
    }
    for (i, secret) in list(&spec["imagePullSecrets"]).iter().enumerate() {
        let secret = secret["name"].as_str().unwrap_or("");
        if !has(account.image_pull_secrets.as_deref(), secret) {
            return Err(format!("imagePullSecrets[{i}].name=\"{secret}\" {lacks} imagePullSecret"));
        }
    }
    Ok(())
}

/// `limitEphemeralContainerSecretReferences`.
pub fn of_ephemeral_containers(pod: &Value, name: &str, account: &Account) -> Result<(), String> {
    of_containers(list(&pod["spec"]["ephemeralContainers"]), "ephemeral container", name, account)
}

fn of_containers(containers: &[Value], what: &str, name: &str, account: &Account) -> Result<(), String> {
    for container in containers {
        for (variable, secret) in references(container) {
            if has(account.secrets.as_deref(), secret) {
                continue;
            }
            let container = container["name"].as_str().unwrap_or("");
            let by = variable.map_or_else(|| "envFrom".to_owned(), |v| format!("envVar {v}"));
            return Err(format!(
                "{what} {container} with {by} referencing secret.secretName=\"{secret}\" is not allowed because \
                 service account {name} does not reference that secret"
            ));
        }
    }
    Ok(())
}

fn has(all: Option<&[Reference]>, name: &str) -> bool {
    all.unwrap_or_default().iter().any(|r| r.name == name)
}
