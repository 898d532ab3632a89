//! The store: every object in memory, every change in a journal, every change visible to watches.
//!
//! One global revision counts all changes; it starts at 1. Objects are kept as encoded JSON with what label
//! selectors need beside it, ordered per resource by `namespace/name` (the order of etcd's keys).
//!
//! # Life of a write
//! [`Store::commit`] checks the expectation against the newest state (acknowledged or not), assigns the revision,
//! stamps it into the JSON and queues the change. The journal's thread writes what has queued up in one durable
//! transaction; then the changes become visible to readers and watches, and the callers are answered. So nobody
//! sees a change that a crash could lose, and nothing acknowledged is lost. Without a journal, or with
//! [`Durability::Relaxed`], the change is visible and acknowledged at once.
//!
//! # Old revisions
//! Each resource keeps a bounded window of recent changes, for five to ten minutes. Watches read from it at their own pace (a watcher that
//! the window outruns is cut), and lists at an old revision are made by undoing changes on a structure-shared map,
//! so paging costs no copies. What is older than the window, the last compaction or the process is
//! [`StoreError::Expired`].
//!
//! # Locks
//! `head` (writers' view) may be held while `shared` (readers' view) is taken, never the other way round.

mod aging;
mod change;
mod directory;
mod encode;
mod error;
mod head;
mod journal;
mod metrics;
mod partial_update;
mod reader;
mod record;
mod snapshot;
mod table;
mod watch;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

pub use change::{Change, ChangeKind, View};
pub use directory::Directory;
pub use encode::Encoded;
pub use error::{OpenError, StoreError};
pub use head::{Expected, Op, Write};
pub use journal::{Durability, Opener};
pub use metrics::StoreMetrics;
pub use partial_update::{Fields, PartialUpdate};
pub use plimsoll_apimachinery::Key;
pub use record::Record;
pub use snapshot::Snapshot;
pub use table::{WINDOW, Window};
pub use watch::{Watch, WatchEnd};

use aging::Aging;
use metrics::Counters;
use snapshot::SnapshotCache;
use table::Table;

/// The revision of an empty store.
pub const FIRST_REVISION: u64 = 1;

/// A handle on the store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("revision", &self.current_revision()).finish_non_exhaustive()
    }
}

struct Inner {
    /// What readers and watches see.
    shared: RwLock<Shared>,
    /// What writers check against.
    head: Mutex<head::Head>,
    /// Old states that were asked for lately.
    cache: Mutex<SnapshotCache>,
    /// Visible revision, for requests that wait for it.
    revision: tokio::sync::watch::Sender<u64>,
    journal: Option<journal::Handle>,
    counters: Counters,
    /// Reflectors that informers on this store share.
    informers: plimsoll_client::SharedInformers,
    /// Connections to webhooks that wait for the next call.
    webhooks: crate::webhook_client::Idle,
    /// Why nothing can be written any more.
    fatal: plimsoll_client::Fatal,
}

/// What readers and watches see: all of it is durable (unless durability is relaxed).
struct Shared {
    revision: u64,
    tables: HashMap<Arc<str>, Table>,
    /// Changes up to here are not in the window of a resource that has no table yet.
    floor: u64,
    /// Lists at revisions below this are refused.
    compacted: u64,
    window: Window,
    aging: Aging,
}

impl Shared {
    fn new(revision: u64, window: Window) -> Self {
        let aging = Aging::new(revision, Instant::now());
        Self { revision, tables: HashMap::new(), floor: revision, compacted: 0, window, aging }
    }

    /// Drops some of the changes that are old.
    fn age(&mut self, now: Instant) {
        self.aging.advance(now, self.revision, &mut self.tables);
    }

    fn table_mut(&mut self, resource: &Arc<str>) -> &mut Table {
        let (floor, window) = (self.floor, self.window);
        self.tables.entry(Arc::clone(resource)).or_insert_with(|| Table::new(floor, window))
    }

    fn get(&self, key: &Key) -> Option<&Arc<Record>> {
        self.tables.get(&key.resource)?.map.get(key.path().as_str())
    }
}

impl Store {
    pub(crate) fn webhook_connections(&self) -> &crate::webhook_client::Idle {
        &self.inner.webhooks
    }

    /// A store that forgets everything with the process.
    pub fn in_memory() -> Self {
        Self::in_memory_with(WINDOW)
    }

    /// The same with another window of recent changes.
    pub fn in_memory_with(window: Window) -> Self {
        Self::build(Shared::new(FIRST_REVISION, window), None)
    }

    /// Opens the store in a directory, which is created if it isn't there, and locks it.
    ///
    /// # Errors
    /// The directory can't be used, another process has it open, or its contents are not readable.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, OpenError> {
        Self::open_in(Directory::lock(dir, &[])?, durability)
    }

    /// Opens the store in a directory that is locked already.
    ///
    /// # Errors
    /// The journal can't be created or read.
    pub fn open_in(directory: Directory, durability: Durability) -> Result<Self, OpenError> {
        let (opener, path) = journal::directory_opener(directory);
        Self::open_at(opener, Some(path), durability)
    }

    /// Opens the store on databases made by `opener`: one now, and one after each failure of the journal.
    ///
    /// # Errors
    /// The database can't be opened or its contents are not readable.
    pub fn open_with(opener: Opener, durability: Durability) -> Result<Self, OpenError> {
        Self::open_at(opener, None, durability)
    }

    fn open_at(
        opener: Opener,
        path: Option<std::path::PathBuf>,
        durability: Durability,
    ) -> Result<Self, OpenError> {
        let (journal, loaded) = journal::Journal::open(opener, path, durability)?;
        let mut shared = Shared::new(loaded.revision, WINDOW);
        for record in loaded.records {
            let table = shared.table_mut(&record.key.resource);
            table.load(Arc::new(record));
        }
        let store = Self::build(shared, Some(journal::Handle::new(durability)));
        journal::spawn(journal, &store.inner)?;
        Ok(store)
    }

    fn build(shared: Shared, journal: Option<journal::Handle>) -> Self {
        let revision = shared.revision;
        let inner = Inner {
            shared: RwLock::new(shared),
            head: Mutex::new(head::Head::new(revision)),
            cache: Mutex::new(SnapshotCache::default()),
            revision: tokio::sync::watch::Sender::new(revision),
            journal,
            counters: Counters::default(),
            informers: plimsoll_client::SharedInformers::default(),
            webhooks: crate::webhook_client::Idle::default(),
            fatal: plimsoll_client::Fatal::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Why the process has to end: the journal is gone, and no write can be kept any more.
    pub fn fatal(&self) -> &plimsoll_client::Fatal {
        &self.inner.fatal
    }

    /// The newest visible revision.
    pub fn current_revision(&self) -> u64 {
        self.inner.read().revision
    }

    /// Revision of the newest visible change of a resource; that of the store's start if there was none.
    pub fn last_revision(&self, resource: &str) -> u64 {
        let shared = self.inner.read();
        shared.tables.get(resource).map_or(shared.floor, |t| t.last_revision)
    }

    /// Number of objects of a resource, and their bytes.
    pub fn size_of(&self, resource: &str) -> (u64, u64) {
        let shared = self.inner.read();
        shared.tables.get(resource).map_or((0, 0), |t| (t.map.size() as u64, t.object_bytes))
    }

    /// Names (`group/plural`) of the resources that have objects, sorted.
    pub fn resources(&self) -> Vec<Arc<str>> {
        let shared = self.inner.read();
        let mut names: Vec<_> =
            shared.tables.iter().filter(|(_, t)| !t.map.is_empty()).map(|(n, _)| Arc::clone(n)).collect();
        names.sort();
        names
    }

    /// The object, as readers see it.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.inner.read().get(key).cloned()
    }

    /// The object, as the next write will find it: with changes that are not durable yet.
    ///
    /// For read-modify-write only: what is read here may not be shown to a client before a write that builds on it has
    /// been acknowledged, or [`Store::confirm`] or [`Store::settled`] have returned.
    pub fn latest(&self, key: &Key) -> Option<Arc<Record>> {
        let head = self.inner.head();
        match head.pending(key) {
            Some(pending) => pending.cloned(),
            None => self.inner.read().get(key).cloned(),
        }
    }

    /// Waits until what [`Store::latest`] gave is durable, for an answer that shows it without a write of its own.
    ///
    /// # Errors
    /// The record has been replaced or removed meanwhile, or the journal refused it.
    pub async fn confirm(&self, record: &Record) -> Result<(), StoreError> {
        head::confirm(&self.inner, record).await
    }

    /// Waits until all writes are durable that [`Store::latest`] may have shown before now, for an answer that follows
    /// from them (that an object is not there, or in the way).
    ///
    /// # Errors
    /// The journal refused them: what was seen is not so.
    pub async fn settled(&self) -> Result<(), StoreError> {
        head::settled(&self.inner).await
    }

    /// All objects of a resource, in a namespace or everywhere, now. Constant time.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        let shared = self.inner.read();
        let map = shared.tables.get(resource).map(|t| t.map.clone()).unwrap_or_else(table::Map::new_sync);
        Snapshot::new(shared.revision, map, namespace)
    }

    /// All objects of a resource as they were at a revision.
    ///
    /// # Errors
    /// [`StoreError::Expired`] if that is too long ago, [`StoreError::TooLarge`] if it hasn't been reached.
    pub fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Snapshot, StoreError> {
        snapshot::at(&self.inner, resource, namespace, revision)
    }

    /// Watches a resource, in a namespace or everywhere: all changes after revision `from`.
    ///
    /// A revision that hasn't been reached is accepted; the watch is silent until then.
    ///
    /// # Errors
    /// [`StoreError::Expired`] if changes after `from` have left the window.
    pub fn watch(
        &self,
        resource: &Arc<str>,
        namespace: Option<&str>,
        from: u64,
    ) -> Result<Watch, StoreError> {
        watch::open(self, resource, namespace, from)
    }

    /// The state now and all changes after it.
    pub fn list_and_watch(&self, resource: &Arc<str>, namespace: Option<&str>) -> (Snapshot, Watch) {
        watch::open_with_list(self, resource, namespace)
    }

    /// Notifies of every change. Its value is the visible revision.
    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.revision.subscribe()
    }

    /// Waits until a revision is visible and returns the one that is.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if it wasn't reached within `timeout`.
    pub async fn wait_until(&self, revision: u64, timeout: Duration) -> Result<u64, StoreError> {
        let mut seen = self.inner.revision.subscribe();
        let reached = tokio::time::timeout(timeout, seen.wait_for(|now| *now >= revision)).await;
        match reached {
            Ok(Ok(now)) => Ok(*now),
            _ => Err(StoreError::TooLarge { requested: revision, current: self.current_revision() }),
        }
    }

    /// Writes one object. The answer is the record as stored; for a deletion, its last state at the revision of the
    /// deletion.
    ///
    /// If the returned future is dropped, the write may still happen.
    ///
    /// # Errors
    /// A broken expectation, or the journal refused the write (then it did not happen, unless the process ends before
    /// the journal has recovered).
    pub async fn commit(&self, write: Write) -> Result<Arc<Record>, StoreError> {
        head::commit(&self.inner, write).await
    }

    /// Refuses lists at revisions older than `revision` from now on, as a compaction of etcd does. Watches keep
    /// their window, as the watch cache does.
    pub fn compact(&self, revision: u64) {
        let mut shared = self.inner.write();
        shared.compacted = shared.compacted.max(revision.min(shared.revision.saturating_add(1)));
        let oldest = shared.compacted;
        drop(shared);
        self.inner.cache().retain_from(oldest);
    }

    /// Empties the windows of changes: watches and lists from before now are expired. Called when a server has
    /// written its first objects, so that clients of an earlier one can't resume here.
    pub fn forget_changes(&self) {
        let mut shared = self.inner.write();
        let revision = shared.revision;
        shared.floor = revision;
        shared.compacted = revision;
        for table in shared.tables.values_mut() {
            table.forget(revision);
        }
        drop(shared);
        self.inner.cache().retain_from(revision);
    }

    /// Counters since the start, and sizes now.
    pub fn metrics(&self) -> StoreMetrics {
        let shared = self.inner.read();
        let mut metrics = self.inner.counters.read();
        metrics.revision = shared.revision;
        for table in shared.tables.values() {
            metrics.objects += table.map.size() as u64;
            metrics.object_bytes += table.object_bytes;
            metrics.window_changes += table.ring.len() as u64;
            metrics.window_bytes += table.ring_bytes;
        }
        metrics
    }

    /// Why writes are refused at the moment; `None` when the journal is well or there is none.
    pub fn journal_error(&self) -> Option<String> {
        self.inner.head().failure().map(str::to_owned)
    }

    /// Refuses further writes, makes those that were accepted durable and lets go of the directory.
    pub async fn close(&self) {
        head::close(&self.inner).await;
    }
}

impl Inner {
    fn read(&self) -> RwLockReadGuard<'_, Shared> {
        self.shared.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shared> {
        self.shared.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> MutexGuard<'_, head::Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, SnapshotCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// JSON of all objects, in bytes.
    fn object_bytes(&self) -> u64 {
        self.read().tables.values().map(|t| t.object_bytes).sum()
    }

    /// Makes changes visible, in order.
    fn publish<'a>(&self, changes: impl IntoIterator<Item = &'a Arc<Change>>) {
        let mut shared = self.write();
        let mut touched: Vec<Arc<str>> = Vec::new();
        for change in changes {
            let resource = &change.record.key.resource;
            shared.table_mut(resource).apply(Arc::clone(change));
            shared.revision = shared.revision.max(change.record.revision);
            if !touched.contains(resource) {
                touched.push(Arc::clone(resource));
            }
        }
        shared.age(Instant::now());
        let revision = shared.revision;
        let wakers: Vec<_> =
            touched.iter().filter_map(|r| shared.tables.get(r)).map(|t| t.waker.clone()).collect();
        drop(shared);
        for waker in wakers {
            waker.send_replace(revision);
        }
        self.revision.send_replace(revision);
    }
}

#[cfg(test)]
mod tests;
