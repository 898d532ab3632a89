//! Changes, as watches see them.

use std::sync::Arc;

use super::Record;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was removed; the record holds its last state at the revision of the removal.
    Deleted,
}

impl ChangeKind {
    /// The `type` of the watch event.
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// What one watcher sees of a change: with a selector, an object that enters it is added and one that leaves it is
/// deleted (with the state before the change at the revision of the change, as the watch cache does).
pub type View = ChangeKind;

/// One change. Shared by all watchers.
#[derive(Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// State after the change (before it, for `Deleted`), at the revision of the change.
    pub record: Arc<Record>,
    /// State before the change, for selectors that it entered or left.
    pub previous: Option<Arc<Record>>,
}

impl Change {
    pub(crate) fn new(kind: ChangeKind, record: Arc<Record>, previous: Option<Arc<Record>>) -> Self {
        Self { kind, record, previous }
    }

    /// Revision of the change.
    pub fn revision(&self) -> u64 {
        self.record.revision
    }

    /// What a watcher sees whose selector matches the state before and after as given; `None`: nothing.
    pub fn view(&self, matches: impl Fn(&Record) -> bool) -> Option<View> {
        let now = self.kind != ChangeKind::Deleted && matches(&self.record);
        let before = self.previous.as_deref().is_some_and(matches);
        match (before, now) {
            (false, true) => Some(View::Added),
            (true, true) => Some(View::Modified),
            (true, false) => Some(View::Deleted),
            (false, false) => None,
        }
    }

    /// The object of the event in this view.
    pub fn object(&self, view: View) -> Arc<Record> {
        match (&self.previous, view, self.kind) {
            // It left a selector: the state before, at the revision of the change.
            (Some(previous), View::Deleted, ChangeKind::Modified) => {
                Arc::new(previous.restamped(self.record.revision))
            }
            _ => Arc::clone(&self.record),
        }
    }

    /// What it costs to keep, roughly, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let previous = self.previous.as_ref().map_or(0, |p| p.json.len());
        (self.record.json.len() + previous) as u64
    }
}
