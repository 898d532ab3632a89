//! Events, in the old API (core/v1) and the new one (events.k8s.io/v1).

use serde_json::Value;

use super::path::{Errors, Path};
use super::{checks, meta};
use crate::obj::{Obj, has, int, object, text};

/// Field names differ between the APIs; errors name those of the request's version only for the controller.
struct Names {
    subject: &'static str,
    controller: &'static str,
    note: &'static str,
}

const OLD: Names = Names { subject: "involvedObject", controller: "reportingComponent", note: "message" };
const NEW: Names = Names { subject: "regarding", controller: "reportingController", note: "note" };

/// A new event.
pub(super) fn create(event: &Obj, new_api: bool, errors: &mut Errors) {
    let names = if new_api { &NEW } else { &OLD };
    let meta = object(event, "metadata");
    if text(meta, "name").is_empty() && text(meta, "generateName").is_empty() {
        errors.required(&Path::new("metadata").field("name"), "name or generateName is required");
    }
    agreement(event, names, errors);
    if has(event, "eventTime") {
        reported(event, names, errors);
    }
    let namespace = text(meta, "namespace");
    errors.invalid_all(&Path::new("namespace"), namespace, &checks::dns_subdomain(namespace));
    if !new_api {
        meta::labels(object(meta, "labels"), &Path::new("metadata").field("labels"), errors);
        return;
    }
    series(event, errors);
    if !has(event, "eventTime") {
        errors.required(&Path::new("eventTime"), "");
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(&Path::new("type"), "", &format!("has invalid value: {kind}"));
    }
}

/// An event is in its subject's namespace; events of cluster-scoped subjects are in `default`.
fn agreement(event: &Obj, names: &Names, errors: &mut Errors) {
    let namespace = text(object(event, "metadata"), "namespace");
    let subject = text(object(event, names.subject), "namespace");
    let timed = has(event, "eventTime");
    let wrong = if subject.is_empty() {
        namespace != "default" && !namespace.is_empty() && !(timed && namespace == "kube-system")
    } else {
        namespace != subject
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

/// An event of the new API may only get another series (`ValidateEventUpdate`).
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
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
    for (field, shown) in fields {
        if old.get(field) != new.get(field) {
            let value = new.get(field).cloned().unwrap_or(Value::Null);
            errors.invalid(&Path::new(shown), value, super::path::IMMUTABLE);
        }
    }
    series(new, errors);
}
