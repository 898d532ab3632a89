//! The address of a webhook: a URL or a service (apiserver `util/webhook/validation.go`).

use serde_json::Value;

use super::checks;
use super::path::{Errors, Path};
use super::url::Url;
use crate::obj::{Obj, int, text};

/// A client configuration.
pub(super) fn config(config: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").and_then(Value::as_object);
    match (url, service) {
        (None, None) | (Some(_), Some(_)) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(url), None) => https(url, &path.field("url"), errors),
        (None, Some(service)) => self::service(service, &path.field("service"), errors),
    }
}

/// `ValidateWebhookURL`.
fn https(url: &str, path: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match Url::parse(url) {
        Ok(url) => url,
        Err(why) => {
            errors.required(path, &format!("url must be a valid URL: {why}{FORM}"));
            return;
        }
    };
    if url.scheme != "https" {
        errors.invalid(path, url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        errors.invalid(path, "", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        errors.invalid(path, url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        errors.invalid(path, url.query, "query parameters are not permitted in the URL");
    }
}

/// `ValidateWebhookService`. Every caller upstream hands over name and namespace the wrong way round, which shows only
/// where one of them is missing.
fn service(service: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (field, key) in [("name", "namespace"), ("namespace", "name")] {
        if text(service, key).is_empty() {
            errors.required(&path.field(field), "");
        }
    }
    let port = int(service, "port").unwrap_or(0);
    let faults = checks::port_number(port);
    if !faults.is_empty() {
        errors.invalid(&path.field("port"), port, &format!("port is not valid: {}", faults.join(", ")));
    }
    let at = path.field("path");
    let target = text(service, "path");
    if matches!(target, "" | "/") {
        return;
    }
    if target == "//" {
        errors.invalid(&at, target, "segment[0] may not be empty");
        return;
    }
    if !target.starts_with('/') {
        errors.invalid(&at, target, "must start with a '/'");
    }
    // Upstream leaves out the first byte, even when it isn't a slash.
    let rest = String::from_utf8_lossy(target.as_bytes().get(1..).unwrap_or_default()).into_owned();
    for (i, step) in rest.strip_suffix('/').unwrap_or(&rest).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, target, &format!("segment[{i}] may not be empty"));
            continue;
        }
        for fault in checks::dns_subdomain(step) {
            errors.invalid(&at, target, &format!("segment[{i}]: {fault}"));
        }
    }
}
