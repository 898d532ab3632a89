//! From the conditions of a request to the state of its check (Kueue KEP-1136, spec section 2.11).

use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use super::config::Config;
use super::request;
use crate::{clock, json};

/// Annotation of pods that use a request.
const CONSUMED: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
/// Annotation of pods: class of that request.
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// Message of a check without a usable configuration.
const INACTIVE: &str = "the check is not active";
/// Message of a check for which nothing has to be provided.
const NOT_NEEDED: &str = "the provisioning request is not needed";

/// The message of a condition that is `True`.
fn told<'a>(request: &'a Value, kind: &str) -> Option<&'a str> {
    json::condition(request, kind).filter(|c| c["status"] == "True").map(|c| json::text(c, &["message"]))
}

/// Whether the request came to nothing, so that another one may follow.
pub fn is_lost(request: &Value, admitted: bool) -> bool {
    told(request, "Failed").is_some() || (told(request, "BookingExpired").is_some() && !admitted)
}

/// Whether the workload already has what it asked for, or never gets it.
pub fn is_over(request: &Value) -> bool {
    ["Failed", "BookingExpired", "CapacityRevoked", "Provisioned"].iter().any(|c| told(request, c).is_some())
}

/// Sets the state of a check with its time; whether it is another one.
fn set(check: &mut Value, state: &str, now: Time) -> bool {
    if check["state"] == state {
        return false;
    }
    check["state"] = json!(state);
    check["lastTransitionTime"] = json!(clock::text(now));
    true
}

fn say(check: &mut Value, message: &str) {
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
    say(&mut check, INACTIVE);
    check
}

/// The state of a check where nothing has to be provided.
pub fn not_needed(old: &Value, now: Time) -> Value {
    let mut check = old.clone();
    if set(&mut check, "Ready", now) {
        say(&mut check, NOT_NEEDED);
        json::remove(&mut check, &["podSetUpdates"]);
    }
    check
}

/// The state of a check that follows from its request.
pub fn follow(old: &Value, subject: Subject<'_>, config: &Config, now: Time) -> Value {
    let mut check = old.clone();
    let Some(request) = subject.request else { return check };
    let wl = subject.workload;
    if let Some(message) = told(request, "Failed") {
        lost(&mut check, subject.attempt, config, message, "failure", now);
    } else if let Some(message) = told(request, "CapacityRevoked") {
        // The nodes are gone: pods that are made anew would wait for ever. Rejecting deactivates the workload.
        if wl["spec"]["active"] != false && !json::is_true(wl, "Finished") {
            set(&mut check, "Rejected", now);
            say(&mut check, message);
        }
    } else if let Some(message) = told(request, "BookingExpired") {
        if !json::is_true(wl, "Admitted") {
            lost(&mut check, subject.attempt, config, message, "booking expired", now);
        }
    } else if let Some(message) = told(request, "Provisioned") {
        if set(&mut check, "Ready", now) {
            check["podSetUpdates"] = updates(wl, request, config);
            say(&mut check, message);
        }
    } else if told(request, "Accepted").is_some() {
        if let Some(eta) = json::condition(request, "Provisioned") {
            say(&mut check, json::text(eta, &["message"]));
            set(&mut check, "Pending", now);
        }
    } else {
        // Nothing is known yet, and what an earlier state left behind no longer holds.
        say(&mut check, "");
        set(&mut check, "Pending", now);
    }
    check
}

/// The request came to nothing: another attempt, or the end.
fn lost(check: &mut Value, attempt: i64, config: &Config, message: &str, why: &str, now: Time) {
    if attempt > config.limit {
        set(check, "Rejected", now);
        say(check, message);
        return;
    }
    say(check, &format!("Retrying after {why}: {message}"));
    let tried = json::int(check, &["retryCount"]).unwrap_or(0);
    // An older request has been answered already.
    if attempt > tried {
        set(check, "Retry", now);
        check["requeueAfterSeconds"] = json!(config.backoff(tried.saturating_add(1)));
    }
}

/// What pods have to carry to use what was provided.
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

/// A check after its workload was evicted (what the engine does in the same write; repeated here for a state that was
/// written at the same moment).
pub fn reset(old: &Value, now: Time) -> Value {
    let was = json::text(old, &["state"]).to_owned();
    let mut check = old.clone();
    if !set(&mut check, "Pending", now) {
        return check;
    }
    for field in ["podSetUpdates", "requeueAfterSeconds", "retryCount"] {
        json::remove(&mut check, &[field]);
    }
    if was == "Retry" {
        check["retryCount"] = json!(json::int(old, &["retryCount"]).unwrap_or(0).saturating_add(1));
    }
    say(&mut check, &format!("Reset to Pending after eviction. Previously: {was}"));
    check
}
