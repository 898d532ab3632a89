//! Parameters of policies.

use super::*;

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

/// A user with these rights in the whole cluster, beside writing policies and bindings.
async fn author(api: &Api, name: &str, rules: Value) -> Api {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let mut all =
        vec![json!({"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]})];
    all.extend(rules.as_array().unwrap().iter().cloned());
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": all});
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", bound)] {
        assert_eq!(api.send("POST", &format!("{RBAC}/{plural}"), Some(&object)).await.0, 201);
    }
    api.as_user(name)
}

/// Expressions can show parameters: the author of a policy needs `get` on all of their kind.
#[tokio::test]
async fn policies_have_parameters_that_their_author_may_read() {
    let api = world().await;
    let mallory = author(&api, "mallory", json!([])).await;
    let reader =
        author(&api, "reader", json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]))
            .await;
    let policies = format!("{GROUP}/validatingadmissionpolicies");
    let with_kind = |name: &str, kind: Value| {
        policy(
            name,
            &json!({"matchConstraints": maps(), "paramKind": kind,
            "validations": [{"expression": "false", "messageExpression": "string(params.data.password)"}]}),
        )
    };
    let secrets = json!({"apiVersion": "v1", "kind": "Secret"});
    let (code, answer) = mallory.send("POST", &policies, Some(&with_kind("p", secrets.clone()))).await;
    assert_eq!(
        (code, &answer["message"]),
        (
            422,
            &json!(
                "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: user \
            &{mallory  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind \
            (kind=Secret, apiVersion=v1)"
            )
        )
    );
    assert_eq!(answer["details"]["causes"][0]["reason"], "FieldValueForbidden");
    assert_eq!(reader.send("POST", &policies, Some(&with_kind("p", secrets.clone()))).await.0, 201);
    // Who changes something else needs no right to the parameters, who changes their kind does.
    let one = format!("{policies}/p");
    assert_eq!(mallory.send("PATCH", &one, Some(&json!({"spec": {"failurePolicy": "Ignore"}}))).await.0, 200);
    let maps = json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}});
    assert_eq!(mallory.send("PATCH", &one, Some(&maps)).await.0, 422);
    let none = json!({"spec": {"paramKind": null, "validations": [{"expression": "false"}]}});
    assert_eq!(mallory.send("PATCH", &one, Some(&none)).await.0, 200);
    let secrets = json!({"spec": {"paramKind": secrets}});
    assert_eq!(mallory.send("PATCH", &one, Some(&secrets)).await.0, 422);
    // A kind that is not served: everything in the group.
    let unknown = with_kind("u", json!({"apiVersion": "e.io/v1", "kind": "Limit"}));
    assert_eq!(reader.send("POST", &policies, Some(&unknown)).await.0, 422);
    assert_eq!(api.send("POST", &policies, Some(&unknown)).await.0, 201);
}

/// The author of a binding needs `get` on the parameter, or `list` on those it selects from.
#[tokio::test]
async fn bindings_have_parameters_that_their_author_may_read() {
    let api = world().await;
    let get = |name: &str| json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get"]}]);
    let mallory = author(&api, "mallory", get("other")).await;
    let reader = author(&api, "reader", get("secret")).await;
    let lister =
        author(&api, "lister", json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]))
            .await;
    for (name, kind) in [
        ("p", json!({"apiVersion": "v1", "kind": "Secret"})),
        ("odd", json!({"apiVersion": "e.io/v1", "kind": "Limit"})),
    ] {
        let spec =
            json!({"matchConstraints": maps(), "paramKind": kind, "validations": [{"expression": "true"}]});
        install(&api, "validatingadmissionpolicies", &policy(name, &spec)).await;
    }
    let bindings = format!("{GROUP}/validatingadmissionpolicybindings");
    let bound = |name: &str, policy: &str, params: Value| {
        binding(name, &json!({"policyName": policy, "validationActions": ["Deny"], "paramRef": params}))
    };
    let by_name = json!({"name": "secret", "namespace": "default", "parameterNotFoundAction": "Allow"});
    let by_label = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
    let mallory_lacks = |verb: &str| {
        format!("user &{{mallory  [system:authenticated] map[]}} does not have \"{verb}\" permission")
    };
    for (object, why) in [
        (
            bound("b", "p", by_name.clone()),
            format!("{} on the object referenced by paramRef", mallory_lacks("get")),
        ),
        (
            bound("b", "p", by_label.clone()),
            format!("{} on the object referenced by paramRef", mallory_lacks("list")),
        ),
        (
            bound("b", "none", by_name.clone()),
            format!(
                "unable to get policy none to determine minimum required permissions and {} for all groups, versions and resources",
                mallory_lacks("get")
            ),
        ),
        (
            bound("b", "odd", by_name.clone()),
            format!(
                "unable to resolve paramKind &{{e.io/v1 Limit}} to determine minimum required permissions and {} for all groups, versions and resources",
                mallory_lacks("get")
            ),
        ),
    ] {
        let (code, answer) = mallory.send("POST", &bindings, Some(&object)).await;
        let wanted = format!(
            "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"b\" is invalid: spec.paramRef: Forbidden: {why}"
        );
        assert_eq!((code, &answer["message"]), (422, &json!(wanted)));
    }
    assert_eq!(reader.send("POST", &bindings, Some(&bound("b", "p", by_name))).await.0, 201);
    assert_eq!(reader.send("POST", &bindings, Some(&bound("c", "p", by_label.clone()))).await.0, 422);
    assert_eq!(lister.send("POST", &bindings, Some(&bound("c", "p", by_label))).await.0, 201);
    let one = format!("{bindings}/b");
    for (change, code) in [
        (json!({"spec": {"paramRef": {"name": "further"}}}), 422),
        (json!({"spec": {"policyName": "odd"}}), 422),
        (json!({"spec": {"paramRef": null}}), 200),
    ] {
        assert_eq!(mallory.send("PATCH", &one, Some(&change)).await.0, code, "{change}");
    }
}
