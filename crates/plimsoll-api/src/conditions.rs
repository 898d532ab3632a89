//! Conditions of a status (`metav1.Condition`).

use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::{json, timestamp};

/// `status.conditions` with one of them set (`meta.SetStatusCondition`): the transition time changes only with the status.
/// `None` when nothing changes.
pub fn set_status_condition(
    object: &Value,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: Time,
) -> Option<Vec<Value>> {
    let text = if status { "True" } else { "False" };
    let old = json::condition(object, kind);
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    if let Some(old) = old
        && old["status"] == text
        && old["reason"] == reason
        && old["message"] == message
        && old["observedGeneration"].as_i64().unwrap_or(0) == generation
    {
        return None;
    }
    let since = old.filter(|o| o["status"] == text).map(|o| o["lastTransitionTime"].clone());
    let mut new = json!({
        "type": kind, "status": text, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(timestamp::text(now))),
    });
    if generation > 0 {
        new["observedGeneration"] = json!(generation);
    }
    let mut list = json::list(object, &["status", "conditions"]).to_vec();
    match list.iter_mut().find(|c| c["type"] == kind) {
        Some(slot) => *slot = new,
        None => list.push(new),
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let at = |seconds: i64| Time::from_seconds(1_700_000_000 + seconds);
        let mut object = json!({"metadata": {"generation": 2}});
        let set = |object: &Value, status, reason, now| {
            set_status_condition(object, "Active", status, reason, "m", now)
        };
        let apply = |object: &mut Value, conditions: Vec<Value>| {
            object["status"]["conditions"] = Value::Array(conditions);
        };
        let first = set(&object, true, "Ready", at(0)).unwrap();
        assert_eq!((&first[0]["status"], &first[0]["observedGeneration"]), (&json!("True"), &json!(2)));
        apply(&mut object, first);
        assert_eq!(set(&object, true, "Ready", at(5)), None);
        let other = set(&object, true, "Other", at(5)).unwrap();
        assert_eq!(other[0]["lastTransitionTime"], timestamp::text(at(0)));
        let off = set(&object, false, "Ready", at(5)).unwrap();
        assert_eq!((off.len(), &off[0]["lastTransitionTime"]), (1, &json!(timestamp::text(at(5)))));
    }
}
