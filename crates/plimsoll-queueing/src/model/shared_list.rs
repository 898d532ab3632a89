//! Lists that are shared by all that have equal ones.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A list. Clones share it; changing it makes a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedList<T>(Arc<Vec<T>>);

impl<T> Deref for SharedList<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for SharedList<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> From<Vec<T>> for SharedList<T> {
    fn from(all: Vec<T>) -> Self {
        Self(Arc::new(all))
    }
}
