//! What is refused when policies and bindings are made.

use super::*;

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
