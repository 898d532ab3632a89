//! Replays every recorded write: with the objects before and after as recorded, `managedFields` must come out as
//! the real server returned them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::gvk::Gvk;
use crate::test_vectors::family;

/// Families that write objects.
const FAMILIES: &[&str] = &[
    "apply",
    "binding",
    "crd",
    "defaults",
    "delete",
    "dryrun",
    "errors",
    "events",
    "eviction",
    "fieldvalidation",
    "generatename",
    "immutable",
    "namespace",
    "patch-json",
    "patch-merge",
    "patch-strategic",
    "priority",
    "quota",
    "status",
    "table",
    "watch",
    "webhook",
    "pagination",
    "selectors",
    "validation",
];

/// What admission and the kinds' strategies fill in on creation, after ownership is settled.
const LATER: &[(&str, &str)] = &[
    ("Namespace", "/spec/finalizers"),
    ("Pod", "/spec/priority"),
    ("Pod", "/spec/preemptionPolicy"),
    ("Pod", "/spec/tolerations"),
    ("Node", "/spec/taints"),
    ("Job", "/metadata/labels"),
    ("Job", "/spec/selector"),
    ("Job", "/spec/template/metadata/labels"),
    ("Job", "/spec/template/metadata/labels/controller-uid"),
    ("Job", "/spec/template/metadata/labels/job-name"),
    ("Job", "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid"),
    ("Job", "/spec/template/metadata/labels/batch.kubernetes.io~1job-name"),
    ("Service", "/spec/ports/0/nodePort"),
    ("Service", "/spec/clusterIP"),
    ("Service", "/spec/clusterIPs"),
    ("Service", "/spec/ipFamilies"),
    ("Service", "/spec/ipFamilyPolicy"),
    ("PersistentVolume", "/metadata/finalizers"),
    ("PersistentVolumeClaim", "/metadata/finalizers"),
];

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn header<'v>(request: &'v Value, name: &str) -> &'v str {
    request.get("headers").map_or("", |h| text(h, name))
}

/// Object path and subresource of a request path.
fn split(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let base = if parts.first() == Some(&"api") { 2 } else { 3 };
    let namespaced = parts.get(base) == Some(&"namespaces") && parts.len() > base + 2;
    let object = if namespaced
        && parts.len() > base + 2
        && !matches!(parts.get(base + 2), Some(&"status" | &"finalize"))
    {
        base + 4
    } else {
        base + 2
    };
    let end = object.min(parts.len());
    (parts[..end].join("/"), parts.get(object).copied().unwrap_or_default().to_owned())
}

fn managed_of(object: &Value) -> Vec<Value> {
    let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mut list: Vec<Value> = list;
    // the server's order depends on seconds
    list.sort_by_key(Value::to_string);
    list
}

struct Tally {
    right: usize,
    wrong: BTreeMap<String, Vec<String>>,
}

fn kind_of(object: &Value) -> Option<std::sync::Arc<Kind>> {
    let api_version = text(object, "apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk =
        Gvk { group: group.to_owned(), version: version.to_owned(), kind: text(object, "kind").to_owned() };
    crate::builtin::table().kind(&gvk).cloned()
}

#[test]
fn recorded_managed_fields() {
    let mut tally = Tally { right: 0, wrong: BTreeMap::new() };
    for name in FAMILIES {
        for scenario in family(name) {
            replay(&scenario, &mut tally);
        }
    }
    let surprises: Vec<_> = tally.wrong.iter().filter(|(id, _)| !AFTERWARDS.contains(&id.as_str())).collect();
    assert!(surprises.is_empty(), "{surprises:#?}");
    assert!(tally.right > 1200, "{}", tally.right);
}

/// Scenarios in which something after the field manager changes the object: admission, a strategy, a controller,
/// the other events API.
const AFTERWARDS: &[&str] = &[
    "apply/errors",
    "apply/ownership-by-kind",
    "crd/update",
    "defaults/minimal/CSINode",
    "defaults/rich/ClusterRole",
    "defaults/rich/Job",
    "events/lease",
    "events/pod-resize-and-ephemeral",
    "events/two-apis",
    "generatename/Namespace",
    "immutable/Namespace",
    "immutable/Service",
    "namespace/lifecycle",
    "priority/classes",
    "priority/default-tolerations",
    "priority/runtimeclass",
    "quota/limitrange",
    "status/Namespace",
    "table/CSINode",
    "table/ClusterRole",
    "table/Job",
    "validation/PersistentVolumeClaim",
    "watch/pods-by-node",
    "webhook/ConfigMap",
    "webhook/failures",
    "webhook/selection",
];

fn replay(scenario: &Value, tally: &mut Tally) {
    let mut live: BTreeMap<String, Value> = BTreeMap::new();
    for (i, step) in scenario["steps"].as_array().into_iter().flatten().enumerate() {
        let (request, response) = (&step["request"], &step["response"]);
        let body = &response["body"];
        let Some(status) = response["status"].as_u64() else { continue };
        let method = text(request, "method");
        let (path, subresource) = split(text(request, "path"));
        if status >= 300 || !body["metadata"].is_object() {
            continue;
        }
        let key = if method == "POST" && subresource.is_empty() && status == 201 {
            format!("{path}/{}", text(&body["metadata"], "name"))
        } else {
            path
        };
        let dry = request["query"]["dryRun"].is_string();
        if kind_of(body).is_none() || text(body, "kind") == "Scale" {
            live.remove(&key);
            continue;
        }
        if matches!(method, "POST" | "PUT" | "PATCH") && (method != "POST" || subresource.is_empty()) {
            let got = write(request, live.get(&key), body, &subresource);
            let want = managed_of(body);
            match got {
                Some(got) if got == want => tally.right += 1,
                Some(got) => {
                    let shown = difference(&got, &want);
                    let id = text(scenario, "id").to_owned();
                    tally
                        .wrong
                        .entry(id)
                        .or_default()
                        .push(format!("step {i} {method} {key} {subresource}: {shown}"));
                }
                None => {}
            }
        }
        if !dry && !text(&body["metadata"], "name").is_empty() {
            live.insert(key, body.clone());
        }
    }
}

fn difference(got: &[Value], want: &[Value]) -> String {
    let flat = |list: &[Value]| -> BTreeSet<String> {
        list.iter()
            .flat_map(|e| {
                let entry = Entry::of(e);
                let head = format!(
                    "{} {} {} {} ",
                    entry.manager,
                    entry.operation,
                    entry.subresource,
                    text(e, "time")
                );
                let paths = managed::fields_of(e).map(fields::paths).unwrap_or_default();
                paths.into_iter().map(move |p| format!("{head}{p}")).collect::<Vec<_>>()
            })
            .collect()
    };
    let (got, want) = (flat(got), flat(want));
    let extra: Vec<_> = got.difference(&want).take(6).collect();
    let missing: Vec<_> = want.difference(&got).take(6).collect();
    format!("extra {extra:?} missing {missing:?}")
}

fn write(request: &Value, old: Option<&Value>, body: &Value, subresource: &str) -> Option<Vec<Value>> {
    let kind = kind_of(body)?;
    let manager = manager_name(text(&request["query"], "fieldManager"), header(request, "User-Agent"));
    let manager = if manager.is_empty() { "recorder".to_owned() } else { manager };
    if header(request, "Content-Type").contains("apply-patch") {
        let applied = match &request["body"] {
            Value::Null => crate::decode::yaml(text(request, "text").as_bytes()).ok()?,
            body => body.clone(),
        };
        let force = text(&request["query"], "force") == "true";
        let object = apply(&kind, subresource, old, &applied, &manager, force, "<time>").ok()?;
        return Some(managed_of(&object));
    }
    let mut new = body.clone();
    managed::take(&mut new);
    if text(request, "method") != "PATCH" {
        for (_, path) in LATER.iter().filter(|(kind, _)| *kind == text(body, "kind")) {
            if old.is_none() && request["body"].pointer(path).is_none() {
                let (parent, field) = path.rsplit_once('/').unwrap();
                if let Some(Value::Object(parent)) = new.pointer_mut(parent) {
                    parent.remove(field);
                }
            }
        }
    }
    if text(request, "method") != "PATCH"
        && let Some(given) = request["body"]["metadata"].get("managedFields")
    {
        new["metadata"]["managedFields"] = given.clone();
    }
    on_update(&kind, subresource, old, &mut new, &manager, "<time>");
    Some(managed_of(&new))
}

fn config_map() -> std::sync::Arc<Kind> {
    kind_of(&json!({"apiVersion": "v1", "kind": "ConfigMap"})).unwrap()
}

fn map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": data})
}

#[test]
fn old_update_entries_are_merged() {
    let kind = config_map();
    let mut object = map(&json!({"k": "0"}));
    on_update(&kind, "", None, &mut object, "m00", "2026-01-01T00:00:00Z");
    for i in 1..=12 {
        let mut new = object.clone();
        new["data"][format!("k{i}")] = json!("x");
        on_update(
            &kind,
            "",
            Some(&object),
            &mut new,
            &format!("m{i:02}"),
            &format!("2026-01-01T00:00:{i:02}Z"),
        );
        object = new;
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["time"], "2026-01-01T00:00:03Z");
    let want = json!({"f:data": {".": {}, "f:k": {}, "f:k1": {}, "f:k2": {}, "f:k3": {}}});
    assert_eq!(entries[0]["fieldsV1"], want);
}

#[test]
fn times_alone_are_no_change() {
    let kind = config_map();
    let mut old = map(&json!({"k": "0"}));
    on_update(&kind, "", None, &mut old, "m", "2026-01-01T00:00:00Z");
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = json!("2026-01-01T00:00:09Z");
    let changed = new.clone();
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    let mut new = changed;
    new["data"]["k"] = json!("1");
    keep_times(&old, &mut new);
    assert_eq!(new["metadata"]["managedFields"][0]["time"], "2026-01-01T00:00:09Z");
}

#[test]
fn kubectl_takes_over_what_it_applied_before() {
    let kind = config_map();
    let last = map(&json!({"a": "1", "b": "1"})).to_string();
    let mut live = map(&json!({"a": "1", "b": "9"}));
    live["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    on_update(&kind, "", None, &mut live, "kubectl-client-side-apply", "2026-01-01T00:00:00Z");
    let now = "2026-01-01T00:00:01Z";
    // a is still as applied, b was changed by somebody
    let applied = map(&json!({"a": "2"}));
    assert!(apply(&kind, "", Some(&live), &applied, "other", false, now).is_err());
    let object = apply(&kind, "", Some(&live), &applied, "kubectl", false, now).unwrap();
    assert_eq!(object["data"]["a"], "2");
    let annotation = &object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(annotation.as_str().unwrap().trim_end(), applied.to_string());
    let conflict =
        apply(&kind, "", Some(&live), &map(&json!({"b": "2"})), "kubectl", false, now).unwrap_err();
    assert!(conflict.message.ends_with(": .data.b"), "{}", conflict.message);
}

#[test]
fn managers_of_requests() {
    assert_eq!(manager_name("given", "agent/1"), "given");
    assert_eq!(manager_name("", "my controller/v1 (linux)"), "my controller");
    assert_eq!(manager_name("", "a\u{7}b\tc"), "abc");
    assert_eq!(manager_name("", &"é".repeat(100)).len(), MAX_MANAGER);
}

/// Raw JSON of a built-in kind has one owner, and is applied as a whole.
#[test]
fn raw_json_is_not_merged() {
    let of = |data: Value| {
        let meta = json!({"name": "x"});
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "data": data})
    };
    let (first, second) = (of(json!({"a": 1, "b": {"c": 1}})), of(json!({"d": 1})));
    let kind = kind_of(&first).unwrap();
    let live = apply(&kind, "", None, &first, "m", false, "2026-01-01T00:00:00Z").unwrap();
    assert_eq!(managed_of(&live)[0]["fieldsV1"], json!({"f:data": {}}));
    let refused = apply(&kind, "", Some(&live), &second, "n", false, "2026-01-01T00:00:01Z").unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"m\": .data");
    let forced = apply(&kind, "", Some(&live), &second, "n", true, "2026-01-01T00:00:01Z").unwrap();
    assert_eq!(forced["data"], json!({"d": 1}));
}

/// Writers do not own what an endpoint resets.
#[test]
fn endpoints_reset_fields() {
    let request = ("certificates.k8s.io/v1", "CertificateSigningRequest");
    let definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let schema = ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema");
    let (labels, spec, certificate, conditions) =
        (".metadata.labels", ".spec", ".status.certificate", ".status.conditions");
    for ((api_version, name), subresource, want) in [
        (request, "", vec![labels]),
        (request, "approval", vec![labels, conditions]),
        (request, "status", vec![labels, certificate]),
        (definition, "", vec![labels, spec]),
        (definition, "status", vec![labels, certificate, conditions]),
        (schema, "status", vec![certificate, conditions]),
    ] {
        let mut old = json!({"apiVersion": api_version, "kind": name, "metadata": {"name": "x"}});
        let kind = kind_of(&old).unwrap();
        old["metadata"]["labels"] = json!({"old": "1"});
        on_update(&kind, "", None, &mut old, "m", "2026-01-01T00:00:00Z");
        let mut new = old.clone();
        new["metadata"]["labels"]["new"] = json!("1");
        new["spec"] = json!({"some": "thing"});
        new["status"] = json!({"certificate": "YQ==", "conditions": [{"type": "T", "status": "True"}]});
        on_update(&kind, subresource, Some(&old), &mut new, "n", "2026-01-01T00:00:01Z");
        let entries = managed_of(&new);
        let entry = entries.iter().find(|e| e["manager"] == "n").unwrap();
        let paths = managed::fields_of(entry).map(fields::paths).unwrap_or_default();
        let mut found = vec![labels, spec, certificate, conditions];
        found.retain(|field| paths.iter().any(|path| path.starts_with(field)));
        assert_eq!(found, want, "{name} {subresource}: {paths:?}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn data() -> impl Strategy<Value = Value> {
        proptest::collection::btree_map("[a-d]", "[0-2]", 1..4).prop_map(|m| json!(m))
    }

    fn strip(mut object: Value) -> Value {
        managed::take(&mut object);
        object
    }

    proptest! {
        /// Applying the same twice is applying it once; and after a forced apply the configuration holds.
        #[test]
        fn apply_is_idempotent(live in data(), first in data(), second in data()) {
            let kind = config_map();
            let mut object = map(&live);
            on_update(&kind, "", None, &mut object, "u", "2026-01-01T00:00:00Z");
            let object = apply(&kind, "", Some(&object), &map(&first), "m", true, "2026-01-01T00:00:01Z").unwrap();
            let once = apply(&kind, "", Some(&object), &map(&second), "m", true, "2026-01-01T00:00:02Z").unwrap();
            let twice = apply(&kind, "", Some(&once), &map(&second), "m", false, "2026-01-01T00:00:03Z").unwrap();
            prop_assert_eq!(&once, &twice);
            for (key, value) in second.as_object().unwrap() {
                prop_assert_eq!(&once["data"][key], value);
            }
        }

        /// Managers that apply different fields don't disturb each other, in either order.
        #[test]
        fn disjoint_managers_commute(a in data(), b in data()) {
            let kind = config_map();
            let b: Value = b.as_object().unwrap().iter().map(|(k, v)| (format!("other-{k}"), v.clone())).collect::<Map<_, _>>().into();
            let run = |first: (&Value, &str), second: (&Value, &str)| {
                let one = apply(&kind, "", None, &map(first.0), first.1, false, "t").unwrap();
                apply(&kind, "", Some(&one), &map(second.0), second.1, false, "t").unwrap()
            };
            let (x, y) = (run((&a, "a"), (&b, "b")), run((&b, "b"), (&a, "a")));
            prop_assert_eq!(strip(x.clone()), strip(y.clone()));
            let owners = |o: &Value| managed_of(o).iter().map(|e| e["fieldsV1"].clone()).collect::<Vec<_>>();
            prop_assert_eq!(owners(&x), owners(&y));
        }
    }
}
