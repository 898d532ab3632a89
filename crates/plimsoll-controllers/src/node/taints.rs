//! Taints that follow from a node's conditions, and what pods tolerate.

use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::{Time, nullable};
use serde::{Deserialize, Serialize};

use super::Node;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
/// Pods that don't tolerate such a taint are evicted.
pub const NO_EXECUTE: &str = "NoExecute";

/// Condition, status, and the taint they make (`nodeConditionToTaintKeyStatusMap`).
const CONDITIONS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// `core/v1` Taint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of core/v1 Taint.
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub value: String,
    pub effect: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

/// `core/v1` Toleration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of core/v1 Toleration.
pub struct Toleration {
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// `Toleration.ToleratesTaint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        (self.effect.is_empty() || self.effect == taint.effect)
            && (self.key.is_empty() || self.key == taint.key)
            && match self.operator.as_str() {
                "" | "Equal" => self.value == taint.value,
                "Exists" => true,
                "Lt" => number(&taint.value).zip(number(&self.value)).is_some_and(|(t, own)| t < own),
                "Gt" => number(&taint.value).zip(number(&self.value)).is_some_and(|(t, own)| t > own),
                _ => false,
            }
    }
}

/// How long a pod stays under `NoExecute` taints: `None`: for ever; zero: not at all (`GetMatchingTolerations` and
/// `getMinTolerationTime`).
pub fn stays(taints: &[Taint], tolerations: &[Toleration]) -> Option<SignedDuration> {
    let mut least: Option<i64> = None;
    for taint in taints.iter().filter(|t| t.effect == NO_EXECUTE) {
        let Some(used) = tolerations.iter().find(|t| t.tolerates(taint)) else {
            return Some(SignedDuration::ZERO);
        };
        if let Some(seconds) = used.toleration_seconds {
            least = Some(least.map_or(seconds, |l| l.min(seconds)));
        }
    }
    least.map(|seconds| SignedDuration::from_secs(seconds.clamp(0, i64::from(i32::MAX))))
}

/// The taints that a node should have: ours as its conditions say, others as they are.
pub fn wanted(node: &Node, current: &[Taint], evict: bool, now: Timestamp) -> Vec<Taint> {
    let mut keys: Vec<(&str, &str)> = CONDITIONS
        .iter()
        .filter(|(kind, status, _)| node.condition(kind) == Some(status))
        .map(|(_, _, key)| (*key, NO_SCHEDULE))
        .collect();
    if node.spec.unschedulable {
        keys.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    match node.condition("Ready") {
        Some("False") if evict => keys.push((NOT_READY, NO_EXECUTE)),
        Some("Unknown") if evict => keys.push((UNREACHABLE, NO_EXECUTE)),
        // A new node keeps the taint it was born with until it reports.
        None => keys.push((NOT_READY, NO_SCHEDULE)),
        _ => {}
    }
    let ours = |t: &Taint| match t.effect.as_str() {
        NO_SCHEDULE => t.key == UNSCHEDULABLE || CONDITIONS.iter().any(|(_, _, key)| t.key == *key),
        NO_EXECUTE => matches!(t.key.as_str(), NOT_READY | UNREACHABLE),
        _ => false,
    };
    let is = |t: &Taint, key: &(&str, &str)| t.key == key.0 && t.effect == key.1;
    let kept = current.iter().filter(|t| !ours(t) || keys.iter().any(|k| is(t, k)));
    let mut taints: Vec<Taint> = kept.cloned().collect();
    for key in &keys {
        if !taints.iter().any(|t| is(t, key)) && (node.condition("Ready").is_some() || key.0 != NOT_READY) {
            taints.push(Taint {
                key: key.0.to_owned(),
                value: String::new(),
                effect: key.1.to_owned(),
                time_added: Some(Time::whole(now)),
            });
        }
    }
    taints
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn conditions_become_taints() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let row = |ready: Value, unschedulable: bool, evict: bool| {
            let node: Node = serde_json::from_value(json!({
                "spec": {"unschedulable": unschedulable, "taints": [
                    {"key": "own", "effect": "NoExecute"}, {"key": NOT_READY, "effect": "NoSchedule"},
                    {"key": UNREACHABLE, "effect": "NoExecute"}]},
                "status": {"conditions": ready},
            }))
            .unwrap();
            let taints = wanted(&node, &node.spec.taints, evict, now);
            taints
                .iter()
                .map(|t| format!("{}:{}", t.key.rsplit('/').next().unwrap(), t.effect))
                .collect::<Vec<_>>()
        };
        let ready = |status: &str| json!([{"type": "Ready", "status": status}]);
        assert_eq!(row(ready("True"), false, true), ["own:NoExecute"]);
        assert_eq!(row(ready("True"), true, true), ["own:NoExecute", "unschedulable:NoSchedule"]);
        assert_eq!(
            row(ready("False"), false, true),
            ["own:NoExecute", "not-ready:NoSchedule", "not-ready:NoExecute"]
        );
        assert_eq!(
            row(ready("Unknown"), false, true),
            ["own:NoExecute", "unreachable:NoExecute", "unreachable:NoSchedule"]
        );
        assert_eq!(row(ready("Unknown"), false, false), ["own:NoExecute", "unreachable:NoSchedule"]);
        assert_eq!(row(json!([]), false, true), ["own:NoExecute", "not-ready:NoSchedule"]);
        let pressure =
            json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]);
        assert_eq!(row(pressure, false, true), ["own:NoExecute", "disk-pressure:NoSchedule"]);
    }

    #[test]
    fn tolerations_last() {
        let taints: Vec<Taint> = serde_json::from_value(json!([
            {"key": "a", "value": "x", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"},
            {"key": "c", "effect": "NoSchedule"},
        ]))
        .unwrap();
        let rows = [
            (json!([]), Some(0)),
            (json!([{"operator": "Exists"}]), None),
            (json!([{"key": "a", "operator": "Exists"}]), Some(0)),
            (json!([{"key": "a", "value": "y"}, {"key": "b", "operator": "Exists"}]), Some(0)),
            (
                json!([{"key": "a", "value": "x", "tolerationSeconds": 9}, {"key": "b", "operator": "Exists"}]),
                Some(9),
            ),
            (
                json!([{"key": "a", "operator": "Exists", "tolerationSeconds": 9},
                       {"key": "b", "operator": "Exists", "tolerationSeconds": -1}]),
                Some(0),
            ),
        ];
        for (tolerations, seconds) in rows {
            let parsed: Vec<Toleration> = serde_json::from_value(tolerations.clone()).unwrap();
            assert_eq!(stays(&taints, &parsed).map(|s| s.as_secs()), seconds, "{tolerations}");
        }
    }
}
