//! Feasible nodes in order of score, kept per kind of pods and repaired by what changed.
//!
//! Pods of one spec share ranks when for every plugin its verdicts and scores for them depend on the node
//! alone ([`Plugin::is_local`](super::framework::Plugin::is_local)). Where pods elsewhere matter, pods of one shape
//! share them, with the counters of the plugins ([`Counts`](super::framework::Counts)). The result is the same as
//! that of a full scan, ties included: a property test compares both.

mod counting;
mod entry;
mod forest;
mod work;

pub(crate) use entry::Ranked;

use self::entry::Best;
use self::work::{Repairs, Work};
use super::cluster::{Beside, Cluster, NodeId, OwnerKind, PodId, ShapeId, SpecId};
use super::framework::{Incoming, Topology};
use super::metrics::{Meter, Metered, Point};
use super::runner::{Reach, Runner};
use plimsoll_state::intern::{Map, Sym};
use plimsoll_state::rng::Rng;
use smallvec::SmallVec;

/// Most node entries over all ranks (about 90 bytes each).
const MAX_ENTRIES: usize = 12_000_000;
/// Fewest and most ranks.
const RANKS: (usize, usize) = (4, 4096);

/// Result of the ranks.
pub(crate) enum Rank<'a> {
    /// The best node, ties broken by chance.
    Best(NodeId),
    /// No node is feasible: distinct rejections with counts, and the rejections by node.
    None(&'a mut Ranked),
    /// The pod is not ranked.
    Unknown,
    /// More nodes have to be looked at than the step has work left for: it is put off.
    PutOff,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub profile: u32,
    /// As nodes are, or as if all pods of workloads had left. The latter is known only where each node by itself decides.
    pub beside: Beside,
    /// Whether equal pods follow, so that ranks are worthwhile for the first one.
    pub equal_follow: bool,
}

/// Ranks for a pod.
enum Found {
    /// Those of these pods.
    Whole(Slot, Variant, Box<Ranked>),
    PutOff,
    /// None.
    Unknown,
}

/// What pods that share ranks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Slot {
    Spec(SpecId),
    /// As `Shape`, of plugins that read labels and count nothing.
    Labels(ShapeId),
    Shape(ShapeId),
}

/// What may differ among pods of a slot: the profile, the owner where owners matter, and how nodes are seen.
type Variant = (u32, Option<(OwnerKind, Sym)>, Beside);

type Variants = SmallVec<[(Variant, Box<Ranked>); 1]>;

/// Ranks by what pods have in common.
#[derive(Debug)]
pub(crate) struct Ranks {
    entries: Map<Slot, Variants>,
    count: usize,
    /// Seen once; the second pod makes ranking worthwhile.
    once: Map<Slot, ()>,
    topology: Topology,
    /// How many pods were ranked.
    pub clock: u64,
    pub work: Work,
    /// For comparison in tests: look at all nodes every time.
    pub off: bool,
}

impl Ranks {
    /// No ranks. `most`: nodes that a step looks at to make some.
    pub fn new(most: usize) -> Self {
        Self {
            entries: Map::default(),
            count: 0,
            once: Map::default(),
            topology: Topology::default(),
            clock: 0,
            work: Work::new(most),
            off: false,
        }
    }

    /// Drops everything that is kept.
    pub fn clear(&mut self, cluster: &mut Cluster) {
        let Self { entries, count, once, topology, clock: _, work: _, off: _ } = self;
        cluster.shapes.take_freed_specs();
        cluster.shapes.take_freed_shapes();
        entries.clear();
        once.clear();
        (*count, *topology) = (0, Topology::default());
    }

    /// The best node for a pod.
    pub fn best(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        wanted: Wanted,
        cluster: &mut Cluster,
        pod: &Incoming,
        rng: &mut Rng,
    ) -> Rank<'_> {
        let (slot, variant, mut ranked) = match self.find(meter, runner, wanted, cluster, pod) {
            Found::Whole(slot, variant, ranked) => (slot, variant, ranked),
            Found::PutOff => return Rank::PutOff,
            Found::Unknown => return Rank::Unknown,
        };
        self.clock += 1;
        let began = meter.map(Meter::read);
        let best = ranked.best();
        if let (Some(meter), Some(began), Best::Ties(..)) = (meter, began, &best) {
            meter.point_ran(Point::Score, began);
        }
        let choice = match best {
            Best::Nothing => None,
            Best::Only(node) => Some(Some(node)),
            // A full scan draws no number when there is only one feasible node.
            Best::Ties(ties, best) => Some(ranked.nth_best(best, rng.below(ties))),
        };
        match (choice, self.put_back(cluster, (slot, variant), ranked)) {
            (None, Some(ranked)) => Rank::None(ranked),
            (Some(Some(node)), _) => Rank::Best(node),
            _ => Rank::Unknown,
        }
    }

    /// Makes ranks for a pod, or goes on with it; whether they are whole, or can't be made.
    pub fn prepare(
        &mut self,
        runner: &Runner,
        wanted: Wanted,
        cluster: &mut Cluster,
        pod: &Incoming,
    ) -> bool {
        match self.find(None, runner, wanted, cluster, pod) {
            Found::Whole(slot, variant, ranked) => {
                self.work.keep(cluster, pod.id);
                self.put_back(cluster, (slot, variant), ranked);
                true
            }
            Found::Unknown => true,
            Found::PutOff => false,
        }
    }

    /// Keeps ranks that were taken out, where there is room for as many; gives them, to be looked at.
    #[inline]
    fn put_back(
        &mut self,
        cluster: &Cluster,
        (slot, variant): (Slot, Variant),
        mut ranked: Box<Ranked>,
    ) -> Option<&mut Ranked> {
        self.make_room(cluster.nodes.bound());
        (ranked.last_used, ranked.last_step) = (self.clock, self.work.step);
        let list = self.entries.entry(slot).or_default();
        list.push((variant, ranked));
        self.count += 1;
        list.last_mut().map(|(_, ranked)| &mut **ranked)
    }

    /// Takes the ranks for a pod out, brought up to date, or makes them.
    fn find(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        wanted: Wanted,
        cluster: &mut Cluster,
        pod: &Incoming,
    ) -> Found {
        self.drop_freed(cluster);
        if self.off || cluster.pods[pod.id].nominated.is_some() {
            return Found::Unknown;
        }
        let key = match wanted.beside {
            Beside::All => self.key(runner, wanted.profile, cluster, pod),
            Beside::Alone => Self::key_alone(runner, wanted.profile, cluster, pod),
        };
        let Some((slot, variant, reach)) = key else { return Found::Unknown };
        if reach == Reach::Domains && has_nominees(cluster, pod) {
            return Found::Unknown;
        }
        let found = self.take(slot, variant);
        let known = found.is_some();
        let usable = found.and_then(|mut r| {
            let how = (&self.topology, self.work.repairs(r.last_step));
            Some((r.repair(meter, runner, cluster, pod, how)?, r))
        });
        let (enough, usable) = match usable {
            Some((work, ranked)) => (work > 0 && self.work.is_enough(work), Some(ranked)),
            None => (false, None),
        };
        match usable {
            Some(ranked) if enough || ranked.is_behind() => {
                self.put_off(cluster, pod, (slot, variant), ranked)
            }
            Some(ranked) if ranked.is_whole() => Found::Whole(slot, variant, ranked),
            begun => self.make(meter, runner, (wanted, known), cluster, pod, (slot, variant), begun),
        }
    }

    /// Makes ranks, or goes on with those that were begun. `known`: there were some for such pods.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "what `find` has")]
    fn make(
        &mut self,
        meter: Option<&Metered>,
        runner: &Runner,
        (wanted, known): (Wanted, bool),
        cluster: &mut Cluster,
        pod: &Incoming,
        (slot, variant): (Slot, Variant),
        begun: Option<Box<Ranked>>,
    ) -> Found {
        let mut ranked = match begun {
            Some(ranked) => ranked,
            None => {
                // To look at all nodes once is cheaper than to rank them, but can't be done in parts.
                let once = !wanted.equal_follow && cluster.node_count <= self.work.most;
                if once && !known && wanted.beside == Beside::All && self.once.insert(slot, ()).is_none() {
                    self.once_bounded();
                    return Found::Unknown;
                }
                match Ranked::begin(meter, runner, cluster, (pod, wanted.beside)) {
                    Some(new) => Box::new(new),
                    None => return Found::Unknown,
                }
            }
        };
        let how = (&mut self.topology, self.work.left());
        let Some(work) = ranked.go_on(meter, runner, cluster, pod, how) else { return Found::Unknown };
        self.work.looked_at += work;
        if ranked.is_whole() {
            return Found::Whole(slot, variant, ranked);
        }
        self.put_off(cluster, pod, (slot, variant), ranked)
    }

    /// The present step has no work left for ranks: the next one goes on with them.
    fn put_off(
        &mut self,
        cluster: &mut Cluster,
        pod: &Incoming,
        at: (Slot, Variant),
        ranked: Box<Ranked>,
    ) -> Found {
        self.work.attempt_put_off = true;
        self.work.keep(cluster, pod.id);
        self.put_back(cluster, at, ranked);
        Found::PutOff
    }

    /// Which ranks the pod uses; `None`: it can't use any.
    fn key(
        &self,
        runner: &Runner,
        profile: u32,
        cluster: &Cluster,
        pod: &Incoming,
    ) -> Option<(Slot, Variant, Reach)> {
        let shape = Slot::Shape(cluster.pods[pod.id].shape);
        let owner = cluster.pods[pod.id].owner.filter(|_| !cluster.objects.owners.is_empty());
        let counted = (shape, (profile, owner, Beside::All), Reach::Domains);
        let known = self
            .entries
            .get(&shape)
            .is_some_and(|list| list.iter().any(|(v, r)| *v == counted.1 && r.is_for(cluster, &pod.shape)));
        if known {
            return Some(counted);
        }
        match runner.reach(cluster, pod) {
            Reach::Domains => Some(counted),
            reach @ (Reach::Node | Reach::Labels | Reach::Cluster) => {
                Some((Self::local_slot(reach, cluster, pod)?, (profile, None, Beside::All), reach))
            }
        }
    }

    /// The same for nodes without the pods of workloads. Plugins that follow the log of changes don't see them so.
    fn key_alone(
        runner: &Runner,
        profile: u32,
        cluster: &Cluster,
        pod: &Incoming,
    ) -> Option<(Slot, Variant, Reach)> {
        let reach = runner.reach_alone(cluster, pod)?;
        Some((Self::local_slot(reach, cluster, pod)?, (profile, None, Beside::Alone), reach))
    }

    fn local_slot(reach: Reach, cluster: &Cluster, pod: &Incoming) -> Option<Slot> {
        match reach {
            Reach::Node => Some(Slot::Spec(pod.shape.spec_id)),
            Reach::Labels => Some(Slot::Labels(cluster.pods[pod.id].shape)),
            Reach::Domains | Reach::Cluster => None,
        }
    }

    fn take(&mut self, slot: Slot, variant: Variant) -> Option<Box<Ranked>> {
        let list = self.entries.get_mut(&slot)?;
        let at = list.iter().position(|(v, _)| *v == variant)?;
        self.count -= 1;
        Some(list.swap_remove(at).1)
    }

    /// Drops what no pod can use any more.
    fn drop_freed(&mut self, cluster: &mut Cluster) {
        let specs = cluster.shapes.take_freed_specs().into_iter().map(Slot::Spec);
        let shapes = cluster.shapes.take_freed_shapes();
        let shapes = shapes.into_iter().flat_map(|shape| [Slot::Labels(shape), Slot::Shape(shape)]);
        for slot in specs.chain(shapes) {
            self.count -= self.entries.remove(&slot).map_or(0, |list| list.len());
            self.once.remove(&slot);
        }
    }

    fn once_bounded(&mut self) {
        if self.once.len() > 4 * RANKS.1 {
            self.once.clear();
        }
    }

    /// Drops the ranks that were not used for longest while there are too many.
    fn make_room(&mut self, nodes: usize) {
        let limit = (MAX_ENTRIES / nodes.max(1)).clamp(RANKS.0, RANKS.1);
        while self.count >= limit {
            let all = self.entries.iter().flat_map(|(s, list)| list.iter().map(move |(v, r)| (r, *s, *v)));
            let Some((_, slot, variant)) = all.min_by_key(|(r, ..)| r.last_used) else { return };
            self.take(slot, variant);
        }
    }

    /// Brings all ranks up to date, makes them afresh and compares.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&mut self, runners: &[Runner], cluster: &mut Cluster) {
        self.drop_freed(cluster);
        let Self { entries, topology, .. } = self;
        let pods: Vec<PodId> = cluster.pods.iter().map(|(id, _)| id).collect();
        for id in pods {
            let incoming = Incoming::new(cluster, id);
            let owner = cluster.pods[id].owner.filter(|_| !cluster.objects.owners.is_empty());
            let shape = cluster.pods[id].shape;
            let spec = Slot::Spec(incoming.shape.spec_id);
            let slots = [(spec, None), (Slot::Labels(shape), None), (Slot::Shape(shape), owner)];
            for (slot, owner) in slots {
                for ((profile, _, beside), ranked) in
                    entries.get_mut(&slot).into_iter().flatten().filter(|((_, o, _), _)| *o == owner)
                {
                    let Some(runner) = runners.get(*profile as usize) else { continue };
                    // Pods that are nominated are not ranked.
                    if cluster.pods[id].node.is_some()
                        || cluster.pods[id].nominated.is_some()
                        || (ranked.is_counted() && has_nominees(cluster, &incoming))
                        || ranked.repair(None, runner, cluster, &incoming, (topology, Repairs::ALL)).is_none()
                        || !ranked.is_whole()
                    {
                        continue;
                    }
                    let pod = (&incoming, *beside);
                    if let Some(mut new) = Ranked::build(runner, cluster, pod, topology) {
                        // Where no pod with affinity is left, pods elsewhere matter no more.
                        let comparable = ranked.is_counted() == new.is_counted();
                        assert!(!comparable || ranked.dump() == new.dump(), "ranks equal those made afresh");
                    }
                }
            }
        }
    }
}

/// Whether pods that go first are nominated: they count on their nodes, where they are not yet.
fn has_nominees(cluster: &Cluster, pod: &Incoming) -> bool {
    let first = |p: &PodId| {
        let row = &cluster.pods[*p];
        *p != pod.id
            && row.node.is_none()
            && row.nominated.is_some_and(|n| cluster.nodes[n].exists)
            && cluster.priority(*p) >= pod.shape.spec.priority
    };
    cluster.nominees.iter().any(first)
}

#[cfg(test)]
mod parts_tests;
