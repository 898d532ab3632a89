//! RayClusters of RayJobs and RayServices that run on a worker. The autoscaler of Ray changes their sizes there; the manager
//! has them in an annotation of the job, which grows by slices for them. (Kueue's jobs keep the sizes with which they came.)

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use serde_json::Value;

use crate::custom_kind::CustomKind;
use crate::kinds::ray;
use crate::names::RAY_CLUSTER_SIZES;
use crate::plan::{Write, patch};
use crate::store::{Kind, ObjectStore};

/// RayClusters.
const CLUSTER: Kind = Kind::Custom(CustomKind::RAY_CLUSTER);

/// The kinds whose jobs have a RayCluster.
pub(super) fn has_cluster(kind: Kind) -> bool {
    matches!(kind, Kind::Custom(CustomKind::RAY_JOB | CustomKind::RAY_SERVICE))
}

/// The RayCluster that runs a job.
pub(super) fn of_job(kind: Kind, job: &Value, objects: &ObjectStore) -> Option<Arc<Value>> {
    let name = ray::cluster_name(kind, job).filter(|name| !name.is_empty())?;
    let cluster = objects.get(CLUSTER, json::namespace(job), name)?;
    let owned = json::controller(&cluster).is_some_and(|owner| owner["uid"] == json::uid(job));
    owned.then_some(cluster)
}

/// The job whose RayCluster an object is; `None`: it is none, or a job of its own.
pub(super) fn owner(kind: Kind, object: &Value, objects: &ObjectStore) -> Option<(Kind, Arc<Value>)> {
    let (kind, name) = owner_of(kind, object)?;
    let job = objects.get(kind, json::namespace(object), name)?;
    Some((kind, job))
}

/// Kind and name of the job whose RayCluster an object is.
pub(super) fn owner_of(kind: Kind, object: &Value) -> Option<(Kind, &str)> {
    let owner = json::controller(object).filter(|_| kind == CLUSTER)?;
    let text = |key| json::text(owner, &[key]);
    let mut kinds = [CustomKind::RAY_JOB, CustomKind::RAY_SERVICE].into_iter();
    let custom = kinds.find(|custom| custom.has_kind(text("apiVersion"), text("kind")))?;
    Some((Kind::Custom(custom), text("name")))
}

/// The write of the sizes of a job's RayCluster into the manager's job; `None`: they are there.
pub(super) fn record(resource: Resource, local: &Value, cluster: &Value) -> Option<Write> {
    let (name, sizes) = (json::name(cluster), sizes(cluster));
    if ray::recorded_sizes(local).is_some_and(|(known, _, has)| known == name && has == sizes) {
        return None;
    }
    let generation = json::int(cluster, &["metadata", "generation"]).unwrap_or(0);
    let mut new = local.clone();
    let text = format!("{name}/{generation}/{sizes}");
    json::set(&mut new, &["metadata", "annotations", RAY_CLUSTER_SIZES], text.into());
    patch(resource, local, &new)
}

/// Pods of each group of workers whose size is written: `a=1,b=2`.
fn sizes(cluster: &Value) -> String {
    let groups = json::list(cluster, &["spec", "workerGroupSpecs"]).iter();
    let sized = groups.filter(|group| !group["replicas"].is_null());
    let all: Vec<String> =
        sized.map(|group| format!("{}={}", json::text(group, &["groupName"]), ray::workers(group))).collect();
    all.join(",")
}
