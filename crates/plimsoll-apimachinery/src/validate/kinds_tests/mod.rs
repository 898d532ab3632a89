//! Refusals no recorded scenario has: what upstream says of core and storage kinds, row by row.

mod changes;
mod flow;
mod messages;
mod volumes;

use serde_json::{Value, json};

use crate::builtin;
use crate::kinds::Kind;
use crate::strategy::{prepare_create, prepare_update};
use crate::validate::{status_warnings, validate_create, validate_update, warnings};

fn kind(group: &str, plural: &str) -> std::sync::Arc<Kind> {
    builtin::table().resource(group, "v1", plural).cloned().unwrap()
}

const STORAGE: &str = "storage.k8s.io";

/// An object with metadata that is fine, defaulted as a server does.
fn object(kind: &Kind, body: &Value) -> Value {
    let mut o = json!({"metadata": {"name": "a", "resourceVersion": "1"}});
    if kind.namespaced {
        o["metadata"]["namespace"] = json!("default");
    }
    for (key, value) in body.as_object().unwrap() {
        if key == "metadata" {
            for (key, value) in value.as_object().unwrap() {
                o["metadata"][key] = value.clone();
            }
        } else {
            o[key] = value.clone();
        }
    }
    crate::default::apply_defaults(kind, &mut o);
    o
}

fn created(group: &str, plural: &str, body: &Value) -> Vec<String> {
    let kind = kind(group, plural);
    let mut o = object(&kind, body);
    prepare_create(&kind, &mut o, "2026-11-20T10:00:00Z".parse().unwrap());
    validate_create(&kind, &o).iter().map(ToString::to_string).collect()
}

fn volume(source: &str, fields: &Value) -> Value {
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
    spec[source] = fields.clone();
    json!({ "spec": spec })
}

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
fn new_objects() {
    let scope = |body: &Value| json!({"spec": {"hard": {"pods": "1", "requests.storage": "1"}, "scopeSelector": {"matchExpressions": [body]}}});
    // group, resource, body, what is wrong
    let rows: [(&str, &str, Value, &[&str]); 22] = [
        ("node.k8s.io", "runtimeclasses", json!({"handler": "x", "metadata": {"finalizers": ["x"]}}), &[]),
        (
            "policy",
            "poddisruptionbudgets",
            json!({"metadata": {"name": "a/b"}, "spec": {"minAvailable": -1}}),
            &["spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "policy",
            "poddisruptionbudgets",
            json!({"metadata": {"name": "a/b"}, "spec": {"minAvailable": 1}}),
            &["metadata.name: Invalid value: \"a/b\": may not contain '/'"],
        ),
        (
            "scheduling.k8s.io",
            "priorityclasses",
            json!({"preemptionPolicy": ""}),
            &["preemptionPolicy: Required value"],
        ),
        (
            "rbac.authorization.k8s.io",
            "clusterroles",
            json!({"aggregationRule": {"clusterRoleSelectors": [{}, {"matchExpressions": [{"key": "a", "operator": "X"}]}]}}),
            &[
                "aggregationRule.clusterRoleSelectors[1].matchExpressions[0].operator: Invalid value: \"X\": not a valid selector operator",
                "aggregationRule.clusterRoleSelectors[1]: Invalid value: null: invalid label selector.",
            ],
        ),
        (
            "autoscaling",
            "horizontalpodautoscalers",
            json!({"spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "D", "name": "n"}, "targetCPUUtilizationPercentage": 0}}),
            &["spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0"],
        ),
        (
            "apps",
            "deployments",
            json!({"spec": {"selector": {"matchExpressions": [{"key": "b b", "operator": "Exists"}]}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
            &[
                "spec.selector.matchExpressions[0].key: Invalid value: \"b b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"b b\",\"operator\":\"Exists\"}]}: invalid label selector",
            ],
        ),
        (
            "",
            "configmaps",
            json!({"metadata": {"finalizers": ["x", "a/b", "orphan"]}}),
            &[
                "metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        ),
        ("coordination.k8s.io", "leases", json!({"metadata": {"finalizers": ["x"]}}), &[]),
        (
            "",
            "configmaps",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "a/b/c", "kind": "K", "name": "n", "uid": "u"}]}}),
            &["metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty"],
        ),
        (
            "",
            "namespaces",
            json!({"spec": {"finalizers": ["x"]}}),
            &[
                "spec.finalizers: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified",
            ],
        ),
        (
            "",
            "resourcequotas",
            scope(&json!({"scopeName": "Terminating", "operator": "In", "values": ["x"]})),
            &[
                "spec.scopeSelector.matchExpressions: Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\"Terminating\",\"Operator\":\"In\",\"Values\":[\"x\"]}]}: unsupported scope applied to resource",
                "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity",
            ],
        ),
        (
            "",
            "limitranges",
            json!({"spec": {"limits": [{"type": "Pods"}]}}),
            &[
                "spec.limits[0].type: Invalid value: \"Pods\": must be a standard limit type or fully qualified",
            ],
        ),
        (
            "",
            "nodes",
            json!({"spec": {"podCIDRs": ["10.0.0.1/24", "10.1.0.0/24"]}}),
            &[
                "spec.podCIDRs[0]: Invalid value: \"10.0.0.1/24\": must not have bits set beyond the prefix length",
                "spec.podCIDRs: Invalid value: [\"10.0.0.1/24\",\"10.1.0.0/24\"]: may specify no more than one CIDR for each IP family",
            ],
        ),
        (
            "",
            "services",
            json!({"spec": {"ports": [{"port": 80}], "trafficDistribution": "x", "healthCheckNodePort": 5}}),
            &[
                "spec.healthCheckNodePort: Invalid value: 5: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
                "spec.trafficDistribution: Unsupported value: \"x\": supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"",
            ],
        ),
        (
            "",
            "services",
            json!({"spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"], "ipFamilies": ["IPv6", "IPv6"], "ports": [{"port": 80}]}}),
            &[
                "spec.ipFamilies[1]: Duplicate value: \"IPv6\"",
                "spec.clusterIPs: Invalid value: [\"10.0.0.1\",\"10.0.0.2\"]: may specify no more than one IP for each IP family",
                "spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
                "spec.clusterIPs[1]: Invalid value: \"10.0.0.2\": expected an IPv6 value as indicated by `ipFamilies[1]`",
            ],
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}, "dataSourceRef": {"kind": "X", "name": "n"}}}),
            &[
                "spec.dataSource: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                "spec.dataSourceRef: Invalid value: \"X\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            ],
        ),
        (
            STORAGE,
            "csidrivers",
            json!({"spec": {"serviceAccountTokenInSecrets": false, "nodeAllocatableUpdatePeriodSeconds": 9}}),
            &[
                "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds",
                "spec.serviceAccountTokenInSecrets: Invalid value: false: serviceAccountTokenInSecrets is set but no tokenRequests are specified",
            ],
        ),
        (
            STORAGE,
            "csinodes",
            json!({"spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["a", "a"]}]}}),
            &["spec.drivers[0]: Duplicate value: \"a\""],
        ),
        (
            STORAGE,
            "volumeattachments",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"inlineVolumeSpec": {"accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}, "capacity": {"storage": "1"}}}}}),
            &[
                "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes",
                "spec.source.inlineVolumeSpec.csi: Required value: has to be specified in the context of inline volumes",
            ],
        ),
        (
            STORAGE,
            "volumeattributesclasses",
            json!({"driverName": "d"}),
            &["parameters: Required value: must contain at least one key/value pair"],
        ),
        (
            STORAGE,
            "storageclasses",
            json!({"provisioner": "p", "allowedTopologies": [{"matchLabelExpressions": [{"key": "k", "values": ["a", "a"]}]}]}),
            &["allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: \"a\""],
        ),
    ];
    for (group, plural, body, want) in rows {
        assert_eq!(created(group, plural, &body), want, "{plural} {body}");
    }
}
