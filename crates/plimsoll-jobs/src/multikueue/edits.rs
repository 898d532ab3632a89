//! Changes of a job that its copy on a worker gets while it runs (Kueue's `syncElasticJob`, `ElasticReplicaSync` and
//! `RemoteSpecSyncer`).

use plimsoll_api::json;
use serde_json::Value;

use super::{IDENTIFIERS, clusters_of_jobs, set_workload};
use crate::custom_kind::CustomKind;
use crate::job::pods_count;
use crate::kinds::ray;
use crate::store::Kind;
use crate::{Env, names};

/// The worker's job with the changes; the same where there are none.
pub(super) fn edited(kind: Kind, local: &Value, remote: &Value, workload: &Value, env: Env<'_>) -> Value {
    let mut new = remote.clone();
    match kind {
        Kind::Job if env.is_elastic(local) && pods_of(workload) == pods_count(local) => {
            copy(local, &["spec", "parallelism"], &mut new);
            rename(&mut new, workload);
        }
        Kind::Custom(CustomKind::RAY_CLUSTER)
            if env.is_elastic(local)
                && ray::has_sizes_of(local, json::list(workload, &["spec", "podSets"])) =>
        {
            ray::resize(local, &mut new);
            rename(&mut new, workload);
        }
        Kind::Custom(CustomKind::RAY_SERVICE) => copy(local, &["spec", "serveConfigV2"], &mut new),
        _ => {}
    }
    // Its RayCluster has changed its size there already, and its pods wait for the next slice.
    if clusters_of_jobs::has_cluster(kind) && env.is_elastic(local) {
        rename(&mut new, workload);
    }
    new
}

/// Pods of a workload. An elastic job that has another number of them is not given on: it has grown, and its next slice waits.
fn pods_of(workload: &Value) -> i64 {
    json::list(workload, &["spec", "podSets"]).iter().filter_map(|p| p["count"].as_i64()).sum()
}

/// Gives an elastic job the name of its workload: another slice has replaced the one before.
fn rename(job: &mut Value, workload: &Value) {
    if IDENTIFIERS.prebuilt_of(job) != json::name(workload) {
        json::remove(job, &["metadata", "labels", names::PREBUILT]);
        set_workload(job, json::name(workload));
    }
}

fn copy(from: &Value, path: &[&str], to: &mut Value) {
    match json::at(from, path) {
        Value::Null => drop(json::remove(to, path)),
        value => json::set(to, path, value.clone()),
    }
}
