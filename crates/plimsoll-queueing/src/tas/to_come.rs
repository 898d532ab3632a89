//! Places that a topology has once workloads have left (joint admission).

use std::collections::BTreeMap;

use super::request::TasView;
use super::tree::{DomainId, FlavorTree};
use super::{Amounts, PlaceLimits, TasRequests, add_times};
use crate::ids::{FlavorId, WorkloadId};
use crate::model::TopologyAssignment;

/// How many candidate domains are compared.
const MOST_DOMAINS: usize = 8;

impl TasView<'_> {
    /// The domains of the lowest level of a flavor's topology that are single nodes, and the names of these.
    pub(crate) fn nodes_of(&self, flavor: FlavorId) -> Vec<(&str, &str)> {
        let leaves = self.state.tas.trees.get(&flavor).map_or(&[][..], |tree| &tree.leaves);
        leaves.iter().filter_map(|l| Some((l.id.as_str(), l.node.as_ref()?.name.as_str()))).collect()
    }

    /// Where the pods could be by capacity once all workloads have left, best places first: in the domains of a required level with
    /// the most free capacity now, so that the fewest have to leave. With limits that keep the pods in that domain.
    pub(crate) fn places_to_come(
        &self,
        id: WorkloadId,
        requests: &TasRequests,
    ) -> Vec<(PlaceLimits, Vec<(usize, TopologyAssignment)>)> {
        let Some(wl) = self.state.wl(id) else { return Vec::new() };
        let required = requests.iter().find_map(|r| {
            let request = wl.obj.pod_sets.get(r.index)?.topology.as_ref()?;
            let tree = self.state.tas.trees.get(&r.flavor)?;
            let largest = requests.iter().filter(|o| o.flavor == r.flavor).all(|o| o.count <= r.count);
            Some((r, tree, tree.level(request.required.as_ref()?).filter(|_| largest)?))
        });
        let mut found = Vec::new();
        if let Some((r, tree, level)) = required {
            for domain in self.freest_domains(tree, level, &r.one, i64::from(r.count)) {
                let values = tree.domains[domain as usize].values.clone();
                let limits = PlaceLimits::within(r.index, r.flavor, values);
                let places = self.find_places(id, requests, true, &limits);
                found.extend(places.ok().map(|places| (limits, places)));
                if found.len() == MOST_DOMAINS {
                    return found;
                }
            }
        }
        if found.is_empty() {
            let places = self.find_places(id, requests, true, &PlaceLimits::default());
            found.extend(places.ok().map(|places| (PlaceLimits::default(), places)));
        }
        found
    }

    /// The domains of a level that take so many pods once all workloads have left, those that take the most now first.
    fn freest_domains(&self, tree: &FlavorTree, level: usize, one: &Amounts, count: i64) -> Vec<DomainId> {
        let mut one = one.clone();
        if let Some(pods) = self.state.ids.find_resource("pods") {
            add_times(&mut one, &vec![(pods, 1)], 1);
        }
        let mut sums: BTreeMap<&[String], (i64, i64)> = BTreeMap::new();
        for leaf in &tree.leaves {
            let Some(values) = tree.domains[leaf.domain as usize].values.get(..=level) else { continue };
            let (now, later) = sums.entry(values).or_default();
            *now += super::place::count_in(&one, &self.state.tas.free_capacity(leaf), &self.state.ids).0;
            *later += super::place::count_in(&one, &leaf.free_capacity, &self.state.ids).0;
        }
        let domains = tree.per_level.get(level).map_or(&[][..], Vec::as_slice).iter().copied();
        let sum =
            |d: &DomainId| sums.get(tree.domains[*d as usize].values.as_slice()).copied().unwrap_or_default();
        let mut fit: Vec<DomainId> = domains.filter(|d| sum(d).1 >= count).collect();
        fit.sort_by_key(|d| std::cmp::Reverse(sum(d).0));
        fit
    }
}
