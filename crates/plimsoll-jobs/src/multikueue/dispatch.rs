//! Dispatchers: which clusters get a copy of a workload (Kueue `pkg/controller/workloaddispatcher`).

use std::collections::BTreeSet;

use plimsoll_api::json;
use plimsoll_api::kueue::Dispatcher;
use plimsoll_state::{Duration, Time};

use super::group::Group;
use super::nomination::{Nomination, ROUND};
use super::{Memory, earliest};

/// Begin of the message of a check for which there is no cluster.
const NOT_SERVED: &str = "No connected worker cluster serves ";

/// The clusters that get a copy now. `clusters` are those of the check in their order.
pub(super) fn nominate(group: &Group<'_>, clusters: &[String], memory: &Memory) -> Nomination {
    let listed = json::list(group.local, &["status", "nominatedClusterNames"]);
    let nominated: Vec<String> = listed.iter().filter_map(|n| n.as_str().map(str::to_owned)).collect();
    let home = group.home();
    if group.is_elastic() && !home.is_empty() {
        return Nomination { clusters: vec![home], ..Nomination::default() };
    }
    match group.env.config.multikueue.dispatcher {
        Dispatcher::AllAtOnce => {
            // Connected clusters come in the order of their names.
            let all: Vec<String> = group.remotes.keys().map(|name| (*name).to_owned()).collect();
            let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<String>>();
            // Without a connection nothing is known: copies may be there.
            let write = !all.is_empty() && set(&all) != set(&nominated);
            Nomination { clusters: all, write, ..Nomination::default() }
        }
        Dispatcher::Incremental { step } => {
            // A round is not for clusters that can't run the job.
            let can = |cluster: &&String| !group.lacking.contains(cluster.as_str());
            let clusters: Vec<String> = clusters.iter().filter(can).cloned().collect();
            incremental(nominated, &clusters, step, memory.round, group.env.now)
        }
        Dispatcher::Earliest => earliest::nominate(group, nominated, clusters, memory.round, &memory.answers),
        Dispatcher::External => Nomination { clusters: nominated, ..Nomination::default() },
    }
}

/// Adds the next clusters when a round has ended. A nominated cluster stays nominated.
fn incremental(
    mut nominated: Vec<String>,
    clusters: &[String],
    step: usize,
    ends: Option<Time>,
    now: Time,
) -> Nomination {
    // After a restart no round is known, and the next one begins at once, as in Kueue.
    let left = ends.map(|ends| ends.since(now)).filter(|left| *left > Duration::ZERO);
    if let Some(left) = left {
        return Nomination { clusters: nominated, ends_in: Some(left), ends, ..Nomination::default() };
    }
    let next: Vec<String> = clusters.iter().filter(|c| !nominated.contains(c)).take(step).cloned().collect();
    if next.is_empty() {
        return Nomination { clusters: nominated, ends, ..Nomination::default() };
    }
    nominated.extend(next);
    let ends = Some(now.plus(ROUND));
    Nomination { clusters: nominated, write: true, ends_in: Some(ROUND), ends, ask: Vec::new() }
}

/// The message that the check of a workload is to have, if that is another one than now: that none of the nominated clusters
/// serves the kind of its job, or that this is over.
pub(super) fn lacking_message(group: &Group<'_>, nominated: &[String]) -> Option<String> {
    let present = json::text(group.row, &["message"]);
    let one_can = nominated.iter().any(|cluster| group.remotes.contains_key(cluster.as_str()));
    let message = if one_can || group.lacking.is_empty() {
        String::new()
    } else {
        let resource = group.adapter.resource;
        let clusters = group.lacking.iter().copied().collect::<Vec<&str>>().join(" ");
        let (kind, version) = (resource.kind, resource.api_version);
        format!("{NOT_SERVED}kind {kind:?} in version {version:?}: [{clusters}]")
    };
    let ours = present.starts_with(NOT_SERVED);
    (present != message && (ours || !message.is_empty())).then_some(message)
}
