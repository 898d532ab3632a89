//! Rows with dense, reused numbers.

use crate::cast::index32;
use crate::grow::reserve_one;
use std::marker::PhantomData;

/// A dense number of a row.
pub trait Id: Copy {
    /// From an index.
    fn new(index: usize) -> Self;
    /// As an index.
    fn index(self) -> usize;
}

/// Makes a `u32` newtype that is an [`Id`].
#[macro_export]
macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl $crate::slab::Id for $name {
            fn new(index: usize) -> Self {
                Self($crate::cast::index32(index))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub use dense_id;

/// A table of rows by dense id; freed ids are given out again, last freed first.
#[derive(Clone, Debug)]
pub struct Slab<I, T> {
    rows: Vec<Option<T>>,
    free: Vec<u32>,
    kind: PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { rows: Vec::new(), free: Vec::new(), kind: PhantomData }
    }
}

impl<I: Id, T> Slab<I, T> {
    /// Adds a row.
    #[inline]
    pub fn insert(&mut self, row: T) -> I {
        if let Some(i) = self.free.pop() {
            self.rows[i as usize] = Some(row);
            return I::new(i as usize);
        }
        reserve_one(&mut self.rows);
        self.rows.push(Some(row));
        I::new(self.rows.len() - 1)
    }

    /// Takes a row out.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let row = self.rows.get_mut(id.index())?.take();
        if row.is_some() {
            self.free.push(index32(id.index()));
        }
        row
    }

    /// The row, if there.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.index())?.as_ref()
    }

    /// The row, if there.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.rows.get_mut(id.index())?.as_mut()
    }

    /// All rows in id order.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().filter_map(|(i, r)| Some((I::new(i), r.as_ref()?)))
    }

    /// One more than the largest id ever given out.
    pub fn bound(&self) -> usize {
        self.rows.len()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Rows are indexed only with ids that the owner knows to be alive.
impl<I: Id, T> std::ops::Index<I> for Slab<I, T> {
    type Output = T;
    #[expect(clippy::panic, reason = "a dead id is a bug of the engine, never of the input")]
    fn index(&self, id: I) -> &T {
        match self.get(id) {
            Some(row) => row,
            None => panic!("row {} is not alive", id.index()),
        }
    }
}

impl<I: Id, T> std::ops::IndexMut<I> for Slab<I, T> {
    #[expect(clippy::panic, reason = "a dead id is a bug of the engine, never of the input")]
    fn index_mut(&mut self, id: I) -> &mut T {
        match self.get_mut(id) {
            Some(row) => row,
            None => panic!("row {} is not alive", id.index()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    dense_id!(
        /// A row of the test.
        RowId
    );

    #[test]
    fn ids_are_reused() {
        let mut s: Slab<RowId, &str> = Slab::default();
        let (a, b) = (s.insert("a"), s.insert("b"));
        assert_eq!(s.remove(a), Some("a"));
        assert_eq!(s.remove(a), None);
        assert_eq!(s.len(), 1);
        let c = s.insert("c");
        assert_eq!(c, a);
        assert_eq!(s[b], "b");
        assert_eq!(s.iter().map(|(_, r)| *r).collect::<Vec<_>>(), ["c", "b"]);
    }
}
