use serde_json::json;

use super::*;

fn patched(document: &Value, patch: &Value) -> Option<Value> {
    json::json(document, patch.to_string().as_bytes()).ok()
}

#[test]
fn json_patch_operations() {
    let doc = json!({"a": [1, 2, 3], "m": {"x": null}});
    let op = |op: Value| patched(&doc, &json!([op]));
    let rows = [
        (
            json!({"op": "add", "path": "/a/-", "value": 4}),
            Some(json!({"a": [1, 2, 3, 4], "m": {"x": null}})),
        ),
        (
            json!({"op": "add", "path": "/a/-1", "value": 4}),
            Some(json!({"a": [1, 2, 3, 4], "m": {"x": null}})),
        ),
        (json!({"op": "remove", "path": "/a/-1"}), Some(json!({"a": [1, 2], "m": {"x": null}}))),
        (json!({"op": "add", "path": "/a/4", "value": 4}), None),
        (json!({"op": "remove", "path": "/a/3"}), None),
        (json!({"op": "replace", "path": "/a/3", "value": 1}), None),
        (json!({"op": "add", "path": "", "value": {}}), None),
        (json!({"op": "add", "path": "/a/b/c", "value": {}}), None),
        (json!({"op": "replace", "path": "", "value": 5}), None),
        (json!({"op": "test", "path": "/m/none", "value": null}), Some(doc.clone())),
        (json!({"op": "test", "path": "/a/9", "value": null}), None),
        (json!({"op": "move", "from": "/none", "path": "/b"}), None),
        (
            json!({"op": "copy", "from": "/none", "path": "/b"}),
            Some(json!({"a": [1, 2, 3], "m": {"x": null}, "b": null})),
        ),
    ];
    for (operation, want) in rows {
        assert_eq!(op(operation.clone()), want, "{operation}");
    }
}

#[test]
fn json_patch_limits() {
    let many = Value::Array(vec![json!({"op": "test", "path": "/a", "value": 1}); MAX_OPERATIONS + 1]);
    let e = json::json(&json!({"a": 1}), many.to_string().as_bytes()).unwrap_err();
    assert_eq!((e.code, e.reason.as_str()), (413, "RequestEntityTooLarge"));
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let bomb = Value::Array(vec![double; 64]);
    assert_eq!(json::json(&json!({"a": ["xxxxxxxx"]}), bomb.to_string().as_bytes()).unwrap_err().code, 422);
}

#[test]
fn merge_patch() {
    let doc = json!({"a": {"b": 1, "c": [1]}, "d": 1});
    let rows = [
        (
            json!({"a": {"b": null, "x": {"y": null, "z": [1, null]}}}),
            json!({"a": {"c": [1], "x": {"z": [1, null]}}, "d": 1}),
        ),
        (json!({"d": [{"e": null, "f": 1}]}), json!({"a": {"b": 1, "c": [1]}, "d": [{"f": 1}]})),
        (json!({"a": [1, null]}), json!({"a": [1, null], "d": 1})),
        (json!({"d": {"e": null}}), json!({"a": {"b": 1, "c": [1]}, "d": {}})),
        (json!({}), doc.clone()),
    ];
    for (patch, want) in rows {
        assert_eq!(merge::merge(&doc, patch.to_string().as_bytes()).unwrap(), want, "{patch}");
    }
    for (body, message) in [
        ("not json", "error decoding patch: invalid character 'o' in literal null (expecting 'u')"),
        (
            "[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
    ] {
        assert_eq!(merge::merge(&doc, body.as_bytes()).unwrap_err().message, message);
    }
}

/// Directives and nulls where there is nothing to merge them with, and what is left of the patch for messages.
#[test]
fn strategic_directives_without_a_counterpart() {
    let gvk = crate::Gvk { group: String::new(), version: "v1".to_owned(), kind: "Node".to_owned() };
    let schema = crate::builtin::definition(&gvk).unwrap();
    let live = json!({"metadata": {"labels": {"x": "1"}}, "status": {"conditions": [{"type": "R", "status": "True"}]}});
    let both = |patch: Value| strategic(&schema, &live, patch.to_string().as_bytes());
    let rows = [
        // maps with a directive go, with the field they were to be
        (
            json!({"metadata": {"annotations": {"$patch": "replace", "a": "1"}}}),
            "/metadata/annotations",
            None,
        ),
        (
            json!({"spec": {"taints": [{"key": "a", "$patch": "delete"}, {"key": "b"}]}}),
            "/spec/taints",
            Some(json!([{"key": "b"}])),
        ),
        (
            json!({"spec": {"taints": [{"key": "a", "$patch": "delete"}], "$setElementOrder/taints": []}}),
            "/spec/taints",
            Some(json!([])),
        ),
        (json!({"metadata": {"labels": {"x": {"$patch": "delete"}}}}), "/metadata/labels", Some(json!({}))),
        (json!({"spec": {"taints": [{"key": "a", "n": 5.0}]}}), "/spec/taints/0/n", Some(json!(5))),
        // a new item of a list that is merged keeps its nulls, its key among them
        (
            json!({"status": {"conditions": [{"type": null, "status": "True"}]}}),
            "/status/conditions/0",
            Some(json!({"type": null, "status": "True"})),
        ),
        (
            json!({"metadata": {"annotations": {"a": null, "b": "1"}}}),
            "/metadata/annotations",
            Some(json!({"b": "1"})),
        ),
    ];
    for (patch, path, want) in rows {
        let merged = both(patch.clone());
        let got = merged.map(|m| m.document.pointer(path).cloned()).map_err(|e| e.message);
        assert_eq!(got, Ok(want), "{patch}");
    }
    let patch =
        json!({"metadata": {"annotations": {"a": null, "b": 1}, "labels": {"x": null, "$retainKeys": []}}});
    let left = both(patch).unwrap().patch;
    assert_eq!(go_text(&left), "map[metadata:map[annotations:map[b:1] labels:map[x:<nil>]]]");
}

/// Nothing can be patched to be deeper than what can be read.
#[test]
fn json_patches_stay_shallow() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let patch = |operations: Value| json::json(&deep(100), operations.to_string().as_bytes());
    let at = |levels: usize| "/a".repeat(levels);
    for (levels, fits) in [(0, true), (27, true), (28, false), (100, false)] {
        for op in ["add", "replace"] {
            let one = json!([{"op": op, "path": at(100), "value": deep(levels)}]);
            assert_eq!(patch(one).is_ok(), fits, "{op} {levels}");
        }
    }
    // Each copy into the copied itself would make it twice as deep.
    let copy = json!({"op": "copy", "from": "/a", "path": at(100)});
    assert_eq!(patch(json!([copy])).map_err(|e| e.code), Err(422));
    let moved = json!([{"op": "add", "path": "/b", "value": deep(50)}, {"op": "move", "from": "/b", "path": at(100)}]);
    assert_eq!(patch(moved).map_err(|e| e.code), Err(422));
    let shallow =
        json!([{"op": "copy", "from": at(98), "path": "/b"}, {"op": "copy", "from": "/b", "path": at(100)}]);
    assert!(patch(shallow).is_ok());
}

/// How deep what is moved is takes time for all that is in it.
#[test]
fn json_patches_do_not_move_much_often() {
    let list: Vec<usize> = (0..3000).collect();
    let moved = |often: usize| {
        let moves = (0..often).map(|i| match i % 2 {
            0 => json!({"op": "move", "from": "/x", "path": "/y"}),
            _ => json!({"op": "move", "from": "/y", "path": "/x"}),
        });
        json::json(&json!({ "x": list }), Value::from_iter(moves).to_string().as_bytes())
    };
    assert!(moved(100).is_ok());
    assert_eq!(moved(9_000).map_err(|e| e.code), Err(422));
}

/// What the server changes by itself on a write.
fn settled(mut object: Value) -> Value {
    for field in ["resourceVersion", "generation", "managedFields"] {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove(field);
        }
    }
    object
}

#[test]
fn recorded_patches() {
    let (mut right, mut wrong) = (0, Vec::new());
    for scenario in
        ["patch-json", "patch-merge", "patch-strategic"].into_iter().flat_map(crate::test_vectors::family)
    {
        let scenario = crate::test_vectors::with_times(&scenario);
        let mut live = Value::Null;
        for step in scenario["steps"].as_array().unwrap() {
            let (request, response) = (&step["request"], &step["response"]);
            let content = request["headers"]["Content-Type"].as_str().unwrap_or_default();
            let body = request["body"].to_string();
            let (status, want) = (response["status"].as_u64().unwrap_or(0), &response["body"]);
            let gvk = crate::Gvk {
                group: live["apiVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .split_once('/')
                    .map_or("", |p| p.0)
                    .to_owned(),
                version: live["apiVersion"]
                    .as_str()
                    .unwrap_or_default()
                    .rsplit('/')
                    .next()
                    .unwrap()
                    .to_owned(),
                kind: live["kind"].as_str().unwrap_or_default().to_owned(),
            };
            let kind = crate::builtin::table().kind(&gvk).cloned();
            let got = match (content, &kind) {
                ("application/json-patch+json", _) => Some(json::json(&live, body.as_bytes())),
                ("application/merge-patch+json", _) => Some(merge::merge(&live, body.as_bytes())),
                ("application/strategic-merge-patch+json", Some(kind)) => {
                    let schema = kind.schema.as_ref().unwrap();
                    Some(strategic(schema, &live, body.as_bytes()).map(|merged| merged.document))
                }
                _ => None,
            };
            if let Some(got) = got {
                let ok = match &got {
                    Err(e) => e.to_status() == *want,
                    Ok(_) if status != 200 => true,
                    Ok(value) => {
                        let conformed = kind.as_ref().map_or(Ok(value.clone()), |k| {
                            crate::decode::conform(k, value.clone()).map(|c| c.object)
                        });
                        conformed.is_ok_and(|c| settled(c) == settled(want.clone()))
                    }
                };
                if ok {
                    right += 1;
                } else {
                    wrong.push(step["note"].as_str().unwrap_or_default().to_owned());
                }
            }
            if status < 300 && want["metadata"].is_object() {
                live = want.clone();
            }
        }
    }
    assert_eq!(wrong, DEFAULTED, "{right} right");
}

/// Patches after which defaults or a strategy have the last word.
const DEFAULTED: &[&str] = &[
    "whole document",
    "replace the list of containers",
    "null a defaulted field: the default comes back",
    "null replicas: the default comes back",
    "add a container",
    "env from value to valueFrom needs null",
    "volumes merged by name, retainKeys",
    "insert with order",
    "replace the list of containers",
    "strategy back, rollingUpdate defaults return",
    "conditions through the object path are ignored",
    "spec and labels through status",
    "add",
];
