//! Refusals no recorded scenario has: what upstream says of core and storage kinds, row by row.

use serde_json::{Value, json};

use crate::builtin;
use crate::kinds::Kind;
use crate::strategy::{prepare_create, prepare_update};
use crate::validate::{validate_create, validate_update, warnings};

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
fn sources_of_volumes() {
    // source, its fields, what is wrong
    let rows: [(&str, Value, &[&str]); 20] = [
        ("nfs", json!({"server": "s", "path": "/"}), &[]),
        (
            "nfs",
            json!({}),
            &[
                "spec.nfs.server: Required value",
                "spec.nfs.path: Required value",
                "spec.nfs.path: Invalid value: \"\": must be an absolute path",
            ],
        ),
        (
            "gcePersistentDisk",
            json!({"partition": 256}),
            &[
                "spec.persistentDisk.pdName: Required value",
                "spec.persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive",
            ],
        ),
        (
            "flocker",
            json!({}),
            &["spec.flocker: Required value: one of datasetName and datasetUUID is required"],
        ),
        (
            "flocker",
            json!({"datasetName": "a/b"}),
            &["spec.flocker.datasetName: Invalid value: \"a/b\": must not contain '/'"],
        ),
        (
            "fc",
            json!({"targetWWNs": ["a"]}),
            &["spec.fc.lun: Required value: lun is required if targetWWNs is specified"],
        ),
        (
            "fc",
            json!({"targetWWNs": ["a"], "wwids": ["b"], "lun": 300}),
            &[
                "spec.fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously",
                "spec.fc.lun: Invalid value: 300: must be between 0 and 255, inclusive",
            ],
        ),
        ("quobyte", json!({"registry": "h:1,[::1]:2", "volume": "v"}), &[]),
        (
            "quobyte",
            json!({"registry": "h", "volume": "v"}),
            &[
                "spec.quobyte.registry: Invalid value: \"h\": must be a host:port pair or multiple pairs separated by commas",
            ],
        ),
        (
            "flexVolume",
            json!({"driver": "d", "options": {"a.K8s.io/x": "1", "b/x": "2"}}),
            &[
                "spec.flexVolume.options[a.K8s.io/x]: Invalid value: \"a.K8s.io/x\": kubernetes.io and k8s.io namespaces are reserved",
            ],
        ),
        (
            "azureDisk",
            json!({"diskName": "d", "diskURI": "x", "kind": "Managed", "cachingMode": "x"}),
            &[
                "spec.azureDisk.cachingMode: Unsupported value: \"x\": supported values: \"None\", \"ReadOnly\", \"ReadWrite\"",
                "spec.azureDisk.diskURI: Unsupported value: \"x\": supported values: \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
            ],
        ),
        ("iscsi", json!({"targetPortal": "p", "iqn": "iqn.2015-02.example.com:x", "lun": 1}), &[]),
        (
            "iscsi",
            json!({"targetPortal": "p", "iqn": "eui.0123", "chapAuthSession": true, "initiatorName": "x"}),
            &[
                "spec.iscsi.iqn: Invalid value: \"eui.0123\": must be valid format",
                "spec.iscsi.secretRef: Required value",
                "spec.iscsi.initiatorname: Invalid value: \"x\": must be valid format",
            ],
        ),
        (
            "glusterfs",
            json!({"endpoints": "e", "path": "p", "endpointsNamespace": ""}),
            &[
                "spec.glusterfs.endpointsNamespace: Invalid value: \"\": if the endpointnamespace is set, it must be a valid namespace name",
            ],
        ),
        (
            "cinder",
            json!({"volumeID": "v", "secretRef": {"name": "s"}}),
            &["spec.cinder.secretRef.namespace: Required value"],
        ),
        (
            "azureFile",
            json!({"secretName": "s", "shareName": "h", "secretNamespace": ""}),
            &["spec.azureFile.secretNamespace: Required value"],
        ),
        (
            "local",
            json!({"path": "../x"}),
            &[
                "spec.local.path: Invalid value: \"../x\": must not contain '..'",
                "spec.nodeAffinity: Required value: Local volume requires node affinity",
            ],
        ),
        (
            "csi",
            json!({"driver": "D.x", "volumeHandle": "h", "nodePublishSecretRef": {"name": "n"}}),
            &["spec.csi.nodePublishSecretRef.namespace: Required value"],
        ),
        (
            "storageos",
            json!({"secretRef": {}}),
            &[
                "spec.storageos.volumeName: Required value",
                "spec.storageos.secretRef.name: Required value",
                "spec.storageos.secretRef.namespace: Required value",
            ],
        ),
        ("rbd", json!({}), &["spec.rbd.monitors: Required value", "spec.rbd.image: Required value"]),
    ];
    for (source, fields, want) in rows {
        assert_eq!(created("", "persistentvolumes", &volume(source, &fields)), want, "{source} {fields}");
    }
    let mut two = volume("hostPath", &json!({"path": "/a/.."}));
    two["spec"]["cephfs"] = json!({"monitors": ["m"]});
    two["spec"]["persistentVolumeReclaimPolicy"] = json!("Recycle");
    let want = [
        "spec.cephFS: Forbidden: may not specify more than 1 volume type",
        "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'",
    ];
    let mut got = created("", "persistentvolumes", &two);
    got.retain(|text| !text.contains("'..'"));
    assert_eq!(got, want);
}

#[test]
fn new_objects() {
    let scope = |body: &Value| json!({"spec": {"hard": {"pods": "1", "requests.storage": "1"}, "scopeSelector": {"matchExpressions": [body]}}});
    // group, resource, body, what is wrong
    let rows: [(&str, &str, Value, &[&str]); 15] = [
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

#[test]
fn changed_objects() {
    let pvc = |more: &Value| {
        let mut spec =
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({"spec": spec, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}})
    };
    // group, resource, before, after, what is wrong
    let rows: [(&str, &str, Value, Value, &[&str]); 6] = [
        (
            "",
            "persistentvolumeclaims",
            pvc(&json!({})),
            pvc(&json!({"resources": {"requests": {"storage": "3Gi"}}})),
            &[],
        ),
        (
            "",
            "persistentvolumeclaims",
            pvc(&json!({})),
            pvc(&json!({"resources": {"requests": {"storage": "1Gi"}}})),
            &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
        ),
        (
            "",
            "persistentvolumeclaims",
            pvc(&json!({})),
            pvc(&json!({"selector": {}})),
            &[
                "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            ],
        ),
        (
            "",
            "nodes",
            json!({"spec": {"providerID": "a"}}),
            json!({"spec": {"providerID": "b", "externalID": "x"}}),
            &[
                "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
                "spec.externalID: Forbidden: may not be updated",
            ],
        ),
        (
            STORAGE,
            "volumeattributesclasses",
            json!({"driverName": "d", "parameters": {"a": "b"}}),
            json!({"driverName": "d", "parameters": {"a": "c"}}),
            &["parameters: Forbidden: updates to parameters are forbidden."],
        ),
        (
            "",
            "configmaps",
            json!({}),
            json!({"metadata": {"deletionGracePeriodSeconds": 5, "generateName": "a%"}}),
            &[
                "metadata.generateName: Invalid value: \"a%\": may not contain '%'",
                "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable",
                "metadata.generateName: Invalid value: \"a%\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        ),
    ];
    let now = "2026-11-20T10:00:00Z".parse().unwrap();
    for (group, plural, before, after, want) in rows {
        let kind = kind(group, plural);
        let old = object(&kind, &before);
        let mut new = object(&kind, &after);
        prepare_update(&kind, "", &old, &mut new, now);
        let mut got: Vec<String> = Vec::new();
        for error in validate_update(&kind, "", &old, &new) {
            let text = error.to_string();
            if !got.contains(&text) {
                got.push(text);
            }
        }
        assert_eq!(got, want, "{plural} {after}");
    }
}

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
