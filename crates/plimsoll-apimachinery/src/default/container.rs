//! Containers and their fields.

use serde_json::Value;

use crate::obj::{Obj, child, children, set, text};

/// Any container: regular, init or ephemeral (core/v1 `SetDefaults_Container`).
pub(super) fn container(c: &mut Obj) {
    if !c.contains_key("imagePullPolicy") {
        let policy = pull_policy(text(c, "image"));
        set(c, "imagePullPolicy", policy);
    }
    set(c, "terminationMessagePath", "/dev/termination-log");
    set(c, "terminationMessagePolicy", "File");
    for port in children(c, "ports") {
        set(port, "protocol", "TCP");
    }
    for env in children(c, "env") {
        if let Some(field) = child(env, "valueFrom").and_then(|v| child(v, "fieldRef")) {
            set(field, "apiVersion", "v1");
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(p) = child(c, key) {
            probe(p);
        }
    }
    if let Some(lifecycle) = child(c, "lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(get) = child(lifecycle, key).and_then(|h| child(h, "httpGet")) {
                http_get(get);
            }
        }
    }
}

/// `Always` for images that can change under their name: tag `latest`, or neither tag nor digest.
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    let last = name.rsplit('/').next().unwrap_or_default();
    let latest = match last.rsplit_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !digest,
    };
    if latest && is_reference(name) { "Always" } else { "IfNotPresent" }
}

/// Whether a name can be read as an image reference; upstream gives unreadable ones `IfNotPresent`.
fn is_reference(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or_default();
    let path = last.split(':').next().unwrap_or_default();
    !path.is_empty()
        && path.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
        && path.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

fn probe(p: &mut Obj) {
    set(p, "timeoutSeconds", 1);
    set(p, "periodSeconds", 10);
    set(p, "successThreshold", 1);
    set(p, "failureThreshold", 3);
    if let Some(get) = child(p, "httpGet") {
        http_get(get);
    }
    if let Some(grpc) = child(p, "grpc")
        && grpc.get("service").is_none_or(Value::is_null)
    {
        grpc.insert("service".to_owned(), Value::from(""));
    }
}

fn http_get(get: &mut Obj) {
    set(get, "path", "/");
    set(get, "scheme", "HTTP");
}

#[cfg(test)]
mod tests {
    use super::pull_policy;

    #[test]
    fn pull_policies() {
        for (image, want) in [
            ("app", "Always"),
            ("app:latest", "Always"),
            ("app:1", "IfNotPresent"),
            ("registry.example.dev:5000/app", "Always"),
            ("registry.example.dev:5000/app:1", "IfNotPresent"),
            ("app@sha256:0123", "IfNotPresent"),
            ("app:latest@sha256:0123", "Always"),
            ("", "IfNotPresent"),
            ("UPPER", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }
}
