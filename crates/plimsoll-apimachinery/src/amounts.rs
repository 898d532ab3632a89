//! Total requests and limits of a pod (`resource/helpers.go` of component-helpers).

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;
use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a map of quantities; values that are no quantities are left out.
pub fn amounts(v: &Value) -> Amounts {
    v.as_object()
        .into_iter()
        .flatten()
        .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.parse().ok()?)))
        .insert_each()
}

/// The part of a container's resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Requests.
    Requests,
    /// Limits.
    Limits,
}

impl Part {
    const fn field(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }
}

/// Whose view of a pod is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// LimitRanger's: the resources in the pod's spec.
    Written,
    /// The resources in the pod's spec, with huge pages of the pod and overhead.
    Whole,
    /// Quota's: with the allocated resources while a resize is in progress, and with overhead.
    Charged,
}

/// Requests or limits of a pod in all.
pub fn total(pod: &Value, part: Part, view: View) -> Amounts {
    let spec = &pod["spec"];
    let of = |container: &Value, state: &str| {
        let written = amounts(&container["resources"][part.field()]);
        if view == View::Charged { running(pod, container, state, part, written) } else { written }
    };
    let mut sum = Amounts::new();
    for container in list(&spec["containers"]) {
        add(&mut sum, &of(container, "containerStatuses"));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in list(&spec["initContainers"]) {
        if container["restartPolicy"] == "Always" {
            let own = of(container, "initContainerStatuses");
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            max(&mut most, &sidecars);
        } else {
            let mut own = amounts(&container["resources"][part.field()]);
            add(&mut own, &sidecars);
            max(&mut most, &own);
        }
    }
    max(&mut sum, &most);
    for (name, amount) in amounts(&spec["resources"][part.field()]) {
        if of_pod(&name) && (view != View::Written || !name.starts_with("hugepages-")) {
            sum.insert(name, amount);
        }
    }
    if view != View::Written {
        let overhead = amounts(&spec["overhead"]);
        match part {
            Part::Requests => add(&mut sum, &overhead),
            Part::Limits => {
                for (name, total) in sum.iter_mut().filter(|(_, total)| !total.is_zero()) {
                    *total = overhead.get(name).map_or(*total, |more| total.saturating_add(*more));
                }
            }
        }
    }
    sum
}

/// Whether a pod has resources of its own.
pub fn is_set_for_pod(pod: &Value) -> bool {
    let resources = &pod["spec"]["resources"];
    ["requests", "limits"]
        .iter()
        .any(|part| resources[part].as_object().into_iter().flatten().any(|(name, _)| of_pod(name)))
}

/// Resources that can be given for a pod as a whole.
fn of_pod(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// The resources that a container has or will have, whichever is more, once its kubelet reports them.
fn running(pod: &Value, container: &Value, statuses: &str, part: Part, written: Amounts) -> Amounts {
    let status = list(&pod["status"][statuses]).iter().rev().find(|s| s["name"] == container["name"]);
    let Some(status) = status.filter(|s| s["resources"].is_object()) else { return written };
    let mut most = amounts(&status["resources"][part.field()]);
    if part == Part::Requests {
        max(&mut most, &amounts(&status["allocatedResources"]));
    }
    let pending = list(&pod["status"]["conditions"]).iter().find(|c| c["type"] == "PodResizePending");
    if !pending.is_some_and(|c| c["reason"] == "Infeasible") {
        max(&mut most, &written);
    }
    most
}

fn list(v: &Value) -> &[Value] {
    v.as_array().map_or(&[], Vec::as_slice)
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert(Quantity::new(0, amount.format()));
        *entry = entry.saturating_add(*amount);
    }
}

fn max(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let entry = most.entry(name.clone()).or_insert(*amount);
        if *amount > *entry {
            *entry = *amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn totals() {
        let cpu =
            |n: i64| json!({ "requests": { "cpu": n.to_string() }, "limits": { "cpu": n.to_string() } });
        let status = |has: i64, allocated: i64| json!([{ "name": "a", "resources": cpu(has), "allocatedResources": { "cpu": allocated.to_string() } }]);
        let rows = [
            (
                "sum",
                json!({ "spec": { "containers": [{ "resources": cpu(1) }, { "resources": cpu(2) }] } }),
                [3, 3, 3, 3],
            ),
            (
                "largest init container beside the sidecars before it",
                json!({ "spec": {
                    "containers": [{ "resources": cpu(1) }],
                    "initContainers": [
                        { "resources": cpu(4) },
                        { "resources": cpu(2), "restartPolicy": "Always" },
                        { "resources": cpu(3) },
                    ],
                } }),
                [5, 5, 5, 5],
            ),
            (
                "given for the pod",
                json!({ "spec": { "containers": [{ "resources": cpu(9) }], "resources": cpu(1) } }),
                [1, 1, 1, 1],
            ),
            (
                "overhead",
                json!({ "spec": { "containers": [{ "resources": cpu(1) }], "overhead": { "cpu": "1" } } }),
                [1, 1, 2, 2],
            ),
            (
                "overhead without limits",
                json!({ "spec": {
                    "containers": [{ "resources": { "requests": { "cpu": "1" } } }], "overhead": { "cpu": "1" },
                } }),
                [1, 0, 2, 0],
            ),
            (
                "resize under way",
                json!({
                    "spec": { "containers": [{ "name": "a", "resources": cpu(1) }] },
                    "status": { "containerStatuses": status(2, 3) },
                }),
                [1, 1, 3, 2],
            ),
            (
                "infeasible resize",
                json!({
                    "spec": { "containers": [{ "name": "a", "resources": cpu(9) }] },
                    "status": {
                        "containerStatuses": status(2, 1),
                        "conditions": [{ "type": "PodResizePending", "reason": "Infeasible" }],
                    },
                }),
                [9, 9, 2, 2],
            ),
        ];
        for (of, pod, wanted) in rows {
            let views = [View::Written, View::Charged];
            let cpu = |view, part| total(&pod, part, view).get("cpu").map_or(0, |q| q.value());
            let found = views.map(|v| [Part::Requests, Part::Limits].map(|p| cpu(v, p)));
            assert_eq!(found.concat(), wanted, "{of}");
        }
    }
}
