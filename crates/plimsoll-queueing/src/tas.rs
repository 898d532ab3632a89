//! Topology aware scheduling: free capacity per topology domain (Kueue KEP-2724).
//!
//! Every flavor with a topology has a tree of domains over the nodes that suit it. A leaf knows what is
//! allocatable there less what pods that are not managed here use; what workloads hold is kept per domain,
//! shared by all flavors whose lowest level is the node itself, with an undo log for simulations.

#[cfg(test)]
mod affinity_tests;
#[cfg(test)]
mod balanced_tests;
mod charges;
#[cfg(test)]
mod counted_tests;
mod health;
mod host_ports;
mod known;
#[cfg(test)]
mod library_tests;
mod limits;
mod non_tas;
mod place;
#[cfg(test)]
mod properties;
mod replace;
mod request;
pub(crate) mod slice;
#[cfg(test)]
mod tests;
mod to_come;
mod tree;

use std::collections::BTreeMap;

pub(crate) use charges::Charges;
use charges::PlaceCharge;
pub(crate) use health::Health;
use host_ports::{HostPorts, PortChange};
use known::KnownPlaces;
pub(crate) use limits::PlaceLimits;
use non_tas::NonTasUsage;
pub(crate) use place::CountedLeaves;
pub(crate) use request::{MULTI_KUEUE, Places, TasRequests, TasView, is_explicit, set_places};
use tree::{FlavorTree, Leaf, is_same_place};

use super::ids::{ClusterQueueId, FlavorId, Ids, Map, ResourceId};
use crate::Queueing;
use crate::model::PodSet;
use plimsoll_state::cast::index32;
use plimsoll_state::model::requests::{PodResourcesOptions, pod_requests};
use plimsoll_state::model::{Node, Pod, Resources};
use plimsoll_state::{ObjectEvent, Time};

/// How many changes of what workloads hold are remembered.
const MOST_CHANGED: usize = 1 << 16;

/// Node label whose value names one node.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Stands for all flavors where a cycle charges places; no flavor has this number.
const ALL_FLAVORS: FlavorId = FlavorId(u32::MAX);

/// Amounts by resource.
pub(crate) type Amounts = Vec<(ResourceId, i64)>;

pub(crate) fn amount_of(list: &Amounts, res: ResourceId) -> i64 {
    list.iter().find(|(r, _)| *r == res).map_or(0, |(_, v)| *v)
}

/// Adds `times` the amounts of `more`.
pub(crate) fn add_times(to: &mut Amounts, more: &[(ResourceId, i64)], times: i64) {
    for &(res, v) in more {
        let v = v.saturating_mul(times);
        match to.iter_mut().find(|(r, _)| *r == res) {
            Some((_, sum)) => *sum = sum.saturating_add(v),
            None => to.push((res, v)),
        }
    }
}

/// What workloads hold in one domain: of all flavors for a node, else of one. What is only kept back for
/// later within a cycle counts for its own flavor, even on a node.
type SlotKey = (Option<FlavorId>, String);

/// Nodes, non-TAS pods, trees, and what workloads hold.
#[derive(Debug, Default)]
pub(crate) struct Tas {
    nodes: BTreeMap<String, Box<Node>>,
    non_tas_usage: NonTasUsage,
    /// With the gate `SchedulerLibraryIntegration`.
    ports: HostPorts,
    trees: BTreeMap<FlavorId, FlavorTree>,
    /// How often they changed.
    changes: u64,
    stale: bool,
    known: KnownPlaces,
    /// Capacity may have become free since inadmissible workloads were last requeued for that.
    pub(crate) freed: bool,
    slots: Map<SlotKey, u32>,
    held: Vec<Amounts>,
    log: Vec<(u32, Amounts)>,
    /// Slots that changed, in order, and how often these were forgotten.
    usage_changed: Vec<u32>,
    usage_forgotten: u64,
    /// How often changes of what workloads hold were made final.
    usage_changes: u64,
    counted: CountedLeaves,
    pub(crate) health: Health,
}

impl Tas {
    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn rollback(&mut self, mark: usize) {
        while self.log.len() > mark {
            if let Some((slot, old)) = self.log.pop() {
                self.held[slot as usize] = old;
                self.note_changed(slot);
            }
        }
    }

    /// How often nodes, and pods and ports that are not managed here, have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether what workloads hold has changes that are not final.
    pub(crate) fn is_simulated(&self) -> bool {
        !self.log.is_empty()
    }

    /// Makes all changes so far final.
    pub(crate) fn commit(&mut self) {
        self.usage_changes += u64::from(self.is_simulated());
        self.log.clear();
    }

    /// Lends what leaves take, as counted before.
    pub(crate) fn take_counted(&mut self) -> CountedLeaves {
        std::mem::take(&mut self.counted)
    }

    /// Gets it back.
    pub(crate) fn keep_counted(&mut self, mut counted: CountedLeaves) {
        counted.end_cycle();
        self.counted = counted;
    }

    fn note_changed(&mut self, slot: u32) {
        if self.usage_changed.len() >= MOST_CHANGED {
            self.usage_changed.clear();
            self.usage_forgotten += 1;
        }
        self.usage_changed.push(slot);
    }

    /// Which changes of what workloads hold came last: those numbered from the second number on are known as long as the first
    /// one stays, and nothing else has changed until then.
    fn changes_of_usage(&self) -> (u64, usize) {
        (self.changes + self.usage_forgotten, self.usage_changed.len())
    }

    /// The slots that changed from a number on.
    fn usage_changed_since(&self, number: usize) -> &[u32] {
        self.usage_changed.get(number..).unwrap_or_default()
    }

    fn slot(&mut self, key: SlotKey) -> u32 {
        let next = index32(self.held.len());
        let slot = *self.slots.entry(key).or_insert(next);
        if slot == next {
            self.held.push(Amounts::new());
        }
        slot
    }

    /// What workloads hold in a leaf.
    fn held_in(&self, leaf: &Leaf) -> [Option<&Amounts>; 2] {
        leaf.slots.map(|slot| slot.map(|slot| &self.held[slot as usize]))
    }

    /// What workloads hold on a node whatever the flavor, with what was admitted in this cycle.
    fn held_after_admissions(&self, leaf: &Leaf) -> [Option<&Amounts>; 2] {
        [leaf.admitted, leaf.slots[1]].map(|slot| slot.map(|slot| &self.held[slot as usize]))
    }

    /// Assigns its slots to every leaf.
    fn assign_slots(&mut self) {
        let mut trees = std::mem::take(&mut self.trees);
        for (&flavor, tree) in &mut trees {
            let by_node = tree.by_node;
            for leaf in &mut tree.leaves {
                let own = self.slot((Some(flavor), leaf.id.clone()));
                leaf.slots = [Some(own), by_node.then(|| self.slot((None, leaf.id.clone())))];
                leaf.admitted = by_node.then(|| self.slot((Some(ALL_FLAVORS), leaf.id.clone())));
            }
            tree.index_slots();
        }
        self.trees = trees;
    }

    /// What is free on a node but for workloads managed here.
    fn free_capacity_of(&self, node: &Node, ids: &mut Ids) -> Amounts {
        let mut free_capacity = amounts(ids, &node.allocatable);
        if let Some(used) = self.non_tas_usage.on(&node.name) {
            add_times(&mut free_capacity, used, -1);
        }
        free_capacity
    }

    /// Adds to the free capacity of a node in all trees that have it.
    fn change_free_capacity(&mut self, name: &str, change: &[(ResourceId, i64)], times: i64) {
        let Some(node) = self.nodes.get(name) else { return };
        self.changes += 1;
        for tree in self.trees.values_mut() {
            if let Some(id) = tree.leaf_id(node)
                && tree.members.contains(name)
                && let Some(leaf) = tree.leaf_mut(&id)
            {
                add_times(&mut leaf.free_capacity, change, times);
            }
        }
    }

    fn node_changed(&mut self, name: &str, node: Option<Box<Node>>, ids: &mut Ids) -> bool {
        let same = match (self.nodes.get(name), &node) {
            (Some(a), Some(b)) => {
                a.labels == b.labels
                    && a.taints == b.taints
                    && a.allocatable == b.allocatable
                    && a.ready == b.ready
                    && a.ready_since.is_some() == b.ready_since.is_some()
                    && a.unschedulable == b.unschedulable
            }
            (None, None) => true,
            _ => false,
        };
        if same {
            return false;
        }
        match node {
            Some(n) => {
                let (old, new) = (self.nodes.get(name).cloned(), amounts(ids, &n.allocatable));
                match old.filter(|o| is_same_place(o, &n)) {
                    // Only its size changed: nothing moves.
                    Some(old) if !self.stale => {
                        let old = amounts(ids, &old.allocatable);
                        self.change_free_capacity(name, &old, -1);
                        self.change_free_capacity(name, &new, 1);
                    }
                    _ => self.stale = true,
                }
                self.nodes.insert(name.to_owned(), n);
            }
            None => {
                self.nodes.remove(name);
                self.stale = true;
            }
        }
        true
    }

    /// Forgets a pod; whether that freed anything.
    fn pod_gone(&mut self, uid: &str) -> bool {
        let Some(old) = self.non_tas_usage.remove(uid) else { return false };
        if !self.stale {
            self.change_free_capacity(&old.node, &old.usage, 1);
        }
        true
    }

    /// Handles a change of the host ports in use; whether some are free now.
    fn ports_changed(&mut self, change: PortChange) -> bool {
        self.changes += u64::from(change != PortChange::None);
        change == PortChange::Freed
    }

    /// Notes what a pod uses on its node, `None` if that doesn't count; whether something is free now.
    fn pod_seen(&mut self, pod: &Pod, usage: Option<&Amounts>) -> bool {
        let Some(usage) = usage else { return self.pod_gone(&pod.uid) };
        let node = &pod.spec.node_name;
        if self.non_tas_usage.has(&pod.uid, node, usage) {
            return false;
        }
        let freed = self.pod_gone(&pod.uid);
        self.non_tas_usage.add(&pod.uid, node, usage);
        if !self.stale {
            self.change_free_capacity(node, usage, -1);
        }
        freed
    }
}

/// Amounts with numbers for names.
pub(crate) fn amounts(ids: &mut Ids, resources: &Resources) -> Amounts {
    let mut list: Amounts = resources.iter().map(|(n, v)| (ids.resource(n), *v)).collect();
    ids.sort_by_walk_key(&mut list);
    list
}

impl Queueing {
    /// Nodes and pods, for topologies.
    pub fn handle_object(&mut self, _now: Time, event: &ObjectEvent) {
        self.joint.changes += u64::from(match event {
            // Budgets, and pods that leave anyway.
            ObjectEvent::ObjectUpsert(_) | ObjectEvent::ObjectDelete(..) => true,
            ObjectEvent::PodUpsert(pod) => pod.deleting,
            ObjectEvent::NodeUpsert(_) | ObjectEvent::NodeDelete(_) | ObjectEvent::PodDelete(_) => false,
            ObjectEvent::ClaimWritten(_) => true,
        });
        if !self.config.gates.topology {
            return;
        }
        let freed = match event {
            ObjectEvent::NodeUpsert(n) => {
                self.observe_node(&n.name, Some(n));
                self.tas.node_changed(&n.name, Some(n.clone()), &mut self.ids)
            }
            ObjectEvent::NodeDelete(name) => {
                self.observe_node(name, None);
                self.tas.node_changed(name, None, &mut self.ids)
            }
            ObjectEvent::PodUpsert(pod) => {
                self.observe_pod(pod);
                let usage = self.non_tas_usage_of(pod);
                let mut freed = self.tas.pod_seen(pod, usage.as_ref());
                if self.config.gates.scheduler_library {
                    let change = self.tas.ports.pod_seen(pod);
                    freed |= self.tas.ports_changed(change);
                }
                freed
            }
            ObjectEvent::PodDelete(uid) => {
                self.tas.health.pod_gone(uid);
                let change = self.tas.ports.pod_gone(uid);
                let freed = self.tas.ports_changed(change);
                self.tas.pod_gone(uid) || freed
            }
            ObjectEvent::ObjectUpsert(_) | ObjectEvent::ObjectDelete(..) | ObjectEvent::ClaimWritten(_) => {
                false
            }
        };
        if freed {
            self.tas.freed = true;
            self.due.everywhere();
        }
    }

    /// What a pod uses on its node, unless it has a place there, or none.
    fn non_tas_usage_of(&mut self, pod: &Pod) -> Option<Amounts> {
        if pod.topology_aware || pod.spec.node_name.is_empty() || pod.status.phase.is_terminal() {
            return None;
        }
        let requests = pod_requests(&pod.spec, &PodResourcesOptions::default());
        let mut usage = amounts(&mut self.ids, &requests);
        let pods = self.ids.resource("pods");
        add_times(&mut usage, &[(pods, 1)], 1);
        Some(usage)
    }

    /// Whether a ClusterQueue gives out places on nodes.
    pub(crate) fn has_topology(&self, cq: ClusterQueueId) -> bool {
        self.cq(cq).rules.groups.iter().flat_map(|g| &g.flavors).any(|f| self.topology_of(*f).is_some())
    }

    /// The ClusterQueues, in whatever cohorts, for which places may have become free since this was last asked. Kueue
    /// requeues only the cohort of the workload that goes; others that wait for the same nodes wait on.
    pub(crate) fn queues_awaiting_topology_capacity(&mut self) -> Vec<ClusterQueueId> {
        if !std::mem::take(&mut self.tas.freed) {
            return Vec::new();
        }
        self.cluster_queues.ids().filter(|&c| self.has_topology(c)).collect()
    }

    /// The levels of a flavor's topology, if it has one that exists.
    fn topology_of(&self, flavor: FlavorId) -> Option<(&str, &[String])> {
        let known = self.objects.flavors.get(&flavor);
        let f = known.filter(|f| !f.topology.is_empty() && self.config.gates.topology)?;
        let t = self.objects.topologies.get(&f.topology)?;
        Some((t.name.as_str(), t.levels.as_slice()))
    }

    /// Notes that flavors or topologies changed.
    pub(crate) fn topologies_changed(&mut self) {
        self.tas.stale = true;
    }

    /// Builds the trees again if nodes, non-TAS pods, flavors or topologies changed.
    pub(crate) fn ensure_topologies(&mut self) {
        if !std::mem::take(&mut self.tas.stale) {
            return;
        }
        self.tas.trees = self.build_trees();
        self.tas.changes += 1;
        self.rebuild_held();
    }

    /// The trees as the nodes, non-TAS pods, flavors and topologies say.
    fn build_trees(&mut self) -> BTreeMap<FlavorId, FlavorTree> {
        let flavors: Vec<FlavorId> = self.objects.flavors.keys().copied().collect();
        let mut trees = BTreeMap::new();
        for id in flavors {
            let Some((name, levels)) = self.topology_of(id) else { continue };
            let (name, levels) = (name.to_owned(), levels.to_vec());
            let Some(flavor) = self.objects.flavors.get(&id).cloned() else { continue };
            let mut tree = FlavorTree::new(name, levels, flavor.tolerations.clone());
            // Where kube-scheduler's filters look at the nodes, a cordon and what keeps pods away from a node that is not ready
            // are theirs (Kueue `nodesCache.find`).
            let filtered = tree.by_node && self.config.gates.scheduler_library;
            for node in self.tas.nodes.values().filter(|n| filtered || n.ready && !n.unschedulable) {
                let suits = flavor.node_labels.iter().all(|(k, v)| node.labels.get(k) == Some(v));
                if suits && tree.levels.iter().all(|l| node.labels.contains_key(l)) {
                    let free_capacity = self.tas.free_capacity_of(node, &mut self.ids);
                    tree.add_node(node, &free_capacity);
                }
            }
            tree.finish();
            trees.insert(id, tree);
        }
        trees
    }

    /// Whether the trees are what a rebuild would give.
    pub(crate) fn check_topologies(&self) {
        if self.tas.stale {
            return;
        }
        self.check_held();
        for tree in self.tas.trees.values() {
            let mut free_capacities: BTreeMap<String, Amounts> = BTreeMap::new();
            for node in self.tas.nodes.values().filter(|n| tree.members.contains(&n.name)) {
                let Some(id) = tree.leaf_id(node) else { continue };
                let free_capacity = free_capacities.entry(id).or_default();
                for (name, v) in &node.allocatable {
                    if let Some(res) = self.ids.find_resource(name) {
                        add_times(free_capacity, &[(res, *v)], 1);
                    }
                }
                if let Some(used) = self.tas.non_tas_usage.on(&node.name) {
                    add_times(free_capacity, used, -1);
                }
            }
            assert_eq!(free_capacities.len(), tree.leaves.len(), "leaves of a topology");
            for leaf in &tree.leaves {
                let want = free_capacities.get(&leaf.id);
                let agrees = want.is_some_and(|w| {
                    let all = leaf.free_capacity.iter().chain(w).map(|(r, _)| *r);
                    all.into_iter().all(|r| amount_of(&leaf.free_capacity, r) == amount_of(w, r))
                });
                assert!(agrees, "{}: free capacity {:?} instead of {want:?}", leaf.id, leaf.free_capacity);
            }
        }
    }

    /// Whether a flavor has a topology tree.
    pub(crate) fn is_topology_flavor(&self, _cq: ClusterQueueId, flavor: FlavorId) -> bool {
        self.tas.trees.contains_key(&flavor)
    }

    /// Whether a podset gets places in a topology.
    pub(crate) fn wants_topology(&self, ps: &PodSet, cq: ClusterQueueId) -> bool {
        is_explicit(ps) || self.is_topology_only(cq)
    }

    /// Whether a ClusterQueue has no flavor without a topology.
    pub(crate) fn is_topology_only(&self, cq: ClusterQueueId) -> bool {
        let mut flavors = self.cq(cq).rules.groups.iter().flat_map(|g| &g.flavors);
        self.config.gates.topology
            && flavors.all(|f| self.objects.flavors.get(f).is_some_and(|f| !f.topology.is_empty()))
    }
}

/// The name of a domain: its values.
pub(crate) fn domain_id(values: &[String]) -> String {
    values.join(",")
}
