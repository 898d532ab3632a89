//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::golang;
use super::super::path::{Errors, Path};
use super::{paths, windows};
use crate::obj::{Obj, as_obj, flag, int, list, object, text};

/// User and group ids go from 0 to this.
pub(super) const MAX_ID: i64 = i32::MAX as i64;

fn ids(context: &Obj, keys: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for key in keys {
        if let Some(id) = int(context, key) {
            errors.between(&path.field(key), id, 0..=MAX_ID);
        }
    }
}

/// `validatePodSpecSecurityContext`. Some fields of the spec belong to the security context internally.
pub(super) fn pod(context: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    ids(context, &["fsGroup", "runAsUser", "runAsGroup"], path, errors);
    let groups = path.field("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        errors.between(&groups.index(i), group.as_i64().unwrap_or(0), 0..=MAX_ID);
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("shareProcessNamespace"), true, detail);
    }
    sysctls(context, spec, &path.field("sysctls"), errors);
    let policy = |key: &str, allowed: &[&str], errors: &mut Errors| {
        if let Some(policy) = context.get(key).and_then(Value::as_str) {
            errors.one_of(&path.field(key), policy, allowed);
        }
    };
    policy("fsGroupChangePolicy", &["Always", "OnRootMismatch"], errors);
    seccomp(context, path, errors);
    windows::options(context, path, errors);
    app_armor(context, path, errors);
    policy("supplementalGroupsPolicy", &["Merge", "Strict"], errors);
    // `MountOption` comes with a feature that is off by default.
    policy("seLinuxChangePolicy", &["Recursive"], errors);
}

/// `validateSysctls`.
fn sysctls(context: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, sysctl) in list(context, "sysctls").iter().map(as_obj).enumerate() {
        let here = path.index(i);
        let at = here.field("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if !is_sysctl(name) {
            let detail = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(&at, name, detail);
        } else if seen.contains(name) {
            errors.duplicate(&at, name);
        }
        match sysctl_namespace(name) {
            Some("net") if flag(spec, "hostNetwork") => {
                errors.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
            }
            Some("ipc") if flag(spec, "hostIPC") => {
                errors.invalid(&at, name, "may not be specified when 'hostIPC' is true");
            }
            _ => {}
        }
        seen.insert(name);
    }
}

/// The namespace of the pod that a sysctl belongs to (`sysctl.GetNamespace`).
fn sysctl_namespace(name: &str) -> Option<&'static str> {
    // Slashes and dots change places when the first of them is a slash.
    let first = name.find(['.', '/']).and_then(|i| name.as_bytes().get(i));
    let name: String = match first {
        Some(b'/') => name
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                c => c,
            })
            .collect(),
        _ => name.to_owned(),
    };
    const IPC: [&str; 10] =
        ["sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "shm", "msgmax", "msgmnb", "msgmni", "msg"];
    if name.strip_prefix("kernel.").is_some_and(|rest| IPC.contains(&rest)) || name.starts_with("fs.mqueue.")
    {
        return Some("ipc");
    }
    name.starts_with("net.").then_some("net")
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
pub(super) fn container(context: &Obj, host_users: bool, path: &Path<'_>, errors: &mut Errors) {
    ids(context, &["runAsUser", "runAsGroup"], path, errors);
    if let Some(mount) = context.get("procMount").and_then(Value::as_str) {
        let at = path.field("procMount");
        errors.one_of(&at, mount, &["Default", "Unmasked"]);
        if host_users && mount == "Unmasked" {
            errors.invalid(&at, mount, "`hostUsers` must be false to use `Unmasked`");
        }
    }
    seccomp(context, path, errors);
    let shown = || golang::structure("SecurityContext", context);
    if context.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        if flag(context, "privileged") {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            errors.invalid_text(path, shown(), detail);
        }
        let added = list(object(context, "capabilities"), "add");
        for _ in added.iter().filter(|c| *c == "CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid_text(path, shown(), detail);
        }
    }
    windows::options(context, path, errors);
    app_armor(context, path, errors);
}

const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

/// `validateSeccompProfileField`.
fn seccomp(context: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(profile) = context.get("seccompProfile").and_then(Value::as_object) else { return };
    let at = path.field("seccompProfile");
    let kind = text(profile, "type");
    match kind {
        "" => errors.required(&at.field("type"), "type is required when seccompProfile is set"),
        kind => errors.one_of(&at.field("type"), kind, &TYPES),
    }
    let local = profile.get("localhostProfile").and_then(Value::as_str);
    let here = at.field("localhostProfile");
    match (kind == "Localhost", local) {
        (true, None) => errors.required(&here, "must be set when seccomp type is Localhost"),
        (true, Some(local)) => paths::descending(local, &here, errors),
        (false, Some(_)) => {
            let shown = golang::structure("SeccompProfile", profile);
            errors.invalid_text(&here, shown, "can only be set when seccomp type is Localhost");
        }
        (false, None) => {}
    }
}

/// `ValidateAppArmorProfileField`.
fn app_armor(context: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(profile) = context.get("appArmorProfile").and_then(Value::as_object) {
        app_armor_profile(profile, &path.field("appArmorProfile"), errors);
    }
}

/// One AppArmor profile.
pub(super) fn app_armor_profile(profile: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    let local = profile.get("localhostProfile").and_then(Value::as_str);
    let here = path.field("localhostProfile");
    match (text(profile, "type"), local) {
        ("", _) => errors.required(&path.field("type"), "type is required when appArmorProfile is set"),
        ("Localhost", None) => errors.required(&here, MISSING),
        ("Localhost", Some(local)) => {
            if local.trim() != local {
                errors.invalid(&here, local, "must not be padded with whitespace");
            } else if local.is_empty() {
                errors.required(&here, MISSING);
            }
            if local.len() > 4095 {
                errors.too_long(&here, 4095);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(local)) => {
            errors.invalid(&here, local, "can only be set when AppArmor type is Localhost");
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        (other, _) => errors.not_supported(&path.field("type"), other, &TYPES),
    }
}
