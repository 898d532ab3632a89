//! Places that a topology has once workloads have left (joint admission).

use super::request::{PlacesFound, TasView, pod_sets_with_updates};
use super::tree::{DomainId, FlavorTree};
use super::{Amounts, PlaceLimits, TasRequests, add_times};
use crate::ids::{FlavorId, WorkloadId};

/// How many candidate domains are compared.
const MOST_DOMAINS: usize = 8;

impl TasView<'_> {
    /// The domain of the lowest level of a flavor's topology that is this node alone.
    pub(crate) fn domain_of_node(&self, flavor: FlavorId, node: &str) -> Option<&str> {
        let tree = self.state.tas.trees.get(&flavor)?;
        let leaf = tree.leaf_of_node(node)?;
        Some(&leaf.id)
    }

    /// Where the pods could be by capacity once all workloads have left, best first: in the domains of a required level with the most
    /// free capacity now, so that the fewest have to leave. Limits that keep the pods in that domain, and the places there where
    /// it took a search to know that there are some.
    pub(crate) fn domains_to_come(
        &self,
        id: WorkloadId,
        requests: &TasRequests,
    ) -> Vec<(PlaceLimits, Option<PlacesFound>)> {
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
                let find = || self.find_places(id, requests, true, &limits).ok();
                match self.takes_all_when_empty(id, requests, domain, i64::MAX) {
                    Some(takes) => {
                        debug_assert_eq!(
                            takes,
                            find().is_some(),
                            "a domain has places for as many pods as it takes"
                        );
                        found.extend(takes.then_some((limits, None)));
                    }
                    None => {
                        let places = find();
                        found.extend(places.map(|places| (limits, Some(places))));
                    }
                }
                if found.len() == MOST_DOMAINS {
                    return found;
                }
            }
        }
        if found.is_empty() {
            let places = self.find_places(id, requests, true, &PlaceLimits::default());
            found.extend(places.ok().map(|places| (PlaceLimits::default(), Some(places))));
        }
        found
    }

    /// Whether a domain has places for all pods once all workloads have left, if each leaf takes so many at most. `None`: only a
    /// search says so.
    fn takes_all_when_empty(
        &self,
        id: WorkloadId,
        requests: &TasRequests,
        domain: DomainId,
        limit: i64,
    ) -> Option<bool> {
        let ([r], Some(wl)) = (&requests[..], self.state.wl(id)) else { return None };
        let tree = self.state.tas.trees.get(&r.flavor)?;
        let pod_sets = pod_sets_with_updates(&wl.obj, requests).ok()?;
        let ps = pod_sets.get(r.index)?;
        let request = ps.topology.as_ref()?;
        let plain = r.before.is_none()
            && wl.obj.status.unhealthy_nodes.is_empty()
            && request.required.is_some()
            && request.slices.is_empty()
            && !request.unconstrained;
        let takes = || self.takes_when_empty(id, tree, (ps, r), (domain, limit));
        plain.then(|| takes() >= i64::from(r.count))
    }

    /// Whether the domain that limits name may have places for all pods once all workloads have left, if none of its leaves takes
    /// more than another search has found that any leaf does.
    pub(crate) fn may_come(
        &self,
        id: WorkloadId,
        requests: &TasRequests,
        limits: &PlaceLimits,
        known: &PlaceLimits,
    ) -> bool {
        let Some(r) = requests.first() else { return true };
        let (Some(region), Some(tree)) = (limits.region(r.index), self.state.tas.trees.get(&r.flavor)) else {
            return true;
        };
        let Some(domain) = tree.domain_of(region) else { return true };
        self.takes_all_when_empty(id, requests, domain, known.everywhere(r.index)).unwrap_or(true)
    }

    /// The domains of a level that take so many pods once all workloads have left, those that take the most now first.
    fn freest_domains(&self, tree: &FlavorTree, level: usize, one: &Amounts, count: i64) -> Vec<DomainId> {
        let mut one = one.clone();
        if let Some(pods) = self.state.ids.find_resource("pods") {
            add_times(&mut one, &[(pods, 1)], 1);
        }
        let mut sums = vec![(0, 0); tree.domains.len()];
        for leaf in &tree.leaves {
            let (now, later) = &mut sums[tree.ancestor(leaf.domain, level) as usize];
            *now += self.fits_into(leaf, &one, false);
            *later += self.fits_into(leaf, &one, true);
        }
        let domains = tree.per_level.get(level).map_or(&[][..], Vec::as_slice).iter().copied();
        let mut fit: Vec<DomainId> = domains.filter(|d| sums[*d as usize].1 >= count).collect();
        fit.sort_by_key(|d| std::cmp::Reverse(sums[*d as usize].0));
        fit
    }
}
