//! How long workloads are kept once they are over (`objectRetentionPolicies`, Kueue KEP-1618).

use plimsoll_state::time::Duration;
use serde_json::Value;

use super::{Env, Write, note};
use crate::api::{JOBS, PODS, WORKLOADS};
use crate::cache::Kind;
use crate::{clock, json};

/// Whether a workload may have to go some time.
pub(super) fn concerns(wl: &Value) -> bool {
    json::is_true(wl, "Finished") || wl["spec"]["active"] == false
}

/// Deletes a workload that is over for long enough, or says when to look again.
pub(super) fn plan(namespace: &str, name: &str, env: Env<'_>) -> Vec<Write> {
    let Some(wl) = env.cache.get(Kind::Workload, namespace, name).filter(|w| !json::deleting(w)) else {
        return Vec::new();
    };
    let rules = env.cache.rules();
    if let (Some(after), Some(finished)) = (rules.delete_finished_after, since(&wl, "Finished")) {
        return after_a_while(finished, after, env).unwrap_or_else(|| {
            let message = "Deleted finished workload due to elapsed retention";
            vec![delete(&wl), note(WORKLOADS, &wl, false, "Deleted", message)]
        });
    }
    let deactivated = wl["spec"]["active"] == false
        && json::condition(&wl, "Evicted")
            .is_some_and(|c| json::text(c, &["reason"]).starts_with("DeactivatedDueTo"));
    match (rules.delete_deactivated_after, since(&wl, "Evicted")) {
        (Some(after), Some(evicted)) if deactivated => {
            after_a_while(evicted, after, env).unwrap_or_else(|| delete_jobs(&wl, env))
        }
        _ => Vec::new(),
    }
}

/// Since when a condition holds.
fn since(wl: &Value, kind: &str) -> Option<plimsoll_state::Time> {
    let condition = json::condition(wl, kind).filter(|c| c["status"] == "True")?;
    clock::parse(json::text(condition, &["lastTransitionTime"]))
}

/// A later look, unless the time has come.
fn after_a_while(from: plimsoll_state::Time, after: Duration, env: Env<'_>) -> Option<Vec<Write>> {
    let left = from.plus(after).since(env.now);
    if left <= Duration::ZERO {
        return None;
    }
    let pause = std::time::Duration::from_nanos(u64::try_from(left.0).unwrap_or(0));
    // A timer of days would be lost in a restart anyway, and is set again when the workload is seen again.
    Some(vec![Write::Again(pause.min(std::time::Duration::from_secs(3600)))])
}

fn delete(object: &Value) -> Write {
    Write::Delete {
        resource: WORKLOADS,
        namespace: json::namespace(object).to_owned(),
        name: json::name(object).to_owned(),
        uid: json::uid(object).to_owned(),
    }
}

/// Deletes the jobs of a workload; it goes with them.
fn delete_jobs(wl: &Value, env: Env<'_>) -> Vec<Write> {
    let namespace = json::namespace(wl);
    let mut writes = Vec::new();
    for owner in json::list(wl, &["metadata", "ownerReferences"]) {
        let (kind, resource) = match json::text(owner, &["kind"]) {
            "Job" => (Kind::Job, JOBS),
            "Pod" => (Kind::Pod, PODS),
            _ => continue,
        };
        let found = env.cache.get(kind, namespace, json::text(owner, &["name"]));
        let Some(job) = found.filter(|j| json::uid(j) == json::text(owner, &["uid"])) else { continue };
        writes.push(Write::Delete {
            resource,
            namespace: namespace.to_owned(),
            name: json::name(&job).to_owned(),
            uid: json::uid(&job).to_owned(),
        });
        let message = "Deleted job: deactivation retention period expired";
        writes.push(note(resource, &job, false, "Deleted", message));
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Cache;
    use crate::jobs::rules::Rules;
    use plimsoll_state::Time;
    use serde_json::json;

    const START: i64 = 1_700_000_000;

    fn workload(active: bool, condition: &str, reason: &str) -> Value {
        json!({
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju", "controller": true}]},
            "spec": {"active": active},
            "status": {"conditions": [{"type": condition, "status": "True", "reason": reason,
                "lastTransitionTime": clock::text(Time::from_seconds(START))}]},
        })
    }

    #[test]
    fn what_is_over_goes_in_time() {
        let rules = Rules {
            delete_finished_after: Some(Duration::from_seconds(60)),
            delete_deactivated_after: Some(Duration::ZERO),
            ..Rules::default()
        };
        let after = |wl: Value, rules: &Rules, seconds: i64| -> Vec<String> {
            let cache = Cache::with_rules(rules.clone());
            cache.put(Kind::Workload, wl);
            let job = json!({"metadata": {"name": "j", "namespace": "n", "uid": "ju"}});
            cache.put(Kind::Job, job);
            let now = Time::from_seconds(START + seconds);
            let writes = plan("n", "w", Env { cache: &cache, now, supervised: false });
            let say = |w: &Write| match w {
                Write::Delete { resource, name, .. } => format!("delete {} {name}", resource.kind),
                Write::Again(pause) => format!("again in {}", pause.as_secs()),
                Write::Note(n) => n.reason.clone(),
                other => format!("{other:?}"),
            };
            writes.iter().map(say).collect()
        };
        let finished = workload(true, "Finished", "Succeeded");
        assert_eq!(after(finished.clone(), &rules, 20), ["again in 40"]);
        assert_eq!(after(finished.clone(), &rules, 60), ["delete Workload w", "Deleted"]);
        let deactivated = workload(false, "Evicted", "DeactivatedDueToRequeuingLimitExceeded");
        assert_eq!(after(deactivated, &rules, 0), ["delete Job j", "Deleted"]);
        // By its user: kept.
        assert!(after(workload(false, "Evicted", "Deactivated"), &rules, 9999).is_empty());
        assert!(after(finished, &Rules::default(), 9999).is_empty());
    }
}
