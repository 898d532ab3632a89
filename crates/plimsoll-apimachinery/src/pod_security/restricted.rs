//! Checks of the level `restricted`, in addition to those of `baseline`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Pod, Violation, baseline, containers, list, plural, quoted, setters, text};

/// The volume types that are allowed.
const ALLOWED: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The volume types that are forbidden, in the order in which upstream looks for them.
const FORBIDDEN: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.names(|c| c["securityContext"]["allowPrivilegeEscalation"] != false);
    let detail = || format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&names));
    (!names.is_empty()).then(|| Violation::new("allowPrivilegeEscalation != false", detail()))
}

/// Pods for Windows don't have the field.
pub fn privilege_escalation_1_25(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { privilege_escalation(pod) }
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let dropped = |c: &Value| list(&c["securityContext"]["capabilities"]["drop"]).iter().any(|c| c == "ALL");
    let keeping = pod.names(|c| !dropped(c));
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = containers(&keeping);
        details.push(format!("{who} must set securityContext.capabilities.drop=[\"ALL\"]"));
    }
    details.extend(baseline::added_capabilities(pod, &["NET_BIND_SERVICE"]));
    (!details.is_empty()).then(|| Violation::new("unrestricted capabilities", details.join("; ")))
}

/// Pods for Windows don't have the field.
pub fn capabilities_1_25(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { capabilities(pod) }
}

pub fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, kinds: &[&'static str]| kinds.iter().find(|k| !volume[**k].is_null()).copied();
    let bad: Vec<&Value> = list(&pod.spec["volumes"]).iter().filter(|v| has(v, &ALLOWED).is_none()).collect();
    let types: BTreeSet<&str> = bad.iter().map(|v| has(v, &FORBIDDEN).unwrap_or("unknown")).collect();
    let detail = || {
        format!(
            "{} {} {} {} {}",
            plural("volume", "volumes", bad.len()),
            quoted(bad.iter().map(|v| text(&v["name"]))),
            plural("uses", "use", bad.len()),
            plural("restricted volume type", "restricted volume types", types.len()),
            quoted(&types)
        )
    };
    (!bad.is_empty()).then(|| Violation::new("restricted volume types", detail()))
}

pub fn non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let non_root_of = |context: &Value| context["runAsNonRoot"].as_bool();
    let own = non_root_of(pod.security());
    let explicit = pod.names(|c| non_root_of(&c["securityContext"]) == Some(false));
    if let Some(who) = setters(own == Some(false), &explicit) {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return Some(Violation::new(REASON, detail));
    }
    let implicit = pod.names(|c| own != Some(true) && non_root_of(&c["securityContext"]).is_none());
    let detail = || format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&implicit));
    (!implicit.is_empty()).then(|| Violation::new(REASON, detail()))
}

pub fn non_root_1_35(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_in_user_namespace() { None } else { non_root(pod) }
}

pub fn user(pod: &Pod<'_>) -> Option<Violation> {
    let is_root = |context: &Value| context["runAsUser"] == 0;
    let names = pod.names(|c| is_root(&c["securityContext"]));
    let who = setters(is_root(pod.security()), &names)?;
    Some(Violation::new("runAsUser=0", format!("{who} must not set runAsUser=0")))
}

pub fn user_1_35(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_in_user_namespace() { None } else { user(pod) }
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(wrong) = baseline::seccomp(pod) {
        return Some(wrong);
    }
    let is_set = |context: &Value| !context["seccompProfile"].is_null();
    let own = is_set(pod.security());
    let names = pod.names(|c| !own && !is_set(&c["securityContext"]));
    let detail = || {
        let who = containers(&names);
        format!(
            "pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\""
        )
    };
    (!names.is_empty()).then(|| Violation::new("seccompProfile", detail()))
}

/// Pods for Windows don't have the field.
pub fn seccomp_1_25(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() { None } else { seccomp(pod) }
}
