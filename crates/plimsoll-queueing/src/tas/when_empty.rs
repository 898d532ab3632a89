//! Places in a cluster that all workloads have left: whether a workload could run there at all. The answer depends on nodes and
//! on what the workload asks for, not on what runs. A workload that waits for quota asks in every cycle.

use super::request::Places;
use super::{Tas, TasRequests};
use crate::ids::{Map, SchedulingHashId};
use crate::state::WorkloadInfo;

/// Answers that are kept.
const MOST: usize = 1024;

/// An answer, for the nodes as they were after so many changes.
#[derive(Debug)]
struct Known {
    changes: u64,
    requests: TasRequests,
    places: Places,
}

/// What was found, by what makes workloads equal to the scheduler.
#[derive(Debug, Default)]
pub(super) struct WhenEmpty(Map<SchedulingHashId, Known>);

impl Tas {
    /// The places that were found, if nothing has changed since.
    pub(crate) fn known_when_empty(&self, like: SchedulingHashId, requests: &TasRequests) -> Option<&Places> {
        let known = self.when_empty.0.get(&like)?;
        (known.changes == self.changes && known.requests == *requests).then_some(&known.places)
    }

    /// Keeps what was found.
    pub(crate) fn keep_when_empty(
        &mut self,
        like: SchedulingHashId,
        requests: &TasRequests,
        places: &Places,
    ) {
        let known = &mut self.when_empty.0;
        if known.len() >= MOST {
            known.clear();
        }
        let (requests, places) = (requests.clone(), places.clone());
        known.insert(like, Known { changes: self.changes, requests, places });
    }
}

impl WorkloadInfo {
    /// Whether its places depend on its scheduling hash and the nodes alone: no admission check has changed its pods, and no node
    /// has to be replaced.
    pub(crate) fn is_placed_as_written(&self) -> bool {
        let status = &self.obj.status;
        status.unhealthy_nodes.is_empty() && status.admission_checks.iter().all(|c| c.updates.is_empty())
    }
}
