//! What policies say of requests.

use plimsoll_apiserver::audit::Audit;

use super::*;

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
