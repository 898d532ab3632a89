//! core/v1 Namespace, Node, `PodTemplate`.

use serde_json::Value;

use super::path::{Errors, NOT_NEGATIVE, Path, go_struct};
use super::{checks, meta, pod, resources};
use crate::obj::{Obj, as_obj, has, list, object, text};

/// core/v1 Namespace.
pub(super) fn namespace(namespace: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let at = path.field("finalizers");
    for finalizer in list(object(namespace, "spec"), "finalizers") {
        errors.0.extend(meta::finalizer_errors(finalizer.as_str().unwrap_or_default(), &at));
    }
}

/// The phase of a namespace says whether it is being deleted.
pub(super) fn namespace_status(_: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let phase = text(object(new, "status"), "phase");
    if has(object(new, "metadata"), "deletionTimestamp") {
        if phase != "Terminating" {
            let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
            errors.invalid(&path.field("Phase"), phase, detail);
        }
    } else if phase != "Active" {
        let detail = "may only be 'Active' if `deletionTimestamp` is empty";
        errors.invalid(&path.field("Phase"), phase, detail);
    }
}

/// core/v1 Node.
pub(super) fn node(node: &Obj, errors: &mut Errors) {
    let spec = object(node, "spec");
    // Upstream puts taints under metadata.
    let path = Path::new("metadata");
    taints(list(spec, "taints"), &path.field("taints"), errors);
    let path = Path::new("status");
    for key in ["capacity", "allocatable"] {
        let at = path.field(key);
        for (name, value) in object(object(node, "status"), key) {
            let here = at.field(name);
            let amount = resources::amount(value);
            if amount.signum() < 0 {
                errors.invalid(&here, amount.to_string(), NOT_NEGATIVE);
            }
            if resources::is_whole(name) && amount.nanos() % 1_000_000_000 != 0 {
                errors.invalid(&here, amount.to_string(), "must be an integer");
            }
        }
    }
    let path = Path::new("spec");
    let at = path.field("podCIDRs");
    let networks = list(spec, "podCIDRs");
    for (i, network) in networks.iter().enumerate() {
        let network = network.as_str().unwrap_or_default();
        errors.invalid_all(&at.index(i), network, &checks::cidr(network));
    }
    if networks.len() > 2 {
        let detail = "may specify no more than one CIDR for each IP family";
        errors.invalid(&at, Value::Array(networks.to_vec()), detail);
    }
}

fn taints(taints: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (i, taint) in taints.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.invalid_all(&at.field("key"), key, &checks::qualified_name(key));
        errors.invalid_all(&at.field("value"), value, &checks::label_value(value));
        match effect {
            "" => errors.required(&at.field("effect"), ""),
            effect => {
                errors.one_of(&at.field("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
            }
        }
        if seen.contains(&(key, effect)) {
            let shown = go_struct(&[
                ("Key", key.into()),
                ("Value", value.into()),
                ("Effect", effect.into()),
                ("TimeAdded", taint.get("timeAdded").cloned().unwrap_or_default()),
            ]);
            errors.duplicate(&at, "");
            if let Some(last) = errors.0.last_mut() {
                last.value = Some(shown);
                last.detail = "taints must be unique by key and effect pair".to_owned();
            }
        }
        seen.push((key, effect));
    }
}

/// What may change of a node, at whichever endpoint.
pub(super) fn node_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    if has(before, "podCIDRs") && before.get("podCIDRs") != after.get("podCIDRs") {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        errors.forbidden(&path.field("podCIDRs"), detail);
    }
    if has(before, "providerID") && before.get("providerID") != after.get("providerID") {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&path.field("providerID"), detail);
    }
}

/// core/v1 `PodTemplate`.
pub(super) fn pod_template(o: &Obj, errors: &mut Errors) {
    pod::template(object(o, "template"), &Path::new("template"), errors);
}
