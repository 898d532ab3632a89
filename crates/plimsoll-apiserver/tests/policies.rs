//! ValidatingAdmissionPolicies through the front door: what is refused when they are made, and what they do to
//! requests.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, clippy::too_many_lines)]

mod support;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::audit::Audit;
use plimsoll_apiserver::store::{Expected, Key, Store, Write};
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};
use support::api::Api;
use tower::ServiceExt;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn world() -> Api {
    Api::new(ServerConfig::default()).await
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
           "metadata": {"name": name}, "spec": spec})
}

fn binding(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
           "metadata": {"name": name}, "spec": spec})
}

fn rule(resources: &Value, operations: &Value) -> Value {
    json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources})
}

/// Constraints for ConfigMaps.
fn maps() -> Value {
    json!({"resourceRules": [rule(&json!(["configmaps"]), &json!(["CREATE", "UPDATE"]))]})
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A policy `p` with these fields over those for ConfigMaps, and a binding `b`.
async fn with(api: &Api, spec: Value, bound: Value) {
    let mut whole = json!({"matchConstraints": maps()});
    merge(&mut whole, spec);
    let mut to = json!({"policyName": "p", "validationActions": ["Deny"]});
    merge(&mut to, bound);
    install(api, "validatingadmissionpolicies", &policy("p", &whole)).await;
    install(api, "validatingadmissionpolicybindings", &binding("b", &to)).await;
}

async fn install(api: &Api, plural: &str, object: &Value) {
    let (code, answer) = api.send("POST", &format!("{GROUP}/{plural}"), Some(object)).await;
    assert_eq!(code, 201, "{answer}");
}

fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key.as_str()] = value.clone();
    }
}

/// Status, body and warnings of a request.
async fn ask(api: &Api, method: &str, path: &str, body: &Value) -> (u16, Value, Vec<String>) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = api.server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|w| w.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default(), warnings)
}

#[tokio::test]
async fn policies_are_checked_when_they_are_made() {
    let api = world().await;
    let fine = json!([{"expression": "true"}]);
    for (spec, wants) in [
        (json!({"validations": fine}), vec!["spec.matchConstraints: Required value"]),
        (
            json!({"matchConstraints": {}, "validations": fine}),
            vec!["spec.matchConstraints.resourceRules: Required value"],
        ),
        (
            json!({"matchConstraints": maps()}),
            vec![
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "failurePolicy": "Maybe", "validations": fine}),
            vec!["spec.failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\""],
        ),
        (
            json!({"matchConstraints": maps(), "paramKind": {"apiVersion": "a/b/c"}, "validations": fine}),
            vec![
                "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                "spec.paramKind.kind: Required value",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "validations": [{"expression": "object.a"}]}),
            vec![
                "spec.validations[0].expression: Invalid value: \"object.a\": must evaluate to bool but got dyn",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "validations": [{"expression": "params.a == 1"}]}),
            vec![
                "spec.validations[0].expression: Invalid value: \"params.a == 1\": compilation failed: ERROR: \
                  <input>:1:1: undeclared reference to 'params' (in container '')\n | params.a == 1\n | ^",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "validations": [
                {"expression": " ", "message": " ", "messageExpression": "1", "reason": "Gone"}]}),
            vec![
                "spec.validations[0].expression: Required value: expression is not specified",
                "spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int",
                "spec.validations[0].message: Invalid value: \" \": must be non-empty if specified",
                "spec.validations[0].reason: Unsupported value: \"Gone\": supported values: \"Forbidden\", \
                 \"Invalid\", \"RequestEntityTooLarge\"",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "validations": fine,
                "variables": [{"name": "a", "expression": "variables.b"}, {"name": "b-c", "expression": "1"}]}),
            vec![
                "spec.variables[0].expression: Invalid value: \"variables.b\": compilation failed: ERROR: \
                 <input>:1:10: undefined field 'b'\n | variables.b\n | .........^",
                "spec.variables[1].name: Invalid value: \"b-c\": must be a valid CEL identifier",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "validations": fine,
                "matchConditions": [{"name": "", "expression": "1"}]}),
            vec![
                "spec.matchConditions[0].expression: Invalid value: \"1\": must evaluate to bool but got int",
                "spec.matchConditions[0].name: Required value",
            ],
        ),
        (
            json!({"matchConstraints": maps(), "auditAnnotations": [
                {"key": "k", "valueExpression": "1"}, {"key": "k", "valueExpression": ""}]}),
            vec![
                "spec.auditAnnotations[0].valueExpression: Invalid value: \"1\": must evaluate to one of [string \
                 null_type] but got int",
                "spec.auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
                "spec.auditAnnotations[1].key: Duplicate value: \"k\"",
            ],
        ),
    ] {
        let path = format!("{GROUP}/validatingadmissionpolicies");
        let (code, answer) = api.send("POST", &path, Some(&policy("p", &spec))).await;
        assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{spec}: {answer}");
        let message = answer["message"].as_str().unwrap();
        for want in &wants {
            assert!(message.contains(want), "{want}\nnot in\n{message}");
        }
        assert_eq!(answer["details"]["causes"].as_array().unwrap().len(), wants.len(), "{message}");
    }
}

#[tokio::test]
async fn bindings_are_checked_when_they_are_made() {
    let api = world().await;
    for (spec, wants) in [
        (
            json!({}),
            vec![
                "spec.policyName: Required value",
                "spec.validationActions: Required value: at least one validation action is required",
            ],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny", "Warn"]}),
            vec![
                "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn \
                  (repeating the same validation failure information in the API response and headers serves no purpose)",
            ],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny", "Deny", "Log"]}),
            vec![
                "spec.validationActions[1]: Duplicate value: \"Deny\"",
                "spec.validationActions[2]: Unsupported value: \"Log\": supported values: \"Audit\", \"Deny\", \"Warn\"",
            ],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny"], "paramRef": {}}),
            vec![
                "spec.paramRef: Required value: one of name or selector must be specified",
                "spec.paramRef.parameterNotFoundAction: Required value",
            ],
        ),
        (
            json!({"policyName": "p", "validationActions": ["Deny"],
                "paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"}}),
            vec![
                "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
            ],
        ),
    ] {
        let path = format!("{GROUP}/validatingadmissionpolicybindings");
        let (code, answer) = api.send("POST", &path, Some(&binding("b", &spec))).await;
        assert_eq!(code, 422, "{spec}: {answer}");
        let message = answer["message"].as_str().unwrap();
        for want in &wants {
            assert!(message.contains(want), "{want}\nnot in\n{message}");
        }
        assert_eq!(answer["details"]["causes"].as_array().unwrap().len(), wants.len(), "{message}");
    }
}

#[tokio::test]
async fn defaults_are_filled_in() {
    let api = world().await;
    with(&api, json!({"validations": [{"expression": "true"}]}), json!({"matchResources": {}})).await;
    let made = api.send("GET", &format!("{GROUP}/validatingadmissionpolicies/p"), None).await.1;
    assert_eq!(made["spec"]["failurePolicy"], "Fail");
    assert_eq!(made["metadata"]["generation"], 1);
    let constraints = &made["spec"]["matchConstraints"];
    assert_eq!(
        (&constraints["matchPolicy"], &constraints["namespaceSelector"], &constraints["objectSelector"]),
        (&json!("Equivalent"), &json!({}), &json!({}))
    );
    assert_eq!(constraints["resourceRules"][0]["scope"], "*");
    let bound = api.send("GET", &format!("{GROUP}/validatingadmissionpolicybindings/b"), None).await.1;
    assert_eq!(bound["spec"]["matchResources"]["matchPolicy"], "Equivalent");
}

/// What a policy and a binding say of the ConfigMap `m` with `data: {a: "1"}`: `None`, it is created; else code,
/// reason and the end of the message.
#[tokio::test]
async fn requests_are_judged() {
    let refused =
        |code, reason: &'static str, message: &'static str| Some((code, reason, message.to_owned()));
    let by = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    for (spec, bound, want) in [
        (json!({"validations": [{"expression": "object.data.a == '1'"}]}), json!({}), None),
        (
            json!({"validations": [{"expression": "object.data.a == '2'"}]}),
            json!({}),
            refused(422, "Invalid", "failed expression: object.data.a == '2'"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "no", "reason": "Forbidden"}]}),
            json!({}),
            refused(403, "Forbidden", "no"),
        ),
        (
            json!({"validations": [{"expression": "false", "reason": "Invalid",
                "messageExpression": "'a is ' + object.data.a"}]}),
            json!({}),
            refused(422, "Invalid", "a is 1"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "big", "reason": "RequestEntityTooLarge"}]}),
            json!({}),
            refused(413, "RequestEntityTooLarge", "big"),
        ),
        (
            json!({"validations": [{"expression": "object.data.b == '2'"}]}),
            json!({}),
            refused(422, "Invalid", "expression 'object.data.b == '2'' resulted in error: no such key: b"),
        ),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.b == '2'"}]}),
            json!({}),
            None,
        ),
        (
            json!({"variables": [{"name": "a", "expression": "object.data.a"},
                                 {"name": "n", "expression": "int(variables.a) + 1"},
                                 {"name": "unused", "expression": "object.nosuch"}],
                   "validations": [{"expression": "variables.n == 3", "messageExpression": "'n is ' + string(variables.n)"}]}),
            json!({}),
            refused(422, "Invalid", "n is 2"),
        ),
        // what a request is
        (
            json!({"validations": [{"expression":
                "request.operation == 'CREATE' && request.namespace == 'default' && request.name == 'm' \
                 && request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' \
                 && request.userInfo.username == 'admin' && 'system:masters' in request.userInfo.groups \
                 && oldObject == null && namespaceObject.metadata.name == 'default' && !request.dryRun"}]}),
            json!({}),
            None,
        ),
        (
            json!({"validations": [{"expression":
                "authorizer.group('').resource('pods').namespace('x').check('delete').allowed() \
                 && authorizer.requestResource.check('create').allowed()"},
                {"expression": "!authorizer.serviceAccount('default', 'nobody').group('').resource('pods').check('get').allowed()"}]}),
            json!({}),
            None,
        ),
        // what it is for
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'x'"}],
                "validations": [{"expression": "false"}]}),
            json!({}),
            None,
        ),
        (
            json!({"matchConditions": [{"name": "c", "expression": "object.q == 'x'"}], "validations": [{"expression": "true"}]}),
            json!({}),
            refused(422, "Invalid", "expression 'object.q == 'x'' resulted in error: no such key: q"),
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(&json!(["pods"]), &json!(["*"]))]},
                "validations": [{"expression": "false"}]}),
            json!({}),
            None,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(&json!(["configmaps"]), &json!(["UPDATE"]))]},
                "validations": [{"expression": "false"}]}),
            json!({}),
            None,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(&json!(["*"]), &json!(["*"]))],
                    "excludeResourceRules": [rule(&json!(["configmaps"]), &json!(["*"]))]},
                "validations": [{"expression": "false"}]}),
            json!({}),
            None,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(&json!(["*"]), &json!(["*"]))],
                    "namespaceSelector": {"matchLabels": {"env": "prod"}}},
                "validations": [{"expression": "false"}]}),
            json!({}),
            None,
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule(&json!(["*"]), &json!(["*"]))],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
                "validations": [{"expression": "false"}]}),
            json!({}),
            refused(422, "Invalid", "failed expression: false"),
        ),
        (
            json!({"validations": [{"expression": "false"}]}),
            json!({"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}}),
            None,
        ),
        (json!({"validations": [{"expression": "false"}]}), json!({"policyName": "other"}), None),
        (json!({"validations": [{"expression": "false"}]}), json!({"validationActions": ["Audit"]}), None),
        // parameters
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                   "validations": [{"expression": "object.data.a == params.data.want"}]}),
            json!({"paramRef": {"name": "params", "parameterNotFoundAction": "Deny"}}),
            refused(422, "Invalid", "failed expression: object.data.a == params.data.want"),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                   "validations": [{"expression": "object.data.a != params.data.want"}]}),
            json!({"paramRef": {"selector": {"matchLabels": {"kind": "params"}}, "parameterNotFoundAction": "Deny"}}),
            None,
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "true"}]}),
            json!({"paramRef": {"name": "nosuch", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}}),
            refused(
                422,
                "Invalid",
                "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
            ),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "false"}]}),
            json!({"paramRef": {"name": "nosuch", "parameterNotFoundAction": "Allow"}}),
            None,
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "Node"}, "validations": [{"expression": "true"}]}),
            json!({"paramRef": {"name": "n", "namespace": "a", "parameterNotFoundAction": "Allow"}}),
            refused(
                422,
                "Invalid",
                "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`",
            ),
        ),
        (
            json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "validations": [{"expression": "params == null"}]}),
            json!({}),
            None,
        ),
        // what would take for ever
        (
            json!({"validations": [{"expression":
                "lists.range(999).all(x, lists.range(999).all(y, lists.range(999).all(z, object.data.a == '1')))",}]}),
            json!({}),
            refused(
                422,
                "Invalid",
                "expression 'lists.range(999).all(x, lists.range(999).all(y, \
                lists.range(999).all(z, object.data.a == '1')))' resulted in error: operation cancelled: actual cost \
                limit exceeded",
            ),
        ),
    ] {
        let api = world().await;
        let mut params = map("params", &json!({"want": "2"}));
        params["metadata"]["labels"] = json!({"kind": "params"});
        assert_eq!(api.send("POST", MAPS, Some(&params)).await.0, 201);
        with(&api, spec.clone(), bound.clone()).await;
        let new = map("m", &json!({"a": "1"}));
        for path in [format!("{MAPS}?dryRun=All"), MAPS.to_owned()] {
            if path != MAPS && spec.to_string().contains("dryRun") {
                continue;
            }
            let (code, answer) = api.send("POST", &path, Some(&new)).await;
            match &want {
                None => assert_eq!(code, 201, "{spec} {bound}: {answer}"),
                Some((status, reason, message)) => {
                    let whole = format!("configmaps \"m\" is forbidden: {by}{message}");
                    assert_eq!(answer["message"], whole.as_str(), "{spec} {bound}: {answer}");
                    assert_eq!((code, &answer["reason"]), (*status, &json!(reason)));
                    assert_eq!(answer["details"]["causes"], json!([{"message": format!("{by}{message}")}]));
                    assert_eq!(answer["details"]["name"], "m");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_kind_of_parameters_that_is_not_served_is_an_error() {
    let api = world().await;
    let spec = json!({"paramKind": {"apiVersion": "e.io/v1", "kind": "Limit"}, "validations": [{"expression": "true"}]});
    with(&api, spec, json!({"paramRef": {"name": "x", "parameterNotFoundAction": "Allow"}})).await;
    let (code, answer) = api.send("POST", MAPS, Some(&map("m", &json!({})))).await;
    assert_eq!(code, 422);
    assert_eq!(
        answer["message"],
        "configmaps \"m\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
         failed to find resource referenced by paramKind: 'e.io/v1, Kind=Limit'"
    );
}

#[tokio::test]
async fn every_way_of_writing_is_judged() {
    let api = world().await;
    let rules = json!({"resourceRules": [rule(&json!(["configmaps", "nodes/status", "deployments/scale"]), &json!(["*"]))]});
    let validations = json!([
        {"expression": "request.operation == 'CREATE' || request.operation == 'DELETE' || object.?data.?a != \
                        optional.of('bad')", "message": "bad is bad"},
        {"expression": "request.operation != 'DELETE' || (object == null && oldObject.?data.?keep != optional.of('yes'))",
         "message": "kept"},
        {"expression": "request.subResource != 'scale' || request.kind.kind == 'Scale' && object.kind == 'Scale' \
                        && request.resource.resource == 'deployments' && object.spec.replicas - oldObject.spec.replicas < 3",
         "message": "too many"},
        {"expression": "request.subResource != 'status' || object.status.phase != 'Terminated'", "message": "no end"},
    ]);
    with(&api, json!({"matchConstraints": rules, "validations": validations}), json!({})).await;
    let one = format!("{MAPS}/m");
    assert_eq!(api.send("POST", MAPS, Some(&map("m", &json!({"a": "b", "keep": "yes"})))).await.0, 201);
    let bad = map("m", &json!({"a": "bad"}));
    let apply = format!("{one}?fieldManager=t&force=true");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    assert_eq!(api.send("POST", "/api/v1/nodes", Some(&node)).await.0, 201);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(api.send("POST", deployments, Some(&deployment)).await.0, 201);
    let scale = format!("{deployments}/d/scale");
    assert_eq!(api.send("PATCH", &scale, Some(&json!({"spec": {"replicas": 3}}))).await.0, 200);
    for (method, path, body, message) in [
        ("PATCH", scale.as_str(), &json!({"spec": {"replicas": 6}}), "too many"),
        ("PUT", one.as_str(), &bad, "bad is bad"),
        ("PATCH", &one, &json!({"data": {"a": "bad"}}), "bad is bad"),
        ("APPLY", &apply, &bad, "bad is bad"),
        ("DELETE", &one, &Value::Null, "kept"),
        ("DELETE", MAPS, &Value::Null, "kept"),
        ("PATCH", "/api/v1/nodes/n/status", &json!({"status": {"phase": "Terminated"}}), "no end"),
    ] {
        let (code, answer) = if method == "APPLY" {
            let request = Request::builder().method("PATCH").uri(path);
            let request = request.header("content-type", "application/apply-patch+yaml");
            let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
            let response = api.server.service().oneshot(request).await.unwrap();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            (code, serde_json::from_slice(&bytes).unwrap_or_default())
        } else {
            let body = Some(body).filter(|b| !b.is_null());
            api.send(method, path, body).await
        };
        assert_eq!(code, 422, "{method} {path}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().ends_with(&format!("denied request: {message}")),
            "{answer}"
        );
    }
    let (code, now) = api.send("GET", &one, None).await;
    assert_eq!((code, &now["data"]["a"]), (200, &json!("b")));
}

#[tokio::test]
async fn policies_hold_at_once_and_never_for_themselves() {
    let api = world().await;
    let everything = json!({"resourceRules": [rule(&json!(["*/*"]), &json!(["*"]))]});
    with(&api, json!({"matchConstraints": everything, "validations": [{"expression": "false"}]}), json!({}))
        .await;
    let new = map("m", &json!({}));
    assert_eq!(api.send("POST", MAPS, Some(&new)).await.0, 422);
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    let rename = json!({"spec": {"validations": [{"expression": "object.metadata.name != 'm'"}]}});
    assert_eq!(api.send("PATCH", &path, Some(&rename)).await.0, 200);
    assert_eq!(api.send("POST", MAPS, Some(&new)).await.0, 422);
    assert_eq!(api.send("POST", MAPS, Some(&map("n", &json!({})))).await.0, 201);
    assert_eq!(
        api.send("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/b"), None).await.0,
        200
    );
    assert_eq!(api.send("POST", MAPS, Some(&new)).await.0, 201);
}

#[tokio::test]
async fn warnings_are_sent_and_failures_are_recorded() {
    let directory = std::env::temp_dir().join(format!("plimsoll-policies-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (log, rules) = (directory.join("log"), directory.join("policy"));
    let _ = std::fs::remove_file(&log);
    std::fs::write(
        &rules,
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n",
    )
    .unwrap();
    let audit = Audit::open(&log, &rules).unwrap();
    let api = Api::new(ServerConfig { audit: Some(audit), ..ServerConfig::default() }).await;
    let spec = json!({
        "validations": [{"expression": "true"}, {"expression": "object.data.a == '2'", "message": "not 2"}],
        "auditAnnotations": [{"key": "a", "valueExpression": "'a is ' + object.data.a"},
                             {"key": "none", "valueExpression": "has(object.data.b) ? object.data.b + '' : ''"}],
    });
    with(&api, spec, json!({"validationActions": ["Warn", "Audit"]})).await;
    let (code, _, warnings) = ask(&api, "POST", MAPS, &map("m", &json!({"a": "1"}))).await;
    assert_eq!(code, 201);
    assert_eq!(
        warnings,
        ["299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': not 2\""]
    );
    let wanted = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let event: Value = loop {
        let text = std::fs::read_to_string(&log).unwrap();
        let mut events = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        if let Some(event) = events.find(|e| e["objectRef"]["resource"] == "configmaps") {
            break event;
        }
        assert!(std::time::Instant::now() < wanted, "no event");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let annotations = &event["annotations"];
    assert_eq!(annotations["p/a"], "a is 1");
    assert_eq!(annotations.get("p/none"), None);
    assert_eq!(
        annotations["validation.policy.admission.k8s.io/validation_failure"],
        "[{\"message\":\"not 2\",\"policy\":\"p\",\"binding\":\"b\",\"expressionIndex\":1,\
         \"validationActions\":[\"Warn\",\"Audit\"]}]"
    );
}

#[tokio::test]
async fn equivalent_versions_are_matched() {
    let api = world().await;
    let rules = json!({"resourceRules": [{"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["*"],
                                          "resources": ["horizontalpodautoscalers"]}]});
    let expression = "request.kind.version == 'v1' && request.requestKind.version == 'v2' \
                      && object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage < 60";
    let hpa = |percent: i64| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": format!("h{percent}")},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                 "metrics": [{"type": "Resource", "resource":
                    {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}]}})
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    with(&api, json!({"matchConstraints": rules, "validations": [{"expression": expression}]}), json!({}))
        .await;
    assert_eq!(api.send("POST", path, Some(&hpa(50))).await.0, 201);
    assert_eq!(api.send("POST", path, Some(&hpa(70))).await.0, 422);
}

#[tokio::test]
async fn mutating_policies_are_refused() {
    let api = world().await;
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
                        "metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    let (code, answer) =
        api.send("POST", &format!("{GROUP}/mutatingadmissionpolicybindings"), Some(&object)).await;
    assert_eq!(code, 403, "{answer}");
    assert!(
        answer["message"].as_str().unwrap().contains("does not run MutatingAdmissionPolicies"),
        "{answer}"
    );
}

#[tokio::test]
async fn what_is_in_force_does_not_keep_a_server_from_starting() {
    let store = Store::in_memory();
    let start = || async { Api::of(Server::over(ServerConfig::default(), store.clone()).await.unwrap()) };
    let api = start().await;
    let everything = json!([rule(&json!(["*/*"]), &json!(["*"]))]);
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [{"name": "w.test.dev", "failurePolicy": "Fail", "sideEffects": "None", "rules": everything,
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}],
    });
    install(&api, "validatingwebhookconfigurations", &hooks).await;
    let spec =
        json!({"matchConstraints": {"resourceRules": everything}, "validations": [{"expression": "false"}]});
    with(&api, spec, json!({})).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(api.send("POST", "/api/v1/namespaces", Some(&namespace)).await.0, 422);
    drop(api);
    // What is there stays as it is, and what was lost is made again.
    let revision = |name: &str| store.get(&Key::new("/namespaces", "", name)).map(|r| r.revision);
    let before = revision("kube-system");
    store.commit(Write::delete(Key::new("/namespaces", "", "kube-public"), Expected::Present)).await.unwrap();
    let api = start().await;
    assert!(revision("kube-public").is_some());
    assert_eq!(revision("kube-system"), before);
    // They still hold for everybody else.
    assert_eq!(api.send("POST", "/api/v1/namespaces", Some(&namespace)).await.0, 422);
}

#[tokio::test]
async fn a_scale_is_judged_in_every_version_of_its_resource() {
    let api = world().await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ships.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"}},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(api.send("POST", definitions, Some(&definition)).await.0, 201);
    let ship = json!({"apiVersion": "test.dev/v1", "kind": "Ship", "metadata": {"name": "a"}, "spec": {"replicas": 1}});
    assert_eq!(api.send("POST", "/apis/test.dev/v1/namespaces/default/ships", Some(&ship)).await.0, 201);
    let rules = json!({"resourceRules": [{"apiGroups": ["test.dev"], "apiVersions": ["v1"], "operations": ["UPDATE"],
                                          "resources": ["ships/scale"]}]});
    let expression = "object.kind == 'Scale' && request.kind.kind == 'Scale' && request.resource.version == 'v1' \
                      && object.spec.replicas < 5";
    with(&api, json!({"matchConstraints": rules, "validations": [{"expression": expression}]}), json!({}))
        .await;
    for version in ["v1", "v2"] {
        for (replicas, wanted) in [(4, 200), (5, 422)] {
            let path = format!("/apis/test.dev/{version}/namespaces/default/ships/a/scale");
            let (code, answer) =
                api.send("PATCH", &path, Some(&json!({"spec": {"replicas": replicas}}))).await;
            assert_eq!(code, wanted, "{version}: {answer}");
        }
    }
}

#[tokio::test]
async fn parameters_are_bounded() {
    let api = world().await;
    for i in 0..=1000 {
        let mut one = map(&format!("l{i}"), &json!({"max": i.to_string()}));
        one["metadata"]["labels"] = json!({"limit": "many", "small": (i < 3).to_string()});
        assert_eq!(api.send("POST", MAPS, Some(&one)).await.0, 201);
    }
    let bound = |labels: Value| json!({"paramRef": {"selector": {"matchLabels": labels}, "parameterNotFoundAction": "Deny"}});
    with(
        &api,
        json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
               "validations": [{"expression": "object.data.n != params.data.max"}]}),
        bound(json!({"small": "true"})),
    )
    .await;
    // Those that the selector fits, and no others.
    assert_eq!(api.send("POST", MAPS, Some(&map("a", &json!({"n": "3"})))).await.0, 201);
    assert_eq!(api.send("POST", MAPS, Some(&map("b", &json!({"n": "2"})))).await.0, 422);
    let mut to = json!({"policyName": "p", "validationActions": ["Deny"]});
    merge(&mut to, bound(json!({"limit": "many"})));
    install(&api, "validatingadmissionpolicybindings", &binding("c", &to)).await;
    let (code, answer) = api.send("POST", MAPS, Some(&map("d", &json!({"n": "x"})))).await;
    assert_eq!(code, 422, "{answer}");
    let message = answer["message"].as_str().unwrap();
    assert!(message.ends_with("policies select more than 1000 parameters for one request"), "{message}");
}
