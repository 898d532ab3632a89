//! Probes and lifecycle handlers.

use serde_json::Value;

use super::super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, int, list, text};

/// The three probes of a container.
pub(super) fn probes(c: &Obj, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(p) = c.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        probe(p, grace, &at, errors);
        let count = int(p, "successThreshold").unwrap_or(0);
        if key == "readinessProbe" {
            let at = at.field("terminationGracePeriodSeconds");
            if let Some(value) = p.get("terminationGracePeriodSeconds").filter(|v| !v.is_null()) {
                errors.invalid(&at, value.clone(), "must not be set for readinessProbes");
            }
        } else if count != 1 {
            errors.invalid(&at.field("successThreshold"), count, "must be 1");
        }
    }
}

fn probe(p: &Obj, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    handler(p, &["exec", "httpGet", "tcpSocket", "grpc"], grace, path, errors);
    for key in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.non_negative(&path.field(key), int(p, key));
    }
    if let Some(seconds) = int(p, "terminationGracePeriodSeconds").filter(|s| *s <= 0) {
        errors.invalid(&path.field("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

/// One handler, of those that are `known`.
fn handler(h: &Obj, known: &[&str], grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let mut handlers = 0;
    for key in known {
        let Some(action) = h.get(*key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        handlers += 1;
        if handlers > 1 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        match *key {
            "exec" if list(action, "command").is_empty() => errors.required(&at.field("command"), ""),
            "exec" => {}
            "httpGet" => http_get(action, &at, errors),
            "sleep" => sleep(action, grace, &at, errors),
            _ => errors.port_or_name(&at.field("port"), action.get("port")),
        }
    }
    if handlers == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn http_get(action: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if text(action, "path").is_empty() {
        errors.required(&path.field("path"), "");
    }
    errors.port_or_name(&path.field("port"), action.get("port"));
    errors.one_of(&path.field("scheme"), text(action, "scheme"), &["HTTP", "HTTPS"]);
    let headers = path.field("httpHeaders");
    for header in list(action, "httpHeaders").iter().map(as_obj) {
        let name = text(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&headers, name, detail);
        }
    }
}

/// `validateSleepAction`. Without a grace period of the pod, that is the error.
fn sleep(action: &Obj, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    let Some(grace) = grace else { return };
    let seconds = int(action, "seconds").unwrap_or(0);
    if seconds < 0 || seconds > grace {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, &detail);
    }
}

/// Handlers that run after a container starts and before it stops. The stop signal is dropped before this, because its
/// feature is off by default.
pub(super) fn lifecycle(lifecycle: &Obj, grace: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    for key in ["postStart", "preStop"] {
        if let Some(h) = lifecycle.get(key).and_then(Value::as_object) {
            handler(h, &["exec", "httpGet", "tcpSocket", "sleep"], grace, &path.field(key), errors);
        }
    }
}
