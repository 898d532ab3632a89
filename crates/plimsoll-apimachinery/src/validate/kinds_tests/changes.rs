//! New versions of objects.

use super::*;

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

/// A driver has no generation until its spec changes (`csiDriverStrategy`).
#[test]
fn the_generation_of_a_driver() {
    let kind = kind(STORAGE, "csidrivers");
    let now = "2026-11-20T10:00:00Z".parse().unwrap();
    let mut old = object(&kind, &json!({"spec": {"podInfoOnMount": false}}));
    prepare_create(&kind, &mut old, now);
    assert_eq!(old["metadata"]["generation"], json!(null));
    for (mount, want) in [(false, json!(null)), (true, json!(1)), (false, json!(2))] {
        let mut new = object(&kind, &json!({"spec": {"podInfoOnMount": mount}}));
        new["metadata"]["generation"] = old["metadata"]["generation"].clone();
        prepare_update(&kind, "", &old, &mut new, now);
        assert_eq!(new["metadata"]["generation"], want, "{mount}");
        old = new;
    }
}

/// A write to `finalize` changes all but the status (`namespaceFinalizeStrategy`).
#[test]
fn a_namespace_is_finalized_with_its_metadata() {
    let kind = kind("", "namespaces");
    let old =
        object(&kind, &json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}}));
    let after = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {"phase": "Active"}});
    let mut new = object(&kind, &after);
    prepare_update(&kind, "finalize", &old, &mut new, "2026-11-20T10:00:00Z".parse().unwrap());
    assert_eq!(new["metadata"]["labels"]["a"], "b");
    assert_eq!((&new["spec"], &new["status"]["phase"]), (&json!({}), &json!("Terminating")));
}
