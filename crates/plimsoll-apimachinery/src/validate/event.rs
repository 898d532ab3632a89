//! Events, in the old API (core/v1) and the new one (events.k8s.io/v1).

use serde_json::Value;

use super::path::{Errors, Path};
use super::{checks, golang, meta};
use crate::kinds::Kind;
use crate::obj::{Obj, has, int, object, text};

/// Field names differ between the two APIs; errors use those of the request's version only for the controller.
struct Names {
    subject: &'static str,
    controller: &'static str,
    note: &'static str,
}

const OLD: Names = Names { subject: "involvedObject", controller: "reportingComponent", note: "message" };
const NEW: Names = Names { subject: "regarding", controller: "reportingController", note: "note" };

/// A new event. The old API requires consistency only (`ValidateEventCreate`).
pub(super) fn create(kind: &Kind, event: &Obj, errors: &mut Errors) {
    let new_api = kind.gvk.group == "events.k8s.io";
    legacy(event, new_api, errors);
    if !new_api {
        return;
    }
    meta::create(kind, event, errors);
    series(event, errors);
    if !has(event, "eventTime") {
        errors.required(&Path::new("eventTime"), "");
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&Path::new("type"), "", &format!("has invalid value: {kind}"));
    }
    let source = object(event, "deprecatedSource");
    let old = [
        ("firstTimestamp", has(event, "deprecatedFirstTimestamp")),
        ("lastTimestamp", has(event, "deprecatedLastTimestamp")),
        ("count", int(event, "deprecatedCount").unwrap_or(0) != 0),
        ("source", ["component", "host"].iter().any(|key| !text(source, key).is_empty())),
    ];
    for (field, _) in old.iter().filter(|(_, set)| *set) {
        errors.invalid(&Path::new(field), "", "needs to be unset");
    }
}

/// Rules for every event, new or old (`legacyValidateEvent`).
fn legacy(event: &Obj, new_api: bool, errors: &mut Errors) {
    let names = if new_api { &NEW } else { &OLD };
    agreement(event, names, errors);
    if has(event, "eventTime") {
        reported(event, names, errors);
    }
    let namespace = text(object(event, "metadata"), "namespace");
    errors.invalid_all(&Path::new("namespace"), namespace, &checks::dns_subdomain(namespace));
}

/// An event is in its subject's namespace; events of cluster-scoped subjects are in `default`. Events with a time may
/// be elsewhere than their subject.
fn agreement(event: &Obj, names: &Names, errors: &mut Errors) {
    let namespace = text(object(event, "metadata"), "namespace");
    let subject = text(object(event, names.subject), "namespace");
    let wrong = match (has(event, "eventTime"), subject) {
        (true, "") => !matches!(namespace, "default" | "kube-system"),
        (true, _) => false,
        (false, "") => !matches!(namespace, "default" | ""),
        (false, subject) => namespace != subject,
    };
    if wrong {
        let path = Path::new("involvedObject");
        errors.invalid(&path.field("namespace"), subject, "does not match event.namespace");
    }
}

fn reported(event: &Obj, names: &Names, errors: &mut Errors) {
    let controller = text(event, names.controller);
    let at = Path::new(names.controller);
    if controller.is_empty() {
        errors.required(&at, "");
    }
    errors.invalid_all(&at, controller, &checks::qualified_name(controller));
    for (field, max) in [("reportingInstance", 128), ("action", 128), ("reason", 128)] {
        let value = text(event, field);
        if value.is_empty() {
            errors.required(&Path::new(field), "");
        } else if value.len() > max {
            errors.invalid(&Path::new(field), "", &format!("can have at most {max} characters"));
        }
    }
    if text(event, names.note).len() > 1024 {
        errors.invalid(&Path::new("message"), "", "can have at most 1024 characters");
    }
}

fn series(event: &Obj, errors: &mut Errors) {
    if !has(event, "series") {
        return;
    }
    let series = object(event, "series");
    let path = Path::new("series");
    if int(series, "count").unwrap_or(0) < 2 {
        errors.invalid(&path.field("count"), "", "should be at least 2");
    }
    if !has(series, "lastObservedTime") {
        errors.required(&path.field("lastObservedTime"), "");
    }
}

/// An event of the old API may become any other that is consistent.
pub(super) fn update_old(_: &Obj, new: &Obj, errors: &mut Errors) {
    legacy(new, false, errors);
}

/// An event of the new API may only get another series (`ValidateEventUpdate`).
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    legacy(new, true, errors);
    if old.get("series") != new.get("series") {
        series(new, errors);
    }
    let fields = [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        // Twice upstream.
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    let none = Value::Null;
    for (field, shown) in fields {
        let (was, is) = (old.get(field).unwrap_or(&none), new.get(field).unwrap_or(&none));
        let same = match (field, was.as_str(), is.as_str()) {
            // Clients may send times without nanoseconds.
            ("eventTime", Some(was), Some(is)) => micros(was) == micros(is),
            _ => was == is,
        };
        if !same {
            let value = match field {
                "regarding" => golang::structure("ObjectReference", object(new, field)),
                "related" => golang::shown("*ObjectReference", new.get(field)),
                "deprecatedSource" => golang::structure("EventSource", object(new, field)),
                "deprecatedCount" => int(new, field).unwrap_or(0).to_string(),
                "eventTime" | "deprecatedFirstTimestamp" | "deprecatedLastTimestamp" => is.to_string(),
                _ => Value::from(text(new, field)).to_string(),
            };
            errors.invalid_text(&Path::new(shown), value, super::path::IMMUTABLE);
        }
    }
}

/// A time truncated to microseconds.
fn micros(time: &str) -> &str {
    time.find('.').and_then(|dot| time.get(..dot + 7)).unwrap_or(time).trim_end_matches('Z')
}
