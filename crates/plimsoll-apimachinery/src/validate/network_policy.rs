//! networking.k8s.io/v1 `NetworkPolicy`.

use serde_json::Value;

use super::path::{Errors, Path};
use super::{address, checks, selector};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// Rules of a direction, and their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// `NetworkPolicy`.
pub(super) fn network_policy(policy: &Obj, errors: &mut Errors) {
    spec(object(policy, "spec"), &[], errors);
}

/// As for a new one; networks that were there already may stay.
pub(super) fn network_policy_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let mut known = Vec::new();
    each_block(object(old, "spec"), &mut |block, _| {
        known.push(text(block, "cidr").to_owned());
        known.extend(list(block, "except").iter().filter_map(|e| e.as_str().map(str::to_owned)));
    });
    spec(object(new, "spec"), &known, errors);
}

/// Calls `f` with every block of addresses and its path.
fn each_block(spec: &Obj, f: &mut dyn FnMut(&Obj, &Path<'_>)) {
    let path = Path::new("spec");
    for (direction, peers) in DIRECTIONS {
        let at = path.field(direction);
        for (i, rule) in list(spec, direction).iter().map(as_obj).enumerate() {
            let rule_path = at.index(i);
            let peers_path = rule_path.field(peers);
            for (j, peer) in list(rule, peers).iter().map(as_obj).enumerate() {
                if has(peer, "ipBlock") {
                    f(object(peer, "ipBlock"), &peers_path.index(j).field("ipBlock"));
                }
            }
        }
    }
}

fn spec(spec: &Obj, known: &[String], errors: &mut Errors) {
    let path = Path::new("spec");
    selector::label_selector(object(spec, "podSelector"), &path.field("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        let at = path.field(direction);
        for (i, rule) in list(spec, direction).iter().map(as_obj).enumerate() {
            let here = at.index(i);
            let ports = here.field("ports");
            for (j, one) in list(rule, "ports").iter().map(as_obj).enumerate() {
                port(one, &ports.index(j), errors);
            }
            let peers_path = here.field(peers);
            for (j, one) in list(rule, peers).iter().map(as_obj).enumerate() {
                peer(one, known, &peers_path.index(j), errors);
            }
        }
    }
    let (types, at) = (list(spec, "policyTypes"), path.field("policyTypes"));
    if types.len() > 2 {
        errors.invalid(&at, Value::Array(types.to_vec()), "may not specify more than two policyTypes");
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        errors.one_of(&at.index(i), kind.as_str().unwrap_or_default(), &["Ingress", "Egress"]);
    }
}

fn port(port: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if let Some(protocol) = port.get("protocol").and_then(Value::as_str) {
        errors.one_of(&path.field("protocol"), protocol, &["TCP", "UDP", "SCTP"]);
    }
    let (at, end_path) = (path.field("port"), path.field("endPort"));
    let end = int(port, "endPort");
    match port.get("port").filter(|p| !p.is_null()) {
        None => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is not specified");
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is non-numeric");
            }
            errors.invalid_all(&at, name, &checks::port_name(name));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            errors.port(&at, number);
            let Some(end) = end else { return };
            if end < number {
                errors.invalid(&end_path, number, "must be greater than or equal to `port`");
            }
            errors.port(&end_path, end);
        }
    }
}

fn peer(peer: &Obj, known: &[String], path: &Path<'_>, errors: &mut Errors) {
    let mut selectors = 0;
    for key in ["podSelector", "namespaceSelector"] {
        if has(peer, key) {
            selectors += 1;
            selector::label_selector(object(peer, key), &path.field(key), errors);
        }
    }
    let block = has(peer, "ipBlock");
    if block {
        ip_block(object(peer, "ipBlock"), known, &path.field("ipBlock"), errors);
    }
    if selectors == 0 && !block {
        errors.required(path, "must specify a peer");
    } else if selectors > 0 && block {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Obj, known: &[String], path: &Path<'_>, errors: &mut Errors) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        errors.required(&path.field("cidr"), "");
        return;
    }
    let check = |text: &str, at: &Path<'_>, errors: &mut Errors| {
        if !known.iter().any(|k| k == text) {
            errors.invalid_all(at, text, &address::legacy_cidr(text));
        }
    };
    check(cidr, &path.field("cidr"), errors);
    let Some(outer) = address::Network::parse(cidr) else { return };
    let at = path.field("except");
    for (i, except) in list(block, "except").iter().enumerate() {
        let except = except.as_str().unwrap_or_default();
        check(except, &at.index(i), errors);
        let Some(inner) = address::Network::parse(except) else { continue };
        if !outer.strictly_contains(&inner) {
            errors.invalid(&at.index(i), except, "must be a strict subset of `cidr`");
        }
    }
}

/// Warnings about networks that are written in an odd way.
pub(super) fn warnings(policy: &Obj, found: &mut Vec<String>) {
    each_block(object(policy, "spec"), &mut |block, path| {
        found.extend(address::cidr_warnings(&path.field("cidr"), text(block, "cidr")));
        let at = path.field("except");
        for (i, except) in list(block, "except").iter().enumerate() {
            found.extend(address::cidr_warnings(&at.index(i), except.as_str().unwrap_or_default()));
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_and_networks() {
        let ingress = |rule: Value| json!({"spec": {"podSelector": {}, "ingress": [rule]}});
        for (policy, want) in [
            (
                ingress(json!({"from": [{}, {"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}]})),
                vec![
                    "spec.ingress[0].from[0]: Required value: must specify a peer",
                    "spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer",
                ],
            ),
            (
                ingress(
                    json!({"from": [{"ipBlock": {"cidr": "10.0.0.1/8", "except": ["10.1.0.0/16", "11.0.0.0/16", "x"]}}]}),
                ),
                vec![
                    "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length",
                    "spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
                    "spec.ingress[0].from[0].ipBlock.except[2]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                ],
            ),
            (
                ingress(
                    json!({"ports": [{"port": 90, "endPort": 80}, {"port": "http", "endPort": 1}, {"endPort": 1}, {"protocol": "X"}]}),
                ),
                vec![
                    "spec.ingress[0].ports[0].endPort: Invalid value: 90: must be greater than or equal to `port`",
                    "spec.ingress[0].ports[1].endPort: Invalid value: 1: may not be specified when `port` is non-numeric",
                    "spec.ingress[0].ports[2].endPort: Invalid value: 1: may not be specified when `port` is not specified",
                    "spec.ingress[0].ports[3].protocol: Unsupported value: \"X\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
                ],
            ),
        ] {
            let mut errors = Errors::default();
            network_policy(as_obj(&policy), &mut errors);
            let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(found, want, "{policy}");
            // An invalid value of the old object may stay.
            let mut errors = Errors::default();
            network_policy_update(as_obj(&policy), as_obj(&policy), &mut errors);
            assert!(errors.0.iter().all(|e| !e.detail.contains("bits set")));
        }
        let mut found = Vec::new();
        let odd = json!({"spec": {"egress": [{"to": [{"ipBlock": {"cidr": "2001:DB8::/32"}}]}]}});
        warnings(as_obj(&odd), &mut found);
        assert_eq!(
            found,
            [
                "spec.egress[0].to[0].ipBlock.cidr: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")"
            ]
        );
    }
}
