//! From the conditions of a request to the state of its check (Kueue KEP-1136, `syncCheckStates`).

use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use super::config::Config;
use super::request;

/// Annotation of pods that use a request.
const CONSUMED: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of pods: class of that request.
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// Message of a check without a usable configuration.
const INACTIVE: &str = "the check is not active";
/// Message of a check for which nothing has to be provided.
const NOT_NEEDED: &str = "the provisioning request is not needed";

/// The message of a condition that is `True`.
fn message_of<'a>(request: &'a Value, kind: &str) -> Option<&'a str> {
    json::condition(request, kind).filter(|c| c["status"] == "True").map(|c| json::text(c, &["message"]))
}

/// Whether the request has failed, so that another attempt may follow.
pub fn has_failed(request: &Value, admitted: bool) -> bool {
    message_of(request, "Failed").is_some() || (message_of(request, "BookingExpired").is_some() && !admitted)
}

/// Whether the request has ended, with or without capacity.
pub fn has_ended(request: &Value) -> bool {
    ["Failed", "BookingExpired", "CapacityRevoked", "Provisioned"]
        .iter()
        .any(|c| message_of(request, c).is_some())
}

/// Sets the state of a check with its transition time; returns whether it changed.
fn set(check: &mut Value, state: &str, now: Time) -> bool {
    if check["state"] == state {
        return false;
    }
    check["state"] = json!(state);
    check["lastTransitionTime"] = json!(timestamp::text(now));
    true
}

fn set_message(check: &mut Value, message: &str) {
    const LONGEST: usize = 32 * 1024;
    let mut end = message.len().min(LONGEST);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    check["message"] = json!(message.get(..end).unwrap_or_default());
}

/// What a check is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The workload.
    pub workload: &'a Value,
    /// Its request, if there is one.
    pub request: Option<&'a Value>,
    /// Which attempt that is.
    pub attempt: i64,
}

/// The state of a check whose configuration can't be used.
pub fn inactive(old: &Value, now: Time) -> Value {
    let mut check = old.clone();
    set(&mut check, "Pending", now);
    set_message(&mut check, INACTIVE);
    check
}

/// The state of a check where nothing has to be provided.
pub fn not_needed(old: &Value, now: Time) -> Value {
    let mut check = old.clone();
    if set(&mut check, "Ready", now) {
        set_message(&mut check, NOT_NEEDED);
        json::remove(&mut check, &["podSetUpdates"]);
    }
    check
}

/// The state of a check that follows from its request.
pub fn follow(old: &Value, subject: Subject<'_>, config: &Config, now: Time) -> Value {
    let mut check = old.clone();
    let Some(request) = subject.request else { return check };
    let wl = subject.workload;
    if let Some(message) = message_of(request, "Failed") {
        fail(&mut check, subject.attempt, config, message, "failure", now);
    } else if let Some(message) = message_of(request, "CapacityRevoked") {
        // The nodes are gone: new pods would stay pending. A rejected check deactivates the workload.
        if wl["spec"]["active"] != false && !json::is_true(wl, "Finished") {
            set(&mut check, "Rejected", now);
            set_message(&mut check, message);
        }
    } else if let Some(message) = message_of(request, "BookingExpired") {
        if !json::is_true(wl, "Admitted") {
            fail(&mut check, subject.attempt, config, message, "booking expired", now);
        }
    } else if let Some(message) = message_of(request, "Provisioned") {
        if set(&mut check, "Ready", now) {
            check["podSetUpdates"] = updates(wl, request, config);
            set_message(&mut check, message);
        }
    } else if message_of(request, "Accepted").is_some() {
        if let Some(eta) = json::condition(request, "Provisioned") {
            set_message(&mut check, json::text(eta, &["message"]));
            set(&mut check, "Pending", now);
        }
    } else {
        // The autoscaler has not answered; the message of an earlier state does not apply.
        set_message(&mut check, "");
        set(&mut check, "Pending", now);
    }
    check
}

/// The request has failed: the check asks for another attempt, or is rejected.
fn fail(check: &mut Value, attempt: i64, config: &Config, message: &str, why: &str, now: Time) {
    if attempt > config.limit {
        set(check, "Rejected", now);
        set_message(check, message);
        return;
    }
    set_message(check, &format!("Retrying after {why}: {message}"));
    let tried = json::int(check, &["retryCount"]).unwrap_or(0);
    // The failure of an older request has been handled already.
    if attempt > tried {
        set(check, "Retry", now);
        check["requeueAfterSeconds"] = json!(config.backoff(tried.saturating_add(1)));
    }
}

/// `podSetUpdates`: what pods need to use the provisioned capacity.
fn updates(wl: &Value, request: &Value, config: &Config) -> Value {
    let name = json::name(request);
    let podsets = json::list(wl, &["spec", "podSets"]);
    let rows = json::list(request, &["spec", "podSets"]).iter().filter_map(|part| {
        let template = json::text(part, &["podTemplateRef", "name"]);
        let named = podsets.iter().map(|p| json::text(p, &["name"]));
        let podset = named.into_iter().find(|p| request::template_name(name, p) == template)?;
        let class = json::text(request, &["spec", "provisioningClassName"]);
        let mut row = json!({"name": podset, "annotations": {CONSUMED: name, CLASS: class}});
        let details = &request["status"]["provisioningClassDetails"];
        let selector: Map<String, Value> = config
            .selectors
            .iter()
            .filter_map(|(label, detail)| Some((label.clone(), json!(details.get(detail)?.as_str()?))))
            .collect();
        if !selector.is_empty() {
            row["nodeSelector"] = Value::Object(selector);
        }
        Some(row)
    });
    Value::Array(rows.collect())
}

/// A check after its workload was evicted. The engine resets checks in the same write as the eviction; this is for a state
/// that was written at the same time.
pub fn reset(old: &Value, now: Time) -> Value {
    let was = json::text(old, &["state"]).to_owned();
    let mut check = old.clone();
    if !set(&mut check, "Pending", now) {
        return check;
    }
    json::remove(&mut check, &["podSetUpdates"]);
    if was == "Retry" {
        check["retryCount"] = json!(json::int(old, &["retryCount"]).unwrap_or(0).saturating_add(1));
    }
    set_message(&mut check, &format!("Reset to Pending after eviction. Previously: {was}"));
    check
}
