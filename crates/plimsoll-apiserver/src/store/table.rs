//! One resource: its objects and the window of its recent changes.

use std::collections::VecDeque;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use super::{Change, ChangeKind, Record};

/// Objects by [`super::Key::path`]. A clone shares structure and costs nothing.
pub(super) type Map = RedBlackTreeMapSync<Box<str>, Arc<Record>>;

/// How many recent changes are kept for each resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Changes, at most.
    pub changes: usize,
    /// Their JSON, at most, in bytes (states before and after counted apart).
    pub bytes: u64,
}

/// The default window: as many changes as a few minutes of a busy server make.
pub const WINDOW: Window = Window { changes: 65_536, bytes: 96 << 20 };

/// Room for so many changes is never given back.
const SPARE: usize = 1024;

/// Changes at the end that are looked at one by one.
const NEAR: usize = 32;

pub(super) struct Table {
    pub map: Map,
    /// JSON of the objects, in bytes.
    pub object_bytes: u64,
    /// Recent changes, oldest first, without gaps.
    pub ring: VecDeque<Arc<Change>>,
    pub ring_bytes: u64,
    /// All changes with a revision above this are in the ring.
    pub floor: u64,
    /// Revision of the newest change.
    pub last_revision: u64,
    /// Notifies watches of changes.
    pub waker: tokio::sync::watch::Sender<u64>,
    window: Window,
}

impl Table {
    pub fn new(floor: u64, window: Window) -> Self {
        Self {
            map: Map::new_sync(),
            object_bytes: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            floor,
            last_revision: floor,
            waker: tokio::sync::watch::Sender::new(floor),
            window,
        }
    }

    /// Takes over an object from the journal.
    pub fn load(&mut self, record: Arc<Record>) {
        self.object_bytes += record.json.len() as u64;
        self.map.insert_mut(record.key.path().into_boxed_str(), record);
    }

    /// Drops at most `most` of the changes up to a revision, oldest first; how many.
    pub fn expire(&mut self, revision: u64, most: usize) -> usize {
        let mut dropped = 0;
        while dropped < most && self.ring.front().is_some_and(|c| c.revision() <= revision) {
            self.drop_oldest();
            dropped += 1;
        }
        if self.ring.capacity() > SPARE.max(4 * self.ring.len()) {
            self.ring.shrink_to(2 * self.ring.len());
        }
        dropped
    }

    fn drop_oldest(&mut self) {
        if let Some(old) = self.ring.pop_front() {
            self.ring_bytes = self.ring_bytes.saturating_sub(old.weight());
            self.floor = old.revision();
        }
    }

    /// Applies a change that is newer than all before.
    pub fn apply(&mut self, change: Arc<Change>) {
        let record = &change.record;
        let path = record.key.path();
        if let Some(old) = self.map.get(path.as_str()) {
            self.object_bytes = self.object_bytes.saturating_sub(old.json.len() as u64);
        }
        if change.kind == ChangeKind::Deleted {
            self.map.remove_mut(path.as_str());
        } else {
            self.object_bytes += record.json.len() as u64;
            self.map.insert_mut(path.into_boxed_str(), Arc::clone(record));
        }
        self.last_revision = record.revision;
        self.ring_bytes += change.weight();
        self.ring.push_back(change);
        while self.ring.len() > self.window.changes || self.ring_bytes > self.window.bytes {
            self.drop_oldest();
        }
    }

    /// Empties the window.
    pub fn forget(&mut self, revision: u64) {
        self.ring.clear();
        self.ring_bytes = 0;
        self.floor = revision;
    }

    /// Index in the ring of the first change after a revision.
    pub fn after(&self, revision: u64) -> usize {
        // Readers are nearly always close to the end.
        let newer = self.ring.iter().rev().take(NEAR).take_while(|c| c.revision() > revision).count();
        match self.ring.len().checked_sub(newer) {
            Some(at) if newer < NEAR => at,
            _ => self.ring.partition_point(|c| c.revision() <= revision),
        }
    }
}

/// Takes changes back, newest first: the state before the oldest of them.
pub(super) fn undo(mut map: Map, changes: &[Arc<Change>]) -> Map {
    for change in changes.iter().rev() {
        let path = change.record.key.path();
        match &change.previous {
            Some(previous) => map.insert_mut(path.into_boxed_str(), Arc::clone(previous)),
            None => {
                map.remove_mut(path.as_str());
            }
        }
    }
    map
}
