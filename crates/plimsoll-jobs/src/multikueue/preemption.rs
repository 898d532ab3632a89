//! Orchestrated preemption (Kueue KEP-8303, gate `MultiKueueOrchestratedPreemption`): copies may not preempt until the manager
//! opens their gate, for one worker after the other. Otherwise a workload would preempt others on all workers, and run on one.

use plimsoll_api::resource::WORKLOADS;
use plimsoll_api::{json, timestamp};
use plimsoll_state::{Duration, Time};
use serde_json::{Value, json};

use super::group::Group;
use crate::names;
use crate::plan::{Write, patch_status};

/// The gate of copies (Kueue `MultiKueuePreemptionGate`).
const GATE: &str = names::MULTIKUEUE;
/// How long the others wait for a worker whose gate is open (`singleClusterPreemptionTimeout`).
const TIMEOUT: Duration = Duration::from_seconds(5 * 60);

/// Gives a new copy its gate. Those of the manager's workload are the manager's own.
pub(super) fn close(copy: &mut Value) {
    json::set(copy, &["spec", "preemptionGates"], json!([{ "name": GATE }]));
}

/// The write that opens the next gate, on which worker, and when the one after it may be opened (Kueue
/// `workloadToOpenPreemptionGate`).
pub(super) fn open(group: &Group<'_>) -> (Option<(String, Write)>, Option<Duration>) {
    if !group.env.config.multikueue.orchestrates_preemption {
        return (None, None);
    }
    let mut opened: Option<Time> = None;
    let mut next: Option<(&str, &str, &Value)> = None;
    for (cluster, copy) in &group.remotes {
        let Some(wl) = copy.workload.as_deref() else { continue };
        let states = json::list(wl, &["status", "preemptionGates"]);
        if let Some(state) = states.iter().find(|s| s["name"] == GATE && s["position"] == "Open") {
            opened = opened.max(timestamp::parse(json::text(state, &["lastTransitionTime"])));
            continue;
        }
        let blocked = json::condition(wl, "BlockedOnPreemptionGates").filter(|c| c["status"] == "True");
        let Some(since) = blocked.map(|c| json::text(c, &["lastTransitionTime"])) else { continue };
        if next.is_none_or(|(_, first, _)| since < first) {
            next = Some((*cluster, since, wl));
        }
    }
    let Some((cluster, _, wl)) = next else { return (None, None) };
    let now = group.env.now;
    let left = opened.map(|at| at.plus(TIMEOUT).since(now)).filter(|left| *left > Duration::ZERO);
    if left.is_some() {
        return (None, left);
    }
    let mut states = json::list(wl, &["status", "preemptionGates"]).to_vec();
    states.retain(|state| state["name"] != GATE);
    states.push(json!({"name": GATE, "position": "Open", "lastTransitionTime": timestamp::text(now)}));
    let write = patch_status(WORKLOADS, wl, &json!({ "preemptionGates": states }));
    (Some((cluster.to_owned(), write)), Some(TIMEOUT))
}
