//! Preemption gates of variants: one variant of a parent preempts at a time, the most favorable one first.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::kueue::variants::PREEMPTION_GATE;
use plimsoll_api::resource::WORKLOADS;
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use serde_json::{Value, json};

use super::{Family, Step, event, quoted};
use crate::plan::{Write, patch_status};
use crate::{Env, names, workload};

/// How many seconds a variant may preempt before the next one may, too.
const PREEMPTION_TIMEOUT: u32 = 300;

/// Whether a variant may be queued (Kueue `IsAdmissible`).
fn is_admissible(wl: &Value) -> bool {
    json::annotation(wl, names::GATED_BY).unwrap_or_default().is_empty()
        && wl["spec"]["active"] != false
        && !["Finished", "QuotaReserved", "WaitingForReplacementPods"].iter().any(|c| json::is_true(wl, c))
        && !workload::is_on_hold(wl)
}

/// When the gate of a variant was opened, if it is open.
fn opened_at(variant: &Value) -> Option<Time> {
    let mut gates = json::list(variant, &["status", "preemptionGates"]).iter();
    let gate = gates.find(|g| g["name"] == PREEMPTION_GATE && g["position"] == "Open")?;
    Some(timestamp::parse(json::text(gate, &["lastTransitionTime"])).unwrap_or_default())
}

/// The most favorable variant that waits for its gate, unless one before it has not been looked at yet (Kueue
/// `firstCandidateVariant`).
fn candidate<'a>(admissible: &[&'a Arc<Value>]) -> Option<&'a Arc<Value>> {
    for &variant in admissible.iter().filter(|v| opened_at(v).is_none()) {
        if json::is_true(variant, "BlockedOnPreemptionGates") {
            return Some(variant);
        }
        json::condition(variant, "QuotaReserved")?;
    }
    None
}

fn open(variant: &Value, now: Time) -> [Write; 2] {
    let mut gates = json::list(variant, &["status", "preemptionGates"]).to_vec();
    gates.retain(|g| g["name"] != PREEMPTION_GATE);
    let at = timestamp::text(now);
    gates.push(json!({"name": PREEMPTION_GATE, "position": "Open", "lastTransitionTime": at}));
    let told = format!("Opened preemption gate for variant workload {}", quoted(variant));
    [
        patch_status(WORKLOADS, variant, &json!({ "preemptionGates": gates })),
        event(variant, "PreemptionUngatedVariant", told),
    ]
}

impl Family<'_> {
    /// Opens the gate of the next variant, once those before it have had time to preempt.
    pub(super) fn open_gate(&self, env: Env<'_>) -> Step {
        let admissible: Vec<&Arc<Value>> =
            self.variants.iter().copied().filter(|v| is_admissible(v)).collect();
        let candidate = candidate(&admissible)?;
        let last = admissible.iter().filter_map(|v| opened_at(v)).max();
        let timeout = plimsoll_state::Duration::from_seconds(PREEMPTION_TIMEOUT.into());
        let ends = last.map(|at| at.plus(timeout)).filter(|end| *end > env.now);
        if let Some(end) = ends {
            let left = u64::try_from(end.since(env.now).0).unwrap_or_default();
            return Some(vec![Write::RequeueAfter(Duration::from_nanos(left))]);
        }
        let mut plan = open(candidate, env.now).to_vec();
        plan.push(Write::RequeueAfter(Duration::from_secs(PREEMPTION_TIMEOUT.into())));
        Some(plan)
    }
}
