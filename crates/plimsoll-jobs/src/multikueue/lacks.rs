//! Kinds of jobs that a worker cluster can't run, since it does not serve them. (Kueue has no connection to such a cluster at all:
//! `multikueuecluster.go`, `updateConfigAndRefreshWatchers`.)

use std::collections::BTreeMap;

use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use plimsoll_state::Time;
use serde_json::Value;

use crate::store::{Kind, ObjectStore};

/// Since when a worker can't run jobs of a kind, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Since when.
    pub since: Time,
    /// Why its objects can't be watched; empty: the worker does not serve them.
    pub why: String,
}

/// The kinds of jobs that a worker can't run.
pub type Lacks = BTreeMap<Kind, Lack>;

/// What is wrong with a cluster that does not serve a resource (client-go's `NoKindMatchError`).
pub fn no_match(resource: Resource) -> String {
    format!("no matches for kind {:?} in version {:?}", resource.kind, resource.api_version)
}

/// What a cluster lacks of the kinds that the manager serves; `None`: nothing.
pub(super) fn describe(lacks: &Lacks, manager: &ObjectStore) -> Option<String> {
    let text = |(kind, lack): (&Kind, &Lack)| {
        let resource = manager.served(*kind)?;
        Some(match lack.why.as_str() {
            "" => no_match(resource),
            why => format!("{}.{} can't be watched: {why}", resource.plural, resource.group()),
        })
    };
    let all: Vec<String> = lacks.iter().filter_map(text).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The version in which a kind is followed on workers: the one in which the manager has its jobs. Where it has none, copies of
/// earlier ones may be left in any version.
pub(super) fn followed_versions(
    kind: Kind,
    versions: &'static [Resource],
    manager: &ObjectStore,
) -> &'static [Resource] {
    let served = manager.served(kind);
    let at = served.and_then(|served| versions.iter().position(|version| *version == served));
    at.and_then(|at| versions.get(at..=at)).unwrap_or(versions)
}

/// The resource of a custom object, in the version in which it was read.
pub(super) fn read_as(versions: &[Resource], object: &Value) -> Option<Resource> {
    let version = json::text(object, &["apiVersion"]);
    versions.iter().find(|resource| resource.api_version == version).or(versions.first()).copied()
}
