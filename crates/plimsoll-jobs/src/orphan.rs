//! Workloads without an owner (Kueue's gate FinishOrphanedWorkloads): the workload is finished, which releases its
//! quota, and loses its finalizer.

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::resource::{JOBS, PODS, STATEFUL_SETS, WORKLOADS};
use serde_json::Value;

use crate::custom_kind::CustomKind;
use crate::key::Key;
use crate::plan::{Plan, Write, remove_finalizer};
use crate::store::{Kind, ObjectStore};
use crate::{Env, names, workload};

/// Whether a workload may be an orphan: without owner, when it once had one or is being deleted; or being deleted with an
/// owner that may be another object of that name by now.
pub(crate) fn concerns(wl: &Value) -> bool {
    is_orphan(wl) || json::deleting(wl) && json::has_finalizer(wl, names::IN_USE)
}

/// Kueue's `isOrphanedWorkload`. A workload that a user created has no label with the UID of a job, and a prebuilt one
/// gets it together with its owner.
fn is_orphan(wl: &Value) -> bool {
    json::list(wl, &["metadata", "ownerReferences"]).is_empty()
        && (json::deleting(wl) || !json::label(wl, names::JOB_UID).is_empty())
}

/// The workloads of a deleted owner that are being deleted, too.
pub(crate) fn affected(objects: &ObjectStore, owner: &str) -> Vec<Key> {
    let key = |w: Arc<Value>| Key::Orphan(json::namespace(&w).to_owned(), json::name(&w).to_owned());
    objects.owned_by(owner).filter(|w| concerns(w)).map(key).collect()
}

/// The next write for one workload.
pub(crate) fn plan(namespace: &str, name: &str, env: Env<'_>) -> Plan {
    let Some(wl) = env.objects.get(Kind::Workload, namespace, name) else { return Plan::new() };
    if is_orphan(&wl) {
        return finish(&wl, true, env);
    }
    // A job that was recreated under its name reconciles workloads of its own UID only.
    let ownerless = json::controller(&wl).and_then(|o| Some((o, job_kind(o, env.objects)?))).is_some_and(
        |(owner, kind)| {
            let job = env.objects.get(kind, namespace, json::text(owner, &["name"]));
            job.is_none_or(|j| json::uid(&j) != json::text(owner, &["uid"]))
        },
    );
    if ownerless && json::deleting(&wl) { finish(&wl, false, env) } else { Plan::new() }
}

/// The next writes for workloads whose owner is deleted or being deleted (Kueue's `finalizeWorkloads`). Those that have a
/// controller are finished, so that they release their quota even when their deletion is orphaned.
pub(crate) fn finalize(workloads: &[Arc<Value>], env: Env<'_>) -> Plan {
    workloads.iter().flat_map(|w| finish(w, json::controller(w).is_some(), env)).collect()
}

/// [`finalize`] where no owner is known. A replica that has just begun to lead may know a workload before its owner: an owner
/// whose end the watch has not shown is asked for.
pub(crate) fn finalize_ownerless(workloads: &[Arc<Value>], env: Env<'_>) -> Plan {
    let owners = workloads.iter().flat_map(|w| {
        let owners = json::list(w, &["metadata", "ownerReferences"]).iter();
        owners.filter_map(|o| if_gone(json::namespace(w), o, env))
    });
    let writes = finalize(workloads, env);
    if writes.is_empty() { writes } else { owners.chain(writes).collect() }
}

/// The kind of job that an owner reference names; pods excepted.
fn job_kind(owner: &Value, objects: &ObjectStore) -> Option<Kind> {
    let (api_version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    if (api_version, kind) == (JOBS.api_version, JOBS.kind) {
        return Some(Kind::Job);
    }
    let declared = || objects.declared_of_kind(api_version, kind);
    CustomKind::of_kind(api_version, kind).or_else(declared).map(Kind::Custom)
}

fn if_gone(namespace: &str, owner: &Value, env: Env<'_>) -> Option<Write> {
    let uid = json::text(owner, &["uid"]);
    let kind = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    let built_in = [JOBS, PODS, STATEFUL_SETS].into_iter().find(|r| (r.api_version, r.kind) == kind);
    // Of a kind that is not served any more there is no object left.
    let custom =
        || CustomKind::of_kind(kind.0, kind.1).or_else(|| env.objects.declared_of_kind(kind.0, kind.1));
    let served = || env.objects.served(Kind::Custom(custom()?));
    let resource = built_in.or_else(served)?;
    let (name, uid) = (json::text(owner, &["name"]).to_owned(), uid.to_owned());
    (!env.objects.was_removed(&uid)).then(|| Write::IfGone {
        resource,
        namespace: namespace.to_owned(),
        name,
        uid,
    })
}

/// Kueue's `FinalizeOrphanedWorkload`, one write at a time: the next one follows when the watch shows this one.
fn finish(wl: &Value, may_finish: bool, env: Env<'_>) -> Plan {
    if may_finish && !json::deleting(wl) && !json::is_true(wl, "Finished") {
        return workload::finish(wl, "OwnerNotFound", "The workload's owner no longer exists", env.now);
    }
    remove_finalizer(WORKLOADS, wl, names::IN_USE).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_state::Time;
    use serde_json::json;

    use super::*;
    use crate::{Config, ObjectStore};

    /// The writes for a workload with these owners and this label, one word each.
    fn writes(metadata: &Value, finished: bool) -> Vec<&'static str> {
        let mut wl =
            json!({"metadata": {"namespace": "n", "name": "w", "uid": "u", "finalizers": [names::IN_USE]}});
        for (key, value) in metadata.as_object().unwrap() {
            wl["metadata"][key] = value.clone();
        }
        if finished {
            wl["status"] = json!({"conditions": [{"type": "Finished", "status": "True"}]});
        }
        let mut objects = ObjectStore::default();
        objects.put(Kind::Job, json!({"metadata": {"namespace": "n", "name": "j", "uid": "new"}}));
        let concerned = concerns(&wl);
        objects.put(Kind::Workload, wl);
        let plan =
            plan("n", "w", Env { objects: &objects, config: &Config::default(), now: Time::from_seconds(9) });
        assert!(concerned || plan.is_empty());
        let word = |w: &Write| match w {
            Write::Patch { subresource: "status", .. } => "finish",
            Write::Patch { .. } => "release",
            _ => "other",
        };
        plan.iter().map(word).collect()
    }

    #[test]
    fn only_workloads_that_lost_their_owner_are_finished() {
        let label = json!({names::JOB_UID: "old"});
        let owner = |uid: &str| json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true}]);
        let gone = "2026-01-01T00:00:00Z";
        let table: [(Value, bool, &[&str]); 8] = [
            (json!({"labels": label}), false, &["finish"]),
            (json!({"labels": label}), true, &["release"]),
            (json!({"labels": label, "finalizers": []}), true, &[]),
            // Made by a user.
            (json!({}), false, &[]),
            (json!({"deletionTimestamp": gone}), false, &["release"]),
            (json!({"labels": label, "ownerReferences": owner("new")}), false, &[]),
            (json!({"ownerReferences": owner("new"), "deletionTimestamp": gone}), false, &[]),
            (json!({"ownerReferences": owner("old"), "deletionTimestamp": gone}), false, &["release"]),
        ];
        for (metadata, finished, want) in table {
            assert_eq!(writes(&metadata, finished), want, "{metadata}");
        }
    }
}
