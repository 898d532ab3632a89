//! Replays the requests of the `selectors` family: each list is filtered here and compared.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::*;
use crate::gvk::Gvk;
use crate::kinds::CustomKind;
use crate::test_vectors::family;

fn labels_of(object: &Value) -> BTreeMap<String, String> {
    let labels = object["metadata"]["labels"].as_object();
    labels
        .map(|m| m.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect())
        .unwrap_or_default()
}

/// The kind a request is about: group and version from its path, the name from the scenario.
fn kind_of(scenario: &Value, path: &str) -> Kind {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version) = match segments.as_slice() {
        ["api", v, ..] => ("", *v),
        ["apis", g, v, ..] => (*g, *v),
        other => panic!("path {other:?}"),
    };
    let kind = match scenario["id"].as_str().unwrap().rsplit('/').next().unwrap() {
        "labels" => "ConfigMap",
        "field-forms" => "Pod",
        "EventV1" => "Event",
        kind => kind,
    };
    let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() };
    Kind { gvk, namespaced: segments.contains(&"namespaces"), ..Kind::default() }
}

#[test]
fn selectors_family() {
    let mut checked = 0;
    for scenario in family("selectors") {
        // objects as the last unfiltered answer of each path showed them
        let mut objects: BTreeMap<String, Value> = BTreeMap::new();
        let steps = scenario["steps"].as_array().unwrap();
        for step in steps {
            let (request, response) = (&step["request"], &step["response"]);
            let (Some(path), Some(status)) = (request["path"].as_str(), response["status"].as_u64()) else {
                continue;
            };
            let query = &request["query"];
            let label = query["labelSelector"].as_str();
            let field = query["fieldSelector"].as_str();
            if label.is_none() && field.is_none() {
                if let Some(name) = response["body"]["metadata"]["name"].as_str()
                    && response["body"]["kind"] != "Namespace"
                {
                    objects.insert(name.to_owned(), response["body"].clone());
                }
                continue;
            }
            if request["method"] != "GET" || query["watch"] == "true" {
                continue;
            }
            let kind = kind_of(&scenario, path);
            let got = Selector::parse(&kind, label, field);
            let at = format!("{} {query}", scenario["id"]);
            if status != 200 {
                let error = got.expect_err(&at);
                assert_eq!(error.to_status(), response["body"], "{at}");
            } else {
                let selector = got.expect(&at);
                let want: Vec<&str> = response["body"]["items"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|i| i["metadata"]["name"].as_str())
                    .collect();
                let have: Vec<&str> = objects
                    .iter()
                    .filter(|(n, o)| {
                        let namespace = o["metadata"]["namespace"].as_str().unwrap_or_default();
                        let slow = selector.matches(&labels_of(o), || Cow::Borrowed(*o));
                        let fast = selector.matches_named(n, namespace, &labels_of(o), || Cow::Borrowed(*o));
                        assert_eq!(slow, fast, "{at}");
                        slow
                    })
                    .map(|(n, _)| n.as_str())
                    .collect();
                if query["limit"].is_null() {
                    assert_eq!(have, want, "{at}");
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 600, "{checked}");
}

#[test]
fn custom_resources_select_by_declared_fields() {
    let kind = Kind {
        namespaced: true,
        custom: Some(
            CustomKind { selectable_fields: vec![".spec.color".to_owned()], ..CustomKind::default() }.into(),
        ),
        ..Kind::default()
    };
    let blue = serde_json::json!({"spec": {"color": "blue"}});
    let s = FieldSelector::parse(&kind, "spec.color=blue").unwrap();
    assert!(s.matches(&blue) && s.needs_object());
    let e = FieldSelector::parse(&kind, "spec.size=1").unwrap_err();
    assert_eq!(e.message, "field label not supported: spec.size");
}

#[test]
fn escapes_in_field_values() {
    let kind = Kind::default();
    for (text, want) in [
        (r"metadata.name=a\,b", Ok("a,b")),
        (r"metadata.name=a\=b", Ok("a=b")),
        (r"metadata.name=a\\", Ok("a\\")),
        (r"metadata.name=a\x", Err(r"invalid field selector: invalid escape sequence: \x")),
        ("metadata.name=a=b", Err("invalid field selector: unescaped character in value: 61")),
    ] {
        let got = FieldSelector::parse(&kind, text);
        match want {
            Ok(value) => assert_eq!(got.unwrap().exact("metadata.name"), Some(value)),
            Err(message) => assert_eq!(got.unwrap_err().message, message),
        }
    }
}
