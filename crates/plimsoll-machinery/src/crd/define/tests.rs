use serde_json::{Value, json};

use crate::crd::{kueue_definitions, load};
use crate::error::ApiError;
use crate::test_vectors::family;

fn causes(body: &Value) -> Vec<String> {
    let mut all: Vec<String> = body["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| format!("{} {} {}", c["field"], c["reason"], c["message"]))
        .collect();
    all.sort();
    all
}

/// What the registry has done by the time a definition is checked.
fn prepared(body: &Value) -> Value {
    let mut d = body.clone();
    let names = &mut d["spec"]["names"];
    if let (Some(kind), None) = (names["kind"].as_str().map(str::to_owned), names.get("listKind")) {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if d["spec"]["conversion"].is_null() {
        d["spec"]["conversion"] = json!({ "strategy": "None" });
    }
    let stored: Vec<Value> = d["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|v| v["storage"] == true)
        .take(1)
        .map(|v| v["name"].clone())
        .collect();
    if d["status"]["storedVersions"].is_null() {
        d["status"] = json!({ "storedVersions": stored });
    }
    d
}

#[test]
fn recorded_definitions() {
    let mut compared = 0;
    for scenario in family("crd").iter().chain(&family("apply")).chain(&family("webhook")) {
        let mut old: Option<Value> = None;
        for step in scenario["steps"].as_array().unwrap() {
            let (request, body) = (&step["request"], &step["response"]["body"]);
            let path = request["path"].as_str().unwrap_or_default();
            if !path.starts_with("/apis/apiextensions.k8s.io/v1/customresourcedefinitions") {
                continue;
            }
            let status = step["response"]["status"].as_u64().unwrap();
            let errors = match request["method"].as_str() {
                Some("POST") if status != 409 => super::validate_create(&prepared(&request["body"])),
                Some("PATCH") if request["body"].is_object() => {
                    let before = old.clone().unwrap();
                    let mut new = before.clone();
                    json_patch::merge(&mut new, &request["body"]);
                    super::validate_update(&before, &new)
                }
                _ => {
                    if body["kind"] == "CustomResourceDefinition" {
                        old = Some(body.clone());
                    }
                    continue;
                }
            };
            let at = format!("{} {}", scenario["id"], step["note"]);
            compared += 1;
            if status == 422 {
                let ours = ApiError::invalid("", "", "", &errors).to_status();
                assert_eq!(causes(&ours), causes(body), "{at}");
            } else {
                assert_eq!(errors, [], "{at}");
                old = Some(body.clone());
            }
        }
    }
    assert!(compared > 35, "{compared}");
}

#[test]
fn kueues_definitions_are_fine() {
    for definition in kueue_definitions() {
        assert_eq!(super::validate_create(&prepared(definition)), [], "{}", definition["metadata"]["name"]);
    }
    assert!(load("kind: [").is_err());
}

#[test]
fn names_are_accepted_once() {
    let make = |plural: &str, singular: &str, kind: &str| {
        json!({
            "metadata": { "name": format!("{plural}.example.dev") },
            "spec": { "group": "example.dev", "names": {
                "plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List"),
                "shortNames": ["x"],
            } },
        })
    };
    let mut first = make("ups", "up", "Up");
    first["status"] = super::accept(&first, &[], "2026-01-01T00:00:00Z");
    assert_eq!(first["status"]["conditions"][0]["reason"], "NoConflicts");
    assert_eq!(first["status"]["conditions"][1]["reason"], "InitialNamesAccepted");
    assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
    let mut second = make("ups2", "up", "Up2");
    second["spec"]["names"]["shortNames"] = json!(["y"]);
    let status = super::accept(&second, &[&first], "2026-01-01T00:00:00Z");
    assert_eq!(status["conditions"][0]["reason"], "SingularConflict");
    assert_eq!(status["conditions"][0]["message"], "\"up\" is already in use");
    assert_eq!(status["conditions"][1]["reason"], "NotAccepted");
    assert_eq!(
        status["acceptedNames"],
        json!({ "plural": "ups2", "kind": "Up2", "listKind": "Up2List", "shortNames": ["y"] })
    );
    // seen again, nothing changes but the times stay
    let again = super::accept(&first, &[&second], "2026-02-02T00:00:00Z");
    assert_eq!(again, first["status"]);
}
