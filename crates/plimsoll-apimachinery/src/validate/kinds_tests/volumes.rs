//! Sources of volumes.

use super::*;

#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
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

/// Nothing but labels and annotations may be set where only those are used; a StatefulSet's templates are not looked at.
#[test]
fn metadata_of_templates() {
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]);
    let fields = [
        ("ownerReferences", owner, "ownerReferences"),
        ("finalizers", json!(["a/b"]), "finalizers"),
        ("managedFields", json!([]), "managedFields"),
        ("name", json!("n"), "name"),
        ("generateName", json!("g-"), "generateName"),
        ("namespace", json!("ns"), "namespace"),
        ("selfLink", json!("/a"), "selfLink"),
        ("uid", json!("u"), "uID"),
        ("resourceVersion", json!("5"), "resourceVersion"),
        ("generation", json!(3), "generation"),
        ("creationTimestamp", json!("2020-01-01T00:00:00Z"), "creationTimestamp"),
        ("deletionTimestamp", json!("2020-01-01T00:00:00Z"), "deletionTimestamp"),
        ("deletionGracePeriodSeconds", json!(0), "deletionGracePeriodSeconds"),
    ];
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]);
    for (field, value, shown) in fields {
        let metadata = json!({field: value});
        let ephemeral = json!({"volumeClaimTemplate": {"metadata": metadata, "spec": claim}});
        let pod = json!({"spec": {
            "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "ephemeral": ephemeral}],
        }});
        let refused = |path: &str| vec![format!("{path}.metadata.{shown}: Forbidden: cannot be set")];
        let at = "spec.volumes[0].ephemeral.volumeClaimTemplate";
        assert_eq!(created("", "pods", &pod), refused(at), "{field}");
        let template = json!({"spec": {"metadata": metadata, "spec": {"devices": {"requests": requests}}}});
        let found = created("resource.k8s.io", "resourceclaimtemplates", &template);
        assert_eq!(found, refused("spec"), "{field}");
        let mut named = metadata.clone();
        named["name"] = json!("c");
        let set = json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}}, "serviceName": "s",
            "volumeClaimTemplates": [{"metadata": named, "spec": claim}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }});
        assert_eq!(created("apps", "statefulsets", &set), Vec::<String>::new(), "{field}");
    }
}
