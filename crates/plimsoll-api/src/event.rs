//! Kubernetes Events (`events.k8s.io/v1`) before an event recorder counts and writes them.

use std::borrow::Cow;

use plimsoll_state::Time;
use serde_json::{Value, json};

use crate::{json, timestamp};

/// Longest `note` in bytes (the API server refuses longer ones; client-go and Kueue truncate at 1 KiB).
const MAX_NOTE_BYTES: usize = 1024;

/// The object that an Event is about (`corev1.ObjectReference`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version of the object when the event happened; empty where it isn't known.
    pub resource_version: String,
    /// Part of the object, such as `spec.containers{work}`.
    pub field_path: String,
}

impl ObjectReference {
    /// A reference to `object`.
    pub fn of(object: &Value) -> Self {
        Self {
            api_version: json::text(object, &["apiVersion"]).into(),
            kind: json::text(object, &["kind"]).into(),
            namespace: json::namespace(object).into(),
            name: json::name(object).into(),
            uid: json::uid(object).into(),
            resource_version: json::version(object).into(),
            field_path: String::new(),
        }
    }

    /// The reference as the API encodes it.
    pub fn to_json(&self) -> Value {
        let mut out =
            json!({"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid});
        if !self.namespace.is_empty() {
            out["namespace"] = json!(self.namespace);
        }
        if !self.resource_version.is_empty() {
            out["resourceVersion"] = json!(self.resource_version);
        }
        if !self.field_path.is_empty() {
            out["fieldPath"] = json!(self.field_path);
        }
        out
    }
}

/// An Event to record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventRecord {
    /// The object that it is about.
    pub regarding: ObjectReference,
    /// Whether its type is `Warning`, not `Normal`.
    pub warning: bool,
    /// Reason.
    pub reason: String,
    /// Action; required by the API, so the recorder uses the reason where this is empty.
    pub action: String,
    /// Text (`note` in the API).
    pub message: String,
    /// Name of the controller that reports it.
    pub reporting_controller: Cow<'static, str>,
    /// Instance of that controller, such as a node; the controller's name where empty.
    pub reporting_instance: String,
}

impl EventRecord {
    /// Namespace of the Event: `default` for objects of cluster scope.
    pub fn namespace(&self) -> &str {
        if self.regarding.namespace.is_empty() { "default" } else { &self.regarding.namespace }
    }

    /// What repeats of the Event have in common, without the text where the version of its object is known: those are one
    /// series, with the text of the first (client-go `tools/events/event_broadcaster.go`, `getKey`).
    pub fn series(&self) -> Self {
        let mut key = self.clone();
        if !key.regarding.resource_version.is_empty() {
            key.message = String::new();
        }
        key
    }

    /// The Event object with this name.
    pub fn to_json(&self, name: &str, now: Time) -> Value {
        let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace()},
            "eventTime": timestamp::micro_text(now),
            "reportingController": self.reporting_controller,
            "reportingInstance": or(&self.reporting_instance, &self.reporting_controller),
            "action": or(&self.action, &self.reason),
            "reason": self.reason,
            "regarding": self.regarding.to_json(),
            "note": truncated(&self.message),
            "type": if self.warning { "Warning" } else { "Normal" },
        })
    }
}

/// The message in at most [`MAX_NOTE_BYTES`], cut at a character.
fn truncated(message: &str) -> String {
    const ELLIPSIS: &str = " ...";
    if message.len() <= MAX_NOTE_BYTES {
        return message.to_owned();
    }
    let mut cut = MAX_NOTE_BYTES - ELLIPSIS.len();
    while !message.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{}{ELLIPSIS}", message.get(..cut).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_one_version_of_an_object_and_any_text() {
        let preempted = |victim: &str, version: &str| EventRecord {
            regarding: ObjectReference::of(&json!({"kind": "Workload", "metadata": {
                "namespace": "ns", "name": "w", "uid": "u", "resourceVersion": version}})),
            warning: false,
            reason: "PreemptedWorkload".into(),
            action: String::new(),
            message: format!("Preempted workload {victim}"),
            reporting_controller: "x".into(),
            reporting_instance: String::new(),
        };
        assert_eq!(preempted("a", "5").series(), preempted("b", "5").series());
        assert_ne!(preempted("a", "5").series(), preempted("a", "6").series());
        assert_ne!(preempted("a", "").series(), preempted("b", "").series(), "unknown");
        let event = preempted("a", "5").to_json("w.1", Time(0));
        assert_eq!(
            (&event["regarding"]["resourceVersion"], &event["note"]),
            (&json!("5"), &json!("Preempted workload a"))
        );
        assert!(preempted("a", "").to_json("w.1", Time(0))["regarding"].get("resourceVersion").is_none());
    }

    #[test]
    fn long_notes_are_cut_at_a_character() {
        let record = EventRecord {
            regarding: ObjectReference {
                kind: "Node".into(),
                name: "n".into(),
                ..ObjectReference::default()
            },
            warning: true,
            reason: "R".into(),
            action: String::new(),
            message: "ä".repeat(900),
            reporting_controller: "x".into(),
            reporting_instance: String::new(),
        };
        let event = record.to_json("n.1", Time(0));
        let text = event["note"].as_str().unwrap();
        assert!(text.len() <= MAX_NOTE_BYTES && text.ends_with("ä ..."), "{}", text.len());
        assert_eq!(event["metadata"]["namespace"], "default");
        assert_eq!((&event["action"], &event["reportingInstance"]), (&json!("R"), &json!("x")));
    }
}
