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
