//! What queueing needs of the scheduler, so that quota and nodes are decided together.

use plimsoll_state::Time;
use plimsoll_state::model::Pod;

use crate::model::WorkloadKey;

/// Reservations of nodes for the pods of a workload (joint admission). The engine implements it with the scheduler;
/// without joint admission there is none, and a workload is admitted by quota alone.
pub trait NodeReservations {
    /// Reserves a node for each of `pods`, as they will be created, or none at all.
    ///
    /// # Errors
    /// The scheduler's message about the first pod that fits nowhere.
    fn reserve(&mut self, now: Time, workload: &WorkloadKey, pods: &[Pod]) -> Result<(), String>;

    /// Undoes [`NodeReservations::reserve`] before anything else has happened: the workload is not admitted after all.
    fn withdraw(&mut self, workload: &WorkloadKey);

    /// Releases the reservations of a workload that no pod has consumed.
    fn release(&mut self, workload: &WorkloadKey);

    /// Whether there may be more capacity on nodes than when this was last asked.
    fn take_freed(&mut self) -> bool;
}

/// The implementation that a cycle was given.
pub(crate) type Nodes<'a, 'b> = &'a mut (dyn NodeReservations + 'b);
