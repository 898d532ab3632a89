//! Events that guests record, for the host to create (`scheduler/plugin/host.go`, `EventMessage`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;

/// Most events that wait for the host; later ones are dropped.
const MOST: usize = 1000;

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct EventReference {
    /// Kind.
    pub kind: String,
    /// Group and version.
    #[serde(rename = "APIVersion")]
    pub api_version: String,
    /// Name.
    pub name: String,
    /// Namespace; empty for objects of cluster scope.
    pub namespace: String,
    /// UID.
    #[serde(rename = "UID")]
    pub uid: String,
    /// Version of the object.
    pub resource_version: String,
}

/// An event of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct GuestEvent {
    /// The object that it is about.
    #[serde(rename = "RegardingReference")]
    pub regarding: EventReference,
    /// `Normal` or `Warning`.
    pub eventtype: String,
    /// Reason.
    pub reason: String,
    /// Action.
    pub action: String,
    /// Text.
    pub note: String,
}

/// Events that the host has not taken yet; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Mutex<VecDeque<GuestEvent>>>);

impl Events {
    /// Adds what a guest recorded in a call. What names no object or reason is dropped: no API server takes it.
    pub(crate) fn add(&self, recorded: &[Value]) {
        if recorded.is_empty() {
            return;
        }
        let read = |event: &Value| GuestEvent::deserialize(event).ok();
        let named = |event: &GuestEvent| !event.regarding.name.is_empty() && !event.reason.is_empty();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MOST.saturating_sub(waiting.len());
        waiting.extend(recorded.iter().filter_map(read).filter(named).take(room));
    }

    /// Takes what was recorded since the last time.
    pub fn take(&self) -> Vec<GuestEvent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_guests_are_kept_for_the_host() {
        let events = Events::default();
        let about = json!({"Kind": "Pod", "APIVersion": "v1", "Name": "p", "Namespace": "ns", "UID": "u", "ResourceVersion": "7"});
        let event = json!({
            "RegardingReference": about, "RelatedReference": {}, "Eventtype": "Warning", "Reason": "r", "Action": "a",
            "Note": "n",
        });
        events.add(&[event.clone(), json!({"Reason": "about nothing"}), json!([1])]);
        let taken = events.take();
        assert_eq!(taken.len(), 1);
        let regarding = &taken[0].regarding;
        assert_eq!((regarding.kind.as_str(), regarding.uid.as_str()), ("Pod", "u"));
        assert_eq!((taken[0].eventtype.as_str(), taken[0].note.as_str()), ("Warning", "n"));
        assert!(events.take().is_empty());
        events.add(&vec![event; 2000]);
        assert_eq!(events.take().len(), MOST);
    }
}
