//! The checks: a row for each, with the versions in which it changed (`k8s.io/pod-security-admission/policy`).

use serde_json::Value;

use super::{Level, LevelVersion, Pod, Version, Violation, baseline, restricted};

type Check = fn(&Pod<'_>) -> Option<Violation>;

/// A check: the id by which upstream sorts it, and its implementations by the minor version since which they hold.
struct Row {
    id: &'static str,
    level: Level,
    versions: &'static [(u64, Check)],
    /// The baseline check that this one includes.
    overrides: &'static str,
}

const fn base(id: &'static str, versions: &'static [(u64, Check)]) -> Row {
    Row { id, level: Level::Baseline, versions, overrides: "" }
}

const fn strict(id: &'static str, versions: &'static [(u64, Check)], overrides: &'static str) -> Row {
    Row { id, level: Level::Restricted, versions, overrides }
}

/// Baseline checks by name, then restricted checks by name: the order of messages.
const ROWS: [Row; 19] = [
    base("appArmorProfile", &[(0, baseline::app_armor)]),
    base("capabilities_baseline", &[(0, baseline::capabilities)]),
    base("hostNamespaces", &[(0, baseline::host_namespaces)]),
    base("hostPathVolumes", &[(0, baseline::host_path_volumes)]),
    base("hostPorts", &[(0, baseline::host_ports)]),
    base("hostProbesAndHostLifecycle", &[(34, baseline::host_probes)]),
    base("privileged", &[(0, baseline::privileged)]),
    base("procMount", &[(0, baseline::proc_mount), (35, baseline::proc_mount_1_35)]),
    base("seLinuxOptions", &[(0, baseline::se_linux), (31, baseline::se_linux_1_31)]),
    base("seccompProfile_baseline", &[(0, baseline::seccomp_annotations), (19, baseline::seccomp)]),
    base(
        "sysctls",
        &[
            (0, baseline::sysctls),
            (27, baseline::sysctls_1_27),
            (29, baseline::sysctls_1_29),
            (32, baseline::sysctls_1_32),
        ],
    ),
    base("windowsHostProcess", &[(0, baseline::windows_host_process)]),
    strict(
        "allowPrivilegeEscalation",
        &[(8, restricted::privilege_escalation), (25, restricted::privilege_escalation_1_25)],
        "",
    ),
    strict(
        "capabilities_restricted",
        &[(22, restricted::capabilities), (25, restricted::capabilities_1_25)],
        "capabilities_baseline",
    ),
    strict("procMount_restricted", &[(35, baseline::proc_mount)], "procMount"),
    strict("restrictedVolumes", &[(0, restricted::volumes)], "hostPathVolumes"),
    strict("runAsNonRoot", &[(0, restricted::non_root), (35, restricted::non_root_1_35)], ""),
    strict("runAsUser", &[(23, restricted::user), (35, restricted::user_1_35)], ""),
    strict(
        "seccompProfile_restricted",
        &[(19, restricted::seccomp), (25, restricted::seccomp_1_25)],
        "seccompProfile_baseline",
    ),
];

/// The violations of a level by a pod or a template, given by its metadata and its spec.
pub fn evaluate(wanted: LevelVersion, metadata: &Value, spec: &Value) -> Vec<Violation> {
    if wanted.level == Level::Privileged {
        return Vec::new();
    }
    let minor = match wanted.version {
        Version::Latest => u64::MAX,
        Version::Minor(minor) => minor,
    };
    let pod = Pod { metadata, spec };
    let in_force = |row: &Row| -> Option<Check> {
        row.versions.iter().rev().find(|(since, _)| *since <= minor).map(|(_, check)| *check)
    };
    let strict = wanted.level == Level::Restricted;
    let overridden =
        |id: &str| strict && ROWS.iter().any(|row| row.overrides == id && in_force(row).is_some());
    let rows = ROWS.iter().filter(|row| row.level <= wanted.level && !overridden(row.id));
    rows.filter_map(in_force).filter_map(|check| check(&pod)).collect()
}
