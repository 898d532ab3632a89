//! Hash tables in parts. A table that grows hashes and moves all its rows at once: with a million pods that takes hundreds of
//! milliseconds, in the step in which one more comes. Here each part grows by itself, so an insertion moves a bounded share of
//! the rows.

use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashTable};
use std::hash::{BuildHasher, Hash};

/// Parts of a table that is not small.
const PARTS: usize = 256;
/// Rows up to which a table has one part.
const SMALL: usize = 4096;
/// The part of a row is in these bits of its hash: a part takes the bits below and above them.
const SHIFT: u32 = 40;

/// A hash table whose parts grow one by one. The caller hashes, as with [`HashTable`].
#[derive(Clone, Debug)]
pub struct PartedTable<T> {
    /// The rows, until there are many.
    small: HashTable<T>,
    /// Then [`PARTS`].
    parts: Vec<HashTable<T>>,
    len: usize,
}

impl<T> Default for PartedTable<T> {
    fn default() -> Self {
        Self { small: HashTable::new(), parts: Vec::new(), len: 0 }
    }
}

/// The part of a hash. A part grows when its rows come to a power of two; so that not all do at the same time, which they would where
/// rows are spread evenly, shares differ by up to two times: about `PARTS * log2(1 + x)`, for a number below one.
#[inline]
const fn part_of(hash: u64) -> usize {
    let x = (hash >> SHIFT) & 0xffff;
    let y = (x * (88_244 - ((x * 22_708) >> 16))) >> 16;
    ((y >> 8) & 0xff) as usize
}

impl<T> PartedTable<T> {
    #[inline]
    fn part(&self, hash: u64) -> &HashTable<T> {
        self.parts.get(part_of(hash)).unwrap_or(&self.small)
    }

    #[inline]
    fn part_mut(&mut self, hash: u64) -> &mut HashTable<T> {
        self.parts.get_mut(part_of(hash)).unwrap_or(&mut self.small)
    }

    /// The row with this hash that `is` what is looked for.
    #[inline]
    pub fn find(&self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&T> {
        self.part(hash).find(hash, is)
    }

    /// The same, to be changed.
    #[inline]
    pub fn find_mut(&mut self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<&mut T> {
        self.part_mut(hash).find_mut(hash, is)
    }

    /// Adds a row with this hash that is not there. `hasher` gives the hashes of rows that move.
    #[inline]
    pub fn insert_unique(&mut self, hash: u64, row: T, hasher: impl Fn(&T) -> u64) {
        if self.len == SMALL {
            self.divide(&hasher);
        }
        self.len += 1;
        self.part_mut(hash).insert_unique(hash, row, hasher);
    }

    /// Takes a row out.
    #[inline]
    pub fn remove(&mut self, hash: u64, is: impl FnMut(&T) -> bool) -> Option<T> {
        let (row, _) = self.part_mut(hash).find_entry(hash, is).ok()?.remove();
        self.len -= 1;
        Some(row)
    }

    /// All rows. Never iterate where the order is visible.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.small.iter().chain(self.parts.iter().flatten())
    }

    /// How many rows there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no row.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A table that is small no longer gets its parts, which it keeps.
    #[cold]
    fn divide(&mut self, hasher: &impl Fn(&T) -> u64) {
        if !self.parts.is_empty() {
            return;
        }
        self.parts = (0..PARTS).map(|_| HashTable::with_capacity(2 * SMALL / PARTS)).collect();
        for row in std::mem::take(&mut self.small) {
            let hash = hasher(&row);
            self.part_mut(hash).insert_unique(hash, row, hasher);
        }
    }
}

/// A hash map whose parts grow one by one, with an order that is the same in every run. Never iterate where order is visible.
#[derive(Clone, Debug)]
pub struct PartedMap<K, V> {
    table: PartedTable<(K, V)>,
    hasher: FixedState,
}

impl<K, V> Default for PartedMap<K, V> {
    fn default() -> Self {
        Self { table: PartedTable::default(), hasher: FixedState::default() }
    }
}

impl<K: Hash + Eq, V> PartedMap<K, V> {
    /// The value of a key.
    #[inline]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        if self.table.is_empty() {
            return None;
        }
        self.table.find(self.hasher.hash_one(key), |(k, _)| key.equivalent(k)).map(|(_, v)| v)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        if self.table.is_empty() {
            return None;
        }
        self.table.find_mut(self.hasher.hash_one(key), |(k, _)| key.equivalent(k)).map(|(_, v)| v)
    }

    /// A key, as it was set first.
    #[inline]
    pub fn get_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&K> {
        if self.table.is_empty() {
            return None;
        }
        self.table.find(self.hasher.hash_one(key), |(k, _)| key.equivalent(k)).map(|(k, _)| k)
    }

    /// Whether a key has a value.
    #[inline]
    pub fn contains_key<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key; the one before.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hasher.hash_one(&key);
        if let Some((_, known)) = self.table.find_mut(hash, |(k, _)| *k == key) {
            return Some(std::mem::replace(known, value));
        }
        let hasher = &self.hasher;
        self.table.insert_unique(hash, (key, value), |(k, _)| hasher.hash_one(k));
        None
    }

    /// Takes a key out; its value.
    #[inline]
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        if self.table.is_empty() {
            return None;
        }
        self.table.remove(self.hasher.hash_one(key), |(k, _)| key.equivalent(k)).map(|(_, v)| v)
    }

    /// All keys with their values. Never iterate where the order is visible.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.table.iter().map(|(k, v)| (k, v))
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(k, _)| k)
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, v)| v)
    }

    /// How many keys there are.
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::cell::Cell;
    use std::collections::BTreeMap;

    /// Keys come and go at random, more and more of them, then fewer and fewer.
    #[test]
    fn a_parted_map_is_a_map() {
        let mut rng = Rng::new(11);
        let (mut parted, mut plain) = (PartedMap::<u32, u32>::default(), BTreeMap::new());
        let mut most = 0;
        for step in 0..120_000u32 {
            let key = rng.below(20_000);
            if rng.below(4) < if step < 80_000 { 3 } else { 1 } {
                assert_eq!(parted.insert(key, step), plain.insert(key, step));
            } else {
                assert_eq!(parted.remove(&key), plain.remove(&key));
            }
            if let Some(value) = parted.get_mut(&(key ^ 1)) {
                *value += 1;
                *plain.get_mut(&(key ^ 1)).unwrap() += 1;
            }
            let other = rng.below(20_000);
            assert_eq!((parted.get(&other), parted.len()), (plain.get(&other), plain.len()));
            most = most.max(parted.len());
            if step % 10_000 == 0 {
                let mut all: Vec<(u32, u32)> = parted.iter().map(|(k, v)| (*k, *v)).collect();
                all.sort_unstable();
                assert!(all.into_iter().eq(plain.iter().map(|(k, v)| (*k, *v))), "step {step}");
            }
        }
        assert!(most > 2 * SMALL && plain.len() < most / 2, "{most}, {}", plain.len());
    }

    /// What is bounded is the number of rows that an insertion hashes and moves.
    #[test]
    fn no_insertion_moves_many_rows() {
        const ROWS: u32 = 400_000;
        let state = FixedState::with_seed(5);
        let hash = |row: &u32| state.hash_one(row);
        let (mut table, mut whole) = (PartedTable::default(), HashTable::new());
        let (mut most, mut most_of_many, mut most_whole) = (0, 0, 0);
        let (mut recent, moved) = (std::collections::VecDeque::new(), Cell::new(0usize));
        let counting = |row: &u32| {
            moved.set(moved.get() + 1);
            hash(row)
        };
        for row in 0..ROWS {
            table.insert_unique(hash(&row), row, counting);
            let of_one = moved.replace(0);
            most = most.max(of_one);
            recent.push_back(of_one);
            if recent.len() > 1024 {
                recent.pop_front();
            }
            most_of_many = most_of_many.max(recent.iter().sum::<usize>());
            whole.insert_unique(hash(&row), row, counting);
            most_whole = most_whole.max(moved.replace(0));
        }
        assert!(most <= SMALL, "{most} rows of {ROWS}");
        // As many as come in a step.
        assert!(most_of_many < 12_000, "{most_of_many} rows by 1,024 insertions");
        assert!(most_whole > 200_000, "a table in one part moves all: {most_whole}");
        assert!((0..ROWS).all(|row| table.find(hash(&row), |r| *r == row).is_some()));
    }
}
