//! Other core kinds.

use base64::Engine as _;
use serde_json::{Value, json};

use super::pod::template;
use crate::obj::{Obj, child, children, list, object, set, set_zero, text, with_child};

/// core/v1 Service. Addresses and node ports are the server's to allocate.
pub(super) fn service(service: &mut Obj) {
    with_child(service, "spec", |spec| {
        set(spec, "sessionAffinity", "None");
        if text(spec, "sessionAffinity") == "None" {
            spec.remove("sessionAffinityConfig");
        } else if text(spec, "sessionAffinity") == "ClientIP" {
            let given = object(object(spec, "sessionAffinityConfig"), "clientIP").get("timeoutSeconds");
            if given.is_none_or(Value::is_null) {
                spec.insert(
                    "sessionAffinityConfig".to_owned(),
                    json!({"clientIP": {"timeoutSeconds": 10_800}}),
                );
            }
        }
        set(spec, "type", "ClusterIP");
        for port in children(spec, "ports") {
            set(port, "protocol", "TCP");
            if port.get("targetPort").is_none_or(|t| *t == json!(0) || *t == json!("")) {
                let number = port.get("port").cloned().unwrap_or(json!(0));
                port.insert("targetPort".to_owned(), number);
            }
        }
        let kind = text(spec, "type").to_owned();
        let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer")
            || (kind == "ClusterIP" && !list(spec, "externalIPs").is_empty());
        if external {
            set_zero(spec, "externalTrafficPolicy", "Cluster");
        }
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
            set(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            set(spec, "allocateLoadBalancerNodePorts", true);
        }
    });
    let balanced = text(object(service, "spec"), "type") == "LoadBalancer";
    if let Some(balancer) =
        child(service, "status").and_then(|s| child(s, "loadBalancer")).filter(|_| balanced)
    {
        for ingress in children(balancer, "ingress") {
            if ingress.contains_key("ip") {
                set(ingress, "ipMode", "VIP");
            }
        }
    }
}

/// core/v1 Secret; `stringData` becomes `data`.
pub(super) fn secret(secret: &mut Obj) {
    set_zero(secret, "type", "Opaque");
    if let Some(Value::Object(plain)) = secret.remove("stringData")
        && !plain.is_empty()
    {
        with_child(secret, "data", |data| {
            for (key, value) in plain {
                let bytes = value.as_str().unwrap_or_default().as_bytes();
                data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
            }
        });
    }
}

/// core/v1 Namespace: the label with its name.
pub(super) fn namespace(namespace: &mut Obj) {
    with_child(namespace, "metadata", |meta| {
        let name = text(meta, "name").to_owned();
        if !name.is_empty() {
            with_child(meta, "labels", |labels| {
                labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
            });
        }
    });
    with_child(namespace, "status", |status| set(status, "phase", "Active"));
}

/// core/v1 Node.
pub(super) fn node(node: &mut Obj) {
    if let Some(status) = child(node, "status") {
        let capacity = object(status, "capacity").clone();
        if !capacity.is_empty() && object(status, "allocatable").is_empty() {
            status.insert("allocatable".to_owned(), Value::Object(capacity));
        }
    }
    if let Some(spec) = child(node, "spec") {
        let (one, many) = (text(spec, "podCIDR").to_owned(), list(spec, "podCIDRs").first().cloned());
        match (one.is_empty(), many) {
            (false, None) => set(spec, "podCIDRs", vec![one]),
            (true, Some(first)) => set_zero(spec, "podCIDR", first),
            // The field that older clients know wins.
            (false, Some(first)) if first != one.as_str() => {
                spec.insert("podCIDRs".to_owned(), json!([one]));
            }
            _ => {}
        }
    }
}

/// core/v1 `LimitRange`: limits of containers default from their maxima, requests from limits, then minima.
pub(super) fn limit_range(range: &mut Obj) {
    let Some(spec) = child(range, "spec") else { return };
    for item in children(spec, "limits").filter(|item| text(item, "type") == "Container") {
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            let amounts = object(item, from).clone();
            if !amounts.is_empty() {
                with_child(item, to, |target| {
                    for (name, amount) in amounts {
                        set(target, &name, amount);
                    }
                });
            }
        }
    }
}

/// core/v1 Endpoints.
pub(super) fn endpoints(endpoints: &mut Obj) {
    for subset in children(endpoints, "subsets") {
        for port in children(subset, "ports") {
            set(port, "protocol", "TCP");
        }
    }
}

/// core/v1 `ReplicationController`: labels and selector are the template's.
pub(super) fn replication_controller(rc: &mut Obj) {
    let labels = object(object(object(rc, "spec"), "template"), "metadata")
        .get("labels")
        .cloned()
        .unwrap_or(Value::Null);
    let given = labels.as_object().is_some_and(|l| !l.is_empty());
    with_child(rc, "spec", |spec| {
        set(spec, "replicas", 1);
        template(spec);
        if given && object(spec, "selector").is_empty() {
            spec.insert("selector".to_owned(), labels.clone());
        }
    });
    if given {
        with_child(rc, "metadata", |meta| {
            if object(meta, "labels").is_empty() {
                meta.insert("labels".to_owned(), labels);
            }
        });
    }
}
