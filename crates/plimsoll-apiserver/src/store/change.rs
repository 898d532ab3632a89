//! Changes, as watches see them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

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

/// One change. Shared by all watchers, with its encodings.
#[derive(Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// State after the change (before it, for `Deleted`), at the revision of the change.
    pub record: Arc<Record>,
    /// State before the change, for selectors that it entered or left.
    pub previous: Option<Arc<Record>>,
    /// Event lines as JSON in the stored version: added, modified, deleted.
    lines: [OnceLock<Bytes>; 3],
    /// Other encodings, by the caller's number for the format.
    others: Mutex<Vec<(u64, Bytes)>>,
}

/// Encodings kept for one change beside the plain event lines; more formats than this are encoded anew each time.
const MAX_ENCODINGS: usize = 8;

impl Change {
    pub(crate) fn new(kind: ChangeKind, record: Arc<Record>, previous: Option<Arc<Record>>) -> Self {
        Self { kind, record, previous, lines: Default::default(), others: Mutex::default() }
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

    /// `{"type":…,"object":…}` and a newline, in the stored version. Encoded once for all watchers.
    pub fn line(&self, view: View) -> Bytes {
        let [added, modified, deleted] = &self.lines;
        let cell = match view {
            View::Added => added,
            View::Modified => modified,
            View::Deleted => deleted,
        };
        cell.get_or_init(|| event_line(view.event_type(), &self.object(view).json)).clone()
    }

    /// Another encoding of this change, made at most once for each `format` (a number of the caller's choice that
    /// covers everything the encoding depends on, the view included).
    pub fn cached(&self, format: u64, encode: impl FnOnce() -> Bytes) -> Bytes {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = others.iter().find(|(f, _)| *f == format) {
            return bytes.clone();
        }
        let bytes = encode();
        if others.len() < MAX_ENCODINGS {
            others.push((format, bytes.clone()));
        }
        bytes
    }

    /// What it costs to keep, roughly, in bytes.
    pub(super) fn weight(&self) -> u64 {
        let previous = self.previous.as_ref().map_or(0, |p| p.json.len());
        (self.record.json.len() + previous) as u64
    }
}

/// A watch event as a line of JSON.
pub(crate) fn event_line(event_type: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(event_type.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}
