//! CustomResourceDefinitions that go: whatever comes in between, they are gone in the end, and those that are made again
//! are served.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use crate::support::api::Api;
use plimsoll_apiserver::store::{Expected, Key, Store, Write};
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ships.test.dev";
const SHIPS: &str = "/apis/test.dev/v1/namespaces/default/ships";
const PATIENCE: Duration = Duration::from_secs(30);

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.test.dev"},
        "spec": {
            "group": "test.dev", "scope": "Namespaced",
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            }}}],
        },
    })
}

fn ship(name: &str) -> Value {
    json!({"apiVersion": "test.dev/v1", "kind": "Ship", "metadata": {"name": name}, "spec": {"n": 1}})
}

async fn create(api: &Api, path: &str, object: &Value) {
    let (code, body) = api.send("POST", path, Some(object)).await;
    assert_eq!(code, 201, "{body}");
}

async fn until_gone(api: &Api) {
    let deadline = Instant::now() + PATIENCE;
    while api.send("GET", CRD, None).await.0 != 404 {
        assert!(Instant::now() < deadline, "the definition is still there");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_definition_goes_however_often_it_is_written_meanwhile() {
    let api = Api::new(ServerConfig::default()).await;
    create(&api, CRDS, &definition()).await;
    for i in 0..50 {
        create(&api, SHIPS, &ship(&format!("s{i}"))).await;
    }
    let writes = async {
        for i in 0.. {
            let patch = json!({"metadata": {"labels": {"i": i.to_string()}}});
            if api.send("PATCH", CRD, Some(&patch)).await.0 == 404 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let deletion = async {
        assert_eq!(api.send("DELETE", CRD, None).await.0, 200);
        until_gone(&api).await;
    };
    tokio::join!(writes, deletion);
    let (code, _) = api.send("GET", SHIPS, None).await;
    assert_eq!(code, 404);
    // Nothing of it is left for one of the same name.
    create(&api, CRDS, &definition()).await;
    assert_eq!(api.send("GET", SHIPS, None).await.1["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_definition_that_is_made_again_is_served() {
    let api = Api::new(ServerConfig::default()).await;
    for _ in 0..60 {
        create(&api, CRDS, &definition()).await;
        create(&api, SHIPS, &ship("a")).await;
        assert_eq!(api.send("DELETE", CRD, None).await.0, 200);
        // Made again the moment it is gone.
        while api.send("POST", CRDS, Some(&definition())).await.0 != 201 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (code, body) = api.send("GET", SHIPS, None).await;
        assert_eq!((code, &body["items"]), (200, &json!([])), "{body}");
        assert_eq!(api.send("DELETE", CRD, None).await.0, 200);
        until_gone(&api).await;
    }
}

#[tokio::test]
async fn a_restart_goes_on_with_a_deletion() {
    let store = Store::in_memory();
    let mut object = definition();
    object["metadata"] = json!({
        "name": "ships.test.dev", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z",
        "deletionTimestamp": "2026-11-20T10:00:01Z", "finalizers": ["customresourcecleanup.apiextensions.k8s.io"],
    });
    object["status"] = json!({"conditions": [{"type": "Established", "status": "True"}],
        "acceptedNames": object["spec"]["names"].clone(), "storedVersions": ["v1"]});
    let mut instance = ship("a");
    instance["metadata"] = json!({"name": "a", "namespace": "default", "uid": "v"});
    for (resource, namespace, name, object) in [
        ("apiextensions.k8s.io/customresourcedefinitions", "", "ships.test.dev", &object),
        ("test.dev/ships", "default", "a", &instance),
    ] {
        let key = Key::new(resource, namespace, name);
        store.commit(Write::put(key, Expected::Absent, object).unwrap()).await.unwrap();
    }
    let server = Server::over(ServerConfig::default(), store.clone()).await.unwrap();
    until_gone(&Api::of(server)).await;
    assert!(store.list("test.dev/ships", None).iter().next().is_none());
}

/// A process that is killed between a definition and its status leaves one that is not served.
#[tokio::test]
async fn a_restart_accepts_definitions_without_a_status() {
    let store = Store::in_memory();
    let mut object = definition();
    object["metadata"] =
        json!({"name": "ships.test.dev", "uid": "u", "creationTimestamp": "2026-11-20T10:00:00Z"});
    let key = Key::new("apiextensions.k8s.io/customresourcedefinitions", "", "ships.test.dev");
    store.commit(Write::put(key, Expected::Absent, &object).unwrap()).await.unwrap();
    let api = Api::of(Server::over(ServerConfig::default(), store).await.unwrap());
    create(&api, SHIPS, &ship("a")).await;
    let (_, found) = api.send("GET", CRD, None).await;
    let conditions = found["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"), "{found}");
}

#[tokio::test]
async fn writes_to_a_definition_that_goes_start_no_more_work() {
    let api = Api::new(ServerConfig::default()).await;
    create(&api, CRDS, &definition()).await;
    let mut held = ship("a");
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    create(&api, SHIPS, &held).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    assert_eq!(api.send("DELETE", CRD, None).await.0, 200);
    for i in 0..100 {
        let patch = json!({"metadata": {"labels": {"i": i.to_string()}}});
        let (code, body) = api.send("PATCH", CRD, Some(&patch)).await;
        assert_eq!(code, 200, "{body}");
    }
    assert!(tasks() <= before + 1, "{} tasks, {before} before", tasks());
    let path = format!("{SHIPS}/a");
    let deadline = Instant::now() + PATIENCE;
    while api.send("GET", &path, None).await.1["metadata"]["deletionTimestamp"].is_null() {
        assert!(Instant::now() < deadline, "nobody deletes the instance");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let release = json!({"metadata": {"finalizers": null}});
    let (code, body) = api.send("PATCH", &path, Some(&release)).await;
    assert_eq!(code, 200, "{body}");
    until_gone(&api).await;
}

/// While a definition goes, nothing more is made of it; watches hear of the last instance and end.
#[tokio::test]
async fn what_goes_takes_no_more_and_ends_its_watches() {
    let api = Api::new(ServerConfig::default()).await;
    create(&api, CRDS, &definition()).await;
    create(&api, SHIPS, &ship("a")).await;
    let mut held = ship("held");
    held["metadata"]["finalizers"] = json!(["test.dev/hold"]);
    create(&api, SHIPS, &held).await;
    let mut events = api.watch(&format!("{SHIPS}?watch=true")).await;
    assert_eq!(api.send("DELETE", CRD, None).await.0, 200);
    let (code, body) = api.send("POST", SHIPS, Some(&ship("b"))).await;
    let why = "ships.test.dev \"b\" is forbidden: create not allowed while custom resource definition is terminating";
    assert_eq!((code, body["message"].as_str()), (403, Some(why)));
    let mut unnamed = ship("");
    unnamed["metadata"] = json!({"generateName": "b"});
    let (code, body) = api.send("POST", SHIPS, Some(&unnamed)).await;
    let why = why.replace(" \"b\"", "");
    assert_eq!((code, body["message"].as_str()), (403, Some(why.as_str())));
    // What is there may be written; with its finalizer it goes, and the definition.
    let patch = json!({"metadata": {"finalizers": null}});
    let deadline = Instant::now() + PATIENCE;
    while api.send("GET", &format!("{SHIPS}/held"), None).await.1["metadata"]["deletionTimestamp"].is_null() {
        assert!(Instant::now() < deadline, "the instance is not deleted");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (_, going) = api.send("GET", CRD, None).await;
    let conditions = going["status"]["conditions"].as_array().unwrap();
    let reason = conditions.iter().find(|c| c["type"] == "Terminating").unwrap()["reason"].clone();
    assert_eq!(reason, "InstanceDeletionInProgress");
    assert_eq!(api.send("PATCH", &format!("{SHIPS}/held"), Some(&patch)).await.0, 200);
    until_gone(&api).await;
    let mut last = Value::Null;
    while let Some(event) = events.next_if_any().await {
        last = event;
    }
    assert_eq!((&last["type"], &last["object"]["metadata"]["name"]), (&json!("DELETED"), &json!("held")));
}

/// Requests that upstream's handler of custom resources words itself.
#[tokio::test]
async fn refusals_of_custom_resources() {
    let api = Api::new(ServerConfig::default()).await;
    create(&api, CRDS, &definition()).await;
    create(&api, SHIPS, &ship("a")).await;
    let one = format!("{SHIPS}/a");
    let other_kind = json!({"kind": "Boat"});
    let nameless = json!({"apiVersion": "test.dev/v1", "kind": "Ship"});
    let mut boat = ship("a");
    boat["kind"] = json!("Boat");
    let later = json!({"apiVersion": "test.dev/v9", "kind": "Boat", "spec": {}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job"});
    let rows = [
        ("PUT", SHIPS.to_owned(), Some(ship("a")), 400, "name must be provided"),
        ("PATCH", SHIPS.to_owned(), Some(json!({})), 400, "name must be provided"),
        (
            "POST",
            SHIPS.to_owned(),
            Some(boat.clone()),
            422,
            "Boat.test.dev \"a\" is invalid: kind: Invalid value: \"Boat\": must be Ship",
        ),
        (
            "PUT",
            format!("{SHIPS}/no"),
            Some(boat.clone()),
            400,
            "the name of the object (a) does not match the name on the URL (no)",
        ),
        (
            "PUT",
            one.clone(),
            Some(boat),
            422,
            "ships.test.dev \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
        ),
        (
            "POST",
            format!("{SHIPS}?fieldValidation=Strict"),
            Some(later),
            400,
            "the API version in the data (test.dev/v9) does not match the expected API version (test.dev/v1)",
        ),
        (
            "POST",
            format!("{SHIPS}?fieldValidation=Strict"),
            Some(json!({"apiVersion": "test.dev/v9", "kind": "Ship", "spec": {}})),
            400,
            "Ship in version \"v9\" cannot be handled as a Ship: strict decoding error: unknown field \"spec\"",
        ),
        (
            "PUT",
            one.clone(),
            Some(job),
            400,
            "the API version in the data (batch/v1) does not match the expected API version (test.dev/v1)",
        ),
        ("GET", format!("{one}/nope"), None, 404, "ships.test.dev \"a\" not found"),
        (
            "PUT",
            format!("{SHIPS}/b"),
            Some(nameless),
            400,
            "the name of the object (b based on URL) was undeterminable: name must be provided",
        ),
        (
            "PATCH",
            one.clone(),
            Some(other_kind),
            422,
            "Boat.test.dev \"a\" is invalid: kind: Invalid value: \"Boat\": must be Ship",
        ),
        ("PATCH", one.clone(), Some(json!(null)), 400, "Invalid JSON Patch"),
        (
            "POST",
            SHIPS.to_owned(),
            Some(json!({"kind": "Ship"})),
            400,
            "the API version in the data () does not match the expected API version (test.dev/v1)",
        ),
    ];
    for (method, path, body, code, message) in rows {
        let (got, answer) = api.send(method, &path, body.as_ref()).await;
        assert_eq!((got, answer["message"].as_str()), (code, Some(message)), "{method} {path}");
    }
}

/// Nobody owns fields of an object whose values aren't of the types the schema says, wherever those are; numbers are
/// what they were written as until they are stored.
#[tokio::test]
async fn owners_of_what_does_not_fit() {
    let api = Api::new(ServerConfig::default()).await;
    let mut typed = definition();
    let version = &mut typed["spec"]["versions"][0];
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "text": {"type": "string"}, "time": {"type": "string", "format": "date-time"},
            "set": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        }},
        "status": {"type": "object", "properties": {
            "count": {"type": "integer"}, "text": {"type": "string"}, "byte": {"type": "string", "format": "byte"},
            "time": {"type": "string", "format": "date-time"}, "any": {"x-kubernetes-int-or-string": true},
            "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}},
        }},
    }});
    version["subresources"] = json!({"status": {}});
    create(&api, CRDS, &typed).await;
    // the status of a new object is dropped, but only after it was looked at
    let rows = [
        (json!({"status": {"count": 1, "time": 5, "any": "x"}}), true),
        (json!({"status": {"count": "1"}}), false),
        (json!({"status": 5}), false),
        (json!({"status": null}), true),
        (json!({"status": {"text": 5}}), false),
        (json!({"status": {"byte": 5}}), false),
        (json!({"status": {"time": {}}}), false),
        (json!({"status": {"any": []}}), false),
        (json!({"status": {"keyed": [{"k": "a"}, {"k": "a"}]}}), true),
        (json!({"status": {"keyed": [{}]}}), false),
        (json!({"status": {"keyed": {}}}), false),
    ];
    for (parts, owned) in rows {
        let mut one = ship("one");
        one["spec"] = json!({"text": "x"});
        one.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        let (code, made) = api.send("POST", &format!("{SHIPS}?dryRun=All"), Some(&one)).await;
        assert_eq!((code, made["metadata"]["managedFields"].is_array()), (201, owned), "{parts} {made}");
    }
    let rows = [
        (r#"{"set":[1,1.0]}"#, 201, ""),
        (r#"{"set":[1,1.0,1]}"#, 422, "spec.set[2]: Duplicate value: 1"),
        (
            r#"{"text":1.0}"#,
            422,
            r#"spec.text: Invalid value: "number": spec.text in body must be of type string: "number""#,
        ),
    ];
    for (spec, code, why) in rows {
        let body = ship("one").to_string().replace(r#"{"n":1}"#, spec);
        let path = format!("{SHIPS}?dryRun=All");
        let (got, answer) = api.send_text("POST", &path, "application/json", body).await;
        assert_eq!(got, code, "{spec} {answer}");
        let said = answer["message"].as_str().unwrap_or_default();
        assert!(said.ends_with(why), "{spec} {said}");
        if code == 201 {
            assert_eq!(answer["spec"]["set"].to_string(), "[1,1]");
        }
    }
}

/// Keys that are there twice in YAML are told of by line; paths with gaps in them lead nowhere.
#[tokio::test]
async fn yaml_and_paths_as_they_are_written() {
    let api = Api::new(ServerConfig::default()).await;
    create(&api, CRDS, &definition()).await;
    let yaml = "apiVersion: test.dev/v1\nkind: Ship\nmetadata:\n  name: a\nspec:\n  'n': 1\n  'n': 2.0\n---\nrest: {\n";
    let path = |validation: &str| format!("{SHIPS}?dryRun=All&fieldValidation={validation}");
    let (code, made) = api.send_text("POST", &path("Warn"), "application/yaml", yaml.to_owned()).await;
    assert_eq!((code, &made["spec"]["n"]), (201, &json!(2)), "{made}");
    let (code, refused) = api.send_text("POST", &path("Strict"), "application/yaml", yaml.to_owned()).await;
    let why = "Ship in version \"v1\" cannot be handled as a Ship: strict decoding error: yaml: unmarshal errors:\n  \
               line 7: key \"n\" already set in map";
    assert_eq!((code, refused["message"].as_str()), (400, Some(why)));
    let strict = format!("{SHIPS}/a?dryRun=All&fieldManager=m&fieldValidation=Strict");
    let (code, refused) =
        api.send_text("PATCH", &strict, "application/apply-patch+yaml", yaml.to_owned()).await;
    let why = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
               line 7: key \"n\" already set in map";
    assert_eq!((code, refused["message"].as_str()), (400, Some(why)));
    let rows = [
        ("/api/v1//namespaces", 404),
        ("/api//v1/namespaces", 404),
        ("/api/v1/namespaces/", 200),
        ("/healthz", 200),
        ("/healthz/", 404),
        ("/livez/ping", 200),
        ("/livez/ping/", 404),
        ("/openapi/v3/", 404),
        ("//api/v1/namespaces", 404),
    ];
    for (path, code) in rows {
        assert_eq!(api.send("GET", path, None).await.0, code, "{path}");
    }
}

/// A definition may change its storage version, lists each one that objects were stored in, and keeps it until a client
/// takes it off the list.
#[tokio::test]
async fn the_storage_version_changes() {
    let api = Api::new(ServerConfig::default()).await;
    create(&api, CRDS, &definition()).await;
    create(&api, SHIPS, &ship("a")).await;
    let (_, mut object) = api.send("GET", CRD, None).await;
    let mut next = object["spec"]["versions"][0].clone();
    next["name"] = json!("v2");
    object["spec"]["versions"][0]["storage"] = json!(false);
    object["spec"]["versions"].as_array_mut().unwrap().push(next);
    let (code, changed) = api.send("PUT", CRD, Some(&object)).await;
    assert_eq!((code, &changed["status"]["storedVersions"]), (200, &json!(["v1", "v2"])), "{changed}");
    let (code, served) = api.send("GET", "/apis/test.dev/v2/namespaces/default/ships/a", None).await;
    assert_eq!((code, &served["apiVersion"]), (200, &json!("test.dev/v2")), "{served}");

    let remove = json!([{"op": "remove", "path": "/spec/versions/0"}]).to_string();
    let remove = || api.send_text("PATCH", CRD, "application/json-patch+json", remove.clone());
    let (code, refused) = remove().await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("was previously a storage version"), "{refused}");
    // Unlike other status endpoints this one takes metadata, too.
    let stored = json!({"metadata": {"labels": {"a": "b"}}, "status": {"storedVersions": ["v2"]}});
    let (code, changed) = api.send("PATCH", &format!("{CRD}/status"), Some(&stored)).await;
    assert_eq!((code, &changed["metadata"]["labels"]), (200, &json!({"a": "b"})), "{changed}");
    let (code, changed) = remove().await;
    assert_eq!((code, &changed["status"]["storedVersions"]), (200, &json!(["v2"])), "{changed}");
}

/// However deep an object may be: what was taken can be read, changed and deleted.
#[tokio::test]
async fn what_is_deep_is_refused_or_read_again() {
    let api = Api::new(ServerConfig::default()).await;
    let mut open = definition();
    open["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    create(&api, CRDS, &open).await;
    let mut taken = Vec::new();
    for levels in (100..=130).chain([1000]) {
        let name = format!("s{levels}");
        let nested = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let mut one = ship(&name);
        one["spec"] = Value::Null;
        let text = one.to_string().replace("\"spec\":null", &format!("\"spec\":{nested}"));
        let (code, body) = api.send_text("POST", SHIPS, "application/json", text).await;
        assert!(matches!(code, 201 | 400 | 422), "{levels}: {code} {body}");
        if code != 201 {
            continue;
        }
        taken.push(levels);
        let path = format!("{SHIPS}/{name}");
        let change = json!({"metadata": {"labels": {"a": "b"}}});
        let (code, body) = api.send("PATCH", &path, Some(&change)).await;
        assert_eq!((code, &body["metadata"]["labels"]["a"]), (200, &json!("b")), "{levels}: {body}");
        assert_eq!(api.send("DELETE", &path, None).await.0, 200, "{levels}");
        assert_eq!(api.send("GET", &path, None).await.0, 404, "{levels}");
    }
    assert!(taken.len() >= 10, "{taken:?}");
}
