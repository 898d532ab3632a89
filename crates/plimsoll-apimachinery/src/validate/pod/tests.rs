//! Specs of pods and what is wrong with them. Each row is a rule; the texts are upstream's.

use serde_json::{Value, json};

use super::super::path::Errors;
use crate::obj::as_obj;

/// A pod with one container that is right, and what a row changes.
fn faults(change: &Value) -> Vec<String> {
    let mut spec = json!({
        "containers": [container(&json!({}))], "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
        "terminationGracePeriodSeconds": 30, "securityContext": {},
    });
    for (key, value) in as_obj(change) {
        spec[key] = value.clone();
    }
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
    let mut errors = Errors::default();
    super::create(as_obj(&pod), &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

fn container(change: &Value) -> Value {
    let mut c = json!({
        "name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
    });
    for (key, value) in as_obj(change) {
        c[key] = value.clone();
    }
    c
}

fn check(rows: &[(Value, &[&str])]) {
    for (change, wanted) in rows {
        assert_eq!(faults(change), *wanted, "{change}");
    }
}

#[test]
fn volumes() {
    let one = |source: Value| {
        let mut volume = source;
        volume["name"] = json!("v");
        json!({ "volumes": [volume] })
    };
    check(&[
        (
            one(json!({"gcePersistentDisk": {"pdName": "a", "partition": 300}})),
            &[
                "spec.volumes[0].persistentDisk.partition: Invalid value: 300: must be between 1 and 255, inclusive",
            ],
        ),
        (
            one(json!({"iscsi": {"targetPortal": "p", "iqn": "x", "chapAuthSession": true}})),
            &[
                "spec.volumes[0].iscsi.iqn: Invalid value: \"x\": must be valid format starting with iqn, eui, or naa",
                "spec.volumes[0].iscsi.secretRef: Required value",
            ],
        ),
        (
            one(json!({"emptyDir": {}, "iscsi": {"targetPortal": "p".repeat(63), "initiatorName": "x"}})),
            &[
                "spec.volumes[0].iscsi: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[0].name: Invalid value: \"v\": Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
            ],
        ),
        (
            one(json!({"csi": {"driver": "D.x", "nodePublishSecretRef": {"name": "A"}}})),
            &[
                "spec.volumes[0].csi.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        ),
        (
            one(json!({"storageos": {"secretRef": {}}})),
            &[
                "spec.volumes[0].storageos.volumeName: Required value",
                "spec.volumes[0].storageos.secretRef.name: Required value",
            ],
        ),
        (
            one(json!({"fc": {"targetWWNs": ["a"], "wwids": ["b"]}})),
            &[
                "spec.volumes[0].fc.targetWWNs: Invalid value: [\"a\"]: targetWWNs and wwids can not be specified simultaneously",
                "spec.volumes[0].fc.lun: Required value: lun is required if targetWWNs is specified",
            ],
        ),
        (
            one(json!({"flocker": {}})),
            &["spec.volumes[0].flocker: Required value: one of datasetName and datasetUUID is required"],
        ),
        (
            one(json!({"quobyte": {"registry": "a:1,b", "volume": "v"}})),
            &[
                "spec.volumes[0].quobyte.registry: Invalid value: \"a:1,b\": must be a host:port pair or multiple pairs separated by commas",
            ],
        ),
        (
            one(json!({"azureDisk": {"diskName": "a", "diskURI": "b", "kind": "Managed"}})),
            &[
                "spec.volumes[0].azureDisk.diskURI: Unsupported value: \"b\": supported values: \"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}\"",
            ],
        ),
        (
            one(json!({"emptyDir": {}, "downwardAPI": {}, "cephfs": {}})),
            &[
                "spec.volumes[0].cephFS: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
            ],
        ),
        (
            one(json!({"downwardAPI": {"items": [{"path": "a"}]}})),
            &[
                "spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            ],
        ),
        (
            one(
                json!({"projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}, {}]}}),
            ),
            &[
                "spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
            ],
        ),
        (
            json!({"volumes": [
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
                {"name": "q", "persistentVolumeClaim": {"claimName": "p-e"}},
            ]}),
            &[
                "spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
                "spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: \"p-e\": must not reference a PVC that gets created for an ephemeral volume",
            ],
        ),
    ]);
}

#[test]
fn containers() {
    let one = |change: Value| json!({ "containers": [container(&change)] });
    check(&[
        (
            one(json!({"envFrom": [{"secretRef": {}}]})),
            &["spec.containers[0].envFrom[0].secretRef.name: Required value"],
        ),
        (
            one(
                json!({"env": [{"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "no", "path": "../a", "key": "k"}}}]}),
            ),
            &[
                "spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: \"../a\": must not contain '..'",
                "spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: \"no\"",
            ],
        ),
        (
            one(json!({"restartPolicyRules": [{"action": "Stop", "exitCodes": {"operator": "Is"}}]})),
            &[
                "spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
                "spec.containers[0].restartPolicyRules[0].action: Unsupported value: \"Stop\": supported values: \"Restart\", \"RestartAllContainers\"",
                "spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\": supported values: \"In\", \"NotIn\"",
            ],
        ),
        (
            one(json!({"livenessProbe": {"sleep": {"seconds": 1}, "successThreshold": 1}})),
            &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
        ),
        (
            one(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}})),
            &[
                "spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        ),
        (
            one(
                json!({"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}, "requests": {"hugepages-2Mi": "3Mi"}}}),
            ),
            &[
                "spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
                "spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi",
            ],
        ),
        (
            one(
                json!({"securityContext": {"procMount": "Unmasked", "windowsOptions": {"runAsUserName": "a@b"}}}),
            ),
            &[
                "spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
                "spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: \"a@b\": runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
            ],
        ),
        (
            one(
                json!({"securityContext": {"allowPrivilegeEscalation": false, "privileged": true, "runAsUser": 5}}),
            ),
            &[
                "spec.containers[0].securityContext: Invalid value: {\"Capabilities\":null,\"Privileged\":true,\"SELinuxOptions\":null,\"WindowsOptions\":null,\"RunAsUser\":5,\"RunAsGroup\":null,\"RunAsNonRoot\":null,\"ReadOnlyRootFilesystem\":null,\"AllowPrivilegeEscalation\":false,\"ProcMount\":null,\"SeccompProfile\":null,\"AppArmorProfile\":null}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            ],
        ),
        (
            json!({"initContainers": [container(&json!({"name": "i", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}))]}),
            &[
                "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar initContainers",
            ],
        ),
        (one(json!({"ports": [{"containerPort": 80, "hostIP": "not one", "protocol": "TCP"}]})), &[]),
    ]);
}

#[test]
fn pods_as_a_whole() {
    check(&[
        (
            json!({"hostUsers": false, "hostPID": true, "hostIPC": true}),
            &[
                "spec.HostPID: Forbidden: when `hostUsers` is false",
                "spec.HostIPC: Forbidden: when `hostUsers` is false",
            ],
        ),
        (
            json!({"hostnameOverride": "A", "setHostnameAsFQDN": true}),
            &[
                "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
                "spec.hostnameOverride: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ],
        ),
        (
            json!({"os": {"name": "bsd"}}),
            &["spec.os: Unsupported value: \"bsd\": supported values: \"linux\", \"windows\""],
        ),
        (
            json!({"os": {"name": "windows"}, "securityContext": {"fsGroup": 1}, "hostPID": true}),
            &[
                "spec.hostPID: Forbidden: cannot be set for a windows pod",
                "spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod",
            ],
        ),
        (
            json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
            &[
                "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
            ],
        ),
        (
            json!({"securityContext": {"sysctls": [{"name": "net.core.somaxconn"}]}, "hostNetwork": true}),
            &[
                "spec.securityContext.sysctls[0].name: Invalid value: \"net.core.somaxconn\": may not be specified when 'hostNetwork' is true",
            ],
        ),
        (
            json!({"resources": {"requests": {"cpu": "1"}}, "containers": [container(&json!({"resources": {"requests": {"cpu": "2"}}}))]}),
            &[
                "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container requests of 2",
            ],
        ),
        (
            json!({"tolerations": [{"key": "k", "operator": "Gt", "value": "1"}]}),
            &[
                "spec.tolerations[0].operator: Unsupported value: \"Gt\": supported values: \"Equal\", \"Exists\", \"Lt\", \"Gt\"",
            ],
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2, "labelSelector": {}}]}),
            &[
                "spec.topologySpreadConstraints[0].minDomains: Invalid value: 2: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
            ],
        ),
        (json!({"dnsConfig": {"searches": ["a_b.c.", "."]}}), &[]),
    ]);
}
