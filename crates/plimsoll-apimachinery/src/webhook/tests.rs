use std::collections::BTreeMap;

use base64::Engine as _;
use serde_json::{Value, json};

use super::*;
use crate::admission::authorizer::{AccessCheck, Decision};
use crate::admission::{Attributes, Operation, Target};
use crate::gvk::Gvk;
use crate::test_vectors::family;

fn matches<'a>(webhook: &Webhook, request: &'a Attributes) -> Result<Option<&'a Target>, ApiError> {
    let Some(target) = webhook.target(request) else { return Ok(None) };
    let authorize = |check: &AccessCheck| Decision { allowed: check.verb == "get", reason: String::new() };
    Ok(webhook.conditions_hold(request, target, &authorize)?.then_some(target))
}

fn webhooks(scenario: &Value) -> Vec<Webhook> {
    let created = |kind: &str| -> Vec<Value> {
        let steps = scenario["steps"].as_array().unwrap().iter();
        steps.map(|s| s["response"]["body"].clone()).filter(|b| b["kind"] == kind).collect()
    };
    let mut all = compile(Stage::Mutating, &created("MutatingWebhookConfiguration"));
    all.extend(compile(Stage::Validating, &created("ValidatingWebhookConfiguration")));
    all
}

fn gvk(v: &Value) -> Gvk {
    let text = |k: &str| v[k].as_str().unwrap().to_owned();
    Gvk { group: text("group"), version: text("version"), kind: text("kind") }
}

/// The attributes a recorded review was made from.
fn attributes(asked: &Value) -> Attributes {
    let text = |k: &str| asked[k].as_str().unwrap_or_default().to_owned();
    let at = &asked["requestResource"];
    let resource = Gvk {
        group: at["group"].as_str().unwrap().into(),
        version: at["version"].as_str().unwrap().into(),
        kind: String::new(),
    };
    let namespace = text("namespace");
    Attributes {
        target: Target {
            gvk: gvk(&asked["requestKind"]),
            resource_version: Some(resource),
            plural: at["resource"].as_str().unwrap().into(),
        },
        subresource: text("requestSubResource"),
        name: text("name"),
        operation: match asked["operation"].as_str().unwrap() {
            "CREATE" => Some(Operation::Create),
            "UPDATE" => Some(Operation::Update),
            _ => Some(Operation::Delete),
        },
        user: asked["userInfo"].clone(),
        object: asked["object"].clone(),
        old: asked["oldObject"].clone(),
        dry_run: asked["dryRun"] == true,
        options: asked["options"].clone(),
        namespace_labels: BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), namespace.clone())]),
        namespace,
        ..Attributes::default()
    }
}

/// The recorded answer as it was on the wire.
fn body(response: &Value) -> Vec<u8> {
    if let Some(text) = response["text"].as_str() {
        return text.as_bytes().to_vec();
    }
    let mut answer = response["review_response"].clone();
    if let Some(patch) = answer.as_object_mut().unwrap().remove("patch_decoded") {
        answer["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(patch.to_string()));
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer })
        .to_string()
        .into_bytes()
}

/// Every recorded review is made again, its webhook is found, and the answers mean what the client saw.
#[test]
fn recorded_calls() {
    let mut calls = 0;
    for scenario in family("webhook") {
        let all = webhooks(&scenario);
        for step in scenario["steps"].as_array().unwrap() {
            let mut outcome: Option<ApiError> = None;
            let made: Vec<&Value> = step["webhook_calls"].as_array().into_iter().flatten().collect();
            for call in &made {
                let recorded = &call["request"]["request"];
                let request = attributes(recorded);
                let at = format!("{} {} {}", scenario["id"], step["note"], call["path"]);
                let matching: Vec<&Webhook> =
                    all.iter().filter(|w| matches(w, &request).unwrap().is_some()).collect();
                let path = call["path"].as_str().unwrap();
                let found = matching.iter().find(|w| w.url().contains(&format!("{path}?timeout=")));
                let webhook = found.unwrap_or_else(|| panic!("{at}: nothing matches"));
                let uid = recorded["uid"].as_str().unwrap();
                assert_eq!(review(&request, &request.target, uid), call["request"], "{at}");
                let response = &call["response"];
                let verdict = if response["delay_seconds"].is_number() {
                    Err(webhook.unreachable("context deadline exceeded"))
                } else if response["status"] != 200 {
                    let status = response["status"].as_u64().unwrap();
                    Err(webhook.failed(&http_error(status.try_into().unwrap())))
                } else {
                    webhook.interpret(uid, &body(response)).map_err(|e| webhook.failed(&e))
                };
                calls += 1;
                match verdict {
                    Err(error) => outcome = outcome.or(error),
                    Ok(v) => {
                        outcome = outcome.or(v.denied);
                        if let Some(patch) = v.patch
                            && outcome.is_none()
                        {
                            outcome = apply_patch(&request.object, &patch).err();
                        }
                        let warned = step["response"]["headers"]["Warning"].to_string();
                        for warning in v.warnings {
                            assert!(
                                warned.contains(warning.trim_end_matches('"').rsplit('"').next().unwrap())
                            );
                        }
                    }
                }
            }
            let seen = &step["response"]["body"];
            let by_webhook = seen["message"]
                .as_str()
                .is_some_and(|m| m.contains("webhook") || m.contains("does not apply"));
            if !made.is_empty() && by_webhook {
                assert_eq!(outcome.unwrap().to_status(), *seen, "{} {}", scenario["id"], step["note"]);
            } else if !made.is_empty() {
                assert_eq!(outcome, None, "{} {}", scenario["id"], step["note"]);
            }
        }
    }
    assert!(calls > 60, "{calls}");
}

#[test]
fn options_of_requests() {
    let made = options(
        Operation::Delete,
        &[("propagationPolicy", "Background"), ("gracePeriodSeconds", "0")],
        &Value::Null,
    );
    assert_eq!(
        made,
        json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "gracePeriodSeconds": 0,
            "propagationPolicy": "Background" })
    );
    let made = options(Operation::Update, &[("dryRun", "All"), ("force", "true")], &Value::Null);
    assert_eq!(made, json!({ "kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"] }));
}

#[test]
fn conditions_selectors_and_equivalents() {
    let configuration = json!({ "metadata": { "name": "c" }, "webhooks": [{
        "name": "w", "sideEffects": "Some",
        "clientConfig": { "service": { "name": "s", "namespace": "n", "path": "/x" } },
        "rules": [{ "apiGroups": ["example.dev"], "apiVersions": ["v1"], "operations": ["*"],
            "resources": ["things"], "scope": "Namespaced" }],
        "objectSelector": { "matchExpressions": [{ "key": "a", "operator": "NotIn", "values": ["x"] }] },
        "matchConditions": [{ "name": "m", "expression": "object.spec.n > 1" }],
    }] });
    let webhook = compile(Stage::Validating, &[configuration]).remove(0);
    assert_eq!(webhook.url(), "https://s.n.svc:443/x?timeout=10s");
    let target = |version: &str| Target {
        gvk: Gvk { group: "example.dev".into(), version: version.into(), kind: "Thing".into() },
        plural: "things".into(),
        ..Target::default()
    };
    let request = |n: Value, labels: Value| Attributes {
        target: target("v2"),
        equivalents: vec![target("v1")],
        namespace: "d".into(),
        name: "t".into(),
        operation: Some(Operation::Create),
        object: json!({ "apiVersion": "example.dev/v2", "metadata": { "labels": labels }, "spec": { "n": n } }),
        ..Attributes::default()
    };
    let fine = request(json!(2), json!({}));
    let matched = matches(&webhook, &fine).unwrap().unwrap();
    assert_eq!(matched, &target("v1"));
    let asked = review(&fine, matched, "u");
    assert_eq!(asked["request"]["kind"]["version"], "v1");
    assert_eq!(asked["request"]["resource"]["version"], "v1");
    assert_eq!(asked["request"]["requestKind"]["version"], "v2");
    assert_eq!(asked["request"]["requestResource"]["version"], "v2");
    assert!(matches(&webhook, &request(json!(1), json!({}))).unwrap().is_none());
    assert!(matches(&webhook, &request(json!(2), json!({ "a": "x" }))).unwrap().is_none());
    let error = matches(&webhook, &request(json!("x"), json!({}))).unwrap_err();
    assert_eq!(
        error.message,
        "things.example.dev \"t\" is forbidden: m: expression 'object.spec.n > 1' resulted in error: no such \
         overload"
    );
    let dry = Attributes { dry_run: true, ..fine };
    assert_eq!(
        webhook.check_dry_run(&dry).unwrap_err().message,
        "admission webhook \"w\" does not support dry run"
    );
}

/// Conditions are written in the language of policies, with their bounds.
#[test]
fn conditions_ask_the_authorizer_and_are_bounded() {
    let webhook = |expressions: &[&str], policy: &str| {
        let conditions: Vec<Value> =
            expressions.iter().map(|e| json!({"name": "c", "expression": e})).collect();
        let hook = json!({ "name": "w", "failurePolicy": policy, "matchConditions": conditions,
            "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] }] });
        compile(Stage::Validating, &[json!({ "metadata": { "name": "c" }, "webhooks": [hook] })]).remove(0)
    };
    let request = Attributes {
        target: Target { plural: "things".into(), ..Target::default() },
        name: "t".into(),
        operation: Some(Operation::Create),
        object: json!({ "spec": { "list": vec![1; 1000] } }),
        ..Attributes::default()
    };
    for (expression, want) in [
        ("authorizer.group('').resource('pods').check('get').allowed()", true),
        ("authorizer.group('').resource('pods').check('delete').allowed()", false),
        ("authorizer.requestResource.check('get').allowed()", true),
        ("object.?spec.?n.orValue(1) == 1", true),
        ("cel.bind(l, object.spec.list, l.exists(i, i == 2))", false),
    ] {
        let found = matches(&webhook(&[expression], "Fail"), &request).unwrap();
        assert_eq!(found.is_some(), want, "{expression}");
    }
    let long = "object.spec.list.all(i, object.spec.list.all(j, i == j))";
    let error = matches(&webhook(&[long; 5], "Fail"), &request).unwrap_err();
    assert!(error.message.contains("cost"), "{}", error.message);
    assert!(matches(&webhook(&[long; 5], "Ignore"), &request).unwrap().is_none());
    let wrong = matches(&webhook(&["object.spec"], "Fail"), &request).unwrap_err();
    assert!(wrong.message.ends_with("resulted in error: expected bool, got map"), "{}", wrong.message);
}

#[test]
fn earlier_webhooks_are_called_again() {
    let make = |name: &str, policy: &str| json!({ "name": name, "reinvocationPolicy": policy });
    let configuration =
        json!({ "metadata": { "name": "c" }, "webhooks": [make("one", "IfNeeded"), make("two", "Never")] });
    let all = compile(Stage::Mutating, &[configuration]);
    let mut round = Reinvocation::default();
    round.called(0, &all[0], true);
    assert_eq!(round.again().count(), 0);
    round.called(1, &all[1], true);
    assert_eq!(round.again().collect::<Vec<_>>(), [0]);
    let mut round = Reinvocation::default();
    round.called(0, &all[0], false);
    round.called(1, &all[1], false);
    round.plugin_changed();
    assert_eq!(round.again().collect::<Vec<_>>(), [0]);
}
