//! `AdmissionReview` (admission.k8s.io/v1) and `ConversionReview` (apiextensions.k8s.io/v1): what an API server posts,
//! and our answers, as functions of bytes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::json::text;
use plimsoll_api::webhooks::{CONVERT, Target};
use plimsoll_jobs::Env;
use plimsoll_jobs::webhook::{
    Operation, Review, concerns, concerns_declared, declared_targets, mutate, validate,
};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::clock;

/// A request that can't be answered with a review: HTTP code and text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub u16, pub String);

fn bad(message: impl Into<String>) -> Refused {
    Refused(400, message.into())
}

/// The answer to what was posted to `path`.
///
/// # Errors
/// 404 for a path without a webhook, 400 for a body that is no review.
pub fn answer(path: &str, body: &[u8], cache: &Cache) -> Result<Value, Refused> {
    let declared = || Target::among(&cache.objects(declared_targets), path);
    let target = Target::at(path).or_else(declared);
    if target.is_none() && path != CONVERT {
        return Err(Refused(404, format!("no webhook at {path}")));
    }
    let review: Value = serde_json::from_slice(body).map_err(|e| bad(e.to_string()))?;
    let (want_version, want_kind) = match target {
        Some(_) => ("admission.k8s.io/v1", "AdmissionReview"),
        None => ("apiextensions.k8s.io/v1", "ConversionReview"),
    };
    let (version, kind) = (text(&review, &["apiVersion"]), text(&review, &["kind"]));
    if (version, kind) != (want_version, want_kind) {
        return Err(bad(format!("expected {want_kind} of {want_version}, got {kind:?} of {version:?}")));
    }
    let request = &review["request"];
    if !request.is_object() {
        return Err(bad("the review has no request"));
    }
    let mut response = match target {
        Some((target, mutates)) => admit(target, mutates, request, cache),
        None => convert(request),
    };
    response["uid"] = request["uid"].clone();
    Ok(json!({"apiVersion": version, "kind": kind, "response": response}))
}

fn admit(target: Target, mutates: bool, request: &Value, cache: &Cache) -> Value {
    let operation = match text(request, &["operation"]) {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        _ => return json!({"allowed": true}),
    };
    let subresource = text(request, &["subResource"]);
    let concerned = concerns(target.group, target.plural, subresource, mutates)
        || cache.objects(|objects| concerns_declared(target.group, target.plural, subresource, objects));
    if !concerned || !request["object"].is_object() {
        return json!({"allowed": true});
    }
    let review = Review {
        group: target.group,
        plural: target.plural,
        operation,
        namespace: text(request, &["namespace"]),
        old: Some(&request["oldObject"]).filter(|o| o.is_object()),
    };
    let object = &request["object"];
    let undecided = |env: Env<'_>| env.config.is_undecided(env.objects, review.namespace);
    if mutates
        && operation == Operation::Create
        && target.group != "kueue.x-k8s.io"
        && cache.read(clock::now(), undecided)
    {
        // (Kueue: likewise.) A pod that is created without a gate now never gets one.
        let message = format!("failed to get namespace: Namespace {:?} not found", review.namespace);
        return json!({"allowed": false, "status": {"code": 500, "message": message}});
    }
    if mutates {
        let mut changed = object.clone();
        cache.read(clock::now(), |env| mutate(&review, &mut changed, env));
        let patch = json_patch::diff(object, &changed);
        return match serde_json::to_vec(&patch) {
            Ok(_) if patch.0.is_empty() => json!({"allowed": true}),
            Ok(bytes) => {
                json!({"allowed": true, "patchType": "JSONPatch", "patch": BASE64_STANDARD.encode(bytes)})
            }
            Err(e) => json!({"allowed": false, "status": {"code": 500, "message": e.to_string()}}),
        };
    }
    match cache.read(clock::now(), |env| validate(&review, object, env)) {
        Ok(warnings) if warnings.is_empty() => json!({"allowed": true}),
        Ok(warnings) => json!({"allowed": true, "warnings": warnings}),
        // The API server says which webhook it was.
        Err(denied) => json!({"allowed": false, "status": {
            "code": 403, "reason": "Forbidden", "message": denied.message}}),
    }
}

fn convert(request: &Value) -> Value {
    let failed = |message: String| json!({"convertedObjects": [], "result": {"status": "Failure", "message": message}});
    let desired = text(request, &["desiredAPIVersion"]);
    let Some(version @ ("v1beta1" | "v1beta2")) = desired.strip_prefix("kueue.x-k8s.io/") else {
        return failed(format!("unexpected conversion version {desired:?}"));
    };
    let mut converted = Vec::new();
    for object in plimsoll_api::json::list(request, &["objects"]) {
        let from = text(object, &["apiVersion"]);
        if !matches!(from, "kueue.x-k8s.io/v1beta1" | "kueue.x-k8s.io/v1beta2") {
            return failed(format!("unexpected version {from:?} of {}", plimsoll_api::json::name(object)));
        }
        converted.push(plimsoll_api::kueue::convert::convert(object.clone(), version));
    }
    json!({"convertedObjects": converted, "result": {"status": "Success"}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str, review: &Value) -> Result<Value, Refused> {
        answer(path, review.to_string().as_bytes(), &Cache::default())
    }

    fn admission(operation: &str, object: &Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
               "request": {"uid": "u1", "operation": operation, "namespace": "ns", "object": object}})
    }

    fn queued(extra: &Value) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 1},
               "metadata": {"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "main"},
                            "annotations": extra}})
    }

    /// The watch of namespaces may be late, and a pod gets its gate when it is created or never.
    #[test]
    fn jobs_of_unknown_namespaces_are_refused_where_labels_decide() {
        use plimsoll_jobs::{Config, Kind};
        use plimsoll_state::model::{LabelSelector, Operator, Requirement};
        let requirement =
            Requirement { key: "managed".into(), operator: Operator::In, values: vec!["true".into()] };
        let selector = LabelSelector { requirements: vec![requirement] };
        let by_label = Config { managed_jobs_namespace_selector: selector, ..Config::default() };
        let review = admission("CREATE", &queued(&json!({}))).to_string();
        let ask = |cache: &Cache| {
            answer("/mutate-batch-v1-job", review.as_bytes(), cache).expect("an answer")["response"].clone()
        };
        let cache = Cache::new(by_label);
        let refused = ask(&cache);
        assert_eq!(refused["allowed"], false);
        assert_eq!(refused["status"]["message"], "failed to get namespace: Namespace \"ns\" not found");
        cache.put(
            Kind::Namespace,
            json!({"metadata": {"name": "ns", "uid": "n", "labels": {"managed": "true"}}}),
        );
        assert!(ask(&cache)["patch"].is_string());
        assert!(ask(&Cache::default())["patch"].is_string(), "names decide");
    }

    #[test]
    fn changes_are_patches() {
        let job = queued(&json!({}));
        let got = ask("/mutate-batch-v1-job", &admission("CREATE", &job)).unwrap();
        assert_eq!(
            (&got["kind"], &got["apiVersion"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
        );
        let response = &got["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u1"), &json!(true)));
        let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
        let mut changed = job.clone();
        json_patch::patch(&mut changed, &patch).unwrap();
        let mut want = job;
        want["spec"]["suspend"] = json!(true);
        assert_eq!(changed, want);
        // Nothing to do is no patch.
        let got = ask("/mutate-batch-v1-job", &admission("UPDATE", &changed)).unwrap();
        assert_eq!(got["response"], json!({"uid": "u1", "allowed": true}));
    }

    #[test]
    fn refusals_have_the_bare_message() {
        let job = queued(&json!({"kueue.x-k8s.io/job-min-parallelism": "x"}));
        let got = ask("/validate-batch-v1-job", &admission("CREATE", &job)).unwrap();
        assert_eq!(got["response"]["allowed"], false);
        assert_eq!(got["response"]["status"]["code"], 403);
        let message = got["response"]["status"]["message"].as_str().unwrap();
        assert!(message.starts_with("metadata.annotations["), "{message}");
    }

    #[test]
    fn of_subresources_the_status_of_workloads_is_validated() {
        let wl = json!({"metadata": {"name": "w", "namespace": "ns"},
            "spec": {"podSets": [{"name": "main", "count": 1}]},
            "status": {"reclaimablePods": [{"name": "other", "count": 1}]}});
        let allowed = |verb: &str, subresource: &str| {
            let mut review = admission("UPDATE", &wl);
            review["request"]["subResource"] = json!(subresource);
            let path = format!("/{verb}-kueue-x-k8s-io-v1beta2-workload");
            ask(&path, &review).unwrap()["response"]["allowed"].clone()
        };
        assert_eq!([allowed("validate", ""), allowed("validate", "status")], [json!(false), json!(false)]);
        assert_eq!([allowed("validate", "scale"), allowed("mutate", "status")], [json!(true), json!(true)]);
    }

    #[test]
    fn objects_are_converted_both_ways() {
        let review = |desired: &str, objects: Value| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                   "request": {"uid": "u", "desiredAPIVersion": desired, "objects": objects}})
        };
        let old = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                         "metadata": {"name": "q"}, "spec": {"cohort": "all"}});
        let got = ask("/convert", &review("kueue.x-k8s.io/v1beta2", json!([old]))).unwrap();
        assert_eq!(got["response"]["uid"], "u");
        assert_eq!(got["response"]["result"]["status"], "Success");
        let new = &got["response"]["convertedObjects"][0];
        assert_eq!(
            (&new["apiVersion"], &new["spec"]["cohortName"]),
            (&json!("kueue.x-k8s.io/v1beta2"), &json!("all"))
        );
        let back = ask("/convert", &review("kueue.x-k8s.io/v1beta1", json!([new]))).unwrap();
        assert_eq!(back["response"]["convertedObjects"][0], old);
        for (desired, objects) in
            [("kueue.x-k8s.io/v9", json!([old])), ("kueue.x-k8s.io/v1beta2", json!([{"apiVersion": "v1"}]))]
        {
            let got = ask("/convert", &review(desired, objects)).unwrap();
            assert_eq!(got["response"]["result"]["status"], "Failure", "{desired}");
        }
    }

    #[test]
    fn what_is_no_review_is_refused() {
        let code = |path: &str, body: &[u8]| answer(path, body, &Cache::default()).map_err(|e| e.0).map(drop);
        assert_eq!(code("/elsewhere", b"{}"), Err(404));
        for body in [
            &b""[..],
            b"[]",
            b"{}",
            b"\xff",
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
        ] {
            assert_eq!(code("/mutate--v1-pod", body), Err(400), "{body:?}");
            assert_eq!(code("/convert", body), Err(400), "{body:?}");
        }
        // Odd but well-formed: nothing of ours.
        for request in
            [json!({}), json!({"operation": "CREATE", "object": null}), json!({"operation": "CONNECT"})]
        {
            let review =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
            assert_eq!(ask("/validate--v1-pod", &review).unwrap()["response"]["allowed"], true);
        }
    }
}
