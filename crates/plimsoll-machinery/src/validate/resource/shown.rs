//! Internal types of resource.k8s.io as messages show them.

use serde_json::Value;

use super::super::golang::{Field, Go, shown};

/// `core.NodeSelectorTerm`.
pub(super) const NODE_TERM: &[Field] = &[
    ("MatchExpressions", "matchExpressions", Go::List(NODE_REQUIREMENT)),
    ("MatchFields", "matchFields", Go::List(NODE_REQUIREMENT)),
];
const NODE_REQUIREMENT: &[Field] =
    &[("Key", "key", Go::Text), ("Operator", "operator", Go::Text), ("Values", "values", Go::Plain)];
const NODE_SELECTOR: &[Field] = &[("NodeSelectorTerms", "nodeSelectorTerms", Go::List(NODE_TERM))];

const SELECTOR: &[Field] = &[("CEL", "cel", Go::Pointer(&[("Expression", "expression", Go::Text)]))];
const TOLERATION: &[Field] = &[
    ("Key", "key", Go::Text),
    ("Operator", "operator", Go::Text),
    ("Value", "value", Go::Text),
    ("Effect", "effect", Go::Text),
    ("TolerationSeconds", "tolerationSeconds", Go::Plain),
];
const CAPACITY: &[Field] = &[("Requests", "requests", Go::Plain)];
const EXACTLY: &[Field] = &[
    ("DeviceClassName", "deviceClassName", Go::Text),
    ("Selectors", "selectors", Go::List(SELECTOR)),
    ("AllocationMode", "allocationMode", Go::Text),
    ("Count", "count", Go::Int),
    ("AdminAccess", "adminAccess", Go::Plain),
    ("Tolerations", "tolerations", Go::List(TOLERATION)),
    ("Capacity", "capacity", Go::Pointer(CAPACITY)),
];
const SUB: &[Field] = &[
    ("Name", "name", Go::Text),
    ("DeviceClassName", "deviceClassName", Go::Text),
    ("Selectors", "selectors", Go::List(SELECTOR)),
    ("AllocationMode", "allocationMode", Go::Text),
    ("Count", "count", Go::Int),
    ("Tolerations", "tolerations", Go::List(TOLERATION)),
    ("Capacity", "capacity", Go::Pointer(CAPACITY)),
];
const REQUEST: &[Field] = &[
    ("Name", "name", Go::Text),
    ("Exactly", "exactly", Go::Pointer(EXACTLY)),
    ("FirstAvailable", "firstAvailable", Go::List(SUB)),
];
const CONSTRAINT: &[Field] = &[
    ("Requests", "requests", Go::Plain),
    ("MatchAttribute", "matchAttribute", Go::Plain),
    ("DistinctAttribute", "distinctAttribute", Go::Plain),
];
const OPAQUE: &[Field] = &[(
    "Opaque",
    "opaque",
    Go::Pointer(&[("Driver", "driver", Go::Text), ("Parameters", "parameters", Go::Plain)]),
)];
// Embedded structs without tags are spread out.
const CONFIG: &[Field] = &[("Requests", "requests", Go::Plain), OPAQUE[0]];
const CLAIM: &[Field] = &[(
    "Devices",
    "devices",
    Go::Struct(&[
        ("Requests", "requests", Go::List(REQUEST)),
        ("Constraints", "constraints", Go::List(CONSTRAINT)),
        ("Config", "config", Go::List(CONFIG)),
    ]),
)];
const RESULT: &[Field] = &[
    ("Request", "request", Go::Text),
    ("Driver", "driver", Go::Text),
    ("Pool", "pool", Go::Text),
    ("Device", "device", Go::Text),
    ("AdminAccess", "adminAccess", Go::Plain),
    ("Tolerations", "tolerations", Go::List(TOLERATION)),
    ("BindingConditions", "bindingConditions", Go::Plain),
    ("BindingFailureConditions", "bindingFailureConditions", Go::Plain),
    ("ShareID", "shareID", Go::Plain),
    ("ConsumedCapacity", "consumedCapacity", Go::Plain),
];
const ALLOCATION: &[Field] = &[
    (
        "Devices",
        "devices",
        Go::Struct(&[
            ("Results", "results", Go::List(RESULT)),
            (
                "Config",
                "config",
                Go::List(&[("Source", "source", Go::Text), ("Requests", "requests", Go::Plain), OPAQUE[0]]),
            ),
        ]),
    ),
    ("NodeSelector", "nodeSelector", Go::Pointer(NODE_SELECTOR)),
    ("AllocationTimestamp", "allocationTimestamp", Go::Plain),
];
/// `resource.DeviceAttribute`.
pub(super) const ATTRIBUTE: &[Field] = &[
    ("IntValue", "int", Go::Plain),
    ("BoolValue", "bool", Go::Plain),
    ("StringValue", "string", Go::Plain),
    ("VersionValue", "version", Go::Plain),
    ("IntValues", "ints", Go::Plain),
    ("BoolValues", "bools", Go::Plain),
    ("StringValues", "strings", Go::Plain),
    ("VersionValues", "versions", Go::Plain),
];

/// `resource.ResourceClaimSpec`.
pub(super) fn claim_spec(spec: &Value) -> String {
    shown(spec, CLAIM)
}

/// `resource.ResourceClaimTemplateSpec`: metadata has tags and is spread out.
pub(super) fn template_spec(spec: &Value) -> String {
    let meta = spec.get("metadata").and_then(Value::as_object);
    let mut parts: Vec<String> = ["labels", "annotations"]
        .iter()
        .filter_map(|key| Some(format!("\"{key}\":{}", meta?.get(*key).filter(|v| !v.is_null())?)))
        .collect();
    parts.push(format!("\"Spec\":{}", shown(spec.get("spec").unwrap_or(&Value::Null), CLAIM)));
    format!("{{{}}}", parts.join(","))
}

/// `resource.AllocationResult`.
pub(super) fn allocation(allocation: &Value) -> String {
    shown(allocation, ALLOCATION)
}
