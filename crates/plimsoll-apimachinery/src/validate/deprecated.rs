//! Deprecated labels, annotations and fields, and their warnings.

use serde_json::Value;

use super::path::Path;
use super::{checks, resources};
use crate::obj::{Obj, as_obj, list, object, text};

/// The warning for a node label that has been replaced (`GetNodeLabelDeprecatedMessage`).
pub(super) fn label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

/// Old labels among the expressions of a term or selector, and of a term that is only preferred also values that match
/// nothing (`values`; `GetWarningsForNodeSelectorTerm`).
pub(super) fn expressions(term: &Obj, values: bool, path: &Path<'_>, found: &mut Vec<String>) {
    let at = path.field("matchExpressions");
    for (i, e) in list(term, "matchExpressions").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let key = text(e, "key");
        found.extend(label(key).map(|why| format!("{}: {key} is {why}", here.field("key"))));
        if !values {
            continue;
        }
        let places = here.field("values");
        for (j, value) in list(e, "values").iter().map(|v| v.as_str().unwrap_or_default()).enumerate() {
            let faults = checks::label_value(value);
            let faults =
                faults.iter().map(|fault| format!("{}: {value} is invalid, {fault}", places.index(j)));
            found.extend(faults);
        }
    }
}

/// A source of volumes that is no more, or soon won't be.
pub(super) struct Source {
    /// Its field.
    pub key: &'static str,
    /// Its name in warnings.
    pub shown: &'static str,
    /// The text of the warning.
    pub why: &'static str,
    /// Whether the warning is for `PersistentVolumes` as well as for pods.
    pub of_volumes: bool,
}

const fn source(key: &'static str, shown: &'static str, of_volumes: bool, why: &'static str) -> Source {
    Source { key, shown, why, of_volumes }
}

/// Sources of volumes, in the order of warnings about pods.
pub(super) const SOURCES: [Source; 9] = [
    source(
        "photonPersistentDisk",
        "photonPersistentDisk",
        true,
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    source("gitRepo", "gitRepo", false, "deprecated in v1.11, and disabled by default in v1.33+"),
    source("scaleIO", "scaleIO", true, "deprecated in v1.16, non-functional in v1.22+"),
    source("flocker", "flocker", false, "deprecated in v1.22, non-functional in v1.25+"),
    source("storageos", "storageOS", true, "deprecated in v1.22, non-functional in v1.25+"),
    source("quobyte", "quobyte", false, "deprecated in v1.22, non-functional in v1.25+"),
    source("glusterfs", "glusterfs", true, "deprecated in v1.25, non-functional in v1.26+"),
    source("cephfs", "cephfs", true, "deprecated in v1.28, non-functional in v1.31+"),
    source("rbd", "rbd", true, "deprecated in v1.28, non-functional in v1.31+"),
];

/// An amount of bytes that is not whole.
pub(super) fn fractional(amounts: &Obj, name: &str, path: &Path<'_>, found: &mut Vec<String>) {
    let amount = amounts.get(name).map(resources::amount).filter(|q| q.nanos() % 1_000_000_000 != 0);
    found.extend(amount.map(|amount| {
        format!("{}: fractional byte value \"{amount}\" is invalid, must be an integer", path.key(name))
    }));
}

/// Amounts of storage come in whole bytes (`GetWarningsForPersistentVolumeClaimSpec`).
pub(super) fn claim(spec: &Obj, path: &Path<'_>, found: &mut Vec<String>) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    let at = path.field("resources");
    for key in ["requests", "limits"] {
        fractional(object(resources, key), "storage", &at.field(key), found);
    }
}
