//! `pods/eviction`: a deletion that disruption budgets may refuse (`registry/core/pod/storage/eviction.go`).

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Cause, Details, Kind, Subresource};
use serde_json::{Value, json};

use super::super::endpoint::write_of;
use super::super::options::{DeleteOptions, WriteOptions};
use super::super::reply::Reply;
use super::super::{Req, body_format};
use super::{decode_own, read};
use crate::pipeline::{self, Change};
use crate::write::{Admission, Write};
use crate::{machine, time};

/// Pods that a budget remembers while their deletion is on its way.
const MAX_DISRUPTED: usize = 2000;
/// How often a pod that changes meanwhile is read again.
const ATTEMPTS: u32 = 20;

/// POST to `pods/NAME/eviction`.
pub async fn create(req: &mut Req, kind: &Arc<Kind>, sub: &Subresource) -> Result<Reply, ApiError> {
    body_format(req, true)?;
    let options = WriteOptions::parse(&req.query, "CreateOptions", false)?;
    accept_beta(req);
    let mut eviction = decode_own(req, sub, &options)?;
    let given = eviction["metadata"]["name"].as_str().unwrap_or("");
    if given != req.info.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    same_dry_run(&eviction, options.dry_run)?;
    let mut delete = DeleteOptions::from_value(&eviction["deleteOptions"])?;
    delete.dry_run |= options.dry_run;
    let mut admission = write_of(req, kind, &options, "CreateOptions");
    let admitted = super::admit_part(&mut admission, &mut eviction).await;
    req.warnings.append(&mut admission.warnings);
    admitted?;
    evict(req, kind, &delete).await?;
    Ok(Reply::success(201))
}

/// Takes from the budget and deletes the pod. One that no budget is asked for must be as it was read: it could be ready by now.
async fn evict(req: &mut Req, kind: &Arc<Kind>, asked: &DeleteOptions) -> Result<(), ApiError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let pod = read(req, kind).await?;
        let asks = needs_budget(&pod);
        let spared = if asks { take_from_budget(req, &pod, asked.dry_run).await? } else { None };
        let mut delete = asked.clone();
        let has_ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let starts = !asks && !has_ended && pod["metadata"]["deletionTimestamp"].is_null();
        let pinned = asked.resource_version.is_none() && (spared.is_some() || starts);
        if pinned {
            delete.resource_version = pod["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        }
        match mark_and_delete(req, kind, delete).await {
            Err(e) if e.code == 409 && pinned => match spared {
                Some(budget) => return Err(too_many(&still_processed(&budget), 10)),
                None if attempt < ATTEMPTS => {}
                None => return Err(e),
            },
            other => return other,
        }
    }
}

/// `addConditionAndDeletePod`.
async fn mark_and_delete(req: &mut Req, kind: &Arc<Kind>, mut delete: DeleteOptions) -> Result<(), ApiError> {
    if !delete.dry_run {
        let version = mark_as_target(req, kind, &delete).await?;
        // Marking it has changed it.
        delete.resource_version = delete.resource_version.and(version);
    }
    let delete_options = WriteOptions { dry_run: delete.dry_run, ..WriteOptions::default() };
    let mut write = write_of(req, kind, &delete_options, "DeleteOptions");
    write.subresource = String::new();
    write.admission = Admission::Done;
    write.options = delete.to_value();
    let result = pipeline::delete(&mut write, &delete).await;
    req.warnings.append(&mut write.warnings);
    result.map(|_| ())
}

/// What the request and its body say about dry runs, where both do (`propagateDryRun`).
fn same_dry_run(eviction: &Value, requested: bool) -> Result<(), ApiError> {
    let given = eviction["deleteOptions"]["dryRun"].as_array().map_or(&[][..], Vec::as_slice);
    if !requested || given.is_empty() || *given == [json!("All")] {
        return Ok(());
    }
    let given: Vec<&str> = given.iter().filter_map(Value::as_str).collect();
    let why = format!("Non-matching dry-run options in request and content: [All] and [{}]", given.join(" "));
    Err(ApiError::new(500, "", why))
}

/// `policy/v1beta1` evictions are the same and are still taken.
fn accept_beta(req: &mut Req) {
    let Ok(mut body) = serde_json::from_slice::<Value>(&req.body) else { return };
    if body["apiVersion"] == "policy/v1beta1" && body.is_object() {
        body["apiVersion"] = json!("policy/v1");
        req.body = body.to_string().into();
    }
}

/// Finished, pending and terminating pods disrupt nothing.
fn needs_budget(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Pending"))
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn too_many(text: &str, retry: u32) -> ApiError {
    let mut e = ApiError::new(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    e.details = Some(Box::new(Details {
        causes: vec![Cause {
            reason: "DisruptionBudget".to_owned(),
            message: text.to_owned(),
            field: String::new(),
        }],
        retry_after_seconds: retry,
        ..Details::default()
    }));
    e
}

fn still_processed(budget: &str) -> String {
    format!("The disruption budget {budget} is still being processed by the server.")
}

/// Takes from the budget of a pod. Where it has one that does not count it, because it is not ready: the name of that.
async fn take_from_budget(req: &Req, pod: &Value, dry_run: bool) -> Result<Option<String>, ApiError> {
    let Some(kind) = req.table.resource("policy", "v1", "poddisruptionbudgets").cloned() else {
        return Ok(None);
    };
    let budgets = req.server.store().list(&kind.storage, Some(&req.info.namespace));
    let matching: Vec<Value> = budgets
        .iter()
        .filter_map(|r| r.value().ok())
        .filter(|b| machine::selects(&b["spec"]["selector"], &pod["metadata"]["labels"]))
        .collect();
    let budget = match matching.as_slice() {
        [] => return Ok(None),
        [one] => one,
        _ => {
            return Err(ApiError::new(
                500,
                "",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let name = budget["metadata"]["name"].as_str().unwrap_or("").to_owned();
    if !is_ready(pod) {
        let status = |f: &str| budget["status"][f].as_i64().unwrap_or(0);
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        let healthy = status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0;
        if always || healthy {
            return Ok(Some(name));
        }
    }
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    let mut write = write_of(req, &kind, &options, "UpdateOptions");
    "status".clone_into(&mut write.subresource);
    write.name.clone_from(&name);
    let now = time::seconds(write.now);
    let victim = req.info.name.clone();
    // Upstream writes it as a client of its own.
    "kube-apiserver".clone_into(&mut write.manager);
    let change = |budget: &Value| decrement(budget, &victim, &now);
    pipeline::update(&mut write, Change::Patch(&change)).await.map(|_| None)
}

/// `checkAndDecrement`.
fn decrement(budget: &Value, pod: &str, now: &str) -> Result<Value, ApiError> {
    let status = &budget["status"];
    let int = |v: &Value| v.as_i64().unwrap_or(0);
    let name = budget["metadata"]["name"].as_str().unwrap_or("");
    if int(&status["observedGeneration"]) < int(&budget["metadata"]["generation"]) {
        return Err(too_many(&still_processed(name), 10));
    }
    let allowed = int(&status["disruptionsAllowed"]);
    if allowed < 0 {
        return Err(ApiError::new(403, "Forbidden", "pdb disruptions allowed is negative"));
    }
    if status["disruptedPods"].as_object().is_some_and(|m| m.len() > MAX_DISRUPTED) {
        return Err(ApiError::new(
            403,
            "Forbidden",
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed == 0 {
        return Err(too_many(&refusal(name, status), 0));
    }
    let mut budget = budget.clone();
    budget["status"]["disruptionsAllowed"] = json!(allowed - 1);
    if allowed == 1 {
        set_condition(&mut budget, now);
    }
    if budget["status"]["disruptedPods"].is_null() {
        budget["status"]["disruptedPods"] = json!({});
    }
    budget["status"]["disruptedPods"][pod] = json!(now);
    Ok(budget)
}

fn refusal(name: &str, status: &Value) -> String {
    let condition =
        status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "DisruptionAllowed");
    if let Some(c) = condition
        && c["status"] == "False"
        && c["reason"] == "SyncFailed"
    {
        let message = c["message"].as_str().unwrap_or("");
        return format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        );
    }
    let int = |f: &str| status[f].as_i64().unwrap_or(0);
    if int("currentHealthy") > int("desiredHealthy") {
        return format!("The disruption budget {name} does not allow evicting pods currently");
    }
    format!(
        "The disruption budget {name} needs {} healthy pods and has {} currently",
        int("desiredHealthy"),
        int("currentHealthy")
    )
}

/// The budget is used up: its condition says so.
fn set_condition(budget: &mut Value, now: &str) {
    let generation = budget["status"]["observedGeneration"].clone();
    let condition = json!({
        "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": now, "observedGeneration": generation,
    });
    match budget["status"]["conditions"].as_array_mut() {
        Some(list) => match list.iter_mut().find(|c| c["type"] == "DisruptionAllowed") {
            Some(old) => {
                let unchanged = old["status"] == "False";
                let since = old["lastTransitionTime"].clone();
                *old = condition;
                if unchanged {
                    old["lastTransitionTime"] = since;
                }
            }
            None => list.push(condition),
        },
        None => budget["status"]["conditions"] = json!([condition]),
    }
}

/// The condition `DisruptionTarget` says why the pod goes; the version of the pod with it.
async fn mark_as_target(
    req: &Req,
    kind: &Arc<Kind>,
    delete: &DeleteOptions,
) -> Result<Option<String>, ApiError> {
    let mut write: Write = write_of(req, kind, &WriteOptions::default(), "UpdateOptions");
    let asked = write_of(req, kind, &WriteOptions::default(), "DeleteOptions");
    "status".clone_into(&mut write.subresource);
    let now = time::seconds(write.now);
    let change = |mut pod: Value| {
        pipeline::preconditions(&asked, &pod, delete)?;
        if !pod["status"].is_object() {
            pod["status"] = json!({});
        }
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
        });
        match pod["status"]["conditions"].as_array_mut() {
            Some(list) => {
                list.retain(|c| c["type"] != "DisruptionTarget");
                list.push(condition);
            }
            None => pod["status"]["conditions"] = json!([condition]),
        }
        Ok(pod)
    };
    let updated = pipeline::update(&mut write, Change::Internal(&change)).await?;
    // Nothing is stored where it had the condition.
    let version = updated.record.map(|r| r.revision.to_string());
    Ok(version.or_else(|| delete.resource_version.clone()))
}
