//! Objects nested as deep as the server reads them, through every way in and out; and what is nested deeper.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::api::Api;
use plimsoll_apimachinery::decode::depth::{MAX_DEPTH, STACK};
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BOXES: &str = "/apis/deep.example.com/v1/namespaces/default/boxes";
const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const HEAD: &str = r#""apiVersion":"deep.example.com/v1","kind":"Box""#;

/// Runs a test on a thread with a stack of its own.
fn on_stack(bytes: usize, test: impl AsyncFnOnce(Api) + Send + 'static) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let api = Api::new(ServerConfig::default()).await;
            let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let version =
                json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": free}});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "boxes.deep.example.com"},
                "spec": {"group": "deep.example.com", "scope": "Namespaced", "versions": [version],
                    "names": {"plural": "boxes", "singular": "box", "kind": "Box", "listKind": "BoxList"}},
            });
            assert_eq!(api.send("POST", CRDS, Some(&definition)).await.0, 201);
            test(api).await;
        });
    };
    std::thread::Builder::new().stack_size(bytes).spawn(run).unwrap().join().unwrap();
}

/// Objects inside one another.
fn nested(levels: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))
}

/// A resource of so many levels.
fn object(name: &str, levels: usize) -> String {
    format!("{{{HEAD},\"metadata\":{{\"name\":\"{name}\"}},\"spec\":{}}}", nested(levels - 1))
}

fn levels_of(spec: &Value) -> usize {
    std::iter::successors(Some(spec), |v| v.get("a")).count() - 1
}

async fn ways_in_and_out(api: Api, levels: usize, yaml: bool) {
    let deep = |spec: &Value| assert_eq!(levels_of(spec), levels - 1);
    let path = format!("{BOXES}/b");
    let (code, made) = api.send_text("POST", BOXES, JSON, object("b", levels)).await;
    assert_eq!(code, 201, "{}", made["message"]);
    // The tests' client reads answers with the limit of its own.
    let (code, _) = api.send_text("GET", &path, JSON, String::new()).await;
    assert_eq!(code, 200);
    let stored = api.server.store().get(&plimsoll_apiserver::store::Key::new(
        "deep.example.com/boxes",
        "default",
        "b",
    ));
    let stored = stored.unwrap();
    deep(&stored.value().unwrap()["spec"]);
    let version = format!("\"name\":\"b\",\"resourceVersion\":\"{}\"", stored.revision);
    for (method, kind, body) in [
        ("PUT", JSON, object("b", levels).replace("\"name\":\"b\"", &version)),
        ("PATCH", "application/merge-patch+json", r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned()),
        ("PATCH", "application/merge-patch+json", format!("{{\"other\":{}}}", nested(levels - 1))),
        (
            "PATCH",
            "application/json-patch+json",
            format!(r#"[{{"op":"add","path":"/more","value":{}}}]"#, nested(levels - 2)),
        ),
    ] {
        let (code, answer) = api.send_text(method, &path, kind, body).await;
        assert_eq!(code, 200, "{method} {kind}: {}", answer["message"]);
    }
    let apply = |name: &str| format!("{BOXES}/{name}?fieldManager=m&force=true");
    let block: String = (0..levels - 1).map(|i| format!("\n{}a:", " ".repeat(i + 1))).collect();
    let block =
        format!("apiVersion: deep.example.com/v1\nkind: Box\nmetadata: {{name: block}}\nspec:{block} 1\n");
    let flow =
        format!("{{{HEAD},\"metadata\":{{\"name\":\"flow\"}},\"spec\":{}}}# no JSON", nested(levels - 1));
    let applied =
        [("b", object("b", levels)), ("new", object("new", levels)), ("flow", flow), ("block", block)];
    for (name, body) in applied.into_iter().take(if yaml { 4 } else { 2 }) {
        let (code, answer) = api.send_text("PATCH", &apply(name), APPLY, body.clone()).await;
        assert!(matches!(code, 200 | 201), "{name}: {code} {}", answer["message"]);
        let (code, answer) = api.send_text("PATCH", &apply(name), APPLY, body).await;
        assert_eq!(code, 200, "{name} again: {}", answer["message"]);
    }
    for accept in ["application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json"] {
        for path in [BOXES, path.as_str()] {
            let (code, _) = reading(&api, accept).send_text("GET", path, JSON, String::new()).await;
            assert_eq!(code, 200, "{accept} {path}");
        }
    }
    assert_eq!(api.send("DELETE", BOXES, None).await.0, 200);
}

fn reading(api: &Api, accept: &str) -> Api {
    Api::of(std::sync::Arc::clone(&api.server)).with_headers(&[("accept", accept)])
}

/// Also where the stack has no more than what the limit counts for so many levels.
#[test]
fn deep_objects_are_read_written_patched_and_applied() {
    on_stack(STACK, async |api| ways_in_and_out(api, MAX_DEPTH - 2, true).await);
    // 16 KiB a level, and what comes before the first one.
    let (levels, more) = (MAX_DEPTH / 2, 2 << 20);
    on_stack((levels << 14) + more, async move |api| ways_in_and_out(api, levels, false).await);
}

#[test]
fn what_is_deeper_is_refused_in_clear_words_on_any_stack() {
    for (bytes, levels) in [(STACK, MAX_DEPTH + 1), (2 << 20, 200), (2 << 20, 100_000), (STACK, 400_000)] {
        on_stack(bytes, async move |api| {
            let merge = "application/merge-patch+json";
            assert_eq!(api.send_text("POST", BOXES, JSON, object("b", 3)).await.0, 201);
            for (method, path, kind) in [
                ("POST", BOXES.to_owned(), JSON),
                ("PUT", format!("{BOXES}/b"), JSON),
                ("PATCH", format!("{BOXES}/b"), merge),
                ("PATCH", format!("{BOXES}/b?fieldManager=m"), APPLY),
            ] {
                let (code, answer) = api.send_text(method, &path, kind, object("b", levels)).await;
                let message = answer["message"].as_str().unwrap_or_default();
                assert_eq!(code, 400, "{method} {kind} {message}");
                assert!(message.contains("exceeded max depth: "), "{method} {kind}: {message}");
            }
            for text in ["[", "{\"a\":", "- ", "{a: ", "? ", "[{"] {
                for kind in [JSON, "application/yaml"] {
                    let (code, _) =
                        api.send_text("POST", BOXES, kind, text.repeat(levels.min(100_000))).await;
                    assert!(matches!(code, 400 | 413 | 422), "{text} {kind}: {code}");
                }
                let path = format!("{BOXES}/b?fieldManager=m");
                let (code, _) = api.send_text("PATCH", &path, APPLY, text.repeat(levels.min(100_000))).await;
                assert!(matches!(code, 400 | 422), "{text}: {code}");
            }
        });
    }
}
