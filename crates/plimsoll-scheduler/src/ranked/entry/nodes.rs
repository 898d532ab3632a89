//! Ranks of nodes by themselves, as they are or as if the pods of workloads had left: then each node is looked at without them, for a
//! moment.

use super::Ranked;
use crate::cluster::{Cluster, NodeId};
use crate::framework::Incoming;
use crate::metrics::{Meter, Metered, Point};
use crate::runner::Runner;
use smallvec::SmallVec;

impl Ranked {
    /// Evaluates one node again, beside the pods that count.
    pub(super) fn look_at(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        one: (NodeId, bool),
    ) {
        cluster.beside(self.beside, one.0, |c| self.look_at_as_it_is(meter, runner, c, pod, one));
    }

    /// [`Ranked::repair`] where each node by itself decides: claims that are put up and taken down change the same nodes again and
    /// again.
    pub(super) fn repair_nodes(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
    ) -> bool {
        let recent = cluster.changes.follow(self.beside);
        let nodes: SmallVec<[(NodeId, bool); 8]> = recent.since(self.position).collect();
        self.position = recent.end();
        let began = meter.map(Meter::read);
        nodes.into_iter().for_each(|one| self.look_at(meter, runner, cluster, pod, one));
        if let (Some(meter), Some(began)) = (meter, began) {
            meter.point_ran(Point::Filter, began);
        }
        !self.broken
    }
}
