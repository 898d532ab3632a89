//! Whether every watch has listed once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_util::sync::CancellationToken;

/// Notifies when every watch has listed once. Before that, an object that is missing in the cache may well exist.
#[derive(Clone, Debug)]
pub struct Synced {
    left: Arc<AtomicUsize>,
    done: CancellationToken,
}

impl Synced {
    /// Waits for this many lists.
    pub fn new(lists: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(lists)), done: CancellationToken::new() }
    }

    /// A watch has listed for the first time.
    pub fn one(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.cancel();
        }
    }

    /// Whether everything has been listed once.
    pub fn is_done(&self) -> bool {
        self.done.is_cancelled()
    }

    /// Waits until everything has been listed once.
    pub async fn wait(&self) {
        self.done.cancelled().await;
    }
}
