//! Charging what workloads hold in domains of topologies.

use std::collections::BTreeMap;

use super::tree::FlavorTree;
use super::{ALL_FLAVORS, Amounts, SlotKey, Tas, add_times, amount_of, domain_id};
use crate::Queueing;
use crate::ids::{FlavorId, Map, ResourceId, WorkloadId};
use crate::pod_sets::PodSetResources;

/// Where what workloads hold in a domain is kept, or will be.
#[derive(Debug)]
pub(super) enum SlotAt {
    Known(u32),
    New(SlotKey),
}

/// Pods to charge in a domain: number of their podset, and the slots of their flavor and of all flavors.
#[derive(Debug)]
pub(super) struct PlaceCharge {
    pub(super) pod_set: usize,
    pub(super) own: SlotAt,
    pub(super) all_flavors: Option<SlotAt>,
    pub(super) count: i32,
}

/// Places to charge.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// What one pod of each podset needs.
    pub(super) pod_sets: Vec<Amounts>,
    pub(super) places: Vec<PlaceCharge>,
}

impl Tas {
    fn charge(&mut self, slot: u32, one: &Amounts, pods: ResourceId, count: i64) {
        let held = &mut self.held[slot as usize];
        self.log.push((slot, held.clone()));
        add_times(held, one, count);
        add_times(held, &[(pods, 1)], count);
        self.note_changed(slot);
    }

    fn slot_of(&mut self, at: SlotAt) -> u32 {
        match at {
            SlotAt::Known(slot) => slot,
            SlotAt::New(key) => self.slot(key),
        }
    }

    /// Charges places that are found in a cycle: those that are `taken` and not only reserved for all flavors on the node, too.
    pub(crate) fn charge_places(&mut self, charges: Charges, pods: ResourceId, taken: bool, times: i64) {
        for PlaceCharge { pod_set, own, all_flavors, count } in charges.places {
            let count = times * i64::from(count);
            let Some(one) = charges.pod_sets.get(pod_set) else { continue };
            if let Some(all_flavors) = all_flavors.filter(|_| taken) {
                let slot = self.slot_of(all_flavors);
                self.charge(slot, one, pods, count);
            }
            let slot = self.slot_of(own);
            self.charge(slot, one, pods, count);
        }
    }

    /// Where what is held in a domain is kept, for this flavor in a cycle, or by workloads.
    pub(super) fn slot_at(&self, tree: &FlavorTree, flavor: Option<FlavorId>, values: &[String]) -> SlotAt {
        let known = tree.leaf_at(values).and_then(|leaf| match flavor {
            Some(ALL_FLAVORS) => leaf.admitted,
            Some(_) => leaf.slots[0],
            None => leaf.slots[1],
        });
        known.map_or_else(|| SlotAt::New((flavor, domain_id(values))), SlotAt::Known)
    }
}

/// The flavors of a podset, each once.
fn flavors_of(t: &PodSetResources) -> Vec<FlavorId> {
    let mut flavors: Vec<FlavorId> = t.flavors.iter().map(|(_, f)| *f).collect();
    flavors.sort_unstable();
    flavors.dedup();
    flavors
}

impl Queueing {
    /// What is held in every domain is the sum of the placements.
    pub(super) fn check_held(&self) {
        let mut sums: BTreeMap<SlotKey, Amounts> = BTreeMap::new();
        let pods = self.ids.find_resource("pods");
        for wl in self.workloads.iter().map(|(_, w)| w).filter(|w| w.quota().is_some()) {
            for t in wl.total_requests().iter().filter(|t| !t.places.is_empty()) {
                for flavor in flavors_of(t) {
                    let Some(tree) = self.tas.trees.get(&flavor) else { continue };
                    let scope = (!tree.by_node).then_some(flavor);
                    for (values, count) in &t.places {
                        let sum = sums.entry((scope, domain_id(values))).or_default();
                        add_times(sum, &t.one, i64::from(*count));
                        if let Some(pods) = pods {
                            add_times(sum, &[(pods, 1)], i64::from(*count));
                        }
                    }
                }
            }
        }
        let none = Amounts::new();
        for (key, &slot) in &self.tas.slots {
            let (held, want) = (&self.tas.held[slot as usize], sums.remove(key));
            let want = want.as_ref().unwrap_or(&none);
            let mut all = held.iter().chain(want).map(|(r, _)| *r);
            let agrees = all.all(|r| amount_of(held, r) == amount_of(want, r));
            assert!(agrees, "{key:?}: {held:?} held instead of {want:?}");
        }
        assert!(sums.is_empty(), "places that no slot has: {sums:?}");
    }

    /// Charges all workloads that hold places anew.
    pub(super) fn rebuild_held(&mut self) {
        self.tas.slots = Map::default();
        self.tas.held.clear();
        self.tas.assign_slots();
        for id in self.workloads.ids() {
            self.tas_charge(id, true);
        }
        self.tas.commit();
    }

    /// Charges the places a workload holds, or takes them off.
    pub(crate) fn tas_charge(&mut self, id: WorkloadId, add: bool) {
        let Some(wl) = self
            .wl(id)
            .filter(|w| w.quota().is_some() && w.total_requests().iter().any(|t| !t.places.is_empty()))
        else {
            return;
        };
        let Some(pods) = self.ids.find_resource("pods") else { return };
        let mut charges = Charges::default();
        for (pod_set, t) in wl.total_requests().iter().enumerate() {
            charges.pod_sets.push(t.one.clone());
            for flavor in flavors_of(t) {
                let Some(tree) = self.tas.trees.get(&flavor) else { continue };
                let scope = (!tree.by_node).then_some(flavor);
                charges.places.extend(t.places.iter().map(|(values, count)| PlaceCharge {
                    pod_set,
                    own: self.tas.slot_at(tree, scope, values),
                    all_flavors: None,
                    count: *count,
                }));
            }
        }
        self.tas.charge_places(charges, pods, false, if add { 1 } else { -1 });
    }
}
