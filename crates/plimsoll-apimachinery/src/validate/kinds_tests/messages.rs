//! Warnings, and values in messages.

use super::*;
use crate::kinds::CustomKind;

#[test]
fn advice() {
    // resource, body, warnings
    let rows: [(&str, &str, Value, &[&str]); 8] = [
        (
            "node.k8s.io",
            "runtimeclasses",
            json!({"scheduling": {"nodeSelector": {"beta.kubernetes.io/os": "x", "a": "b"}}}),
            &["scheduling.nodeSelector: deprecated since v1.14; use \"kubernetes.io/os\" instead"],
        ),
        (
            "",
            "pods",
            json!({"metadata": {"name": "a"}, "spec": {
                "nodeSelector": {"node-role.kubernetes.io/master": ""},
                "volumes": [
                    {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"limits": {"storage": "1500m"}}}}}},
                    {"name": "w", "projected": {"sources": [
                        {"serviceAccountToken": {"path": "a/b"}}, {}, {"secret": {"name": "s", "items": [{"path": "a/"}, {"path": "ab"}]}},
                    ]}},
                ],
            }}),
            &[
                "spec.nodeSelector[node-role.kubernetes.io/master]: use \"node-role.kubernetes.io/control-plane\" instead",
                "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.limits[storage]: fractional byte value \"1500m\" is invalid, must be an integer",
                "volume \"w\" (Projected) has no sources provided",
                "volume \"w\" (Projected): overlapping paths: \"a\" (Secret \"s\") with \"a/b\" (ServiceAccountToken)",
            ],
        ),
        (
            "",
            "pods",
            json!({"metadata": {"name": "a"}, "spec": {"containers": [
                {"ports": [{"name": "x", "containerPort": 1, "protocol": "TCP"}, {"containerPort": 1, "protocol": "UDP"}]},
                {"ports": [{"name": "x", "containerPort": 1, "protocol": "TCP", "hostPort": 2}]},
            ]}}),
            &[
                "spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]",
                "spec.containers[1].ports[0]: duplicate port name \"x\" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]",
            ],
        ),
        (
            "",
            "services",
            json!({"spec": {"type": "ClusterIP", "externalName": "x", "sessionAffinity": "None", "loadBalancerSourceRanges": ["10.0.0.1/8"]}}),
            &[
                "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.0.0.1/32\"?)",
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
            ],
        ),
        (
            "",
            "resourcequotas",
            json!({"spec": {"hard": {"cpu": "2", "limits.cpu": "1"}}}),
            &["ResourceQuota cpu (2) should be less than limits.cpu (1)"],
        ),
        (
            "",
            "persistentvolumes",
            volume("rbd", &json!({})),
            &["spec.rbd: deprecated in v1.28, non-functional in v1.31+"],
        ),
        (
            "",
            "secrets",
            json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ==", "tls.key": "YQ=="}}),
            &["tls: failed to find any PEM data in certificate input"],
        ),
        (
            STORAGE,
            "csistoragecapacities",
            json!({"nodeTopology": {"matchLabels": {"beta.kubernetes.io/os": "x"}}}),
            &[
                "nodeTopology.matchLabels.beta.kubernetes.io/os: deprecated since v1.14; use \"kubernetes.io/os\" instead",
            ],
        ),
    ];
    for (group, plural, body, want) in rows {
        assert_eq!(warnings(&kind(group, plural), None, &body), want, "{plural}");
    }
}

/// A custom resource may have any finalizer, and is warned of those that it gets.
#[test]
fn finalizers_without_a_domain() {
    let kind = Kind { custom: Some(CustomKind::default().into()), ..Kind::default() };
    let of = |finalizers: &[&str]| json!({"metadata": {"finalizers": finalizers}});
    let rest = "to avoid accidental conflicts with other finalizer writers";
    let b = format!(
        "metadata.finalizers: \"b.c\": prefer a domain-qualified finalizer name including a path (/) {rest}"
    );
    let new = of(&["b.c", "a", "a", "orphan", "x.y/z"]);
    assert_eq!(warnings(&kind, Some(&of(&["a"])), &new), std::slice::from_ref(&b));
    let a = format!("metadata.finalizers: \"a\": prefer a domain-qualified finalizer name {rest}");
    assert_eq!(warnings(&kind, None, &new), [a, b]);
}

/// A write of a status has warnings about that only.
#[test]
fn advice_on_a_status() {
    let status = json!({"loadBalancer": {"ingress": [{"hostname": "h"}, {"ip": "010.0.0.1"}]}});
    let odd =
        "status.loadBalancer.ingress[1]: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"";
    let rows: [(&str, &str, Value, &[&str]); 4] = [
        ("", "services", json!({"spec": {"externalName": "x"}, "status": status}), &[odd]),
        ("networking.k8s.io", "ingresses", json!({ "status": status }), &[odd]),
        ("", "nodes", json!({"spec": {"externalID": "x"}, "status": {}}), &[]),
        (
            "",
            "pods",
            json!({"status": {"podIPs": [{"ip": "::0"}]}}),
            &["status.podIPs[0].ip: IPv6 address \"::0\" should be in RFC 5952 canonical format (\"::\")"],
        ),
    ];
    for (group, plural, body, want) in rows {
        assert_eq!(status_warnings(&kind(group, plural), &body), want, "{plural}");
    }
}

/// What is wrong is shown whole, whatever it lacks.
#[test]
fn values_with_gaps() {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let selected = |body: Value| {
        let mut body = body;
        body["template"] = template.clone();
        json!({ "spec": body })
    };
    let gap = json!({"matchExpressions": [{}]});
    let policy = |conditions: Value| {
        selected(
            json!({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": conditions}]}}),
        )
    };
    for (group, plural, old, new, want) in [
        (
            "apps",
            "deployments",
            None,
            selected(json!({"selector": gap})),
            "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"\",\"operator\":\"\"}]}: invalid label selector",
        ),
        (
            "batch",
            "jobs",
            Some(policy(json!([{"type": "A"}]))),
            policy(json!([{}])),
            "spec.podFailurePolicy: Invalid value: {\"Rules\":[{\"Action\":\"Ignore\",\"OnExitCodes\":null,\"OnPodConditions\":[{\"Type\":\"\",\"Status\":\"True\"}]}]}: field is immutable",
        ),
        (
            "apps",
            "deployments",
            None,
            selected(json!({"strategy": {"type": "X", "rollingUpdate": {"maxSurge": 1}}})),
            "spec.strategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":{\"MaxUnavailable\":0,\"MaxSurge\":1}}: supported values: \"Recreate\", \"RollingUpdate\"",
        ),
    ] {
        let found: Vec<String> = match old {
            None => created(group, plural, &new),
            Some(old) => {
                let kind = kind(group, plural);
                let (old, new) = (object(&kind, &old), object(&kind, &new));
                validate_update(&kind, "", &old, &new).iter().map(ToString::to_string).collect()
            }
        };
        assert!(found.iter().any(|text| text == want), "{found:#?}");
    }
}

/// Changes of a workload are looked at as far as they count as changes of what is wanted.
#[test]
fn advice_on_changes() {
    let role = "spec.template.spec.nodeSelector[node-role.kubernetes.io/master]: use \"node-role.kubernetes.io/control-plane\" instead";
    let of = |annotation: &str, replicas: i64| {
        json!({
            "metadata": {"name": "a", "annotations": {"x": annotation}},
            "spec": {"replicas": replicas, "template": {"spec": {"nodeSelector": {"node-role.kubernetes.io/master": ""}}}},
        })
    };
    let rows: [(&str, Value, &[&str]); 5] = [
        ("deployments", of("1", 1), &[]),
        ("deployments", of("2", 1), &[role]),
        ("deployments", of("1", 2), &[role]),
        ("statefulsets", of("2", 1), &[]),
        ("statefulsets", of("1", 2), &[role]),
    ];
    for (plural, new, want) in rows {
        assert_eq!(warnings(&kind("apps", plural), Some(&of("1", 1)), &new), want, "{plural} {new}");
    }
}
