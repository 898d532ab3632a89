//! Security contexts of pods and containers, and what an operating system rules out.

use serde_json::Value;

use super::super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

/// User and group ids go from 0 to this.
const MAX_ID: i64 = i32::MAX as i64;

fn ids(context: &Obj, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        if let Some(id) = int(context, key)
            && !(0..=MAX_ID).contains(&id)
        {
            errors.invalid(&path.field(key), id, "must be between 0 and 2147483647, inclusive");
        }
    }
}

/// `validatePodSpecSecurityContext`.
pub(super) fn pod(context: &Obj, path: &Path<'_>, errors: &mut Errors) {
    ids(context, &["fsGroup", "runAsUser", "runAsGroup"], path, errors);
    let groups = path.field("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        let id = group.as_i64().unwrap_or(0);
        if !(0..=MAX_ID).contains(&id) {
            errors.invalid(&groups.index(i), id, "must be between 0 and 2147483647, inclusive");
        }
    }
    if flag(context, "shareProcessNamespace") && flag(context, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("shareProcessNamespace"), true, detail);
    }
    let sysctls = path.field("sysctls");
    let mut seen: Vec<&str> = Vec::new();
    for (i, sysctl) in list(context, "sysctls").iter().map(as_obj).enumerate() {
        let at = sysctls.index(i);
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.required(&at.field("name"), "");
        } else if !is_sysctl(name) {
            let detail = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(&at.field("name"), name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(&at.field("name"), name);
        }
        seen.push(name);
    }
    if let Some(policy) = context.get("fsGroupChangePolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("fsGroupChangePolicy"), policy, &["OnRootMismatch", "Always"]);
    }
    if let Some(policy) = context.get("supplementalGroupsPolicy").and_then(Value::as_str) {
        errors.one_of(&path.field("supplementalGroupsPolicy"), policy, &["Merge", "Strict"]);
    }
    profiles(context, path, errors);
}

fn is_sysctl(name: &str) -> bool {
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let b = part.as_bytes();
            let edge = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
            b.first().is_some_and(edge)
                && b.last().is_some_and(edge)
                && b.iter().all(|c| edge(c) || b"-_".contains(c))
        })
}

/// `ValidateSecurityContext` of a container.
pub(super) fn container(context: &Obj, path: &Path<'_>, errors: &mut Errors) {
    ids(context, &["runAsUser", "runAsGroup"], path, errors);
    if let Some(mount) = context.get("procMount").and_then(Value::as_str) {
        errors.one_of(&path.field("procMount"), mount, &["Default", "Unmasked"]);
    }
    profiles(context, path, errors);
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid(path, Value::Object(context.clone()), detail);
        }
        let added = list(object(context, "capabilities"), "add");
        if added.iter().any(|c| matches!(c.as_str(), Some("CAP_SYS_ADMIN"))) {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid(path, Value::Object(context.clone()), detail);
        }
    }
}

/// seccomp and AppArmor profiles.
fn profiles(context: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for key in ["seccompProfile", "appArmorProfile"] {
        let Some(profile) = context.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        let local = has(profile, "localhostProfile");
        match text(profile, "type") {
            "" => errors.required(
                &at.field("type"),
                if key == "seccompProfile" {
                    "type is required when seccompProfile is set"
                } else {
                    "type is required when appArmorProfile is set"
                },
            ),
            "Localhost" if !local => {
                errors.required(&at.field("localhostProfile"), "must be set when seccomp type is Localhost");
            }
            "Localhost" => {}
            "RuntimeDefault" | "Unconfined" => {
                if local {
                    let detail = "can only be set when seccomp type is Localhost";
                    errors.invalid(
                        &at.field("localhostProfile"),
                        profile["localhostProfile"].clone(),
                        detail,
                    );
                }
            }
            other => {
                errors.not_supported(
                    &at.field("type"),
                    other,
                    &["Localhost", "RuntimeDefault", "Unconfined"],
                );
            }
        }
    }
}

/// Fields a Windows pod may not set.
pub(super) fn not_for_windows(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let context = object(spec, "securityContext");
    let at = path.field("securityContext");
    let of_pod = [
        "appArmorProfile",
        "seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "seccompProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "sysctls",
        "shareProcessNamespace",
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    ];
    for key in of_pod {
        if matches!(key, "hostUsers" | "hostPID" | "hostIPC" | "shareProcessNamespace") {
            if has(spec, key) {
                errors.forbidden(&path.field(key), DETAIL);
            }
        } else if has(context, key) {
            errors.forbidden(&at.field(key), DETAIL);
        }
    }
    let of_container = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    for group in ["containers", "initContainers", "ephemeralContainers"] {
        let list_path = path.field(group);
        for (i, c) in list(spec, group).iter().map(as_obj).enumerate() {
            let here = list_path.index(i);
            let at = here.field("securityContext");
            for key in of_container {
                if has(object(c, "securityContext"), key) {
                    errors.forbidden(&at.field(key), DETAIL);
                }
            }
        }
    }
}

/// Fields a Linux pod may not set.
pub(super) fn not_for_linux(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let at = path.field("securityContext");
    if has(object(spec, "securityContext"), "windowsOptions") {
        errors.forbidden(&at.field("windowsOptions"), DETAIL);
    }
    for group in ["containers", "initContainers", "ephemeralContainers"] {
        let list_path = path.field(group);
        for (i, c) in list(spec, group).iter().map(as_obj).enumerate() {
            if has(object(c, "securityContext"), "windowsOptions") {
                let here = list_path.index(i);
                errors.forbidden(&here.field("securityContext").field("windowsOptions"), DETAIL);
            }
        }
    }
}
