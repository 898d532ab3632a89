//! Strings as dense numbers: compared and hashed as one word.

use crate::cast::index32;
use crate::grow::reserve_one;
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
/// the owner marks those that are in use now ([`Interner::sweep_due`], [`Interner::begin_sweep`], [`Interner::take_marks`],
/// [`Interner::free_some`]); the numbers of the others are given out again, the smallest first. It may take its time: a string that
/// is interned meanwhile is in use. So what takes a number from something else, which may be gone before it is looked at, marks it.
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
    /// The sweep that is under way.
    sweep: Option<Box<Sweep>>,
}

/// A sweep.
#[derive(Debug)]
struct Sweep {
    marks: Marks,
    /// Numbers below this are still to be freed, unless they are marked.
    left: usize,
}

impl Sweep {
    /// Whether a number will not be freed, as far as that is known: all that is in use is marked once some are freed.
    fn keeps(&self, i: usize) -> bool {
        self.left == self.marks.0.len() || self.marks.0.get(i).copied().unwrap_or(true)
    }
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
            sweep: None,
        };
        new.intern("");
        new
    }
}

/// Numbers in use, for a sweep. Later ones are.
#[derive(Debug)]
pub struct Marks(Vec<bool>);

impl Marks {
    /// The numbers that are marked.
    fn marked(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, used)| **used).map(|(i, _)| i)
    }

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
            let sym = Sym(*found);
            self.mark(sym);
            return sym;
        }
        let id = match self.free.pop() {
            Some(id) => {
                strings[id as usize] = Some(text.into());
                id
            }
            None => {
                // 2^32 distinct strings do not fit into memory.
                reserve_one(strings);
                strings.push(Some(text.into()));
                index32(strings.len()) - 1
            }
        };
        let hasher = &self.hasher;
        self.table.insert_unique(hash, id, |i| {
            hasher.hash_one(strings[*i as usize].as_deref().unwrap_or_default())
        });
        self.mark(Sym(id));
        Sym(id)
    }

    /// A number is in use, if a sweep asks for that.
    #[inline]
    fn mark(&mut self, sym: Sym) {
        if let Some(sweep) = &mut self.sweep {
            sweep.marks.mark(sym);
        }
    }

    /// The number of `text` if it is known.
    #[inline]
    pub fn get(&self, text: &str) -> Option<Sym> {
        let hash = self.hasher.hash_one(text);
        let found = self.table.find(hash, |i| self.strings[*i as usize].as_deref() == Some(text)).copied()?;
        // One that nothing holds may be forgotten in the next step: then the number is another string's.
        let stays = self.sweep.as_ref().is_none_or(|sweep| sweep.keeps(found as usize));
        stays.then_some(Sym(found))
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

    /// Whether a sweep is under way.
    #[inline]
    pub const fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// Begins a sweep: nothing but pinned strings is marked.
    pub fn begin_sweep(&mut self) {
        let (marks, left) = (self.marks_of_pinned(), self.strings.len());
        self.sweep = Some(Box::new(Sweep { marks, left }));
    }

    /// Marks of the sweep that is under way. Strings that are interned before they are put back count as not in use.
    pub fn take_marks(&mut self) -> Option<Marks> {
        Some(Marks(std::mem::take(&mut self.sweep.as_mut()?.marks.0)))
    }

    /// Puts marks back.
    pub fn put_marks(&mut self, marks: Marks) {
        if let Some(sweep) = &mut self.sweep {
            sweep.marks = marks;
        }
    }

    fn marks_of_pinned(&self) -> Marks {
        let mut marks = vec![false; self.strings.len()];
        marks.iter_mut().take(self.pinned).for_each(|used| *used = true);
        Marks(marks)
    }

    /// When all that is in use is marked: forgets strings that are not marked, as far as `most` strings go. How many are left, before the
    /// sweep has ended.
    pub fn free_some(&mut self, most: usize) -> usize {
        let Some(mut sweep) = self.sweep.take() else { return 0 };
        if sweep.left == sweep.marks.0.len() {
            // Those that are free already are found once more, in their order.
            self.free.clear();
        }
        let from = sweep.left;
        sweep.left = from.saturating_sub(most.max(1));
        for i in (sweep.left..from).rev() {
            if sweep.marks.0.get(i).copied().unwrap_or(true) {
                continue;
            }
            let number = index32(i);
            if let Some(text) = self.strings[i].take() {
                let hash = self.hasher.hash_one(&*text);
                self.table.remove(hash, |other| *other == number);
            }
            self.free.push(number);
        }
        let left = sweep.left;
        if left > 0 {
            self.sweep = Some(sweep);
        } else {
            self.limit = (2 * self.len()).max(self.len() + SWEEP_AFTER);
        }
        left
    }

    /// Marks nothing, for [`Interner::has_all`].
    pub fn no_marks(&self) -> Marks {
        Marks(vec![false; self.strings.len()])
    }

    /// Whether there is a string for each number that is marked.
    pub fn has_all(&self, marks: &Marks) -> bool {
        marks.marked().all(|i| self.strings.get(i).is_some_and(Option::is_some))
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

    fn sweep(i: &mut Interner, used: &[Sym]) {
        i.begin_sweep();
        let mut marks = i.take_marks().unwrap();
        marks.all(used);
        i.put_marks(marks);
        while i.free_some(2) > 0 {}
        assert!(!i.is_sweeping());
    }

    #[test]
    fn numbers_that_are_not_marked_are_given_out_again() {
        let mut i = Interner::default();
        let kept = i.intern("kept");
        i.pin();
        let [a, b, c] = ["a", "b", "c"].map(|t| i.intern(t));
        sweep(&mut i, &[b]);
        assert_eq!((i.len(), i.get("a"), i.get("b"), i.get("c")), (3, None, Some(b), None));
        assert_eq!((i.text(kept), i.text(b), i.text(Sym::EMPTY)), ("kept", "b", ""));
        // Those that are free stay so.
        sweep(&mut i, &[b]);
        assert_eq!([i.intern("x"), i.intern("y")], [a, c]);
        assert!(i.intern("z") > c && i.get("x") == Some(a));
    }

    #[test]
    fn strings_that_come_during_a_sweep_stay() {
        let mut i = Interner::default();
        let old: Vec<Sym> = (0..10).map(|n| i.intern(&format!("old-{n}"))).collect();
        sweep(&mut i, &old[5..]);
        i.begin_sweep();
        // One with a number that was free, one that was known, and one that is new.
        let (reused, known) = (i.intern("reused"), i.intern("old-7"));
        let mut marks = i.take_marks().unwrap();
        marks.mark(old[5]);
        i.put_marks(marks);
        assert!(i.get("old-9").is_some() && i.get("old-6").is_some());
        assert!(i.free_some(3) > 0 && i.get("old-9").is_none());
        assert!(i.get("old-6").is_none(), "nothing holds it: it is as good as forgotten");
        let (late, saved) = (i.intern("late"), i.intern("old-6"));
        while i.free_some(1) > 0 {}
        assert_eq!((reused, known, saved), (old[0], old[7], old[6]));
        let left: Vec<Sym> = (0..10).filter_map(|n| i.get(&format!("old-{n}"))).collect();
        assert_eq!(left, &old[5..8]);
        assert_eq!((i.text(reused), i.text(late), i.len()), ("reused", "late", 6));
        // All numbers are given out once.
        let mut all: Vec<Sym> = (0..6).map(|n| i.intern(&format!("new-{n}"))).collect();
        all.extend(left.iter().chain([&reused, &late, &Sym::EMPTY]));
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), i.len()), (12, 12));
    }
}
