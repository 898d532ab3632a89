//! How far the dependencies of one workload are.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

/// How far a workload's dependencies are. Most have none, and take no more than a word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Option<Box<Open>>);

/// The dependencies of a workload that are open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    /// Positions of those that have not come true.
    pub(super) unmet: BTreeSet<u32>,
    /// Those among them that can't come true any more.
    pub(super) never: BTreeSet<u32>,
    /// Those among them that nothing answers to.
    pub(super) missing: BTreeSet<u32>,
    /// The circle it is in.
    pub(super) circle: Option<String>,
}

static NONE: Open =
    Open { unmet: BTreeSet::new(), never: BTreeSet::new(), missing: BTreeSet::new(), circle: None };

impl Deref for Progress {
    type Target = Open;

    fn deref(&self) -> &Open {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Progress {
    fn deref_mut(&mut self) -> &mut Open {
        self.0.get_or_insert_default()
    }
}

impl PartialEq for Progress {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Progress {
    /// Dependencies at these positions have not come true.
    pub(super) fn of(unmet: BTreeSet<u32>) -> Self {
        if unmet.is_empty() {
            Self::default()
        } else {
            Self(Some(Box::new(Open { unmet, ..Open::default() })))
        }
    }

    /// Whether nothing is waited for.
    pub(crate) fn clear(&self) -> bool {
        self.unmet.is_empty()
    }

    pub(super) fn hopeless(&self) -> bool {
        !self.never.is_empty()
    }
}
