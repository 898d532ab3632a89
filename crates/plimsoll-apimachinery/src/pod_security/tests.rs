//! Rows for every check: what is asked for, what a pod says, what is said of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Level, LevelVersion, Policy, Version, details, evaluate, is_significant};

/// A pod that meets everything.
fn hardened() -> Value {
    json!({"metadata": {}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
    }})
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(from)) if into.len() == from.len() => {
            into.iter_mut().zip(from).for_each(|(into, from)| merge(into, from));
        }
        (into, from) => *into = from.clone(),
    }
}

fn wanted(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(':').unwrap();
    let level = match level {
        "baseline" => Level::Baseline,
        _ => Level::Restricted,
    };
    let minor = version.strip_prefix("1.").map(|v| v.parse().unwrap());
    LevelVersion { level, version: minor.map_or(Version::Latest, Version::Minor) }
}

/// What a level has against the hardened pod with a change.
fn against(level: &str, change: &Value) -> String {
    let mut pod = hardened();
    merge(&mut pod, change);
    details(&evaluate(wanted(level), &pod["metadata"], &pod["spec"]))
}

fn container(fields: &Value) -> Value {
    json!({"spec": {"containers": [fields]}})
}

fn security(fields: &Value) -> Value {
    container(&json!({"securityContext": fields}))
}

fn pod(fields: &Value) -> Value {
    json!({"spec": {"securityContext": fields}})
}

fn check(rows: &[(&str, Value, &str)]) {
    for (level, change, wanted) in rows {
        assert_eq!(against(level, change), *wanted, "{level} {change}");
    }
}

#[test]
fn hardened_pods_are_restricted_in_every_version() {
    for minor in 0..40 {
        assert_eq!(against(&format!("restricted:1.{minor}"), &json!({})), "", "1.{minor}");
    }
    let open = LevelVersion { level: Level::Privileged, version: Version::Latest };
    assert!(evaluate(open, &Value::Null, &json!({"hostPID": true})).is_empty());
}

#[test]
fn baseline_of_the_host() {
    check(&[
        (
            "baseline:1.0",
            json!({"spec": {"hostNetwork": true, "hostPID": true, "hostIPC": true}}),
            "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
        ),
        (
            "baseline:latest",
            json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {}}]}}),
            "hostPath volumes (volumes \"v\", \"w\")",
        ),
        (
            "baseline:latest",
            container(&json!({"ports": [{"hostPort": 90}, {"hostPort": 8080}, {"hostPort": 0}]})),
            "hostPort (container \"a\" uses hostPorts 8080, 90)",
        ),
        (
            "baseline:1.34",
            container(
                &json!({"livenessProbe": {"httpGet": {"host": "b"}}, "lifecycle": {"preStop": {"tcpSocket": {"host": "a"}}}}),
            ),
            "probe or lifecycle host (container \"a\" uses probe or lifecycle hosts \"a\", \"b\")",
        ),
        ("baseline:1.33", container(&json!({"livenessProbe": {"httpGet": {"host": "b"}}})), ""),
        (
            "baseline:latest",
            security(&json!({"privileged": true})),
            "privileged (container \"a\" must not set securityContext.privileged=true)",
        ),
        (
            "baseline:latest",
            pod(&json!({"windowsOptions": {"hostProcess": true}})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            "baseline:1.0",
            pod(&json!({"sysctls": [{"name": "x"}, {"name": "y"}]})),
            "forbidden sysctls (x, y)",
        ),
        (
            "baseline:1.26",
            pod(&json!({"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]})),
            "forbidden sysctls (net.ipv4.ip_local_reserved_ports)",
        ),
        ("baseline:1.27", pod(&json!({"sysctls": [{"name": "net.ipv4.ip_local_reserved_ports"}]})), ""),
        (
            "baseline:1.28",
            pod(&json!({"sysctls": [{"name": "net.ipv4.tcp_fin_timeout"}]})),
            "forbidden sysctls (net.ipv4.tcp_fin_timeout)",
        ),
        ("baseline:1.29", pod(&json!({"sysctls": [{"name": "net.ipv4.tcp_fin_timeout"}]})), ""),
        (
            "baseline:1.31",
            pod(&json!({"sysctls": [{"name": "net.ipv4.tcp_rmem"}]})),
            "forbidden sysctls (net.ipv4.tcp_rmem)",
        ),
        ("baseline:1.32", pod(&json!({"sysctls": [{"name": "net.ipv4.tcp_rmem"}]})), ""),
    ]);
}

#[test]
fn baseline_of_containers() {
    let both = json!({"spec": {"initContainers": [{"name": "i", "securityContext": {"procMount": "Unmasked"}}],
        "ephemeralContainers": [{"name": "e", "securityContext": {"procMount": "Odd"}}]}});
    let proc =
        "procMount (containers \"i\", \"e\" must not set securityContext.procMount to \"Odd\", \"Unmasked\")";
    let mut in_namespace = both.clone();
    in_namespace["spec"]["hostUsers"] = json!(false);
    check(&[
        (
            "baseline:latest",
            security(&json!({"capabilities": {"add": ["SYS_ADMIN", "KILL", "NET_RAW"]}})),
            "non-default capabilities (container \"a\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
             securityContext.capabilities.add)",
        ),
        ("baseline:latest", both, proc),
        ("baseline:1.34", in_namespace.clone(), proc),
        ("baseline:1.35", in_namespace, ""),
        (
            "baseline:latest",
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "bad"}},
                "spec": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}}),
            "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \"Unconfined\", \
             \"container.apparmor.security.beta.kubernetes.io/a=\"bad\"\")",
        ),
        (
            "baseline:latest",
            json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/a": "localhost/x"}}}),
            "",
        ),
        (
            "baseline:1.30",
            json!({"spec": {"securityContext": {"seLinuxOptions": {"type": "container_engine_t", "role": "r"}},
                "containers": [{"securityContext": {"seLinuxOptions": {"user": "u"}}}]}}),
            "seLinuxOptions (pod and container \"a\" set forbidden securityContext.seLinuxOptions: type \
             \"container_engine_t\"; user may not be set; role may not be set)",
        ),
        ("baseline:1.31", pod(&json!({"seLinuxOptions": {"type": "container_engine_t"}})), ""),
        (
            "baseline:latest",
            security(&json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            "baseline:1.18",
            json!({"metadata": {"annotations": {"container.seccomp.security.alpha.kubernetes.io/a": "unconfined",
                "container.seccomp.security.alpha.kubernetes.io/other": "unconfined",
                "seccomp.security.alpha.kubernetes.io/pod": "docker/default"}}}),
            "seccompProfile (forbidden annotation container.seccomp.security.alpha.kubernetes.io/a=\"unconfined\")",
        ),
        ("baseline:1.18", security(&json!({"seccompProfile": {"type": "Unconfined"}})), ""),
    ]);
}

#[test]
fn restricted() {
    let escalates = "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false)";
    let keeps =
        "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"])";
    let root = "runAsUser=0 (container \"a\" must not set runAsUser=0)";
    let seccomp = "seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" \
                   or \"Localhost\")";
    let non_root = "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)";
    let windows = |change: &Value| {
        let mut change = change.clone();
        change["spec"]["os"] = json!({"name": "windows"});
        change
    };
    let bare = security(&json!({"allowPrivilegeEscalation": null}));
    let no_drop = security(&json!({"capabilities": null}));
    let none = pod(&json!({"seccompProfile": null}));
    let zero = security(&json!({"runAsUser": 0}));
    let mut mapped = zero.clone();
    mapped["spec"]["hostUsers"] = json!(false);
    let unmasked =
        json!({"spec": {"hostUsers": false, "containers": [{"securityContext": {"procMount": "Unmasked"}}]}});
    check(&[
        ("restricted:1.7", bare.clone(), ""),
        ("restricted:1.8", bare.clone(), escalates),
        ("restricted:1.24", windows(&bare), escalates),
        ("restricted:1.25", windows(&bare), ""),
        ("restricted:1.21", no_drop.clone(), ""),
        ("restricted:1.22", no_drop.clone(), keeps),
        ("restricted:1.25", windows(&no_drop), ""),
        (
            "restricted:1.21",
            security(&json!({"capabilities": {"add": ["NET_RAW", "KILL"]}})),
            "non-default capabilities (container \"a\" must not include \"NET_RAW\" in securityContext.capabilities.add)",
        ),
        (
            "restricted:latest",
            security(&json!({"capabilities": {"add": ["NET_BIND_SERVICE", "KILL"]}})),
            "unrestricted capabilities (container \"a\" must not include \"KILL\" in securityContext.capabilities.add)",
        ),
        (
            "restricted:latest",
            json!({"spec": {"volumes": [{"name": "p", "projected": {}}, {"name": "v", "hostPath": {}},
                {"name": "n", "nfs": {}}, {"name": "o"}]}}),
            "restricted volume types (volumes \"v\", \"n\", \"o\" use restricted volume types \"hostPath\", \"nfs\", \"unknown\")",
        ),
        ("restricted:1.22", zero.clone(), ""),
        ("restricted:1.23", zero, root),
        ("restricted:1.34", mapped.clone(), root),
        ("restricted:1.35", mapped, ""),
        ("restricted:latest", pod(&json!({"runAsNonRoot": null})), non_root),
        (
            "restricted:latest",
            json!({"spec": {"securityContext": {"runAsNonRoot": false}, "containers": [{"securityContext": {"runAsNonRoot": false}}]}}),
            "runAsNonRoot != true (pod and container \"a\" must not set securityContext.runAsNonRoot=false)",
        ),
        ("restricted:1.18", none.clone(), ""),
        ("restricted:1.19", none.clone(), seccomp),
        ("restricted:1.25", windows(&none), ""),
        (
            "restricted:latest",
            security(&json!({"seccompProfile": {"type": "Unconfined"}})),
            "seccompProfile (container \"a\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            "restricted:latest",
            unmasked,
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
    ]);
    let plain = json!({"containers": [{"name": "a"}]});
    let all = details(&evaluate(wanted("restricted:latest"), &Value::Null, &plain));
    assert_eq!(all, [escalates, keeps, non_root, seccomp].join(", "));
}

#[test]
fn labels_say_what_is_asked_for() {
    let policy = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(k, v)| (format!("pod-security.kubernetes.io/{k}"), (*v).to_owned()));
        let (policy, errors) = Policy::of(&labels.collect::<BTreeMap<_, _>>());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (format!("{} {} {}", policy.enforce, policy.audit, policy.warn), errors.join("; "))
    };
    let none = "privileged:latest";
    /// Labels of the namespace, the policy they make, and the errors.
    type Row<'a> = (&'a [(&'a str, &'a str)], String, &'a str);
    let rows: [Row<'_>; 8] = [
        (&[], format!("{none} {none} {none}"), ""),
        (&[("enforce", "baseline")], format!("baseline:latest {none} baseline:latest"), ""),
        (
            &[("enforce", "baseline"), ("enforce-version", "v1.20")],
            format!("baseline:v1.20 {none} baseline:v1.20"),
            "",
        ),
        (
            &[("enforce", "baseline"), ("enforce-version", "v1.20"), ("warn-version", "v1.0")],
            format!("baseline:v1.20 {none} baseline:v1.0"),
            "",
        ),
        (
            &[("enforce", "restricted"), ("warn", "privileged")],
            format!("restricted:latest {none} {none}"),
            "",
        ),
        (
            &[("enforce", "Baseline"), ("audit", "x"), ("warn", "")],
            format!("restricted:latest {none} {none}"),
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"Baseline\": must be one of privileged, \
             baseline, restricted; metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"x\": must be one of \
             privileged, baseline, restricted; metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"\": must \
             be one of privileged, baseline, restricted",
        ),
        (
            &[("audit-version", "v1.01"), ("warn-version", "1.2")],
            format!("{none} {none} {none}"),
            "metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"v1.01\": must be \"latest\" or \
             \"v1.x\"; metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.2\": must be \
             \"latest\" or \"v1.x\"",
        ),
        (
            &[("audit", "restricted"), ("audit-version", "latest")],
            format!("{none} restricted:latest {none}"),
            "",
        ),
    ];
    for (labels, wanted, errors) in rows {
        assert_eq!(policy(labels), (wanted, errors.to_owned()), "{labels:?}");
    }
}

#[test]
fn changes_of_images_and_containers_matter() {
    let pod = |fields: Value| json!({"spec": fields});
    let one = pod(json!({"containers": [{"name": "a", "image": "x"}]}));
    for (new, wanted) in [
        (json!({"containers": [{"name": "a", "image": "x"}], "tolerations": [{}]}), false),
        (json!({"containers": [{"name": "a", "image": "y"}]}), true),
        (json!({"containers": [{"name": "a", "image": "x"}], "ephemeralContainers": [{"name": "e"}]}), true),
        (json!({"containers": [{"name": "a", "image": "x"}], "initContainers": [{"name": "i"}]}), true),
    ] {
        assert_eq!(is_significant(&pod(new.clone()), &one), wanted, "{new}");
    }
}
