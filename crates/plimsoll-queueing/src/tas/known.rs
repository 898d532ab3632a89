//! Places that were found before, as the cluster is and as if all workloads had left. The second answer depends on nodes and on what
//! the workload asks for, the first on what workloads hold, too. A workload that waits for quota asks for the second in every cycle, and
//! in one cycle the heads of many ClusterQueues, which often are equal, ask for the first.

use super::request::Places;
use super::{Tas, TasRequests};
use crate::ids::{Map, SchedulingHashId};
use crate::state::WorkloadInfo;

/// Answers of each kind that are kept.
const MOST: usize = 1024;

/// An answer, for the nodes as they were after so many changes, and for what workloads held after so many.
#[derive(Debug)]
struct Known {
    version: (u64, u64),
    requests: TasRequests,
    places: Places,
}

/// What was found, by what makes workloads equal to the scheduler: as the cluster is, and once all workloads have left.
#[derive(Debug, Default)]
pub(super) struct KnownPlaces([Map<SchedulingHashId, Known>; 2]);

impl Tas {
    /// Changes with everything that places depend on besides what is asked for; not while something is simulated.
    fn version_for_places(&self, empty: bool) -> (u64, u64) {
        (self.changes, if empty { 0 } else { self.usage_changes })
    }

    /// The places that were found, if nothing has changed since.
    pub(crate) fn known_places(
        &self,
        like: SchedulingHashId,
        requests: &TasRequests,
        empty: bool,
    ) -> Option<&Places> {
        let known = self.known.0[usize::from(empty)].get(&like)?;
        let same = known.version == self.version_for_places(empty) && known.requests == *requests;
        same.then_some(&known.places)
    }

    /// Keeps what was found.
    pub(crate) fn keep_places(
        &mut self,
        like: SchedulingHashId,
        requests: &TasRequests,
        places: &Places,
        empty: bool,
    ) {
        let version = self.version_for_places(empty);
        let known = &mut self.known.0[usize::from(empty)];
        if known.len() >= MOST {
            known.clear();
        }
        let (requests, places) = (requests.clone(), places.clone());
        known.insert(like, Known { version, requests, places });
    }
}

impl WorkloadInfo {
    /// Whether its places depend on its scheduling hash, on nodes and on what others hold alone: no admission check has changed its
    /// pods, and no node has to be replaced.
    pub(crate) fn is_placed_as_written(&self) -> bool {
        let status = &self.obj.status;
        status.unhealthy_nodes.is_empty() && status.admission_checks.iter().all(|c| c.updates.is_empty())
    }
}
