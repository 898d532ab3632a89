//! Old changes go, so that memory follows what is there and not what once was.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::table::Table;

/// Changes are kept at least so long, and twice that at most, if the window has room for them: as etcd does by the
/// default of kube-apiserver's `--etcd-compaction-interval`.
pub(super) const INTERVAL: Duration = Duration::from_secs(300);
/// Changes dropped in one go, so that writers never wait long.
const BATCH: usize = 256;

/// Which changes are old.
#[derive(Debug)]
pub(super) struct Aging {
    /// Changes up to here are dropped.
    expired: u64,
    /// Changes up to here are dropped next.
    mark: u64,
    next: Instant,
    /// Whether there may be something left to drop.
    due: bool,
}

impl Aging {
    pub fn new(revision: u64, now: Instant) -> Self {
        Self { expired: revision, mark: revision, next: now + INTERVAL, due: false }
    }

    /// Drops some of the old changes. `revision` is the newest there is.
    pub fn advance(&mut self, now: Instant, revision: u64, tables: &mut HashMap<Arc<str>, Table>) {
        if now >= self.next {
            self.expired = self.mark;
            self.mark = revision;
            self.next = now + INTERVAL;
            self.due = true;
        }
        if !self.due {
            return;
        }
        let mut left = BATCH;
        for table in tables.values_mut() {
            left -= table.expire(self.expired, left);
            if left == 0 {
                return;
            }
        }
        self.due = false;
    }
}
