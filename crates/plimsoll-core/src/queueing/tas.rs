//! Topology aware scheduling: room per topology domain (spec section 2.12).

use super::assign::Assignment;
use super::ids::Flavor;
use super::model::PodSet;
use super::pending::WlId;
use super::state::{CqId, Group, Queueing};

/// Room per domain, with an undo log.
#[derive(Debug, Default)]
pub(crate) struct Tas {
    log: Vec<()>,
}

impl Tas {
    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn rollback(&mut self, mark: usize) {
        self.log.truncate(mark);
    }
}

/// What a workload asks of topologies.
#[derive(Clone, Debug, Default)]
pub(crate) struct TasRequests {}

impl Queueing {
    pub(crate) fn is_topology_flavor(&self, _cq: CqId, flavor: Flavor) -> bool {
        self.flavors.get(&flavor).is_some_and(|f| !f.topology.is_empty())
    }

    pub(crate) fn topology_mismatch(
        &self,
        _cq: CqId,
        _ps: &PodSet,
        _flavor: Flavor,
        _group: &Group,
    ) -> Option<String> {
        None
    }

    pub(crate) fn assign_topology(&mut self, _id: WlId, _cq: CqId, _a: &mut Assignment) {}

    pub(crate) fn tas_requests(&self, _id: WlId, _cq: CqId, _a: &Assignment) -> TasRequests {
        TasRequests {}
    }

    pub(crate) fn tas_fits(&self, _id: WlId, _cq: CqId, _r: &TasRequests) -> bool {
        true
    }

    pub(crate) fn tas_charge(&mut self, _id: WlId, _add: bool) {}
}

impl Queueing {
    pub(crate) fn tas_charge_assignment(&mut self, _id: WlId, _cq: CqId, _a: Option<&Assignment>) {}

    pub(crate) fn tas_assignment_fits(&self, _id: WlId, _cq: CqId, _a: Option<&Assignment>) -> bool {
        true
    }

    pub(crate) fn place_after_preemption(
        &mut self,
        _id: WlId,
        _cq: CqId,
        _a: &mut Assignment,
        _targets: &[super::preempt::Target],
    ) {
    }
}

impl Queueing {
    /// Nodes and pods, for topologies.
    pub fn absorb_place(&mut self, _now: crate::time::Time, _event: &crate::place::Event) {}
}
