//! Strings as dense numbers: compared and hashed as one word.

use crate::cast::index32;
use crate::parted::PartedTable;
use foldhash::fast::FixedState;
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

/// Fewest strings between two sweeps.
const SWEEP_AFTER: usize = 1 << 16;

/// Strings in use, and those that were until the last sweep.
///
/// What holds numbers doesn't count them. Instead, when there are twice as many strings as were in use at the last sweep,
/// the owner marks those that are in use now ([`Interner::sweep_due`], [`Interner::sweep`]); the numbers of the others are
/// given out again, the smallest first.
#[derive(Debug)]
pub struct Interner {
    table: PartedTable<u32>,
    strings: Vec<Option<Box<str>>>,
    /// Numbers without a string, the largest first.
    free: Vec<u32>,
    /// Numbers below this are never freed.
    pinned: usize,
    /// How many strings there may be before the next sweep.
    limit: usize,
    hasher: FixedState,
}

impl Default for Interner {
    fn default() -> Self {
        let mut new = Self {
            table: PartedTable::default(),
            strings: Vec::new(),
            free: Vec::new(),
            pinned: 1,
            limit: SWEEP_AFTER,
            hasher: FixedState::with_seed(0x9175_0110),
        };
        new.intern("");
        new
    }
}

/// Numbers in use, for a sweep.
#[derive(Debug)]
pub struct Marks(Vec<bool>);

impl Marks {
    /// The number is in use.
    #[inline]
    pub fn mark(&mut self, sym: Sym) {
        if let Some(slot) = self.0.get_mut(sym.0 as usize) {
            *slot = true;
        }
    }

    /// These numbers are in use.
    pub fn all<'a>(&mut self, syms: impl IntoIterator<Item = &'a Sym>) {
        syms.into_iter().for_each(|s| self.mark(*s));
    }

    /// Both numbers of these pairs are in use.
    pub fn pairs<'a>(&mut self, pairs: impl IntoIterator<Item = &'a (Sym, Sym)>) {
        for (key, value) in pairs {
            self.mark(*key);
            self.mark(*value);
        }
    }
}

impl Interner {
    /// The number of `text`, given out now if it is new.
    #[inline]
    pub fn intern(&mut self, text: &str) -> Sym {
        let hash = self.hasher.hash_one(text);
        let strings = &mut self.strings;
        let is = |i: &u32| strings[*i as usize].as_deref() == Some(text);
        if let Some(found) = self.table.find(hash, is) {
            return Sym(*found);
        }
        let id = match self.free.pop() {
            Some(id) => {
                strings[id as usize] = Some(text.into());
                id
            }
            None => {
                // 2^32 distinct strings do not fit into memory.
                strings.push(Some(text.into()));
                index32(strings.len()) - 1
            }
        };
        let hasher = &self.hasher;
        self.table.insert_unique(hash, id, |i| {
            hasher.hash_one(strings[*i as usize].as_deref().unwrap_or_default())
        });
        Sym(id)
    }

    /// The number of `text` if it is known.
    #[inline]
    pub fn get(&self, text: &str) -> Option<Sym> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |i| self.strings[*i as usize].as_deref() == Some(text)).map(|i| Sym(*i))
    }

    /// The string behind a number.
    #[inline]
    pub fn text(&self, sym: Sym) -> &str {
        let text = self.strings.get(sym.0 as usize).and_then(Option::as_deref);
        debug_assert!(text.is_some(), "a number outlived its string");
        text.unwrap_or_default()
    }

    /// How many strings there are.
    pub const fn len(&self) -> usize {
        self.strings.len() - self.free.len()
    }

    /// Whether there are none: never, because the empty string is always known.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps all strings known now for ever.
    pub fn pin(&mut self) {
        self.pinned = self.strings.len();
    }

    /// Whether so many strings have come that most may be out of use.
    pub const fn sweep_due(&self) -> bool {
        self.len() > self.limit
    }

    /// Marks for [`Interner::sweep`], nothing but pinned strings marked.
    pub fn marks(&self) -> Marks {
        Marks((0..self.strings.len()).map(|i| i < self.pinned).collect())
    }

    /// Forgets strings that are not marked.
    pub fn sweep(&mut self, marks: &Marks) {
        for (i, used) in (0u32..).zip(&marks.0) {
            let Some(text) = self.strings[i as usize].as_deref().filter(|_| !used) else { continue };
            let hash = self.hasher.hash_one(text);
            self.table.remove(hash, |other| *other == i);
            self.strings[i as usize] = None;
            self.free.push(i);
        }
        self.free.sort_unstable_by_key(|i| std::cmp::Reverse(*i));
        self.limit = (2 * self.len()).max(self.len() + SWEEP_AFTER);
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

    #[test]
    fn numbers_that_are_not_marked_are_given_out_again() {
        let mut i = Interner::default();
        let kept = i.intern("kept");
        i.pin();
        let [a, b, c] = ["a", "b", "c"].map(|t| i.intern(t));
        let mut marks = i.marks();
        marks.mark(b);
        i.sweep(&marks);
        assert_eq!((i.len(), i.get("a"), i.get("b"), i.get("c")), (3, None, Some(b), None));
        assert_eq!((i.text(kept), i.text(b), i.text(Sym::EMPTY)), ("kept", "b", ""));
        assert_eq!([i.intern("x"), i.intern("y")], [a, c]);
        assert!(i.intern("z") > c && i.get("x") == Some(a));
    }
}
