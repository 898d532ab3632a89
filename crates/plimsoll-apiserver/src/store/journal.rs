//! The journal: redb, written by one thread, one durable transaction for all writes that have queued up.
//!
//! The database holds the newest state of each object, so a start reads it once and there is nothing to replay; redb
//! makes each transaction all or nothing. When it fails (a full disk, an IO error), the writes of that transaction are
//! refused, memory stays the truth, and the thread reopens the database from time to time and writes what it may have
//! missed; until that succeeds writes are refused.

mod disk;
mod thread;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Change, StoreError};

pub(super) use disk::{Journal, directory_opener};
pub(super) use thread::spawn;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk.
    #[default]
    Durable,
    /// At once; a crash may lose the last writes (a clean stop does not).
    Relaxed,
}

/// Makes databases: on the same storage each time.
pub type Opener = Box<dyn Fn() -> Result<redb::Database, redb::DatabaseError> + Send>;

/// Writes on their way to the disk, in KiB of JSON (and one for each): beyond this, writers wait.
const MAX_QUEUED_KIB: u32 = 64 << 10;

/// A change on its way to the disk.
pub(super) struct Job {
    pub change: Arc<Change>,
    /// Callers that wait for it.
    pub ack: Option<oneshot::Sender<Result<(), StoreError>>>,
    /// Its place in the queue, given back with it.
    pub _permit: Option<OwnedSemaphorePermit>,
}

/// Changes for the next transaction, shared by writers and the thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Whether the thread is gone and the directory free.
    done: tokio::sync::watch::Sender<bool>,
}

#[derive(Default)]
struct QueueState {
    jobs: Vec<Job>,
    closing: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, job: Job) {
        self.lock().jobs.push(job);
        self.wake.notify_one();
    }

    fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    fn take(&self) -> Vec<Job> {
        std::mem::take(&mut self.lock().jobs)
    }

    /// Waits for jobs, the end, or the timeout; the jobs and whether this is the end.
    fn wait(&self, timeout: Duration) -> (Vec<Job>, bool) {
        let idle = |s: &mut QueueState| s.jobs.is_empty() && !s.closing;
        let waited = self.wake.wait_timeout_while(self.lock(), timeout, idle);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut state.jobs), state.closing)
    }
}

/// The store's end of the journal. Dropping it ends the thread after the last job.
pub(super) struct Handle {
    pub durability: Durability,
    pub queue: Arc<Queue>,
    room: Arc<Semaphore>,
}

impl Handle {
    pub fn new(durability: Durability) -> Self {
        let room = Arc::new(Semaphore::new(MAX_QUEUED_KIB as usize));
        Self { durability, queue: Arc::default(), room }
    }

    /// Waits for room for a write of so many bytes.
    pub async fn admit(&self, bytes: usize) -> Result<OwnedSemaphorePermit, StoreError> {
        let kib = u32::try_from(bytes / 1024 + 1).unwrap_or(u32::MAX).min(MAX_QUEUED_KIB);
        let room = Arc::clone(&self.room);
        room.acquire_many_owned(kib).await.map_err(|_| StoreError::Closed)
    }

    /// Queues a change. The caller holds the head, so that the order is that of revisions.
    pub fn push(&self, job: Job) {
        self.queue.push(job);
    }

    /// Removes what the thread hasn't taken yet.
    pub fn take(&self) -> Vec<Job> {
        self.queue.take()
    }

    /// Ends the thread after the last job and waits for it.
    pub async fn close(&self) {
        self.queue.close();
        let mut done = self.queue.done.subscribe();
        // An error would mean that the sender is gone, and it lives in the queue.
        let _ = done.wait_for(|done| *done).await;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}
