//! Retention of workloads that have ended (`objectRetentionPolicies`, Kueue KEP-1618).

use plimsoll_api::event::EventRecord;
use plimsoll_api::resource::{JOBS, PODS, Resource, WORKLOADS};
use plimsoll_api::{json, timestamp};
use plimsoll_state::Time;
use plimsoll_state::time::Duration;
use serde_json::Value;

use crate::Env;
use crate::custom_kind::CustomKind;
use crate::plan::{self, Plan, Write, delete, event};
use crate::store::Kind;

/// Longest time until the next look.
const MAX_REQUEUE: std::time::Duration = std::time::Duration::from_secs(3600);

/// Whether a workload may have a retention period.
pub(crate) fn concerns(wl: &Value) -> bool {
    json::is_true(wl, "Finished") || wl["spec"]["active"] == false
}

/// Deletes a workload whose retention period has ended, or requeues it for then.
pub(crate) fn plan(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some(wl) = env.objects.get(Kind::Workload, namespace, name).filter(|w| !json::deleting(w)) else {
        return Plan::new();
    };
    let config = env.config;
    if let (Some(after), Some(finished)) = (config.retain_after_finished, since(&wl, "Finished")) {
        return until_end_of(finished, after, env).unwrap_or_else(|| {
            let message = "Deleted finished workload due to elapsed retention";
            let record = plan::record(WORKLOADS, &wl, false, "Deleted", message);
            let told = EventRecord { reporting_controller: plan::WORKLOAD_CONTROLLER.into(), ..record };
            vec![delete(WORKLOADS, &wl), Write::Event(Box::new(told))]
        });
    }
    let deactivated = wl["spec"]["active"] == false
        && json::condition(&wl, "Evicted")
            .is_some_and(|c| json::text(c, &["reason"]).starts_with("DeactivatedDueTo"));
    match (config.retain_after_deactivated, since(&wl, "Evicted")) {
        (Some(after), Some(evicted)) if deactivated => {
            until_end_of(evicted, after, env).unwrap_or_else(|| delete_jobs(&wl, env))
        }
        _ => Plan::new(),
    }
}

/// Since when a condition is true.
fn since(wl: &Value, kind: &str) -> Option<Time> {
    let condition = json::condition(wl, kind).filter(|c| c["status"] == "True")?;
    timestamp::parse(json::text(condition, &["lastTransitionTime"]))
}

/// Requeues for the end of the period; `None` when it has ended.
fn until_end_of(from: Time, after: Duration, env: Env<'_>) -> Option<Plan> {
    let left = from.plus(after).since(env.now);
    if left <= Duration::ZERO {
        return None;
    }
    let pause = std::time::Duration::from_nanos(u64::try_from(left.0).unwrap_or(0));
    Some(vec![Write::RequeueAfter(pause.min(MAX_REQUEUE))])
}

/// Deletes the jobs of a workload; the garbage collector deletes the workload with them.
fn delete_jobs(wl: &Value, env: Env<'_>) -> Plan {
    let namespace = json::namespace(wl);
    let mut plan = Plan::new();
    for owner in json::list(wl, &["metadata", "ownerReferences"]) {
        let Some((kind, resource)) = kind_of(owner, env) else { continue };
        let found = env.objects.get(kind, namespace, json::text(owner, &["name"]));
        let Some(job) = found.filter(|j| json::uid(j) == json::text(owner, &["uid"]) && !json::deleting(j))
        else {
            continue;
        };
        plan.push(delete(resource, &job));
        let message = "Deleted job: deactivation retention period expired";
        plan.push(event(resource, &job, false, "Deleted", message));
    }
    plan
}

/// The kind of job that an owner is, and its resource in the version that is served.
fn kind_of(owner: &Value, env: Env<'_>) -> Option<(Kind, Resource)> {
    let (version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    match (version, kind) {
        ("batch/v1", "Job") => Some((Kind::Job, JOBS)),
        ("v1", "Pod") => Some((Kind::Pod, PODS)),
        _ => {
            let objects = env.objects;
            let custom = CustomKind::of_kind(version, kind)
                .or_else(|| objects.declared_of_kind(version, kind))
                .or_else(|| objects.external_of_kind(version, kind))?;
            let of_custom = Kind::Custom(custom);
            Some((of_custom, objects.served(of_custom).unwrap_or(custom.preferred())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ObjectStore};
    use serde_json::json;

    const START: i64 = 1_700_000_000;

    fn workload(active: bool, condition: &str, reason: &str) -> Value {
        json!({
            "metadata": {"name": "w", "namespace": "n", "uid": "u", "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "ju", "controller": true}]},
            "spec": {"active": active},
            "status": {"conditions": [{"type": condition, "status": "True", "reason": reason,
                "lastTransitionTime": timestamp::text(Time::from_seconds(START))}]},
        })
    }

    #[test]
    fn what_is_over_goes_in_time() {
        let config = Config {
            retain_after_finished: Some(Duration::from_seconds(60)),
            retain_after_deactivated: Some(Duration::ZERO),
            ..Config::default()
        };
        let after = |wl: Value, config: &Config, seconds: i64| -> Vec<String> {
            let mut objects = ObjectStore::default();
            objects.put(Kind::Workload, wl);
            let job = json!({"metadata": {"name": "j", "namespace": "n", "uid": "ju"}});
            objects.put(Kind::Job, job.clone());
            objects.put(Kind::Custom(CustomKind::JOB_SET), job);
            let now = Time::from_seconds(START + seconds);
            let writes = plan("n", "w", Env { objects: &objects, config, now });
            assert!(writes.is_empty() || config.concerns(&crate::Key::Retention("n".into(), "w".into())));
            let say = |w: &Write| match w {
                Write::Delete { resource, name, .. } => format!("delete {} {name}", resource.kind),
                Write::RequeueAfter(pause) => format!("again in {}", pause.as_secs()),
                Write::Event(n) => format!("{} {}", n.reason, n.reporting_controller),
                other => format!("{other:?}"),
            };
            writes.iter().map(say).collect()
        };
        let finished = workload(true, "Finished", "Succeeded");
        assert_eq!(after(finished.clone(), &config, 20), ["again in 40"]);
        assert_eq!(
            after(finished.clone(), &config, 60),
            ["delete Workload w", "Deleted kueue-workload-controller"]
        );
        let deactivated = workload(false, "Evicted", "DeactivatedDueToRequeuingLimitExceeded");
        assert_eq!(after(deactivated, &config, 0), ["delete Job j", "Deleted batch/job-kueue-controller"]);
        let mut job_set = workload(false, "Evicted", "DeactivatedDueToRequeuingLimitExceeded");
        job_set["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "name": "j", "uid": "ju", "controller": true}]);
        let told = "Deleted jobset.x-k8s.io/jobset-kueue-controller";
        assert_eq!(after(job_set, &config, 0), ["delete JobSet j", told]);
        // By its user: kept.
        assert!(after(workload(false, "Evicted", "Deactivated"), &config, 9999).is_empty());
        assert!(after(finished, &Config::default(), 9999).is_empty());
    }
}
