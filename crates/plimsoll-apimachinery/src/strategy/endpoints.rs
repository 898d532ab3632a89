//! discovery.k8s.io/v1 `EndpointSlice` (`pkg/registry/discovery/endpointslice`).

use serde_json::Value;

use crate::obj::{Obj, as_obj, children, has, list, object, text};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Drops `deprecatedTopology`, which cannot be written, and keeps its node as `nodeName`, so that partial updates don't
/// lose it.
pub(super) fn drop_topology(slice: &mut Obj, old: Option<&Obj>) {
    if old.is_some_and(|old| list(old, "endpoints") == list(slice, "endpoints")) {
        return;
    }
    let before = old.map_or(&[][..], |old| list(old, "endpoints"));
    let node = |endpoint: &Obj| text(object(endpoint, "deprecatedTopology"), HOSTNAME).to_owned();
    let known: Vec<String> = before.iter().map(|e| node(as_obj(e))).filter(|n| !n.is_empty()).collect();
    for endpoint in children(slice, "endpoints") {
        let name = node(endpoint);
        let usable = known.contains(&name) && crate::validate::is_node_name(&name);
        if usable && !has(endpoint, "nodeName") {
            endpoint.insert("nodeName".to_owned(), Value::String(name));
        }
        endpoint.remove("deprecatedTopology");
    }
}
