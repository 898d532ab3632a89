//! Watches: cursors in the window of a resource.
//!
//! A watch owns no queue that a writer would have to fill. It reads the window when it has time to, so a slow watcher
//! costs writers nothing; when the window has moved past its cursor, it is cut.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Change, Snapshot, Store, StoreError};

/// Changes looked at in one go, while the store is locked for reading.
const SCAN: usize = 512;
/// Their JSON, in bytes, beyond which no more are taken: a watcher that doesn't read keeps what it has taken from being
/// freed.
const SCAN_BYTES: u64 = 512 << 10;

/// How a watch ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnd {
    /// It read so slowly that changes it hasn't seen have left the window.
    #[error("the watch was too slow")]
    TooSlow,
}

/// The changes of a resource after a revision, in order, each once.
pub struct Watch {
    store: Store,
    resource: Arc<str>,
    namespace: Option<String>,
    /// Everything up to here has been read.
    cursor: u64,
    waker: tokio::sync::watch::Receiver<u64>,
    /// Everything that was there when the waker was last looked at has been read.
    caught_up: bool,
    ready: VecDeque<Arc<Change>>,
}

pub(super) fn open(
    store: &Store,
    resource: &Arc<str>,
    namespace: Option<&str>,
    from: u64,
) -> Result<Watch, StoreError> {
    let mut shared = store.inner.write();
    let table = shared.table_mut(resource);
    if from < table.floor {
        return Err(StoreError::Expired { requested: from, oldest: table.floor });
    }
    let waker = table.waker.subscribe();
    drop(shared);
    Ok(new(store, resource, namespace, from, waker))
}

pub(super) fn open_with_list(
    store: &Store,
    resource: &Arc<str>,
    namespace: Option<&str>,
) -> (Snapshot, Watch) {
    let mut shared = store.inner.write();
    let revision = shared.revision;
    let table = shared.table_mut(resource);
    let snapshot = Snapshot::new(revision, table.map.clone(), namespace);
    let waker = table.waker.subscribe();
    drop(shared);
    let watch = new(store, resource, namespace, revision, waker);
    (snapshot, watch)
}

fn new(
    store: &Store,
    resource: &Arc<str>,
    namespace: Option<&str>,
    cursor: u64,
    waker: tokio::sync::watch::Receiver<u64>,
) -> Watch {
    store.inner.counters.watches_opened.add(1);
    Watch {
        store: store.clone(),
        resource: Arc::clone(resource),
        namespace: namespace.filter(|n| !n.is_empty()).map(str::to_owned),
        cursor,
        waker,
        caught_up: false,
        ready: VecDeque::new(),
    }
}

impl Watch {
    /// The next change; waits until there is one.
    ///
    /// Cancel safe: a change is lost only if it was returned.
    ///
    /// # Errors
    /// [`WatchEnd`] when the watch is over.
    pub async fn next(&mut self) -> Result<Arc<Change>, WatchEnd> {
        loop {
            if let Some(change) = self.try_next()? {
                return Ok(change);
            }
            // The sender lives in the store, which this watch keeps alive.
            if self.waker.changed().await.is_err() {
                return Err(WatchEnd::TooSlow);
            }
            // Waiting has marked it.
            self.caught_up = false;
        }
    }

    /// The next change, if there is one.
    ///
    /// # Errors
    /// [`WatchEnd`] when the watch is over.
    pub fn try_next(&mut self) -> Result<Option<Arc<Change>>, WatchEnd> {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return Ok(Some(change));
            }
            // Nothing new: not worth the lock. A closed waker can't be, since this watch keeps the store.
            if self.caught_up && !self.waker.has_changed().unwrap_or(true) {
                return Ok(None);
            }
            // Marked before reading: what comes after the reading wakes us again.
            self.waker.borrow_and_update();
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Notifies when there may be changes. Its value is the revision at that time.
    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.waker.clone()
    }

    /// A revision up to which everything has been returned: what a bookmark may say.
    pub fn position(&mut self) -> u64 {
        if self.ready.is_empty() {
            // An error shows at the next reading.
            let _ = self.read();
        }
        match self.ready.front() {
            Some(change) => change.revision().saturating_sub(1),
            None => self.cursor,
        }
    }

    /// Reads on; whether there was anything to look at.
    fn read(&mut self) -> Result<bool, WatchEnd> {
        let inner = &self.store.inner;
        let shared = inner.read();
        let Some(table) = shared.tables.get(&self.resource) else {
            return Ok(false);
        };
        if self.cursor < table.floor {
            inner.counters.watches_cut.add(1);
            return Err(WatchEnd::TooSlow);
        }
        let from = table.after(self.cursor);
        let mut to = table.ring.len().min(from.saturating_add(SCAN));
        let mut bytes = 0;
        for (at, change) in table.ring.range(from..to).enumerate() {
            if bytes >= SCAN_BYTES {
                to = from + at;
                break;
            }
            bytes += change.weight();
            let key = &change.record.key;
            if self.namespace.as_ref().is_none_or(|n| *n == key.namespace) {
                self.ready.push_back(Arc::clone(change));
            }
        }
        let last = to.checked_sub(1).filter(|_| to > from).and_then(|i| table.ring.get(i));
        self.caught_up = to == table.ring.len();
        if self.caught_up {
            self.cursor = self.cursor.max(shared.revision);
        } else if let Some(change) = last {
            self.cursor = change.revision();
        }
        Ok(to > from)
    }
}
