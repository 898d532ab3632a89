//! Dense numbers for names: flavors, resources and pairs of them.

use plimsoll_state::cast::index32;
use std::sync::Arc;

use plimsoll_state::dense_id;
use plimsoll_state::slab::Id;

/// A hash map with a fixed seed, so that it is the same in every run. Never iterate one where the order
/// can reach an action.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;

dense_id!(
    /// Number of a workload.
    WorkloadId
);
dense_id!(
    /// Number of a scheduling hash: workloads of the same hash get the same verdict.
    SchedulingHashId
);
dense_id!(
    /// Number of a LocalQueue.
    LocalQueueId
);

impl SchedulingHashId {
    /// The hash of a workload whose requests were not computed yet.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

dense_id!(
    /// Number of a ClusterQueue.
    ClusterQueueId
);

dense_id!(
    /// A resource name.
    ResourceId
);
dense_id!(
    /// A flavor name.
    FlavorId
);
dense_id!(
    /// A (flavor, resource) pair: a column of the quota tree.
    FlavorResource
);

impl FlavorResource {
    /// The first `n` columns.
    pub(crate) fn first(n: usize) -> impl Iterator<Item = Self> {
        (0..index32(n)).map(Self)
    }
}

/// Names with numbers, given out in order of first sight.
#[derive(Debug)]
pub(crate) struct Names<I> {
    names: Vec<Arc<str>>,
    by_name: Map<Arc<str>, I>,
}

impl<I> Default for Names<I> {
    fn default() -> Self {
        Self { names: Vec::new(), by_name: Map::default() }
    }
}

impl<I: Id> Names<I> {
    /// The number of `name`, a new one if it was never seen.
    pub(crate) fn intern(&mut self, name: &str) -> I {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = I::new(self.names.len());
        let name: Arc<str> = Arc::from(name);
        self.names.push(Arc::clone(&name));
        self.by_name.insert(name, id);
        id
    }

    /// The number of `name`, if it was ever seen.
    pub(crate) fn get(&self, name: &str) -> Option<I> {
        self.by_name.get(name).copied()
    }

    /// The name of a number given out by [`Names::intern`], shared.
    pub(crate) fn shared(&self, id: I) -> Option<&Arc<str>> {
        self.names.get(id.index())
    }

    /// The name of a number given out by [`Names::intern`]; empty for any other.
    pub(crate) fn name(&self, id: I) -> &str {
        self.names.get(id.index()).map_or("", |n| n)
    }
}

/// Flavors, resources and their pairs.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    flavors: Names<FlavorId>,
    resources: Names<ResourceId>,
    /// Order in which Kueue walks the requests of a podset, per resource: a hash of the name. Which
    /// resource stops a search first shows in messages.
    walk: Vec<u64>,
    pairs: Vec<(FlavorId, ResourceId)>,
    by_pair: Map<(FlavorId, ResourceId), FlavorResource>,
}

impl Ids {
    pub(crate) fn flavor(&mut self, name: &str) -> FlavorId {
        self.flavors.intern(name)
    }

    pub(crate) fn find_flavor(&self, name: &str) -> Option<FlavorId> {
        self.flavors.get(name)
    }

    pub(crate) fn flavor_name(&self, id: FlavorId) -> &str {
        self.flavors.name(id)
    }

    pub(crate) fn sort_by_flavor_name(&self, flavors: &mut [FlavorId]) {
        flavors.sort_by(|a, b| self.flavor_name(*a).cmp(self.flavor_name(*b)));
    }

    pub(crate) fn resource(&mut self, name: &str) -> ResourceId {
        let id = self.resources.intern(name);
        if id.index() == self.walk.len() {
            self.walk.push(fnv1a(name));
        }
        id
    }

    pub(crate) fn find_resource(&self, name: &str) -> Option<ResourceId> {
        self.resources.get(name)
    }

    pub(crate) fn resource_name(&self, id: ResourceId) -> &str {
        self.resources.name(id)
    }

    /// Sort key of a resource within the requests of a podset.
    pub(crate) fn walk_key(&self, id: ResourceId) -> (u64, &str) {
        (self.walk.get(id.index()).copied().unwrap_or(u64::MAX), self.resource_name(id))
    }

    /// Sorts the requests of a podset.
    pub(crate) fn sort_by_walk_key(&self, requests: &mut [(ResourceId, i64)]) {
        requests.sort_by(|a, b| self.walk_key(a.0).cmp(&self.walk_key(b.0)));
    }

    /// The column of a pair, a new one if it was never seen.
    pub(crate) fn pair(&mut self, flavor: FlavorId, resource: ResourceId) -> FlavorResource {
        if let Some(&fr) = self.by_pair.get(&(flavor, resource)) {
            return fr;
        }
        let fr = FlavorResource::new(self.pairs.len());
        self.pairs.push((flavor, resource));
        self.by_pair.insert((flavor, resource), fr);
        fr
    }

    /// The names of a pair and its column, if all were ever seen.
    pub(crate) fn named_pair(
        &self,
        flavor: &str,
        resource: &str,
    ) -> Option<(&Arc<str>, &Arc<str>, FlavorResource)> {
        let (f, r) = (self.flavors.get(flavor)?, self.resources.get(resource)?);
        Some((self.flavors.shared(f)?, self.resources.shared(r)?, self.find_pair(f, r)?))
    }

    /// The column of a pair, if it was ever seen.
    pub(crate) fn find_pair(&self, flavor: FlavorId, resource: ResourceId) -> Option<FlavorResource> {
        self.by_pair.get(&(flavor, resource)).copied()
    }

    /// The column of a pair. Those that a ClusterQueue's groups cover are made with the ClusterQueue; any other has no quota.
    pub(crate) fn column(&self, flavor: FlavorId, resource: ResourceId) -> FlavorResource {
        self.find_pair(flavor, resource).unwrap_or(FlavorResource(u32::MAX))
    }

    /// Flavor and resource of a column.
    pub(crate) fn parts(&self, fr: FlavorResource) -> (FlavorId, ResourceId) {
        self.pairs.get(fr.index()).copied().unwrap_or((FlavorId(u32::MAX), ResourceId(u32::MAX)))
    }

    /// How many columns there are.
    pub(crate) fn columns(&self) -> usize {
        self.pairs.len()
    }
}

/// FNV-1a with 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stable() {
        let mut ids = Ids::default();
        let (f, r) = (ids.flavor("spot"), ids.resource("cpu"));
        assert_eq!((f, r), (FlavorId(0), ResourceId(0)));
        assert_eq!(ids.pair(f, r), FlavorResource(0));
        assert_eq!(ids.pair(f, r), FlavorResource(0));
        assert_eq!((ids.columns(), ids.parts(FlavorResource(0))), (1, (f, r)));
        assert_eq!(ids.resource_name(r), "cpu");
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
