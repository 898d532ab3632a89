//! The engine's answers → statuses of Kueue objects, as JSON merge patches.

use plimsoll_queueing::{
    Admission, AdmissionCheckState, Amounts, CheckState, Condition, Delayed, OUTSIDE, QueueStatus,
    ResourceUsage, TopologyAssignment, WorkloadUpdate, cond,
};
use plimsoll_state::Time;
use plimsoll_state::collect::InsertEach as _;
use serde_json::{Map, Value, json};

use super::convert::individual;
use crate::json as read;
use crate::quantity::{Format, Quantity};

/// Longest message of a condition (metav1 limit).
const MAX_MESSAGE: usize = 32 * 1024;

fn time(at: Time) -> Value {
    let stamp = jiff::Timestamp::from_second(at.seconds()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    json!(stamp.to_string())
}

/// An amount as Kueue writes it: cpu in decimal steps of a thousandth, memory and storage binary.
pub fn amount(resource: &str, value: i64) -> Value {
    amount_of(resource, value, false)
}

/// [`amount`] of a resource that counts `bytes`, though its name doesn't say so.
fn amount_of(resource: &str, value: i64, bytes: bool) -> Value {
    let binary = bytes
        || matches!(resource, "memory" | "ephemeral-storage" | "storage")
        || resource.starts_with("hugepages-");
    let q = match resource {
        "cpu" => Quantity::milli(value, Format::DecimalSi),
        _ if binary => Quantity::new(value, Format::BinarySi),
        _ => Quantity::new(value, Format::DecimalSi),
    };
    json!(q.to_string())
}

fn amounts(resources: &Amounts, bytes: &[String]) -> Value {
    let amount = |(k, v): (&str, i64)| (k.to_owned(), amount_of(k, v, bytes.iter().any(|b| b == k)));
    Value::Object(resources.iter().map(amount).insert_each())
}

fn cut(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}

fn condition(c: &Condition) -> Value {
    let mut out = json!({
        "type": c.kind, "status": if c.status { "True" } else { "False" },
        "reason": c.reason, "message": cut(&c.message), "lastTransitionTime": time(c.transition),
    });
    if c.observed_generation > 0 {
        out["observedGeneration"] = json!(c.observed_generation);
    }
    out
}

/// Whether the update takes the workload for one without quota, while the object holds an admission that the update does
/// not clear: the admission was written, and its answer was lost. Such an update must fail, so that the engine takes on
/// the object as it is; written, it would leave an admission without the condition QuotaReserved.
pub fn contradicts_admission(object: &Value, update: &WorkloadUpdate) -> bool {
    let unreserved = update.conditions.iter().any(|c| c.kind == cond::QUOTA_RESERVED && !c.status)
        || update.removed_conditions.iter().any(|c| c == cond::QUOTA_RESERVED);
    unreserved && update.admission.is_none() && !object["status"]["admission"].is_null()
}

/// Whether the update admits a workload of which an admission check is no longer ready: its controller was faster. Such an
/// update must fail, so that the engine takes on the check's state.
pub fn admits_unready(object: &Value, update: &WorkloadUpdate) -> bool {
    let admits = update.conditions.iter().any(|c| c.kind == cond::ADMITTED && c.status);
    let rows = read::list(object, &["status", "admissionChecks"]);
    admits
        && update.admission_checks.is_none()
        && !read::is_true(object, cond::ADMITTED)
        && rows.iter().any(|row| row["state"] != "Ready")
}

/// Whether the update gives quota to a workload whose spec has changed since that was decided: the quota is enough for what
/// it asked for then. Such an update must fail, so that the engine decides anew, as Kueue does when its write conflicts.
pub fn reserves_for_another_spec(object: &Value, update: &WorkloadUpdate) -> bool {
    let reserved = update.conditions.iter().find(|c| c.kind == cond::QUOTA_RESERVED && c.status);
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    matches!(update.admission, Some(Some(_)))
        && object["status"]["admission"].is_null()
        && reserved.is_some_and(|c| c.observed_generation > 0 && c.observed_generation < generation)
}

/// Whether the update gives quota to a workload, or admits it, that was finished since that was decided: its job needs it no longer.
/// Such an update must fail: a slice that has finished would replace the one that its pods run in.
pub fn admits_finished(object: &Value, update: &WorkloadUpdate) -> bool {
    read::is_true(object, cond::FINISHED) && admits(update)
}

/// Whether the update gives quota to its workload, or admits it.
pub fn admits(update: &WorkloadUpdate) -> bool {
    let admits = |c: &Condition| c.status && [cond::QUOTA_RESERVED, cond::ADMITTED].contains(&&*c.kind);
    matches!(update.admission, Some(Some(_))) || update.conditions.iter().any(admits)
}

/// The merge patch for `status` that makes `update` happen to `object`, as it is now. Lists are whole, because a
/// merge patch replaces them.
pub fn workload_status_patch(object: &Value, update: &WorkloadUpdate) -> Value {
    let mut out = Map::new();
    let old = &object["status"];
    if !update.conditions.is_empty() || !update.removed_conditions.is_empty() {
        let mut list: Vec<Value> = old["conditions"].as_array().cloned().unwrap_or_default();
        list.retain(|c| !update.removed_conditions.iter().any(|r| c["type"] == r.as_str()));
        for new in &update.conditions {
            match list.iter_mut().find(|c| c["type"] == new.kind.as_str()) {
                Some(slot) => *slot = condition(new),
                None => list.push(condition(new)),
            }
        }
        out.insert("conditions".into(), Value::Array(list));
    }
    if let Some(admission) = &update.admission {
        let value =
            admission.as_ref().map_or(Value::Null, |a| render_admission(a, &old["admission"], &update.bytes));
        out.insert("admission".into(), value);
    }
    if let Some(state) = &update.requeue_state {
        let value = state.as_ref().map_or(Value::Null, |s| {
            // Backoffs of admission checks are not counted.
            let count = if s.count > 0 { json!(s.count) } else { Value::Null };
            json!({"count": count, "requeueAt": s.requeue_at.map_or(Value::Null, time)})
        });
        out.insert("requeueState".into(), value);
    }
    if let Some(checks) = &update.admission_checks {
        let rows = checks.iter().map(|c| check(c, &old["admissionChecks"])).collect();
        out.insert("admissionChecks".into(), Value::Array(rows));
    } else if let Some(rows) = asked_anew(update, &old["admissionChecks"]) {
        out.insert("admissionChecks".into(), rows);
    }
    if let Some(requests) = &update.resource_requests {
        let rows: Vec<Value> = requests
            .iter()
            .map(|(name, r)| json!({"name": name, "resources": amounts(r, &update.bytes)}))
            .collect();
        out.insert("resourceRequests".into(), if rows.is_empty() { Value::Null } else { Value::Array(rows) });
    }
    if let Some(evictions) = &update.evictions {
        let row = |e: &plimsoll_queueing::EvictionCount| json!({"reason": e.reason, "underlyingCause": e.cause, "count": e.count});
        let rows: Vec<Value> = evictions.iter().map(row).collect();
        out.insert("schedulingStats".into(), json!({ "evictions": rows }));
    }
    if let Some(nodes) = &update.unhealthy_nodes {
        let rows: Vec<Value> = nodes.iter().map(|n| json!({ "name": n })).collect();
        let value = if rows.is_empty() { Value::Null } else { Value::Array(rows) };
        out.insert("unhealthyNodes".into(), value);
    }
    // An evicted workload leaves its cluster (Kueue `resetClusterNomination`).
    if update.conditions.iter().any(|c| c.kind == cond::EVICTED && c.status) {
        for key in ["clusterName", "nominatedClusterNames"].into_iter().filter(|key| !old[key].is_null()) {
            out.insert(key.into(), Value::Null);
        }
    }
    if let Some(seconds) = update.past_execution_seconds {
        out.insert("accumulatedPastExecutionTimeSeconds".into(), json!(seconds));
    }
    if let Some(gates) = &update.preemption_gates {
        let row = |g: &plimsoll_queueing::PreemptionGateState| {
            let position = if g.open { "Open" } else { "Closed" };
            json!({"name": g.name, "position": position, "lastTransitionTime": time(g.transition)})
        };
        out.insert("preemptionGates".into(), gates.iter().map(row).collect());
    }
    Value::Object(out)
}

/// `status.admission`.
pub fn admission(admission: &Admission) -> Value {
    render_admission(admission, &Value::Null, &[])
}

/// Every field that the old admission has and the new one lacks is named with null, so that it goes.
fn render_admission(admission: &Admission, old: &Value, bytes: &[String]) -> Value {
    let rows: Vec<Value> = admission
        .assignments
        .iter()
        .map(|a| {
            let flavors: Map<String, Value> =
                a.flavors.iter().map(|(r, f)| (r.clone(), json!(f))).insert_each();
            let mut row = json!({"name": a.name, "flavors": flavors, "count": a.count});
            row["resourceUsage"] = amounts(&a.resource_usage, bytes);
            if let Some(topology) = &a.topology {
                row["topologyAssignment"] = render_topology(topology);
            }
            if let Some(delayed) = a.delayed {
                let text = if delayed == Delayed::Pending { "Pending" } else { "Ready" };
                row["delayedTopologyRequest"] = json!(text);
            }
            if let Some(target) = a.reclaim_target {
                row["reclaimTargetCount"] = json!(target);
            }
            row
        })
        .collect();
    let mut out = json!({"clusterQueue": admission.cluster_queue, "podSetAssignments": rows});
    for key in old.as_object().into_iter().flat_map(Map::keys) {
        if out.get(key).is_none() {
            out[key.as_str()] = Value::Null;
        }
    }
    out
}

/// Fewer names of nodes are written whole, which is easier to read.
const WHOLE_NAMES: usize = 64;

/// One slice; values that all domains share are written once, and for many domains also what their values begin and end with: for
/// thousands of nodes the object would grow too large.
fn render_topology(topology: &TopologyAssignment) -> Value {
    let per_level: Vec<Value> = (0..topology.levels.len())
        .map(|level| {
            let values: Vec<&str> =
                topology.domains.iter().map(|d| d.0.get(level).map_or("", String::as_str)).collect();
            match values.split_first() {
                _ if values.len() > WHOLE_NAMES => individual(&values),
                Some((first, rest)) if rest.iter().all(|v| v == first) => json!({"universal": first}),
                _ => json!({"individual": {"roots": values}}),
            }
        })
        .collect();
    let counts: Vec<i32> = topology.domains.iter().map(|d| d.1).collect();
    let counts = match counts.split_first() {
        Some((first, rest)) if rest.iter().all(|c| c == first) => json!({"universal": first}),
        _ => json!({"individual": counts}),
    };
    let slice =
        json!({"domainCount": topology.domains.len(), "valuesPerLevel": per_level, "podCounts": counts});
    json!({"levels": topology.levels, "slices": [slice]})
}

fn check(c: &AdmissionCheckState, old: &Value) -> Value {
    let before = old.as_array().into_iter().flatten().find(|o| o["name"] == c.name.as_str());
    // A row that is added may be there already, where the answer to an earlier write was lost, and its check may have
    // answered since. A reset has a message.
    if let Some(answered) = before.filter(|o| o["state"] != CheckState::Pending.as_str())
        && c.state == CheckState::Pending
        && c.message.is_empty()
    {
        return answered.clone();
    }
    // What the check's controller added stays while the state does.
    let mut out = match before {
        Some(o) if o["state"] == c.state.as_str() => o.clone(),
        _ => json!({"name": c.name}),
    };
    out["state"] = json!(c.state.as_str());
    out["message"] = json!(cut(&c.message));
    out["lastTransitionTime"] = time(c.transition);
    if let Some(seconds) = c.requeue_after_seconds {
        out["requeueAfterSeconds"] = json!(seconds);
    }
    if let Some(count) = c.retry_count {
        out["retryCount"] = json!(count);
    }
    out
}

/// Admission checks that this release of a reservation resets because they answered after the engine had decided on it. Kueue resets
/// all checks with every eviction, and this release is none. A failed check goes back to Pending: no controller changes the answer for
/// a workload without quota, so the workload would stay pending for ever. A run window also resets checks that are Ready: what they
/// have provisioned may be gone when the window opens.
fn asked_anew(update: &WorkloadUpdate, old: &Value) -> Option<Value> {
    let lost = update.conditions.iter().find(|c| c.kind == cond::QUOTA_RESERVED && !c.status)?;
    let pending = CheckState::Pending.as_str();
    let resets = |row: &Value| {
        let failed = [CheckState::Retry, CheckState::Rejected].iter().any(|s| row["state"] == s.as_str());
        failed || (lost.reason == OUTSIDE && row["state"] != pending)
    };
    let mut rows = old.as_array()?.clone();
    if update.admission != Some(None) || !rows.iter().any(resets) {
        return None;
    }
    for row in rows.iter_mut().filter(|row| resets(row)) {
        let message = format!("Reset to Pending after eviction. Previously: {}", read::text(row, &["state"]));
        let mut reset = json!({"name": row["name"], "state": pending, "message": message,
                               "lastTransitionTime": time(lost.transition)});
        if row["state"] == CheckState::Retry.as_str() {
            reset["retryCount"] = (row["retryCount"].as_i64().unwrap_or(0).saturating_add(1)).into();
        }
        *row = reset;
    }
    Some(rows.into())
}

/// Usage rows grouped by flavor, in their order.
fn usage(rows: &[ResourceUsage], borrowed: bool) -> Value {
    let mut out: Vec<Value> = Vec::new();
    for ResourceUsage { flavor, resource, total, borrowed: lent, bytes } in rows {
        let mut row = json!({"name": **resource, "total": amount_of(resource, *total, *bytes)});
        if borrowed {
            row["borrowed"] = amount_of(resource, *lent, *bytes);
        }
        match out.iter_mut().find(|f| f["name"] == **flavor).map(|f| &mut f["resources"]) {
            Some(Value::Array(list)) => list.push(row),
            _ => out.push(json!({"name": **flavor, "resources": [row]})),
        }
    }
    if out.is_empty() { Value::Null } else { Value::Array(out) }
}

fn counts(status: &QueueStatus) -> Value {
    json!({
        "pendingWorkloads": status.pending, "reservingWorkloads": status.reserving,
        "admittedWorkloads": status.admitted,
    })
}

/// `status` of a ClusterQueue without its conditions.
pub fn cluster_queue_status(status: &QueueStatus) -> Value {
    let mut out = counts(status);
    out["flavorsReservation"] = usage(&status.reservation, true);
    out["flavorsUsage"] = usage(&status.usage, true);
    if let Some(share) = status.weighted_share {
        out["fairSharing"] = json!({"weightedShare": share});
    }
    out
}

/// `status` of a LocalQueue without its conditions.
pub fn local_queue_status(status: &QueueStatus) -> Value {
    let mut out = counts(status);
    out["flavorsReservation"] = usage(&status.reservation, false);
    out["flavorsUsage"] = usage(&status.usage, false);
    if let Some((consumed, at)) = &status.consumed {
        let rows: Map<String, Value> = consumed
            .iter()
            .map(|(name, nanos)| {
                (name.clone(), json!(Quantity::from_nanos(*nanos, Format::DecimalSi).to_string()))
            })
            .insert_each();
        out["fairSharing"] = json!({
            "weightedShare": status.weighted_share.unwrap_or(0),
            "admissionFairSharingStatus": {"consumedResources": rows, "lastUpdate": time(*at)},
        });
    }
    out
}
