//! Dense numbers for names: flavors, resources and pairs of them.

use plimsoll_state::cast::index32;
use std::sync::Arc;

use plimsoll_state::dense_id;

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

/// Number of a resource name.
pub(crate) type Res = u32;
/// Number of a flavor name.
pub(crate) type Flavor = u32;
/// Number of a (flavor, resource) pair: a column of the quota tree.
pub(crate) type Fr = u32;

/// Names with numbers, given out in order of first sight.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<Arc<str>>,
    by_name: Map<Arc<str>, u32>,
}

impl Names {
    /// The number of `name`, a new one if it was never seen.
    pub(crate) fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let id = index32(self.names.len());
        let name: Arc<str> = Arc::from(name);
        self.names.push(Arc::clone(&name));
        self.by_name.insert(name, id);
        id
    }

    /// The number of `name`, if it was ever seen.
    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// The name of a number given out by [`Names::intern`], shared.
    pub(crate) fn shared(&self, id: u32) -> Option<&Arc<str>> {
        self.names.get(id as usize)
    }

    /// The name of a number given out by [`Names::intern`]; empty for any other.
    pub(crate) fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("", |n| n)
    }
}

/// Flavors, resources and their pairs.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    flavors: Names,
    resources: Names,
    /// Order in which Kueue walks the requests of a podset, per resource: a hash of the name. Which
    /// resource stops a search first shows in messages.
    walk: Vec<u64>,
    pairs: Vec<(Flavor, Res)>,
    by_pair: Map<(Flavor, Res), Fr>,
}

impl Ids {
    pub(crate) fn flavor(&mut self, name: &str) -> Flavor {
        self.flavors.intern(name)
    }

    pub(crate) fn find_flavor(&self, name: &str) -> Option<Flavor> {
        self.flavors.get(name)
    }

    pub(crate) fn flavor_name(&self, id: Flavor) -> &str {
        self.flavors.name(id)
    }

    pub(crate) fn resource(&mut self, name: &str) -> Res {
        let id = self.resources.intern(name);
        if id as usize == self.walk.len() {
            self.walk.push(fnv1a(name));
        }
        id
    }

    pub(crate) fn find_resource(&self, name: &str) -> Option<Res> {
        self.resources.get(name)
    }

    pub(crate) fn resource_name(&self, id: Res) -> &str {
        self.resources.name(id)
    }

    /// Sort key of a resource within the requests of a podset.
    pub(crate) fn walk_key(&self, id: Res) -> (u64, &str) {
        (self.walk.get(id as usize).copied().unwrap_or(u64::MAX), self.resource_name(id))
    }

    /// The column of a pair, a new one if it was never seen.
    pub(crate) fn pair(&mut self, flavor: Flavor, resource: Res) -> Fr {
        if let Some(&fr) = self.by_pair.get(&(flavor, resource)) {
            return fr;
        }
        let fr = index32(self.pairs.len());
        self.pairs.push((flavor, resource));
        self.by_pair.insert((flavor, resource), fr);
        fr
    }

    /// The names of a pair and its column, if all were ever seen.
    pub(crate) fn named_pair(&self, flavor: &str, resource: &str) -> Option<(&Arc<str>, &Arc<str>, Fr)> {
        let (f, r) = (self.flavors.get(flavor)?, self.resources.get(resource)?);
        Some((self.flavors.shared(f)?, self.resources.shared(r)?, self.find_pair(f, r)?))
    }

    /// The column of a pair, if it was ever seen.
    pub(crate) fn find_pair(&self, flavor: Flavor, resource: Res) -> Option<Fr> {
        self.by_pair.get(&(flavor, resource)).copied()
    }

    /// Flavor and resource of a column.
    pub(crate) fn parts(&self, fr: Fr) -> (Flavor, Res) {
        self.pairs.get(fr as usize).copied().unwrap_or((u32::MAX, u32::MAX))
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
        assert_eq!((f, r), (0, 0));
        assert_eq!(ids.pair(f, r), 0);
        assert_eq!(ids.pair(f, r), 0);
        assert_eq!((ids.columns(), ids.parts(0)), (1, (f, r)));
        assert_eq!(ids.resource_name(r), "cpu");
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
    }
}
