//! What queueing needs of the scheduler, so that quota and nodes are decided together.

use plimsoll_state::Time;
use plimsoll_state::model::Pod;

use crate::model::WorkloadKey;

/// Reservations of nodes for the pods of a workload (joint admission). The engine implements it with the scheduler;
/// without joint admission there is none, and a workload is admitted by quota alone.
pub trait NodeReservations {
    /// Reserves a node for each of `pods` (name of the podset, and the pod as it will be created), or none at all.
    ///
    /// # Errors
    /// The scheduler's message about the first pod that fits nowhere.
    fn reserve(&mut self, now: Time, workload: &WorkloadKey, pods: &[(String, Pod)]) -> Result<(), String>;

    /// Releases the reservations of a workload that no pod has taken over.
    fn release(&mut self, workload: &WorkloadKey);
}

/// The implementation that a cycle was given.
pub(crate) type Nodes<'a, 'b> = &'a mut (dyn NodeReservations + 'b);
