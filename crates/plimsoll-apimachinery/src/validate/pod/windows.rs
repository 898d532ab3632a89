//! Fields for Windows only, and fields that an operating system forbids.

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use super::each_container;
use crate::obj::{Obj, flag, has, list, object, text};

/// Characters a user's name may not have.
const NOT_IN_USER: &str = "\"/\\:;|=,+*?<>@[]";

/// `validateWindowsSecurityContextOptions`.
pub(super) fn options(context: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(options) = context.get("windowsOptions").and_then(Value::as_object) else { return };
    let path = path.field("windowsOptions");
    if let Some(name) = options.get("gmsaCredentialSpecName").and_then(Value::as_str) {
        let at = path.field("gmsaCredentialSpecName");
        errors.invalid_all(&at, name, &checks::dns_subdomain(name));
    }
    if let Some(spec) = options.get("gmsaCredentialSpec").and_then(Value::as_str) {
        let at = path.field("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > 64 * 1024 {
            errors.invalid(&at, spec, "gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if let Some(name) = options.get("runAsUserName").and_then(Value::as_str) {
        for fault in user_faults(name) {
            errors.invalid(&path.field("runAsUserName"), name, fault);
        }
    }
}

/// `DOMAIN\USER` or `USER`.
fn user_faults(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.bytes().any(|b| b.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let parts: Vec<&str> = name.split('\\').collect();
    let (domain, user) = match parts.as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec!["runAsUserName cannot contain more than one backslash"],
    };
    let mut faults = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= 256 {
            faults.push("runAsUserName's Domain length must be under 256 characters");
        }
        if !is_net_bios(domain) && !is_domain(domain) {
            faults.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format");
        }
    }
    if user.is_empty() {
        faults.push("runAsUserName's User cannot be empty");
    } else if user.len() > 104 {
        faults.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.bytes().all(|b| b == b'.' || b == b' ') {
        faults.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(|c| NOT_IN_USER.contains(c)) {
        faults.push("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]");
    }
    faults
}

fn is_net_bios(domain: &str) -> bool {
    (1..=15).contains(&domain.chars().count())
        && !domain.starts_with('.')
        && !domain.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_domain(domain: &str) -> bool {
    domain.split('.').all(|label| {
        let b = label.as_bytes();
        (1..=63).contains(&b.len())
            && b.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

/// `validateWindowsHostProcessPod`: all containers are processes of the host, or none.
pub(super) fn host_process(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let wanted =
        |context: &Obj| object(context, "windowsOptions").get("hostProcess").and_then(Value::as_bool);
    let pod = wanted(object(spec, "securityContext"));
    let (mut all, mut host) = (0, 0);
    each_container(spec, path, &mut |c, at| {
        all += 1;
        let own = wanted(object(c, "securityContext"));
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let context = at.field("securityContext");
            let options = context.field("windowsOptions");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&options.field("hostProcess"), own, &detail);
        }
        host += usize::from(own.or(pod) == Some(true));
    });
    if host == 0 {
        return;
    }
    if host != all {
        let detail =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.field("hostNetwork"), false, detail);
    }
}

/// Fields that the pod's operating system forbids.
pub(super) fn os(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "os") {
        return;
    }
    let at = path.field("os");
    match text(object(spec, "os"), "name") {
        "" => errors.required(&at.field("name"), ""),
        "linux" => not_for_linux(spec, path, errors),
        "windows" => not_for_windows(spec, path, errors),
        other => errors.not_supported(&at, other, &["linux", "windows"]),
    }
}

/// Fields of the pod that a Windows pod may not set; those of the security context have no `spec` in their name.
const OF_POD: [(&str, bool); 15] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];

const OF_CONTAINER: [&str; 10] = [
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

fn not_for_windows(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let context = object(spec, "securityContext");
    let at = path.field("securityContext");
    for (key, of_context) in OF_POD {
        let (holder, holder_path) = if of_context { (context, &at) } else { (spec, path) };
        let empty = matches!(key, "sysctls") && list(holder, key).is_empty();
        if has(holder, key) && !empty {
            errors.forbidden(&holder_path.field(key), DETAIL);
        }
    }
    each_container(spec, path, &mut |c, at| {
        let context = object(c, "securityContext");
        let at = at.field("securityContext");
        for key in OF_CONTAINER.iter().filter(|key| has(context, key)) {
            errors.forbidden(&at.field(key), DETAIL);
        }
    });
}

fn not_for_linux(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let at = path.field("securityContext");
    if has(object(spec, "securityContext"), "windowsOptions") {
        errors.forbidden(&at.field("windowsOptions"), DETAIL);
    }
    each_container(spec, path, &mut |c, at| {
        if has(object(c, "securityContext"), "windowsOptions") {
            errors.forbidden(&at.field("securityContext").field("windowsOptions"), DETAIL);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        for (name, faults) in [
            ("user", 0),
            ("domain\\user", 0),
            ("a.example.com\\user", 0),
            ("NT AUTHORITY\\SYSTEM", 0),
            ("\\user", 1),
            ("a\\b\\c", 1),
            ("a\n", 1),
            ("...", 1),
            ("domain\\", 1),
            ("a@b", 1),
            ("", 1),
        ] {
            assert_eq!(user_faults(name).len(), faults, "{name}");
        }
    }
}
