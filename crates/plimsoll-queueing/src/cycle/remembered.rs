//! What cycles remember of what failed, so that it isn't tried again in vain.

use std::collections::BTreeMap;

/// How much is remembered.
const MOST: usize = 4_096;

/// What failed, and until when it fails. What an attempt adds is forgotten again if the attempt is put off: the next one has to try
/// the same, so that it breaks ties as if it were the first.
#[derive(Debug)]
pub(super) struct Remembered<K, V> {
    known: BTreeMap<K, V>,
    /// What the present attempt has added, and what was there before.
    added: Vec<(K, Option<V>)>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), added: Vec::new() }
    }
}

impl<K: Ord + Clone, V> Remembered<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        if self.known.len() >= MOST {
            self.clear();
        }
        let before = self.known.insert(key.clone(), value);
        self.added.push((key, before));
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.added.clear();
    }

    /// An attempt has ended.
    pub(super) fn end_attempt(&mut self, put_off: bool) {
        if !put_off {
            return self.added.clear();
        }
        for (key, before) in self.added.drain(..).rev() {
            match before {
                Some(before) => self.known.insert(key, before),
                None => self.known.remove(&key),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_put_off_attempt_added_is_forgotten() {
        let mut known = Remembered::default();
        known.insert(1, 'a');
        known.end_attempt(false);
        for (key, value) in [(1, 'b'), (2, 'c'), (1, 'd'), (2, 'e')] {
            known.insert(key, value);
        }
        assert_eq!((known.get(&1), known.get(&2)), (Some(&'d'), Some(&'e')));
        known.end_attempt(true);
        assert_eq!((known.get(&1), known.get(&2)), (Some(&'a'), None));
        (0..MOST + 10).for_each(|key| known.insert(key, 'f'));
        assert_eq!(known.get(&0), None, "there was no more space");
        known.end_attempt(true);
        assert_eq!(known.get(&(MOST + 5)), None);
    }
}
