//! core/v1 Service: fields that go with a type go with it (`dropTypeDependentFields`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::obj::{Obj, as_obj, children, int, list, object, text, with_child};

fn kind_in(spec: &Obj, kinds: &[&str]) -> bool {
    kinds.contains(&text(spec, "type"))
}

fn has_address(spec: &Obj) -> bool {
    !kind_in(spec, &["ExternalName"])
}

fn has_ports(spec: &Obj) -> bool {
    kind_in(spec, &["NodePort", "LoadBalancer"])
}

fn is_balanced(spec: &Obj) -> bool {
    kind_in(spec, &["LoadBalancer"])
}

fn is_checked(spec: &Obj) -> bool {
    is_balanced(spec) && text(spec, "externalTrafficPolicy") == "Local"
}

fn is_external(spec: &Obj) -> bool {
    has_ports(spec) || (kind_in(spec, &["ClusterIP"]) && !list(spec, "externalIPs").is_empty())
}

/// Clients that know one address only mean a list of one (`normalizeClusterIPs`).
pub(super) fn create(new: &mut Obj) {
    with_child(new, "spec", |spec| {
        let single = text(spec, "clusterIP").to_owned();
        if !single.is_empty() && list(spec, "clusterIPs").is_empty() {
            spec.insert("clusterIPs".to_owned(), Value::from(vec![single]));
        }
    });
}

/// Names have no traffic (`defaultOnReadInternalTrafficPolicy`).
pub(super) fn finish(o: &mut Obj) {
    with_child(o, "spec", |spec| {
        if kind_in(spec, &["ExternalName"]) {
            spec.remove("internalTrafficPolicy");
        }
    });
}

/// Drops a field that a client did not change together with the type that needed it; validation refuses a changed one.
pub(super) fn update(old: &Obj, new: &mut Obj) {
    let before = object(old, "spec");
    with_child(new, "spec", |spec| {
        let drop = |gone: bool, key: &str, spec: &mut Obj| {
            if gone && before.get(key) == spec.get(key) {
                spec.remove(key);
            }
        };
        let addresses = has_address(before) && !has_address(spec);
        if addresses && before.get("clusterIPs") == spec.get("clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        drop(addresses, "ipFamilies", spec);
        drop(addresses, "ipFamilyPolicy", spec);
        if has_ports(before) && !has_ports(spec) {
            let numbers = |s: &Obj| -> BTreeSet<i64> {
                list(s, "ports").iter().filter_map(|p| int(as_obj(p), "nodePort")).collect()
            };
            if numbers(spec).is_subset(&numbers(before)) {
                for port in children(spec, "ports") {
                    port.remove("nodePort");
                }
            }
        }
        // The policy determines the port, so it may be dropped next.
        let checked = is_checked(before) && !is_checked(spec);
        drop(checked, "healthCheckNodePort", spec);
        let balanced = is_balanced(before) && !is_balanced(spec);
        drop(balanced, "allocateLoadBalancerNodePorts", spec);
        drop(balanced, "loadBalancerClass", spec);
        let external = is_external(before) && !is_external(spec);
        drop(external, "externalTrafficPolicy", spec);
    });
    if !is_balanced(object(new, "spec")) {
        with_child(new, "status", |status| {
            status.insert("loadBalancer".to_owned(), Value::Object(Obj::new()))
        });
    }
}
