//! Ranks are repaired node by node. Nodes are seen as they are, or as if the pods of workloads had left: then each node is looked at
//! without them, for a moment.

use super::Ranked;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{Incoming, Topology, Touched};
use crate::metrics::{Meter, Metered, Point};
use crate::ranked::counting::recount;
use crate::ranked::work::Repairs;
use crate::runner::Runner;
use plimsoll_state::slab::Id;
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

    /// Repairs the ranks for what changed, as far as they are made; as how many nodes that counts. `None`: they must be made afresh.
    pub fn repair(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        (topology, most): (&Topology, Repairs),
    ) -> Option<usize> {
        if self.epoch != cluster.changes.epoch || self.verdicts.len() != cluster.nodes.bound() {
            return None;
        }
        if !self.is_counted() {
            return self.repair_nodes(meter, runner, cluster, pod, most);
        }
        // The first pod with affinity makes pods elsewhere matter for all others.
        let affinity = cluster.with_affinity > 0;
        if affinity != std::mem::replace(&mut self.beside_affinity, affinity)
            && runner.layers_of(cluster, pod) > self.layers.len()
        {
            return None;
        }
        let changed = cluster.changes.since(self.position)?;
        if changed.len() > self.verdicts.len() + cluster.pods.len() {
            return None;
        }
        let mut nodes: SmallVec<[(NodeId, bool); 8]> = SmallVec::new();
        let mut touched = Touched::new();
        for one in changed {
            if one.node.index() >= self.counted {
                continue;
            }
            for layer in &mut self.layers {
                if !recount(layer, cluster, one, &mut touched) {
                    return None;
                }
            }
            // The same node often changes several times in a row.
            match nodes.last_mut() {
                Some((last, itself)) if *last == one.node => *itself |= one.itself,
                _ => nodes.push((one.node, one.itself)),
            }
        }
        for (key, value) in touched {
            nodes.extend(topology.nodes(key, value).iter().map(|n| (*n, false)));
        }
        self.position = cluster.changes.end();
        let mut last = None;
        let began = meter.map(Meter::read);
        let seen = self.seen;
        for one in nodes.into_iter().filter(|one| one.0.index() < seen) {
            if last.replace(one.0) != Some(one.0) || one.1 {
                self.look_at(meter, runner, cluster, pod, one);
            }
        }
        if let (Some(meter), Some(began)) = (meter, began) {
            meter.point_ran(Point::Filter, began);
        }
        (!self.broken).then_some(0)
    }

    /// [`Ranked::repair`] where each node by itself decides: claims that are put up and taken down change the same nodes again and
    /// again. Ranks that were not used for long are far behind: then it is done in parts.
    fn repair_nodes(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        most: Repairs,
    ) -> Option<usize> {
        let recent = cluster.changes.follow(self.beside);
        let (seen, position) = (self.seen, std::mem::replace(&mut self.position, recent.end()));
        let mut nodes = SmallVec::new();
        recent.since(position, &mut nodes);
        if seen < self.verdicts.len() {
            nodes.retain(|one| one.0.index() < seen);
        }
        let began = meter.map(Meter::read);
        if self.behind.is_empty() && nodes.len() > most.at_once {
            self.behind = nodes.into_vec();
        } else {
            nodes.into_iter().for_each(|one| self.look_at(meter, runner, cluster, pod, one));
        }
        let mut work = 0;
        if !self.behind.is_empty() {
            work = self.catch_up(meter, runner, cluster, pod, most.counted);
        }
        if let (Some(meter), Some(began)) = (meter, began) {
            meter.point_ran(Point::Filter, began);
        }
        (!self.broken).then_some(work)
    }

    /// Looks again at nodes that have changed, about as many as `most`; as how many that counts.
    #[cold]
    fn catch_up(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        most: usize,
    ) -> usize {
        let mut work = 0;
        while work < most
            && let Some(one) = self.behind.pop()
        {
            work += self.work_on(cluster, one.0);
            self.look_at(meter, runner, cluster, pod, one);
        }
        if self.behind.is_empty() {
            self.behind = Vec::new();
        }
        work
    }
}
