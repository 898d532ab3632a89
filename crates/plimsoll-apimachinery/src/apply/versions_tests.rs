//! Managers that wrote in other versions, and under other schemas.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

/// The kind of a definition in each version, named with the schema of its spec.
fn kinds(versions: &[(&str, Value)]) -> Vec<Arc<Kind>> {
    let version = |(i, (name, spec)): (usize, &(&str, Value))| {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": i == 0, "schema": {"openAPIV3Schema": schema}})
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    let definition = json!({"spec": {"group": "test.dev", "scope": "Namespaced", "versions": versions,
        "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"}}});
    crate::crd::kinds(&definition).into_iter().map(Arc::new).collect()
}

/// `v1` has `size`, which is `amount` in `v2`.
fn renamed() -> Vec<Arc<Kind>> {
    let spec = |name: &str| {
        json!({"type": "object", "properties": {
            name: {"type": "integer"}, "color": {"type": "string"}, "flag": {"type": "string"}}})
    };
    kinds(&[("v1", spec("size")), ("v2", spec("amount"))])
}

struct Renaming(Vec<Arc<Kind>>);

impl Versions for Renaming {
    fn kind(&self, api_version: &str) -> Option<Arc<Kind>> {
        self.0.iter().find(|kind| kind.gvk.api_version() == api_version).cloned()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ApiError> {
        let mut object = object.clone();
        let (from, to) = if api_version == "test.dev/v1" { ("amount", "size") } else { ("size", "amount") };
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(number) = spec.remove(from)
        {
            spec.insert(to.to_owned(), number);
        }
        object["apiVersion"] = json!(api_version);
        Ok(object)
    }
}

fn ship(version: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("test.dev/{version}"), "kind": "Ship",
        "metadata": {"name": "s", "namespace": "default"}, "spec": spec})
}

/// Fields of the spec that managers own, in the version that they wrote in.
fn owned(object: &Value) -> Vec<(String, String, Vec<String>)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let paths = |entry: &Value| managed::fields_of(entry).map(fields::paths).unwrap_or_default();
    entries.iter().map(|e| (text(e, "manager"), text(e, "apiVersion"), paths(e))).collect()
}

fn row(manager: &str, version: &str, paths: &[&str]) -> (String, String, Vec<String>) {
    let paths = paths.iter().map(|p| (*p).to_owned()).collect();
    (manager.to_owned(), format!("test.dev/{version}"), paths)
}

#[test]
fn managers_own_fields_in_the_version_they_wrote_in() {
    let versions = Renaming(renamed());
    let of = |i: usize| Served { kind: &versions.0[i], versions: Some(&versions) };
    let (old, new) = (of(0), of(1));
    let applied = ship("v1", &json!({"size": 1, "color": "red"}));
    let made = old.apply("", None, &applied, "m", false, "2026-01-01T00:00:00Z").unwrap();
    let live = versions.convert(&made, "test.dev/v2").unwrap();

    // Another manager may not take what is named otherwise in its version.
    let taken = ship("v2", &json!({"amount": 2}));
    let refused = new.apply("", Some(&live), &taken, "other", false, "2026-01-01T00:00:01Z").unwrap_err();
    let message = r#"Apply failed with 1 conflict: conflict with "m": .spec.size"#;
    assert_eq!((refused.code, refused.message.as_str()), (409, message));
    let forced = new.apply("", Some(&live), &taken, "other", true, "2026-01-01T00:00:01Z").unwrap();
    assert_eq!(owned(&forced), [row("m", "v1", &[".spec.color"]), row("other", "v2", &[".spec.amount"])]);

    // An update takes it, too.
    let mut updated = live.clone();
    updated["spec"]["amount"] = json!(3);
    new.on_update("", Some(&live), &mut updated, "u", "2026-01-01T00:00:02Z");
    assert_eq!(owned(&updated), [row("m", "v1", &[".spec.color"]), row("u", "v2", &[".spec.amount"])]);

    // What a manager no longer applies goes, whatever it was named when it was applied.
    let less = ship("v2", &json!({"color": "red"}));
    let left = new.apply("", Some(&live), &less, "m", false, "2026-01-01T00:00:03Z").unwrap();
    assert_eq!(left["spec"], json!({"color": "red"}));
    assert_eq!(owned(&left), [row("m", "v2", &[".spec.color"])]);
    // It stays if another manager owns it, in whatever version.
    let shared = new.apply("", Some(&live), &ship("v2", &json!({"amount": 1})), "other", false, "t").unwrap();
    let left = new.apply("", Some(&shared), &less, "m", false, "2026-01-01T00:00:03Z").unwrap();
    assert_eq!(left["spec"], json!({"color": "red", "amount": 1}));
}

#[test]
fn versions_that_are_gone_can_not_be_applied_to() {
    let all = renamed();
    let made = apply(&all[0], "", None, &ship("v1", &json!({"size": 1})), "m", false, "t").unwrap();
    let spec = json!({"type": "object", "properties": {"amount": {"type": "integer"}}});
    let left = kinds(&[("v2", spec)]);
    let mut live = made;
    live["apiVersion"] = json!("test.dev/v2");
    let applied = ship("v2", &json!({"amount": 1}));
    let refused = apply(&left[0], "", Some(&live), &applied, "m", false, "t").unwrap_err();
    let message = "request to convert CR to an invalid group/version: test.dev/v1";
    assert_eq!((refused.code, refused.message.as_str()), (500, message));
}

#[test]
fn managers_of_parts_own_what_becomes_atomic() {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["name"]});
    let spec = |list: &str, map: &str| {
        json!({"type": "object", "properties": {
            "list": {"type": "array", "items": item, "x-kubernetes-list-type": list,
                "x-kubernetes-list-map-keys": if list == "map" { json!(["name"]) } else { json!(null) }},
            "map": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "x-kubernetes-map-type": map}}})
    };
    let kind = |list: &str, map: &str| kinds(&[("v1", spec(list, map))]).remove(0);
    let (parts, whole) = (kind("map", "granular"), kind("atomic", "atomic"));
    let applied = ship("v1", &json!({"list": [{"name": "x", "n": 1}], "map": {"a": "1"}}));
    let live = apply(&parts, "", None, &applied, "m", false, "2026-01-01T00:00:00Z").unwrap();
    let granular = [".spec.list[name=\"x\"]", ".spec.list[name=\"x\"].n", ".spec.list[name=\"x\"].name"];
    let owners = owned(&live);
    let paths = &owners[0].2;
    assert!(granular.iter().all(|path| paths.iter().any(|p| p == path)), "{paths:?}");

    let other = json!({"apiVersion": "test.dev/v1", "kind": "Ship",
        "metadata": {"name": "s", "namespace": "default", "labels": {"a": "b"}}});
    let after = apply(&whole, "", Some(&live), &other, "other", false, "2026-01-01T00:00:01Z").unwrap();
    let atomic = row("m", "v1", &[".spec.list", ".spec.map"]);
    assert_eq!(owned(&after)[0], atomic);
    let mut updated = live.clone();
    updated["metadata"]["labels"] = json!({"a": "b"});
    on_update(&whole, "", Some(&live), &mut updated, "u", "2026-01-01T00:00:01Z");
    assert_eq!(owned(&updated)[0], atomic);
    // The way back gives the manager nothing until it applies again.
    let back = apply(&parts, "", Some(&after), &other, "other", false, "2026-01-01T00:00:02Z").unwrap();
    assert_eq!(owned(&back)[0], atomic);
    // Another manager that sets a part takes that from the whole.
    let part = ship("v1", &json!({"map": {"a": "2"}}));
    let refused = apply(&whole, "", Some(&after), &part, "other", false, "t").unwrap_err();
    assert!(refused.message.ends_with(": .spec.map"), "{}", refused.message);
}
