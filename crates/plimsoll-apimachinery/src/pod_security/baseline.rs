//! Checks of the level `baseline`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Pod, Violation, containers, list, plural, quoted, setters, text};
use crate::go::go_quote;

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Capabilities that container runtimes give by default, except NET_RAW.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that are safe because they affect the pod alone, with the minor version since which the check allows them.
const SYSCTLS: [(&str, u64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

/// Whether a profile confines a pod at least as much as the runtime's default.
pub fn is_confined(profile: &str) -> bool {
    matches!(profile, "RuntimeDefault" | "Localhost")
}

/// Forbidden profiles of one kind in the security contexts of a pod.
struct Profiles<'a> {
    /// Whether the pod itself sets one.
    pod: bool,
    /// The containers that set one.
    containers: Vec<&'a str>,
    /// The forbidden types.
    types: BTreeSet<&'a str>,
}

impl<'a> Profiles<'a> {
    /// The forbidden profiles in `field` of the security contexts (`appArmorProfile`, `seccompProfile`).
    fn forbidden(pod: &Pod<'a>, field: &str) -> Self {
        let mut types = BTreeSet::new();
        let mut sets = |context: &'a Value| {
            let profile = &context[field];
            let forbidden = !profile.is_null() && !is_confined(text(&profile["type"]));
            if forbidden {
                types.insert(text(&profile["type"]));
            }
            forbidden
        };
        let own = sets(pod.security());
        let containers = pod.names(|c| sets(&c["securityContext"]));
        Self { pod: own, containers, types }
    }

    /// The pod and the containers that set a forbidden profile; `None`: neither does.
    fn setters(&self) -> Option<String> {
        setters(self.pod, &self.containers)
    }
}

pub fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let profiles = Profiles::forbidden(pod, "appArmorProfile");
    let allowed = |v: &str| v.is_empty() || v == "runtime/default" || v.starts_with("localhost/");
    let annotations: BTreeSet<String> = pod
        .annotations()
        .filter(|(key, value)| key.starts_with(APP_ARMOR) && !allowed(value))
        .map(|(key, value)| format!("{key}={}", go_quote(value)))
        .collect();
    let by_annotation =
        (!annotations.is_empty()).then(|| plural("annotation", "annotations", annotations.len()).to_owned());
    let who: Vec<String> = profiles.setters().into_iter().chain(by_annotation).collect();
    let values: Vec<&str> =
        profiles.types.iter().copied().chain(annotations.iter().map(String::as_str)).collect();
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    let detail = format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(values));
    (!who.is_empty()).then(|| Violation::new(reason, detail))
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let detail = added_capabilities(pod, &CAPABILITIES)?;
    Some(Violation::new("non-default capabilities", detail))
}

/// The violation by containers that add other capabilities than the allowed ones.
pub fn added_capabilities(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut added = BTreeSet::new();
    let names = pod.names(|c| {
        let all = list(&c["securityContext"]["capabilities"]["add"]).iter().map(text);
        let forbidden: Vec<&str> = all.filter(|c| !allowed.contains(c)).collect();
        added.extend(forbidden.iter().copied());
        !forbidden.is_empty()
    });
    let (who, added) = (containers(&names), quoted(&added));
    (!names.is_empty()).then(|| format!("{who} must not include {added} in securityContext.capabilities.add"))
}

pub fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|f| pod.spec[*f] == true);
    let fields: Vec<String> = fields.map(|f| format!("{f}=true")).collect();
    (!fields.is_empty()).then(|| Violation::new("host namespaces", fields.join(", ")))
}

pub fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = list(&pod.spec["volumes"]).iter().filter(|v| !v["hostPath"].is_null());
    let names: Vec<&str> = volumes.map(|v| text(&v["name"])).collect();
    let detail = || format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    (!names.is_empty()).then(|| Violation::new("hostPath volumes", detail()))
}

pub fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    // Upstream sorts ports as strings.
    let mut ports = BTreeSet::new();
    let names = pod.names(|c| {
        let used = list(&c["ports"]).iter().filter_map(|p| p["hostPort"].as_i64()).filter(|p| *p != 0);
        let used: Vec<String> = used.map(|p| p.to_string()).collect();
        let bad = !used.is_empty();
        ports.extend(used);
        bad
    });
    let detail = || {
        let all: Vec<&str> = ports.iter().map(String::as_str).collect();
        format!(
            "{} {} {} {}",
            containers(&names),
            plural("uses", "use", names.len()),
            plural("hostPort", "hostPorts", all.len()),
            all.join(", ")
        )
    };
    (!names.is_empty()).then(|| Violation::new("hostPort", detail()))
}

/// Probes and hooks that name a host let a pod send requests of the kubelet anywhere (since 1.34).
pub fn host_probes(pod: &Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let names = pod.names(|c| {
        let lifecycle = &c["lifecycle"];
        let handlers = ["livenessProbe", "readinessProbe", "startupProbe"].map(|p| &c[p]);
        let handlers = handlers.into_iter().chain([&lifecycle["postStart"], &lifecycle["preStop"]]);
        let named = handlers.flat_map(|h| [text(&h["httpGet"]["host"]), text(&h["tcpSocket"]["host"])]);
        let named: Vec<&str> = named.filter(|host| !host.is_empty()).collect();
        hosts.extend(named.iter().copied());
        !named.is_empty()
    });
    let names: BTreeSet<&str> = names.into_iter().collect();
    let names: Vec<&str> = names.into_iter().collect();
    let detail = || {
        format!(
            "{} {} {} {}",
            containers(&names),
            plural("uses", "use", names.len()),
            plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len()),
            quoted(&hosts)
        )
    };
    (!names.is_empty()).then(|| Violation::new("probe or lifecycle host", detail()))
}

pub fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.names(|c| c["securityContext"]["privileged"] == true);
    let detail = || format!("{} must not set securityContext.privileged=true", containers(&names));
    (!names.is_empty()).then(|| Violation::new("privileged", detail()))
}

pub fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = pod.names(|c| {
        let mount = c["securityContext"]["procMount"].as_str().filter(|m| *m != "Default");
        types.extend(mount);
        mount.is_some()
    });
    let detail =
        || format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(&types));
    (!names.is_empty()).then(|| Violation::new("procMount", detail()))
}

pub fn proc_mount_1_35(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_in_user_namespace() { None } else { proc_mount(pod) }
}

pub fn se_linux(pod: &Pod<'_>) -> Option<Violation> {
    se_linux_types(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

pub fn se_linux_1_31(pod: &Pod<'_>) -> Option<Violation> {
    se_linux_types(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn se_linux_types(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut sets = |context: &Value| {
        let options = &context["seLinuxOptions"];
        let kind = text(&options["type"]);
        let bad_type = !allowed.contains(&kind);
        if bad_type {
            types.insert(kind.to_owned());
        }
        let (has_user, has_role) = (!text(&options["user"]).is_empty(), !text(&options["role"]).is_empty());
        user |= has_user;
        role |= has_role;
        bad_type || has_user || has_role
    };
    let own = sets(pod.security());
    let names = pod.names(|c| sets(&c["securityContext"]));
    let who = setters(own, &names)?;
    let mut bad = Vec::new();
    if !types.is_empty() {
        bad.push(format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    }
    bad.extend(user.then(|| "user may not be set".to_owned()));
    bad.extend(role.then(|| "role may not be set".to_owned()));
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", bad.join("; "));
    Some(Violation::new("seLinuxOptions", detail))
}

/// Seccomp profiles, which were annotations until 1.18.
pub fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let allowed = |v: &str| v == "runtime/default" || v == "docker/default" || v.starts_with("localhost/");
    let of_containers = pod.containers().map(|c| format!("{SECCOMP_CONTAINER}{}", text(&c["name"])));
    let keys: BTreeSet<String> = of_containers.chain([SECCOMP_POD.to_owned()]).collect();
    let forbidden: BTreeSet<String> = pod
        .annotations()
        .filter(|(key, value)| keys.contains(*key) && !allowed(value))
        .map(|(key, value)| format!("{key}={}", go_quote(value)))
        .collect();
    let detail = || {
        let all: Vec<&str> = forbidden.iter().map(String::as_str).collect();
        format!("forbidden {} {}", plural("annotation", "annotations", all.len()), all.join(", "))
    };
    (!forbidden.is_empty()).then(|| Violation::new("seccompProfile", detail()))
}

pub fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let profiles = Profiles::forbidden(pod, "seccompProfile");
    let (who, types) = (profiles.setters()?, quoted(&profiles.types));
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {types}");
    Some(Violation::new("seccompProfile", detail))
}

pub fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 0)
}

pub fn sysctls_1_27(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 27)
}

pub fn sysctls_1_29(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 29)
}

pub fn sysctls_1_32(pod: &Pod<'_>) -> Option<Violation> {
    sysctls_of(pod, 32)
}

fn sysctls_of(pod: &Pod<'_>, minor: u64) -> Option<Violation> {
    let safe = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && *since <= minor);
    let names = list(&pod.security()["sysctls"]).iter().map(|s| text(&s["name"]));
    let names: Vec<&str> = names.filter(|name| !safe(name)).collect();
    (!names.is_empty()).then(|| Violation::new("forbidden sysctls", names.join(", ")))
}

pub fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let sets = |context: &Value| context["windowsOptions"]["hostProcess"] == true;
    let names = pod.names(|c| sets(&c["securityContext"]));
    let who = setters(sets(pod.security()), &names)?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Violation::new("hostProcess", detail))
}
