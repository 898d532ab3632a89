//! networking.k8s.io/v1 `Ingress` and `IngressClass`.

use serde_json::Value;

use super::path::{Errors, Path};
use super::{address, batch, checks};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Ingress.
pub(super) fn ingress(ingress: &Obj, errors: &mut Errors) {
    let spec = object(ingress, "spec");
    let path = Path::new("spec");
    let rules = list(spec, "rules");
    let default = path.field("defaultBackend");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        let shown = spec.get("rules").cloned().unwrap_or_default();
        errors.invalid(&path, shown, "either `defaultBackend` or `rules` must be specified");
    }
    if has(spec, "defaultBackend") {
        backend(object(spec, "defaultBackend"), &default, errors);
    }
    let at = path.field("rules");
    for (i, one) in rules.iter().map(as_obj).enumerate() {
        rule(one, &at.index(i), errors);
    }
    let at = path.field("tls");
    for (i, one) in list(spec, "tls").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let hosts = here.field("hosts");
        for (j, host) in list(one, "hosts").iter().enumerate() {
            self::host(host.as_str().unwrap_or_default(), &hosts.index(j), errors);
        }
        let secret = text(one, "secretName");
        if !secret.is_empty() {
            errors.invalid_all(&here.field("secretName"), secret, &checks::dns_subdomain(secret));
        }
    }
    if let Some(class) = spec.get("ingressClassName").and_then(Value::as_str) {
        errors.invalid_all(&path.field("ingressClassName"), class, &checks::dns_subdomain(class));
    }
}

/// A new Ingress, whose class is not annotated in two ways.
pub(super) fn new_ingress(of: &Obj, errors: &mut Errors) {
    ingress(of, errors);
    let annotations = object(object(of, "metadata"), "annotations");
    let class = object(of, "spec").get("ingressClassName").and_then(Value::as_str);
    if let (Some(annotated), Some(class)) = (annotations.get(CLASS_ANNOTATION).and_then(Value::as_str), class)
        && annotated != class
    {
        let path = Path::new("annotations");
        let detail = "must match `ingressClassName` when both are specified";
        errors.invalid(&path.field(CLASS_ANNOTATION), annotated, detail);
    }
}

/// Warnings about a new Ingress.
pub(super) fn ingress_warnings(ingress: &Obj, found: &mut Vec<String>) {
    let annotations = object(object(ingress, "metadata"), "annotations");
    if annotations.contains_key(CLASS_ANNOTATION) && !has(object(ingress, "spec"), "ingressClassName") {
        found.push(format!(
            "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
}

fn host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    let faults =
        if host.contains('*') { checks::wildcard_subdomain(host) } else { checks::dns_subdomain(host) };
    errors.invalid_all(path, host, &faults);
}

fn rule(rule: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(rule, "host");
    if !name.is_empty() {
        let at = path.field("host");
        if address::sloppy(name).is_some() {
            errors.invalid(&at, name, "must be a DNS name, not an IP address");
        }
        host(name, &at, errors);
    }
    if !has(rule, "http") {
        return;
    }
    let http = path.field("http");
    let at = http.field("paths");
    let paths = list(object(rule, "http"), "paths");
    if paths.is_empty() {
        errors.required(&at, "");
    }
    for (i, one) in paths.iter().map(as_obj).enumerate() {
        http_path(one, &at.index(i), errors);
    }
}

fn http_path(one: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(kind) = one.get("pathType").and_then(Value::as_str) else {
        errors.required(&path.field("pathType"), "pathType must be specified");
        return;
    };
    let (target, at) = (text(one, "path"), path.field("path"));
    match kind {
        "Exact" | "Prefix" => {
            if !target.starts_with('/') {
                errors.invalid(&at, target, "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|bad| target.contains(**bad)) {
                errors.invalid(&at, target, &format!("must not contain '{bad}'"));
            }
            for bad in ["/..", "/."].iter().filter(|bad| target.ends_with(**bad)) {
                errors.invalid(&at, target, &format!("cannot end with '{bad}'"));
            }
        }
        "ImplementationSpecific" => {
            if !target.is_empty() && !target.starts_with('/') {
                errors.invalid(&at, target, "must be an absolute path");
            }
        }
        other => {
            let known = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.not_supported(&path.field("pathType"), other, &known);
        }
    }
    backend(object(one, "backend"), &path.field("backend"), errors);
}

fn backend(backend: &Obj, path: &Path<'_>, errors: &mut Errors) {
    match (has(backend, "resource"), has(backend, "service")) {
        (true, true) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid(path, "", "resource or service backend is required"),
        (true, false) => reference(object(backend, "resource"), &path.field("resource"), errors),
        (false, true) => service(object(backend, "service"), path, errors),
    }
}

fn service(service: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("service");
    let name = text(service, "name");
    errors.named(&at.field("name"), name, checks::dns_label);
    let port = object(service, "port");
    let (name, number) = (text(port, "name"), int(port, "number").unwrap_or(0));
    let here = at.field("port");
    match (name.is_empty(), number == 0) {
        (false, false) => errors.invalid(path, "", "cannot set both port name & port number"),
        (false, true) => errors.invalid_all(&here.field("name"), name, &checks::port_name(name)),
        (true, false) => {
            errors.port(&here.field("number"), number);
        }
        (true, true) => errors.required(path, "port name or number is required"),
    }
}

/// A typed reference within a namespace.
fn reference(of: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = of.get("apiGroup").and_then(Value::as_str) {
        errors.invalid_all(&path.field("apiGroup"), group, &checks::dns_subdomain(group));
    }
    for key in ["kind", "name"] {
        let (value, at) = (text(of, key), path.field(key));
        errors.named(&at, value, |v| checks::path_segment(v, false));
    }
}

/// Addresses of an Ingress.
pub(super) fn ingress_status(old: &Obj, new: &Obj, errors: &mut Errors) {
    let balancer = |o: &Obj| {
        let status = object(o, "status").get("loadBalancer").map(as_obj);
        status.map(|b| list(b, "ingress").to_vec()).unwrap_or_default()
    };
    let before: Vec<Value> = balancer(old);
    let known: Vec<&str> = before.iter().map(|i| text(as_obj(i), "ip")).collect();
    let (status, middle) = (Path::new("status"), "loadBalancer");
    let middle = status.field(middle);
    let path = middle.field("ingress");
    for (i, one) in balancer(new).iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let ip = text(one, "ip");
        if !ip.is_empty() && !known.contains(&ip) {
            errors.invalid_all(&at.field("ip"), ip, &address::legacy(ip));
        }
        balancer_host(one, &at, errors);
    }
}

/// The name of a load balancer's point of entry, where it has one.
pub(super) fn balancer_host(point: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (name, at) = (text(point, "hostname"), path.field("hostname"));
    if name.is_empty() {
        return;
    }
    errors.invalid_all(&at, name, &checks::dns_subdomain(name));
    if address::sloppy(name).is_some() {
        errors.invalid(&at, name, "must be a DNS name, not an IP address");
    }
}

/// `IngressClass`.
pub(super) fn ingress_class(class: &Obj, errors: &mut Errors) {
    const LONGEST: usize = 250;
    let spec = object(class, "spec");
    let path = Path::new("spec");
    let (controller, at) = (text(spec, "controller"), path.field("controller"));
    if controller.len() > LONGEST {
        errors.too_long(&at, LONGEST);
    }
    batch::domain_prefixed(controller, &at, errors);
    if !has(spec, "parameters") {
        return;
    }
    let (of, at) = (object(spec, "parameters"), path.field("parameters"));
    reference(of, &at, errors);
    let namespace = of.get("namespace").and_then(Value::as_str);
    let here = at.field("namespace");
    match of.get("scope").and_then(Value::as_str) {
        None => errors.required(&at.field("scope"), ""),
        Some("Namespace") => match namespace {
            None => errors.required(&here, "`parameters.scope` is set to 'Namespace'"),
            Some(name) => errors.invalid_all(&here, name, &checks::dns_label(name)),
        },
        Some("Cluster") => {
            if namespace.is_some() {
                errors.forbidden(&here, "`parameters.scope` is set to 'Cluster'");
            }
        }
        Some(other) => errors.not_supported(&at.field("scope"), other, &["Cluster", "Namespace"]),
    }
}

/// The controller of a class is immutable.
pub(super) fn ingress_class_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    errors.immutable(&path.field("controller"), object(old, "spec"), object(new, "spec"), "controller");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ingresses() {
        let path = |path: Value| json!({"spec": {"rules": [{"http": {"paths": [path]}}]}});
        let service = json!({"service": {"name": "s", "port": {"number": 80}}});
        const AT: &str = "spec.rules[0].http.paths[0]";
        for (ingress, want) in [
            (
                json!({"spec": {}}),
                vec![
                    "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"
                        .to_owned(),
                ],
            ),
            (
                path(json!({"path": "/a/../b//", "pathType": "Prefix", "backend": service})),
                vec![
                    format!("{AT}.path: Invalid value: \"/a/../b//\": must not contain '//'"),
                    format!("{AT}.path: Invalid value: \"/a/../b//\": must not contain '/../'"),
                ],
            ),
            (
                path(json!({"path": "a", "pathType": "Other", "backend": {}})),
                vec![
                    format!(
                        "{AT}.pathType: Unsupported value: \"Other\": supported values: \"Exact\", \"ImplementationSpecific\", \"Prefix\""
                    ),
                    format!("{AT}.backend: Invalid value: \"\": resource or service backend is required"),
                ],
            ),
            (
                path(
                    json!({"pathType": "ImplementationSpecific", "backend": {"service": {"name": "s", "port": {"name": "p", "number": 1}}}}),
                ),
                vec![format!("{AT}.backend: Invalid value: \"\": cannot set both port name & port number")],
            ),
            (
                json!({"spec": {"rules": [{"host": "10.0.0.1", "http": {}}], "tls": [{"hosts": ["*x"], "secretName": "s"}]}}),
                vec![
                    "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address"
                        .to_owned(),
                    "spec.rules[0].http.paths: Required value".to_owned(),
                    format!(
                        "spec.tls[0].hosts[0]: Invalid value: \"*x\": {}",
                        checks::wildcard_subdomain("*x").join("")
                    ),
                ],
            ),
        ] {
            let mut errors = Errors::default();
            super::ingress(as_obj(&ingress), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{ingress}");
        }
    }

    #[test]
    fn classes() {
        let of = |parameters: Value| json!({"spec": {"controller": "a/b", "parameters": parameters}});
        for (class, want) in [
            (json!({"spec": {"controller": ""}}), vec!["spec.controller: Required value"]),
            (
                of(json!({"kind": "K", "name": "n", "scope": "Namespace"})),
                vec!["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
            ),
            (
                of(json!({"kind": "K", "name": "n", "scope": "Cluster", "namespace": "x"})),
                vec!["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
            ),
        ] {
            let mut errors = Errors::default();
            ingress_class(as_obj(&class), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{class}");
        }
    }
}
