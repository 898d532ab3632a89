use serde_json::json;

use super::*;
use crate::admission::authorizer::Decision;
use crate::admission::{Attributes, Operation, Request, Target};

fn attributes() -> Attributes {
    let gvk = Gvk { group: "apps".to_owned(), version: "v1".to_owned(), kind: "Deployment".to_owned() };
    Attributes {
        target: Target { gvk, resource_version: None, plural: "deployments".to_owned() },
        name: "d".to_owned(),
        namespace: "n".to_owned(),
        operation: Some(Operation::Create),
        object: json!({"metadata": {"name": "d", "labels": {"a": "b"}}, "spec": {"replicas": 6}}),
        ..Attributes::default()
    }
}

fn outcome(spec: &Value, params: Option<&Value>) -> Outcome {
    let policy = Policy::compile(&json!({"metadata": {"name": "p"}, "spec": spec}));
    let a = attributes();
    let request =
        Request::new(&a, &a.target, &a.object, &a.old, &json!({"metadata": {"labels": {"env": "prod"}}}));
    policy.evaluate(&request, params, &|_| Decision::default())
}

fn denied(message: &str, reason: &str) -> Vec<Verdict> {
    vec![Verdict::Deny { message: message.to_owned(), reason: reason.to_owned() }]
}

#[test]
fn verdicts() {
    for (spec, want) in [
        (json!({"validations": [{"expression": "object.spec.replicas <= 6"}]}), vec![Verdict::Admit]),
        // fields that a review leaves out are not there
        (
            json!({"validations": [{"expression": "!has(request.subResource) && has(request.name)"}]}),
            vec![Verdict::Admit],
        ),
        (
            json!({"validations": [{"expression": "request.subResource == ''"}]}),
            denied("expression 'request.subResource == ''' resulted in error: no such key: subResource", ""),
        ),
        (
            json!({"validations": [{"expression": " object.spec.replicas <= 5 "}]}),
            denied("failed expression: object.spec.replicas <= 5", "Invalid"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "no", "reason": "Forbidden"}]}),
            denied("no", "Forbidden"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "no",
                "messageExpression": "'has ' + string(object.spec.replicas)"}]}),
            denied("has 6", "Invalid"),
        ),
        (
            json!({"validations": [{"expression": "false", "message": "no", "messageExpression": "object.q"}]}),
            denied("no", "Invalid"),
        ),
        (
            json!({"validations": [{"expression": "object.spec.q == 1"}]}),
            denied("expression 'object.spec.q == 1' resulted in error: no such key: q", ""),
        ),
        (
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.spec.q == 1"}]}),
            vec![Verdict::Admit],
        ),
        (
            json!({"variables": [{"name": "a", "expression": "object.spec.replicas"},
                                 {"name": "b", "expression": "variables.a + 1"},
                                 {"name": "unused", "expression": "object.nosuch"}],
                   "validations": [{"expression": "variables.b == 7"}]}),
            vec![Verdict::Admit],
        ),
        (
            json!({"variables": [{"name": "a", "expression": "object.nosuch"}],
                   "validations": [{"expression": "variables.a == 7"}]}),
            denied(
                "expression 'variables.a == 7' resulted in error: composited variable \"a\" fails to evaluate: \
                 no such key: nosuch",
                "",
            ),
        ),
        (
            json!({"matchConditions": [{"name": "m", "expression": "object.metadata.name == 'x'"}],
                   "validations": [{"expression": "false"}]}),
            vec![],
        ),
        (
            json!({"validations": [{"expression":
                "namespaceObject.metadata.labels.env == 'prod' && request.operation == 'CREATE' \
                 && request.kind.kind == 'Deployment' && oldObject == null"}]}),
            vec![Verdict::Admit],
        ),
        (
            json!({"validations": [{"expression":
                "lists.range(900).all(a, lists.range(900).all(b, lists.range(900).all(c, true)))"}]}),
            denied(
                "expression 'lists.range(900).all(a, lists.range(900).all(b, lists.range(900).all(c, true)))' \
                 resulted in error: operation cancelled: actual cost limit exceeded",
                "",
            ),
        ),
    ] {
        assert_eq!(outcome(&spec, None).verdicts, want, "{spec}");
    }
}

#[test]
fn all_validations_share_a_budget() {
    let one = json!({"expression": "lists.range(300).all(a, lists.range(300).all(b, true))"});
    let spec = json!({"validations": vec![one; 60]});
    let want = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(outcome(&spec, None).verdicts, denied(want, ""));
}

#[test]
fn variables_that_grow_are_stopped() {
    let mut variables = vec![json!({"name": "v0", "expression": "['aaaaaaaaaa', 'bbbbbbbbbb']"})];
    for i in 1..40 {
        let before = i - 1;
        variables.push(json!({"name": format!("v{i}"), "expression": format!("[variables.v{before}, variables.v{before}]")}));
    }
    let spec =
        json!({"variables": variables, "validations": [{"expression": "variables.v39 == variables.v39"}]});
    assert!(
        matches!(outcome(&spec, None).verdicts.as_slice(), [Verdict::Deny { reason, .. }] if reason.is_empty())
    );
}

#[test]
fn parameters_and_annotations() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.max)"}],
        "auditAnnotations": [
            {"key": "k", "valueExpression": "'max ' + params.data.max"},
            {"key": "none", "valueExpression": "null"},
        ],
    });
    let found = outcome(&spec, Some(&json!({"data": {"max": "6"}})));
    assert_eq!(found.verdicts, [Verdict::Admit]);
    assert_eq!(found.annotations, [Annotation::Publish("k".to_owned(), "max 6".to_owned())]);
    let missing = outcome(&spec, None);
    assert!(matches!(missing.verdicts.as_slice(), [Verdict::Deny { .. }]));
    assert!(matches!(missing.annotations.as_slice(), [Annotation::Error(_)]));
}

#[test]
fn matching() {
    let rule = |resources: Value, names: Value| {
        json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
               "resources": resources, "resourceNames": names, "scope": "*"})
    };
    for (constraints, want) in [
        (json!({"resourceRules": [rule(json!(["deployments"]), json!([]))]}), true),
        (json!({"resourceRules": [rule(json!(["deployments/scale"]), json!([]))]}), false),
        (json!({"resourceRules": [rule(json!(["*"]), json!([]))]}), true),
        (json!({"resourceRules": [rule(json!(["*"]), json!(["d"]))]}), true),
        (json!({"resourceRules": [rule(json!(["*"]), json!(["e"]))]}), false),
        (json!({"resourceRules": []}), true),
        (
            json!({"resourceRules": [rule(json!(["*"]), json!([]))],
                   "excludeResourceRules": [rule(json!(["deployments"]), json!(["d"]))]}),
            false,
        ),
        (
            json!({"resourceRules": [rule(json!(["*"]), json!([]))],
                   "objectSelector": {"matchLabels": {"a": "c"}}}),
            false,
        ),
        (
            json!({"resourceRules": [rule(json!(["*"]), json!([]))],
                   "namespaceSelector": {"matchLabels": {"env": "prod"}}}),
            false,
        ),
    ] {
        let policy = Policy::compile(&json!({"spec": {"matchConstraints": constraints}}));
        assert_eq!(policy.matches(&attributes()).is_some(), want, "{constraints}");
        let binding = Binding::new(&json!({"spec": {"matchResources": constraints}}));
        assert_eq!(binding.matches(&attributes()), want, "{constraints}");
    }
}
