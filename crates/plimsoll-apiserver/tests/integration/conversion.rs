//! Custom resources that a webhook converts: written and read in every version, watched, selected, refused.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::api::Api;
use crate::support::https::{self, Https};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

const OLD: &str = "/apis/test.dev/v1/namespaces/default/ships";
const NEW: &str = "/apis/test.dev/v2/namespaces/default/ships";

/// What the webhook does.
#[derive(Default)]
struct Behaviour {
    calls: AtomicUsize,
    objects: AtomicUsize,
    refuses: AtomicBool,
    /// Names that are refused.
    refused: Mutex<Vec<String>>,
    renames: AtomicBool,
}

/// `v1` has `spec.load` as text (`12t`), `v2` as a number of tonnes.
fn converted(object: Value, to: &str) -> Value {
    let mut object = crate::equivalents::converted(object, to);
    // Only labels and annotations count.
    object["metadata"]["labels"]["converted-to"] = json!(to.rsplit('/').next());
    object["metadata"]["generation"] = json!(99);
    object
}

async fn answer(behaviour: Arc<Behaviour>, request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    behaviour.calls.fetch_add(1, Ordering::SeqCst);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let to = review["request"]["desiredAPIVersion"].as_str().unwrap();
    let objects = review["request"]["objects"].as_array().unwrap();
    behaviour.objects.fetch_add(objects.len(), Ordering::SeqCst);
    let refused = behaviour.refused.lock().unwrap().clone();
    let bad = objects.iter().any(|o| refused.iter().any(|name| o["metadata"]["name"] == name.as_str()));
    // Long enough that everybody who wants the same asks meanwhile.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let mut objects: Vec<Value> = objects.iter().map(|o| converted(o.clone(), to)).collect();
    if behaviour.renames.load(Ordering::SeqCst) {
        objects[0]["metadata"]["name"] = json!("other");
    }
    let result = if bad || behaviour.refuses.load(Ordering::SeqCst) {
        json!({"status": "Failure", "message": "no such hull"})
    } else {
        json!({"status": "Success"})
    };
    let response = json!({"uid": review["request"]["uid"], "result": result, "convertedObjects": objects});
    let review =
        json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response});
    https::json(200, review.to_string())
}

fn definition(client: &Value) -> Value {
    let version = |name: &str, storage: bool, spec: Value| {
        json!({
            "name": name, "served": true, "storage": storage,
            "selectableFields": [{"jsonPath": if storage { ".spec.tonnes" } else { ".spec.load" }}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": spec},
            }}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.test.dev"},
        "spec": {
            "group": "test.dev", "scope": "Namespaced",
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"},
            "versions": [
                version("v1", false, json!({"load": {"type": "string"}})),
                version("v2", true, json!({"tonnes": {"type": "integer"}})),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client, "conversionReviewVersions": ["v1"],
            }},
        },
    })
}

fn ship(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("test.dev/{version}"), "kind": "Ship", "metadata": {"name": name}, "spec": spec})
}

async fn port(by_service: bool) -> (Api, Arc<Behaviour>, Https) {
    let behaviour: Arc<Behaviour> = Arc::default();
    let shared = Arc::clone(&behaviour);
    let names = ["converter.default.svc".to_owned()];
    let endpoint = Https::start(&names, move |request| answer(Arc::clone(&shared), request)).await;
    let api = Api::new(ServerConfig::default()).await;
    let client = if by_service {
        behind_a_service(&api).await;
        let port = endpoint.address.port();
        let service = json!({"name": "converter", "namespace": "default", "path": "/convert", "port": port});
        json!({"service": service, "caBundle": endpoint.ca})
    } else {
        json!({"url": format!("https://{}/convert", endpoint.address), "caBundle": endpoint.ca})
    };
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, body) = api.send("POST", crds, Some(&definition(&client))).await;
    assert_eq!(code, 201, "{body}");
    (api, behaviour, endpoint)
}

/// A Service that stands for the webhook's host. Endpoints cannot be on the loopback address (the unit tests of
/// `webhook_client/service.rs` choose among endpoints).
async fn behind_a_service(api: &Api) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "converter"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    let (code, body) = api.send("POST", "/api/v1/namespaces/default/services", Some(&service)).await;
    assert_eq!(code, 201, "{body}");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "converter-1", "labels": {"kubernetes.io/service-name": "converter"}},
        "endpoints": [{"addresses": ["127.0.0.1"]}],
    });
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let (code, body) = api.send("POST", slices, Some(&slice)).await;
    let why = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
    assert!(code == 422 && body["message"].as_str().unwrap().ends_with(why), "{body}");
}

async fn get(api: &Api, path: &str) -> Value {
    let (code, body) = api.send("GET", path, None).await;
    assert_eq!(code, 200, "{body}");
    body
}

#[tokio::test]
async fn objects_are_converted_by_their_webhook() {
    for by_service in [false, true] {
        let (api, _behaviour, _endpoint) = port(by_service).await;
        let (code, made) = api.send("POST", OLD, Some(&ship("v1", "a", &json!({"load": "12t"})))).await;
        assert_eq!(code, 201, "{made}");
        assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("test.dev/v1"), &json!({"load": "12t"})));
        assert_eq!(made["metadata"]["generation"], 1, "metadata is the server's");
        let stored = get(&api, &format!("{NEW}/a")).await;
        assert_eq!(stored["spec"], json!({"tonnes": 12}));
        assert_eq!(stored["metadata"]["labels"]["converted-to"], "v2");
        let patch = json!({"spec": {"tonnes": 30}});
        let (code, body) = api.send("PATCH", &format!("{NEW}/a"), Some(&patch)).await;
        assert_eq!(code, 200, "{body}");
        assert_eq!(get(&api, &format!("{OLD}/a")).await["spec"]["load"], "30t");
        let (code, body) =
            api.send("PATCH", &format!("{OLD}/a"), Some(&json!({"spec": {"load": "31t"}}))).await;
        assert_eq!((code, &body["spec"]["load"]), (200, &json!("31t")), "{body}");
        assert_eq!(get(&api, &format!("{NEW}/a")).await["spec"]["tonnes"], 31);
        let (code, body) = api.send("DELETE", &format!("{OLD}/a"), None).await;
        assert_eq!(code, 200, "{body}");
        assert_eq!(api.send("GET", &format!("{NEW}/a"), None).await.0, 404);
    }
}

/// Managers that wrote in different versions are told apart by what the webhook makes of the object.
#[tokio::test]
async fn managers_own_fields_in_the_version_they_wrote_in() {
    let (api, behaviour, _endpoint) = port(false).await;
    let apply = async |path: &str, manager: &str, object: Value| {
        let path = format!("{path}/a?fieldManager={manager}");
        api.send_text("PATCH", &path, "application/apply-patch+yaml", object.to_string()).await
    };
    let (code, made) = apply(OLD, "m", ship("v1", "a", &json!({"load": "12t"}))).await;
    assert_eq!(code, 201, "{made}");
    let (code, status) = apply(NEW, "other", ship("v2", "a", &json!({"tonnes": 13}))).await;
    let message = r#"Apply failed with 1 conflict: conflict with "m": .spec.load"#;
    assert_eq!((code, &status["message"]), (409, &json!(message)));
    let (code, shared) = apply(NEW, "other", ship("v2", "a", &json!({"tonnes": 12}))).await;
    assert_eq!(code, 200, "{shared}");
    // An update takes the field from both.
    let patch = json!({"spec": {"tonnes": 14}});
    let (code, object) = api.send("PATCH", &format!("{NEW}/a?fieldManager=u"), Some(&patch)).await;
    assert_eq!(code, 200, "{object}");
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let owning = entries.filter(|e| e["fieldsV1"]["f:spec"].is_object());
    let managers: Vec<_> = owning.map(|e| e["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, ["u"], "{object}");

    // Without the webhook an object can be updated, but loses its managers.
    let (code, applied) = apply(OLD, "m", ship("v1", "a", &json!({"load": "14t"}))).await;
    assert_eq!(code, 200, "{applied}");
    behaviour.refuses.store(true, Ordering::SeqCst);
    let patch = json!({"spec": {"tonnes": 15}});
    let (code, object) = api.send("PATCH", &format!("{NEW}/a?fieldManager=u"), Some(&patch)).await;
    assert_eq!((code, &object["metadata"]["managedFields"]), (200, &Value::Null), "{object}");
}

#[tokio::test]
async fn lists_and_watches_see_one_version() {
    let (api, behaviour, _endpoint) = port(false).await;
    for i in 0..230 {
        let version = if i % 20 == 0 { "v1" } else { "v2" };
        let spec = if i % 20 == 0 { json!({"load": format!("{i}t")}) } else { json!({"tonnes": i}) };
        let path = if i % 20 == 0 { OLD } else { NEW };
        let (code, body) = api.send("POST", path, Some(&ship(version, &format!("s{i:03}"), &spec))).await;
        assert_eq!(code, 201, "{body}");
    }
    let before = behaviour.calls.load(Ordering::SeqCst);
    let list = get(&api, OLD).await;
    let loads: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|o| o["spec"]["load"].as_str().unwrap()).collect();
    assert_eq!(loads, (0..230).map(|i| format!("{i}t")).collect::<Vec<_>>());
    let calls = behaviour.calls.load(Ordering::SeqCst) - before;
    assert_eq!(calls, 1, "a list is one review");
    // What is known is not asked for again; selectors and pages are of the version asked for.
    let selected = get(&api, &format!("{OLD}?fieldSelector=spec.load%3D7t")).await;
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let page = get(&api, &format!("{OLD}?labelSelector=converted-to%3Dv1&limit=200")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 200);
    let next = page["metadata"]["continue"].as_str().unwrap();
    let rest = get(&api, &format!("{OLD}?labelSelector=converted-to%3Dv1&limit=200&continue={next}")).await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 30);
    assert_eq!(behaviour.calls.load(Ordering::SeqCst) - before, calls);

    let mut events = api.watch(&format!("{OLD}?watch=true&timeoutSeconds=20")).await;
    for i in 0..230 {
        let event = events.next().await;
        assert_eq!(
            (&event["type"], &event["object"]["spec"]["load"]),
            (&json!("ADDED"), &json!(format!("{i}t")))
        );
    }
    let (code, body) =
        api.send("PATCH", &format!("{NEW}/s000"), Some(&json!({"spec": {"tonnes": 500}}))).await;
    assert_eq!(code, 200, "{body}");
    let event = events.next().await;
    assert_eq!((&event["type"], &event["object"]["spec"]["load"]), (&json!("MODIFIED"), &json!("500t")));
    assert_eq!(api.send("DELETE", &format!("{NEW}/s000"), None).await.0, 200);
    let event = events.next().await;
    assert_eq!((&event["type"], &event["object"]["spec"]["load"]), (&json!("DELETED"), &json!("500t")));
}

#[tokio::test]
async fn many_watchers_cost_one_call() {
    let (api, behaviour, _endpoint) = port(false).await;
    for i in 0..30 {
        let object = ship("v2", &format!("s{i:02}"), &json!({"tonnes": i}));
        assert_eq!(api.send("POST", NEW, Some(&object)).await.0, 201);
    }
    let counted = || (behaviour.calls.load(Ordering::SeqCst), behaviour.objects.load(Ordering::SeqCst));
    let before = counted();
    // All at once: what they begin with is converted once.
    let path = format!("{OLD}?watch=true&timeoutSeconds=60");
    let mut watchers = Vec::new();
    for _ in 0..100 {
        watchers.push(api.watch(&path).await);
    }
    let first = futures::future::join_all(watchers.into_iter().map(|mut events| async move {
        for i in 0..30 {
            assert_eq!(events.next().await["object"]["spec"]["load"], format!("{i}t"));
        }
        events
    }));
    let watchers = first.await;
    let begun = counted();
    assert_eq!((begun.0 - before.0, begun.1 - before.1), (1, 30));
    // An event is converted once; several that come while a call is under way share the next one.
    let patch = json!({"spec": {"tonnes": 500}});
    assert_eq!(api.send("PATCH", &format!("{NEW}/s00"), Some(&patch)).await.0, 200);
    let told = futures::future::join_all(watchers.into_iter().map(|mut events| async move {
        assert_eq!(events.next().await["object"]["spec"]["load"], "500t");
        events
    }));
    let watchers = told.await;
    let one = counted();
    assert_eq!((one.0 - begun.0, one.1 - begun.1), (1, 1));
    for i in 0..30 {
        let patch = json!({"spec": {"tonnes": 1000 + i}});
        assert_eq!(api.send("PATCH", &format!("{NEW}/s{i:02}"), Some(&patch)).await.0, 200);
    }
    let told = futures::future::join_all(watchers.into_iter().map(|mut events| async move {
        for i in 1000..1030 {
            assert_eq!(events.next().await["object"]["spec"]["load"], format!("{i}t"));
        }
    }));
    told.await;
    let all = counted();
    assert_eq!(all.1 - one.1, 30, "each once");
    assert!(all.0 - one.0 <= 30);
}

#[tokio::test]
async fn one_bad_object_spoils_only_what_needs_it() {
    let (api, behaviour, _endpoint) = port(false).await;
    let mut events = api.watch(&format!("{OLD}?watch=true&timeoutSeconds=20")).await;
    behaviour.refused.lock().unwrap().push("s3".to_owned());
    for i in 0..6 {
        let object = ship("v2", &format!("s{i}"), &json!({"tonnes": i}));
        assert_eq!(api.send("POST", NEW, Some(&object)).await.0, 201);
    }
    for i in 0..3 {
        assert_eq!(events.next().await["object"]["spec"]["load"], format!("{i}t"));
    }
    let text = "conversion webhook for test.dev/v2, Kind=Ship failed: no such hull";
    assert_eq!(events.next().await["object"]["message"], text);
    assert!(events.next_if_any().await.is_none());
    // Lists that fail at the same time make nobody else fail.
    let lists = (0..5).map(|_| api.send("GET", OLD, None));
    let paths = [4, 5].map(|i| format!("{OLD}/s{i}"));
    let singles = paths.iter().map(|path| api.send("GET", path, None));
    let (lists, singles) =
        futures::future::join(futures::future::join_all(lists), futures::future::join_all(singles)).await;
    assert!(lists.iter().all(|(code, body)| *code == 500 && body["message"] == text), "{lists:?}");
    assert!(singles.iter().all(|(code, _)| *code == 200), "{singles:?}");
    // Nor does everybody ask for himself what was spoilt for all.
    let patch = json!({"spec": {"tonnes": 7}});
    assert_eq!(api.send("PATCH", &format!("{NEW}/s5"), Some(&patch)).await.0, 200);
    let before = behaviour.calls.load(Ordering::SeqCst);
    let singles = (0..20).map(|_| api.send("GET", &paths[1], None));
    let (list, singles) =
        futures::future::join(api.send("GET", OLD, None), futures::future::join_all(singles)).await;
    assert_eq!(list.0, 500);
    assert!(singles.iter().all(|(_, body)| body["spec"]["load"] == "7t"), "{singles:?}");
    let calls = behaviour.calls.load(Ordering::SeqCst) - before;
    assert!(calls <= 3, "{calls} calls");
}

#[tokio::test]
async fn a_failing_conversion_is_told_and_stores_nothing() {
    let (api, behaviour, endpoint) = port(false).await;
    let object = ship("v2", "a", &json!({"tonnes": 1}));
    assert_eq!(api.send("POST", NEW, Some(&object)).await.0, 201);
    behaviour.refuses.store(true, Ordering::SeqCst);
    let (code, body) = api.send("GET", &format!("{OLD}/a"), None).await;
    let text = "conversion webhook for test.dev/v2, Kind=Ship failed: no such hull";
    assert_eq!((code, &body["message"]), (500, &json!(text)));
    let mut events = api.watch(&format!("{OLD}?watch=true&timeoutSeconds=20")).await;
    let event = events.next().await;
    assert_eq!((&event["type"], &event["object"]["message"]), (&json!("ERROR"), &json!(text)));
    let (code, body) = api.send("POST", OLD, Some(&ship("v1", "b", &json!({"load": "2t"})))).await;
    assert_eq!(code, 500, "{body}");
    assert_eq!(api.send("GET", &format!("{NEW}/b"), None).await.0, 404);
    // The stored version needs no webhook.
    assert_eq!(get(&api, &format!("{NEW}/a")).await["spec"]["tonnes"], 1);

    behaviour.refuses.store(false, Ordering::SeqCst);
    behaviour.renames.store(true, Ordering::SeqCst);
    let (_, body) = api.send("GET", &format!("{OLD}/a"), None).await;
    let text = "conversion webhook for test.dev/v2, Kind=Ship returned invalid object: must have the same name: a != other";
    assert_eq!(body["message"], text);

    let address = endpoint.address;
    drop(endpoint);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    let (code, body) = api.send("GET", &format!("{OLD}/a"), None).await;
    let start = format!(
        "conversion webhook for test.dev/v2, Kind=Ship failed: Post \"https://{address}/convert?timeout=30s\": dial tcp"
    );
    assert!(code == 500 && body["message"].as_str().unwrap().starts_with(&start), "{body}");
    // A definition with objects can go all the same.
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ships.test.dev";
    assert_eq!(api.send("DELETE", crd, None).await.0, 200);
    for _ in 0..200 {
        if api.send("GET", crd, None).await.0 == 404 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the definition is still there");
}
