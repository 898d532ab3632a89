//! Bounds of a run: how long workloads may wait, where a scenario is made so that this is known.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bounds of a run. Times are milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// The longest wait for nodes of a workload that has quota, by priority.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub waited: BTreeMap<i64, i64>,
    /// The longest time between a preemption and the start of the workload that it was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempting: Option<i64>,
    /// Whether the scheduler has a node for every pod at its first attempt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub placed: bool,
}

impl Bounds {
    /// Whether there are none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
