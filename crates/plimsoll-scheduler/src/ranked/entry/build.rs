//! Ranks are made node by node: as many nodes as a step has work left for, the rest in the next ones. What changes meanwhile on nodes
//! that were looked at is repaired as in ranks that are whole; other nodes are seen as they are when their turn comes.

use super::{NO_NODE, Ranked, Row};
use crate::cluster::{Beside, Cluster, NodeId};
use crate::cycle::Cycle;
use crate::framework::{Incoming, Normalization, Topology};
use crate::metrics::{Meter, Metered, Point, Unmetered};
use crate::plugins::preemption::DryRuns;
use crate::ranked::counting::{Scaled, count_node, settle};
use crate::ranked::forest::Forest;
use crate::runner::Runner;
use plimsoll_state::intern::Map;
use plimsoll_state::slab::Id;
use smallvec::SmallVec;
use std::sync::Arc;

/// How many pods that are counted, or taken off their node for a moment, take as much time as a node.
const PODS_PER_NODE: usize = 4;

impl Ranked {
    /// Ranks all nodes; `None` when that can't be done for the pod.
    pub fn build(
        runner: &Runner,
        cluster: &mut Cluster,
        (pod, beside): (&Incoming, Beside),
        topology: &mut Topology,
    ) -> Option<Self> {
        let mut new = Self::begin(None, runner, cluster, (pod, beside))?;
        new.go_on(None, runner, cluster, pod, (topology, usize::MAX))?;
        Some(new)
    }

    /// Ranks of no nodes yet; `None` when nodes can't be ranked for the pod.
    pub fn begin(
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        (pod, beside): (&Incoming, Beside),
    ) -> Option<Self> {
        let layers = runner.layers(cluster, pod)?;
        let counted: SmallVec<[usize; 2]> = layers.iter().map(|l| l.plugin).collect();
        let mut cycle = match meter {
            None => Cycle::pre_filter_without(&Unmetered, runner, cluster, pod.clone(), &counted),
            Some(meter) => Cycle::pre_filter_without(meter, runner, cluster, pod.clone(), &counted),
        };
        if !cycle.status.is_success() || cycle.names.is_some() || cycle.filters_after(&layers) {
            return None;
        }
        let n = cluster.nodes.bound();
        let (mut direct, mut fixed, mut scaled) = (Vec::new(), Vec::new(), Vec::new());
        let states = match meter {
            None => cycle.score_states(&Unmetered, cluster, &counted),
            Some(meter) => cycle.score_states(meter, cluster, &counted),
        };
        for scoring in states {
            match scoring.state.normalization() {
                Normalization::None if scoring.state.is_fixed() => fixed.push(scoring),
                Normalization::None => direct.push(scoring),
                Normalization::ByMax { .. } if !scoring.state.is_fixed() => return None,
                Normalization::ByMax { reverse } => scaled.push(Scaled { scoring, reverse }),
                Normalization::Other => return None,
            }
        }
        let filters = cycle.take_filters();
        let changes = &mut cluster.changes;
        Some(Self {
            epoch: changes.epoch,
            position: if layers.is_empty() { changes.follow(beside).end() } else { changes.end() },
            beside,
            last_used: 0,
            last_step: 0,
            shape: (!layers.is_empty()).then(|| Arc::clone(&pod.shape)),
            fixed_filters: filters.iter().take_while(|(_, f)| f.is_fixed()).count(),
            filters,
            direct,
            fixed,
            scaled,
            counted: if layers.is_empty() { n } else { 0 },
            seen: 0,
            behind: Vec::new(),
            layers,
            beside_affinity: cluster.with_affinity > 0,
            verdicts: vec![NO_NODE; n],
            // They come with the nodes that are looked at: to write so many at once takes as long as a step may.
            rows: Vec::with_capacity(n),
            table: Vec::new(),
            classes: Vec::new(),
            spare: Vec::new(),
            by_place: Map::default(),
            forest: Forest::new(n),
            feasible: Vec::new(),
            dry_runs: DryRuns::new(),
            broken: false,
        })
    }

    /// Whether all nodes are ranked.
    pub fn is_whole(&self) -> bool {
        self.seen == self.verdicts.len() && !self.is_behind()
    }

    /// Whether nodes have changed that have yet to be looked at again.
    pub fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Ranks nodes that are not ranked yet, about as many as `most`; as how many that counts. The ranks have to be up to date. `None`:
    /// nodes can't be ranked for the pod.
    pub fn go_on(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        cluster: &mut Cluster,
        pod: &Incoming,
        (topology, most): (&mut Topology, usize),
    ) -> Option<usize> {
        let n = self.verdicts.len();
        let mut work = 0;
        if self.counted < n {
            while self.counted < n && work < most {
                let node = NodeId::new(self.counted);
                work += 1 + pods_on(cluster, node) / PODS_PER_NODE;
                count_node(&mut self.layers, cluster, node);
                self.counted += 1;
            }
            if self.counted < n {
                return Some(work);
            }
            settle(&mut self.layers, cluster, topology);
        }
        let began = meter.map(Meter::read);
        let upto = self.seen.saturating_add(most).min(n);
        self.rows.resize(upto.max(self.rows.len()), Row::default());
        while self.seen < n && work < most {
            let node = NodeId::new(self.seen);
            work += self.work_on(cluster, node);
            self.look_at(meter, runner, cluster, pod, (node, true));
            self.seen += 1;
        }
        if let (Some(meter), Some(began)) = (meter, began) {
            meter.point_ran(Point::Filter, began);
        }
        (!self.broken).then_some(work)
    }

    /// As how many nodes it counts to look at one.
    pub(super) fn work_on(&self, cluster: &Cluster, node: NodeId) -> usize {
        match self.beside {
            Beside::All => 1,
            Beside::Alone => 1 + pods_on(cluster, node) / PODS_PER_NODE,
        }
    }
}

fn pods_on(cluster: &Cluster, node: NodeId) -> usize {
    cluster.nodes.get(node).map_or(0, |row| row.pods.len())
}
