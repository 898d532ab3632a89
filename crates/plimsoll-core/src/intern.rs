//! Strings as dense numbers: compared and hashed as one word.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// A hash map whose order is the same in every run. Never iterate where order is visible.
pub type Map<K, V> = hashbrown::HashMap<K, V, FixedState>;
/// A hash set whose order is the same in every run. Never iterate where order is visible.
pub type Set<K> = hashbrown::HashSet<K, FixedState>;

/// An interned string. Only meaningful together with the [`Interner`] that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sym(u32);

impl Sym {
    /// The empty string, in every interner.
    pub const EMPTY: Self = Self(0);

    /// As a number, for keys made of several kinds of values.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The string of a number from [`Sym::number`].
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Strings seen so far. Entries live as long as the interner.
#[derive(Debug)]
pub struct Interner {
    table: HashTable<u32>,
    strings: Vec<Box<str>>,
    hasher: FixedState,
}

impl Default for Interner {
    fn default() -> Self {
        let mut new =
            Self { table: HashTable::new(), strings: Vec::new(), hasher: FixedState::with_seed(0x9175_0110) };
        new.intern("");
        new
    }
}

impl Interner {
    /// The number of `text`, given out now if it is new.
    pub fn intern(&mut self, text: &str) -> Sym {
        let hash = self.hasher.hash_one(text);
        let strings = &mut self.strings;
        if let Some(found) = self.table.find(hash, |i| &*strings[*i as usize] == text) {
            return Sym(*found);
        }
        // 2^32 distinct strings do not fit into memory.
        let id = strings.len() as u32;
        strings.push(text.into());
        let hasher = &self.hasher;
        self.table.insert_unique(hash, id, |i| hasher.hash_one(&*strings[*i as usize]));
        Sym(id)
    }

    /// The number of `text` if it was seen before.
    pub fn get(&self, text: &str) -> Option<Sym> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |i| &*self.strings[*i as usize] == text).map(|i| Sym(*i))
    }

    /// The string behind a number.
    pub fn text(&self, sym: Sym) -> &str {
        self.strings.get(sym.0 as usize).map_or("", |s| s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_a_number() {
        let mut i = Interner::default();
        let (a, b) = (i.intern("a"), i.intern("b"));
        assert_ne!(a, b);
        assert_eq!(i.intern("a"), a);
        assert_eq!(i.get("b"), Some(b));
        assert_eq!(i.get("c"), None);
        assert_eq!(i.text(b), "b");
        assert_eq!(i.intern(""), Sym::EMPTY);
    }
}
