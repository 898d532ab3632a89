//! Probes and lifecycle handlers.

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, has, int, list, text};

/// The three probes of a container.
pub(super) fn probes(c: &Obj, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(p) = c.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        probe(p, grace, &at, errors);
        if key == "readinessProbe" {
            if has(p, "terminationGracePeriodSeconds") {
                let value = p["terminationGracePeriodSeconds"].clone();
                errors.invalid(
                    &at.field("terminationGracePeriodSeconds"),
                    value,
                    "must not be set for readinessProbes",
                );
            }
        } else if int(p, "successThreshold").is_some_and(|n| n != 1) {
            errors.invalid(&at.field("successThreshold"), p["successThreshold"].clone(), "must be 1");
        }
    }
}

fn probe(p: &Obj, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    handler(p, grace, path, errors);
    for key in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.non_negative(&path.field(key), int(p, key));
    }
    if let Some(seconds) = int(p, "terminationGracePeriodSeconds").filter(|s| *s <= 0) {
        errors.invalid(&path.field("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

/// Checks an action; the number is the pod's grace period in seconds.
type Check = fn(&Obj, i64, &Path<'_>, &mut Errors);

/// One way to ask or act: exec, HTTP, TCP, gRPC, sleep.
fn handler(h: &Obj, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    let mut handlers = 0;
    let known: [(&str, Check); 5] =
        [("exec", exec), ("httpGet", http_get), ("tcpSocket", tcp), ("grpc", grpc), ("sleep", sleep)];
    for (key, check) in known {
        let Some(action) = h.get(key).and_then(Value::as_object) else { continue };
        let at = path.field(key);
        if handlers > 0 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
        } else {
            handlers += 1;
            check(action, grace, &at, errors);
        }
    }
    if handlers == 0 {
        errors.required(path, "must specify a handler type");
    }
}

fn exec(action: &Obj, _: i64, path: &Path<'_>, errors: &mut Errors) {
    if list(action, "command").is_empty() {
        errors.required(&path.field("command"), "");
    }
}

fn http_get(action: &Obj, _: i64, path: &Path<'_>, errors: &mut Errors) {
    if text(action, "path").is_empty() {
        errors.required(&path.field("path"), "");
    }
    port(action, path, errors);
    match text(action, "scheme") {
        "" => errors.required(&path.field("scheme"), ""),
        scheme => errors.one_of(&path.field("scheme"), scheme, &["HTTP", "HTTPS"]),
    }
    let headers = path.field("httpHeaders");
    for (i, header) in list(action, "httpHeaders").iter().map(as_obj).enumerate() {
        let name = text(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&headers.index(i).field("name"), name, detail);
        }
    }
}

fn tcp(action: &Obj, _: i64, path: &Path<'_>, errors: &mut Errors) {
    port(action, path, errors);
}

fn grpc(action: &Obj, _: i64, path: &Path<'_>, errors: &mut Errors) {
    port(action, path, errors);
}

fn sleep(action: &Obj, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    let seconds = int(action, "seconds").unwrap_or(0);
    if seconds < 0 || seconds > grace {
        let detail = format!(
            "must be greater than 0 and less than terminationGracePeriodSeconds ({grace}). Enable AllowSleepZero feature gate for zero sleep."
        );
        errors.invalid(path, seconds, &detail);
    }
}

fn port(action: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("port");
    match action.get("port") {
        Some(Value::String(name)) => errors.invalid_all(&at, name, &checks::port_name(name)),
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            for fault in checks::port_number(number) {
                errors.invalid(&at, number, &fault);
            }
        }
    }
}

/// What runs after a container starts and before it stops.
pub(super) fn lifecycle(lifecycle: &Obj, grace: i64, path: &Path<'_>, errors: &mut Errors) {
    for key in ["postStart", "preStop"] {
        if let Some(h) = lifecycle.get(key).and_then(Value::as_object) {
            handler(h, grace, &path.field(key), errors);
        }
    }
}
