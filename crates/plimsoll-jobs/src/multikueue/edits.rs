//! Changes of a job that its copy on a worker gets while it runs (Kueue's `syncElasticJob` and `RemoteSpecSyncer`).

use plimsoll_api::json;
use serde_json::Value;

use super::{IDENTIFIERS, set_workload};
use crate::custom_kind::CustomKind;
use crate::job::pods_count;
use crate::store::Kind;
use crate::{Env, names};

/// The worker's job with the changes; the same where there are none.
pub(super) fn edited(kind: Kind, local: &Value, remote: &Value, workload: &Value, env: Env<'_>) -> Value {
    let mut new = remote.clone();
    if kind == Kind::Job && env.is_elastic(local) {
        resize(local, workload, &mut new);
    } else if kind == Kind::Custom(CustomKind::RAY_SERVICE) {
        copy(local, &["spec", "serveConfigV2"], &mut new);
    }
    new
}

/// An elastic Job gets the parallelism that its workload stands for, and the name of that: another slice has replaced the
/// one before. A workload that is not in step with the Job is no measure: the Job has grown, and its next slice waits.
fn resize(local: &Value, workload: &Value, new: &mut Value) {
    let pods = json::list(workload, &["spec", "podSets"]).iter().filter_map(|p| p["count"].as_i64());
    if pods.sum::<i64>() != pods_count(local) {
        return;
    }
    copy(local, &["spec", "parallelism"], new);
    if IDENTIFIERS.prebuilt_of(new) != json::name(workload) {
        json::remove(new, &["metadata", "labels", names::PREBUILT]);
        set_workload(new, json::name(workload));
    }
}

fn copy(from: &Value, path: &[&str], to: &mut Value) {
    match json::at(from, path) {
        Value::Null => drop(json::remove(to, path)),
        value => json::set(to, path, value.clone()),
    }
}
