use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{IncludeObject, TableOptions, to_table};
use crate::gvk::Gvk;
use crate::kinds::{CustomKind, Kind};
use crate::test_vectors::{family, with_times};

fn kind_of(object: &Value, definitions: &HashMap<String, CustomKind>) -> Kind {
    let api_version = object["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = object["kind"].as_str().unwrap();
    Kind {
        gvk: Gvk { group: group.into(), version: version.into(), kind: kind.into() },
        custom: definitions.get(kind).cloned().map(Arc::new),
        ..Kind::default()
    }
}

fn same_cell(ours: &Value, theirs: &Value) -> bool {
    match theirs.as_str() {
        Some("<age>") => ours.as_str().is_some_and(|s| s.ends_with(['s', 'm', 'h', 'd'])),
        Some("<time>") => ours == "2026-11-20T10:00:00Z",
        _ => ours == theirs || (ours.is_f64() && ours.as_f64() == theirs.as_f64()),
    }
}

fn compare(ours: &Value, theirs: &Value, at: &str) {
    let columns = |t: &Value| -> Vec<Value> {
        let all = t["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let without = |mut c: Value| {
            c.as_object_mut().unwrap().remove("description");
            c
        };
        all.into_iter().map(without).collect()
    };
    assert_eq!(columns(ours), columns(theirs), "{at}");
    let (a, b) = (ours["rows"].as_array().unwrap(), theirs["rows"].as_array().unwrap());
    assert_eq!(a.len(), b.len(), "{at}");
    for (a, b) in a.iter().zip(b) {
        let (cells, wanted) = (a["cells"].as_array().unwrap(), b["cells"].as_array().unwrap());
        assert!(
            cells.len() == wanted.len() && cells.iter().zip(wanted).all(|(a, b)| same_cell(a, b)),
            "{at}:\n ours {cells:?}\n want {wanted:?}"
        );
        assert_eq!(a.get("conditions"), b.get("conditions"), "{at}");
        assert_eq!(a["object"], with_times(&b["object"]), "{at}");
    }
}

/// Objects as the transcripts show them give the tables the transcripts show.
#[test]
fn recorded_tables() {
    let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
    let mut tables = 0;
    for scenario in family("table").iter().chain(&family("crd")) {
        let mut objects: HashMap<String, Value> = HashMap::new();
        let mut definitions: HashMap<String, CustomKind> = HashMap::new();
        for step in scenario["steps"].as_array().unwrap() {
            let body = &step["response"]["body"];
            if body["kind"] == "CustomResourceDefinition" && step["response"]["status"] == 201 {
                let columns = body["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
                let custom =
                    CustomKind { columns: columns.cloned().unwrap_or_default(), ..Default::default() };
                definitions.insert(body["spec"]["names"]["kind"].as_str().unwrap().into(), custom);
            }
            if let Some(uid) = body["metadata"]["uid"].as_str() {
                objects.insert(uid.into(), with_times(body));
            }
            let accepted = step["request"]["query"]["includeObject"].as_str().unwrap_or_default();
            let include = IncludeObject::parse(accepted);
            if step["request"]["method"] != "GET" || body["kind"] != "Table" || !body["rows"].is_array() {
                continue;
            }
            let uid = |row: &Value| row["object"]["metadata"]["uid"].as_str().map(str::to_owned);
            let uids: Option<Vec<String>> = body["rows"].as_array().unwrap().iter().map(uid).collect();
            let Some(uids) = uids.filter(|u| !u.is_empty()) else { continue };
            let items: Vec<Value> = uids.iter().map(|uid| objects[uid].clone()).collect();
            let options = TableOptions { include_object: include.unwrap(), ..TableOptions::default() };
            let table = to_table(&kind_of(&items[0], &definitions), &items, &options, now);
            compare(&table, body, &format!("{} {}", scenario["id"], step["request"]["path"]));
            tables += 1;
        }
    }
    assert!(tables > 90, "{tables} tables compared");
}

/// Cells that no transcript shows: pkg/printers of 1.36.
#[test]
#[allow(clippy::too_many_lines, reason = "one case after the other")]
fn made_cells() {
    let selector = "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},}";
    let failed =
        |code: i64| json!({ "state": { "terminated": { "reason": "Completed", "exitCode": code } } });
    let rows = [
        (
            "v1 Service",
            json!({ "spec": { "type": "ClusterIP", "clusterIPs": ["None"], "selector": { "app": "1", "app.x": "2" } } }),
            json!(["n", "ClusterIP", "None", "<none>", "<none>", "<unknown>", "app.x=2,app=1"]),
        ),
        (
            "v1 Node",
            json!({ "status": { "nodeInfo": { "architecture": "arm64" } } }),
            json!([
                "n",
                "Unknown",
                "<none>",
                "<unknown>",
                "",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown> (arm64)",
                "<unknown>"
            ]),
        ),
        (
            "v1 Pod",
            json!({
                "spec": { "containers": [{}, {}] },
                "status": { "phase": "Running", "containerStatuses": [failed(0), failed(0)] },
            }),
            json!(["n", "0/2", "Completed", "0", "<unknown>", "<none>", "<none>", "<none>", "<none>"]),
        ),
        (
            "v1 PersistentVolume",
            json!({ "spec": { "volumeAttributesClassName": "" } }),
            json!(["n", "0", "", "", "", "", "", "", "", "<unknown>", "<unset>"]),
        ),
        (
            "v1 PersistentVolumeClaim",
            json!({
                "metadata": { "annotations": { "volume.beta.kubernetes.io/storage-class": "" } },
                "spec": { "volumeName": "v", "storageClassName": "c" },
            }),
            json!(["n", "", "v", "0", "", "", "<unset>", "<unknown>", "<unset>"]),
        ),
        (
            "v1 Endpoints",
            json!({ "subsets": [{
                "addresses": [{ "ip": "10.0.0.1" }, { "ip": "::1" }], "ports": [{ "port": 1 }, { "port": 2 }]
            }] }),
            json!(["n", "10.0.0.1:1,[::1]:1,10.0.0.1:2 + 1 more...", "<unknown>"]),
        ),
        ("v1 Endpoints", json!({ "subsets": [{ "ports": [{ "port": 1 }] }] }), json!(["n", "", "<unknown>"])),
        (
            "discovery.k8s.io/v1 EndpointSlice",
            json!({ "addressType": "IPv4", "ports": [{ "name": "web" }, { "port": 5 }, {}] }),
            json!(["n", "IPv4", "web,5,*", "<unset>", "<unknown>"]),
        ),
        (
            "networking.k8s.io/v1 Ingress",
            json!({ "spec": {
                "ingressClassName": "",
                "rules": [{ "host": "a" }, {}, { "host": "b" }, { "host": "c" }, {}],
            } }),
            json!(["n", "", "a,b,c + 2 more...", "", "80", "<unknown>"]),
        ),
        (
            "networking.k8s.io/v1 Ingress",
            json!({ "spec": { "rules": [{}, { "host": "a" }, { "host": "b" }, { "host": "c" }] } }),
            json!(["n", "<none>", "a,b,c", "", "80", "<unknown>"]),
        ),
        (
            "networking.k8s.io/v1 IngressClass",
            json!({
                "metadata": { "annotations": { "ingressclass.kubernetes.io/is-default-class": "true" } },
                "spec": { "controller": "a/b", "parameters": { "kind": "K", "name": "p", "apiGroup": "" } },
            }),
            json!(["n (default)", "a/b", "K./p", "<unknown>"]),
        ),
        (
            "networking.k8s.io/v1 IPAddress",
            json!({ "spec": { "parentRef": { "group": "g.io", "resource": "Rs", "name": "X" } } }),
            json!(["n", "rs.g.io/X", "<unknown>"]),
        ),
        (
            "batch/v1 Job",
            json!({ "status": { "conditions": [
                { "type": "Failed", "status": "False" }, { "type": "Failed", "status": "True" }
            ] } }),
            json!(["n", "Running", "0/1", "", "<unknown>", "", "", "<none>"]),
        ),
        (
            "storage.k8s.io/v1 CSIDriver",
            json!({ "spec": { "tokenRequests": [{ "audience": "" }] } }),
            json!(["n", true, false, false, "", false, "<none>", "<unknown>"]),
        ),
        (
            "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
            json!({ "spec": { "policyName": "p", "paramRef": { "namespace": "x", "selector": {
                "matchLabels": { "a": "b" },
                "matchExpressions": [{ "key": "k", "operator": "In", "values": ["v", "w"] }],
            } } } }),
            json!(["n", "p", selector, "<unknown>"]),
        ),
        (
            "resource.k8s.io/v1 ResourceClaim",
            json!({
                "metadata": { "deletionTimestamp": "2026-11-20T10:00:00Z" },
                "status": { "allocation": {} },
            }),
            json!(["n", "deleted,allocated", "<unknown>"]),
        ),
    ];
    for (of, mut object, wanted) in rows {
        let (version, kind) = of.split_once(' ').unwrap();
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!("n");
        let made = kind_of(&object, &HashMap::new());
        let table = to_table(&made, &[object], &TableOptions::default(), Timestamp::UNIX_EPOCH);
        assert_eq!(table["rows"][0]["cells"], wanted, "{of}");
    }
}

/// A container that failed says so, unless another still runs and the pod is ready.
#[test]
fn ended_containers() {
    let container =
        |code: i64| json!({ "state": { "terminated": { "exitCode": code, "reason": "Completed" } } });
    let running = json!({ "ready": true, "state": { "running": {} } });
    let error = json!({ "state": { "terminated": { "exitCode": 3, "reason": "Error" } } });
    let ready = json!([{ "type": "Ready", "status": "True" }]);
    for (containers, conditions, wanted) in [
        (json!([container(0), running]), ready.clone(), "Running"),
        (json!([container(0), running]), json!([]), "NotReady"),
        (json!([container(0), error]), json!([]), "Error"),
        (json!([container(0), error, running]), ready, "Running"),
        (json!([container(0), error, running]), json!([]), "Error"),
        (json!([error, container(0)]), json!([]), "Error"),
    ] {
        let pod = json!({ "status": {
            "phase": "Running", "containerStatuses": containers, "conditions": conditions,
        } });
        assert_eq!(super::pod_status_word(&pod), wanted, "{pod}");
    }
}

#[test]
fn flow_schemas_are_sorted_by_precedence() {
    let schema = |name: &str, precedence: i64| {
        json!({
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": { "name": name }, "spec": { "matchingPrecedence": precedence },
        })
    };
    let items = [schema("a", 2), schema("c", 1), schema("b", 1)];
    let kind = kind_of(&items[0], &HashMap::new());
    let table = to_table(&kind, &items, &TableOptions::default(), Timestamp::UNIX_EPOCH);
    let names: Vec<_> = table["rows"].as_array().unwrap().iter().map(|r| r["cells"][0].clone()).collect();
    assert_eq!(names, ["b", "c", "a"]);
}

#[test]
fn include_object_is_checked() {
    assert!(IncludeObject::parse("Everything").unwrap_err().message.contains("must be 'Metadata'"));
}
