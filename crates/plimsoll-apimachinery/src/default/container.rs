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

/// `Always` for images that can change under their name: tag `latest`, or neither tag nor digest. What is no reference has
/// no tag (`ParseImageName`).
pub(super) fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let tagged = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
    let (name, tag) = tagged.map_or((name, None), |(name, tag)| (name, Some(tag)));
    let latest = tag.map_or(digest.is_none(), |tag| tag == "latest");
    if latest && is_repository(name) && digest.is_none_or(is_digest) { "Always" } else { "IfNotPresent" }
}

/// Whether a text is the name of a repository, with or without its registry (distribution's `ParseNormalizedNamed`).
fn is_repository(name: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let identifier = name.len() == 64 && name.bytes().all(hex);
    let is_registry = |first: &str| {
        first == "localhost" || first.contains(['.', ':']) || first.contains(|c: char| c.is_ascii_uppercase())
    };
    match name.split_once('/').filter(|&(first, _)| is_registry(first)) {
        Some((registry, path)) => is_host(registry) && path.split('/').all(is_component),
        None => !identifier && name.split('/').all(is_component),
    }
}

/// Letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_component(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separator = |s: &str| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-');
    text.starts_with(edge) && text.ends_with(edge) && text.split(edge).all(separator)
}

/// A host name or an IPv6 address in brackets, and possibly a port.
fn is_host(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let host = text.rsplit_once(':').filter(|&(_, port)| is_port(port)).map_or(text, |(host, _)| host);
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
    }
    let edge = |c: char| c.is_ascii_alphanumeric();
    host.split('.').all(|label| {
        label.starts_with(edge) && label.ends_with(edge) && label.chars().all(|c| edge(c) || c == '-')
    })
}

/// A digest of one of the known algorithms.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, value)) = text.split_once(':') else { return false };
    let digits = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    value.len() == digits && value.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
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
            ("app:latest@sha256:0123", "IfNotPresent"),
            (format!("app:latest@sha256:{}", "0".repeat(64)).as_str(), "Always"),
            (format!("app@sha256:{}", "0".repeat(64)).as_str(), "IfNotPresent"),
            ("Host/app", "Always"),
            ("[::1]:5000/app", "Always"),
            ("a__b/c", "Always"),
            ("", "IfNotPresent"),
            ("UPPER", "IfNotPresent"),
            ("app-", "IfNotPresent"),
            ("a.-b", "IfNotPresent"),
            ("a//b", "IfNotPresent"),
            ("../app", "IfNotPresent"),
            ("x.y:z/app", "IfNotPresent"),
            ("a".repeat(64).as_str(), "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), want, "{image}");
        }
    }
}
