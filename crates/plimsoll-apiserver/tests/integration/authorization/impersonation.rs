//! Who may act as whom, with which rights: `impersonation.json`, and what kube-apiserver 1.36.2 answers to each row in
//! `impersonation.recorded.json` (the user that the request acts as, or the refusal).

use serde_json::{Value, json};

use super::users::role_and_binding;
use super::{Target, until};

const ROWS: &str = include_str!("impersonation.json");
pub const RECORDED: &str = "impersonation.recorded.json";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What a server answers to every row, by the row's description.
pub async fn answers(target: &Target) -> Value {
    let rows: Vec<Value> = serde_json::from_str(ROWS).unwrap();
    let user = |i: usize| format!("requestor-{i}");
    for (i, row) in rows.iter().enumerate() {
        grant(target, &user(i), &row["rights"]).await;
    }
    let last = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user(rows.len() - 1), "resourceAttributes": {"verb": "impersonate", "resource": "users",
            "name": "bob"}}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    until(async || target.admin("POST", path, Some(&last)).await.1["status"]["allowed"] == true).await;
    let mut answers = json!({});
    for (i, row) in rows.iter().enumerate() {
        if !row["before"].is_null() {
            let (code, answer) = review(target, &user(i), &row["before"]).await;
            assert_eq!(code, 201, "{row}: {answer}");
        }
        let (code, answer) = review(target, &user(i), &row["headers"]).await;
        let what = match code {
            201 => answer["status"]["userInfo"].clone(),
            _ => json!({"code": code, "message": answer["message"], "details": answer["details"]}),
        };
        answers[row["about"].as_str().unwrap()] = what;
    }
    answers
}

async fn review(target: &Target, requestor: &str, headers: &Value) -> (u16, Value) {
    let object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let headers: Vec<(String, String)> = serde_json::from_value(headers.clone()).unwrap();
    target.impersonate(requestor, &headers, "POST", REVIEWS, &object.to_string()).await
}

/// `VERB RESOURCE[.GROUP] [=NAME]`.
fn rule(text: &str) -> Value {
    let (verb, rest) = text.split_once(' ').unwrap();
    let (what, name) = rest.split_once(" =").map_or((rest, None), |(what, name)| (what, Some(name)));
    let group = "authentication.k8s.io";
    let (resource, group) = what.strip_suffix(&format!(".{group}")).map_or((what, ""), |r| (r, group));
    let mut rule = json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]});
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    rule
}

/// Gives a user rights in the words of `impersonation.json`.
pub async fn grant(target: &Target, user: &str, rights: &Value) {
    let rules: Vec<Value> =
        rights.as_array().unwrap().iter().map(|text| rule(text.as_str().unwrap())).collect();
    for (path, object) in role_and_binding(user, &rules.into()) {
        target.create(&path, &object).await;
    }
}
