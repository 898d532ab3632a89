//! Numbers of plugins, sets of them, and their names.

use smallvec::SmallVec;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Number of a plugin among those of a scheduler's profiles, dense; it ends with the scheduler.
///
/// Two bytes, also in an `Option`: a `Status` is returned for each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginId(NonZeroU16);

impl PluginId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u16::try_from(index).map_or(NonZeroU16::MAX, |i| NonZeroU16::MIN.saturating_add(i)))
    }

    pub(crate) const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A set of plugins, as bits by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginIds(SmallVec<[u64; 1]>);

impl PluginIds {
    pub fn insert(&mut self, plugin: PluginId) {
        let (word, bit) = (plugin.index() / 64, plugin.index() % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = PluginId> + '_ {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros() as usize;
                (left != 0).then(|| {
                    left &= left - 1;
                    PluginId::new(at * 64 + bit)
                })
            })
        })
    }
}

impl FromIterator<PluginId> for PluginIds {
    fn from_iter<I: IntoIterator<Item = PluginId>>(plugins: I) -> Self {
        let mut out = Self::default();
        plugins.into_iter().for_each(|p| out.insert(p));
        out
    }
}

/// Numbers and names of the plugins of all profiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct PluginNames(Vec<Arc<str>>);

impl PluginNames {
    /// The number of a name, given to it if it has none.
    pub fn add(&mut self, name: &Arc<str>) -> PluginId {
        self.get(name).unwrap_or_else(|| {
            self.0.push(Arc::clone(name));
            PluginId::new(self.0.len() - 1)
        })
    }

    pub fn get(&self, name: &str) -> Option<PluginId> {
        self.0.iter().position(|n| **n == *name).map(PluginId::new)
    }

    /// The name of a plugin.
    pub fn of(&self, plugin: PluginId) -> &str {
        self.0.get(plugin.index()).map_or("", |n| n)
    }

    /// All numbers, in order.
    pub fn ids(&self) -> impl Iterator<Item = PluginId> {
        (0..self.0.len()).map(PluginId::new)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_grow_and_iterate_in_order() {
        let ids = [3, 0, 70, 64, 3].map(PluginId::new);
        let set: PluginIds = ids.into_iter().collect();
        assert_eq!(set.iter().map(PluginId::index).collect::<Vec<_>>(), [0, 3, 64, 70]);
        assert!(!set.is_empty() && PluginIds::default().is_empty());
    }
}
