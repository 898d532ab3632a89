use std::collections::HashMap;

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::test_vectors::{family, with_times};

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

/// Creates and patches of custom resources get the recorded verdicts, defaults and warnings.
#[test]
fn recorded_objects() {
    let mut compared = 0;
    for scenario in family("crd") {
        let mut kinds: HashMap<(String, String), Kind> = HashMap::new();
        let mut objects: HashMap<String, Value> = HashMap::new();
        for step in scenario["steps"].as_array().unwrap() {
            let (request, response) = (&step["request"], &step["response"]);
            let body = &response["body"];
            if body["kind"] == "CustomResourceDefinition" && response["status"].as_u64() < Some(300) {
                for kind in super::kinds(body) {
                    kinds.insert((kind.gvk.api_version(), kind.plural.clone()), kind);
                }
                continue;
            }
            let path = request["path"].as_str().unwrap_or_default();
            let parts: Vec<&str> = path.split('/').collect();
            let ["", "apis", group, version, rest @ ..] = parts.as_slice() else { continue };
            let (plural, name) = match rest {
                ["namespaces", _, plural] | [plural] => (*plural, None),
                ["namespaces", _, plural, name] | [plural, name] => (*plural, Some(*name)),
                _ => continue,
            };
            let Some(kind) = kinds.get(&(format!("{group}/{version}"), plural.to_owned())) else { continue };
            let key =
                format!("{plural}/{}", name.or(request["body"]["metadata"]["name"].as_str()).unwrap_or(""));
            let patch = request["method"] == "PATCH"
                && request["headers"]["Content-Type"] == "application/merge-patch+json";
            let (old, mut new) = match request["method"].as_str() {
                Some("POST") if request["body"]["kind"] == kind.gvk.kind.as_str() => {
                    (None, request["body"].clone())
                }
                Some("PATCH") if patch && objects.contains_key(&key) => {
                    let old = objects[&key].clone();
                    let mut new = old.clone();
                    json_patch::merge(&mut new, &request["body"]);
                    (Some(old), new)
                }
                _ => {
                    if body["metadata"]["uid"].is_string() {
                        objects.insert(key, with_times(body));
                    }
                    continue;
                }
            };
            let at = format!("{} {} {}", scenario["id"], step["note"], request["body"]);
            let status = response["status"].as_u64().unwrap();
            if !matches!(status, 200 | 201 | 422)
                || body["message"].as_str().is_some_and(|m| m.contains("metadata"))
            {
                continue;
            }
            let unknown = super::prune(kind, &mut new);
            crate::go::normalise_numbers(&mut new);
            super::default_object(kind, &mut new);
            let errors = super::validate_object(kind, old.as_ref(), &new, &[]);
            compared += 1;
            if status == 422 {
                let ours = ApiError::invalid(group, &kind.gvk.kind, "x", &errors).to_status();
                assert_eq!(causes(&ours), causes(body), "{at}");
                continue;
            }
            assert_eq!(errors, [], "{at}");
            if request["query"]["fieldValidation"] != "Ignore" {
                let warned = serde_json::to_string(&response["headers"]["Warning"]).unwrap();
                for path in &unknown {
                    assert!(warned.contains(path), "{at} {path} {warned}");
                }
            }
            assert_eq!(new["spec"], body["spec"], "{at}");
            if request["query"]["dryRun"].is_null() {
                objects.insert(key, with_times(body));
            }
        }
    }
    assert!(compared > 60, "{compared} objects compared");
}

/// Numbers are compared as they are read: whole ones exactly, those with a fraction or an exponent as floats, which
/// count as whole only as far as a float can tell.
#[test]
fn numbers_and_nulls() {
    let integer = json!({"type": "integer"});
    let fives = json!({"type": "integer", "multipleOf": 5});
    let halves = json!({"type": "number", "multipleOf": 0.5});
    let most = json!({"type": "integer", "maximum": 9_007_199_254_740_993_i64});
    let text = json!({"type": "string"});
    let letters = json!({"type": "string", "nullable": true, "enum": ["x"]});
    let either = json!({"type": "object", "nullable": true, "anyOf": [{"required": ["a"]}]});
    let int32 = json!({"type": "integer", "format": "int32"});
    let rows: &[(&Value, &str, &[&str])] = &[
        (&integer, "1.0", &[]),
        (&integer, "1e3", &[]),
        (
            &integer,
            "1e30",
            &[
                r#"Invalid value: "number": v in body must be of type integer: "number""#,
                r#"Invalid value: "": Checked value must be of type integer (default format) in v"#,
            ],
        ),
        (
            &int32,
            "3e9",
            &[r#"Invalid value: "": Checked value must be of type integer with format int32 in v"#],
        ),
        (&fives, "9223372036854775805", &[]),
        (
            &fives,
            "9223372036854775807",
            &["Invalid value: 9223372036854775807: v in body should be a multiple of 5"],
        ),
        (&halves, "1.0", &[]),
        (&halves, "1", &["Invalid value: 0: factor MultipleOf declared for v must be positive: 0"]),
        (&halves, "1e30", &["Invalid value: 1e+30: v in body should be a multiple of 0.5"]),
        (&most, "9007199254740992", &[]),
        (
            &most,
            "9007199254740994",
            &["Invalid value: 9007199254740994: v in body should be less than or equal to 9007199254740992"],
        ),
        (&text, "1", &[r#"Invalid value: "integer": v in body must be of type string: "integer""#]),
        (&text, "1.0", &[r#"Invalid value: "number": v in body must be of type string: "number""#]),
        (&letters, "null", &[r#"Unsupported value: null: supported values: "x""#]),
        (&either, "null", &[]),
    ];
    for (schema, value, want) in rows {
        let node = super::node::Node::build(schema);
        let mut checker = super::check::Checker { base: "", errors: Vec::new() };
        checker.check(&serde_json::from_str(value).unwrap(), None, &node, "v");
        let found: Vec<String> = checker.errors.iter().map(|e| e.to_string()).collect();
        let found: Vec<&str> =
            found.iter().map(|e| e.trim_start_matches("v: ").trim_start_matches("<nil>: ")).collect();
        assert_eq!(found, *want, "{schema} {value}");
    }
}

/// What is as long as a request may be takes about as long to check as to read.
#[test]
fn long_values_are_checked_in_one_pass() {
    const MANY: usize = 30_000;
    let schema = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {
            "k": {"type": "integer"}, "v": {"type": "string", "format": "duration", "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "is immutable"}]},
        }},
    });
    let node = super::node::Node::build(&schema);
    let list = |value: &str| (0..MANY).map(|k| json!({"k": k, "v": value})).collect::<Value>();
    let (old, mut new) = (list("1s"), list("1s"));
    new.as_array_mut().unwrap().reverse();
    new[7]["v"] = json!("never");
    let mut checker = super::check::Checker { base: "", errors: Vec::new() };
    checker.check(&new, Some(&old), &node, "l");
    let fields: Vec<&str> = checker.errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, ["l[7].v"], "elements are told apart by their keys, wherever they are");
    let mut found = Vec::new();
    super::rules::check(&new, Some(&old), &node, "l", &mut found);
    let fields: Vec<&str> = found.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, ["l[7].v"]);
    for (text, good) in [("1".repeat(1_000_000), false), ("1 ".repeat(500_000) + "day", true)] {
        assert_eq!(super::format::valid("duration", &text), good);
    }
}

/// Sets and maps are equal in any order, in objects too, and have nothing twice in a sum.
#[test]
fn rules_know_sets_and_maps() {
    let schema = |rule: &str| {
        json!({
            "type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "string"}},
                "map": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a-k"],
                    "items": {"type": "object", "required": ["a-k"], "properties": {
                        "a-k": {"type": "integer"}, "v": {"type": "string"},
                        "in": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}}},
                },
            },
        })
    };
    let element = |k: i64, v: &str, inner: &[i64]| json!({"a-k": k, "v": v, "in": inner});
    let old = json!({"set": ["a", "b"], "plain": ["a", "b"], "map": [element(1, "x", &[1, 2]), element(2, "y", &[])]});
    let new = json!({"set": ["b", "a"], "plain": ["a", "b"], "map": [element(2, "y", &[]), element(1, "x", &[2, 1])]});
    let mut other = new.clone();
    other["map"][1]["v"] = json!("z");
    let mut plain = new.clone();
    plain["plain"] = json!(["b", "a"]);
    for (rule, new, holds) in [
        ("self == oldSelf", &new, true),
        ("self.set == oldSelf.set && self.map == oldSelf.map", &new, true),
        ("self != oldSelf", &other, true),
        ("self == oldSelf", &plain, false),
        ("size(self.set + oldSelf.set) == 2 && self.set + ['c'] == ['c', 'b', 'a']", &new, true),
        ("self.plain + ['a'] == ['a', 'b', 'a'] && self.plain != ['b', 'a']", &new, true),
        ("(self.map + oldSelf.map).map(e, e.v) == ['y', 'x'] && self.map + [] == oldSelf.map", &new, true),
        ("self.set == ['a']", &new, false),
    ] {
        let node = super::node::Node::build(&schema(rule));
        let mut found = Vec::new();
        super::rules::check(new, Some(&old), &node, "o", &mut found);
        assert_eq!(found.is_empty(), holds, "{rule}: {found:?}");
    }
}

#[test]
fn embeds_are_expanded() {
    let mut schema = json!({
        "type": "object",
        "properties": { "template": { "x-plimsoll-embed": "io.k8s.api.core.v1.PodTemplateSpec" } },
    });
    super::expand_embeds(&mut schema).unwrap();
    let pod = "/properties/template/properties/spec/properties";
    let containers = schema.pointer(&format!("{pod}/containers")).unwrap();
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    let ports = &containers["items"]["properties"]["ports"]["items"];
    assert_eq!(ports["properties"]["protocol"]["default"], "TCP");
    let limits = &containers["items"]["properties"]["resources"]["properties"]["limits"];
    assert_eq!(limits["additionalProperties"]["x-kubernetes-int-or-string"], true);
    assert!(super::expand_embeds(&mut json!({ "x-plimsoll-embed": "nothing" })).is_err());
}
