//! Counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// First guess at the size of an encoded object, in bytes.
pub(super) const TYPICAL_OBJECT_BYTES: usize = 2048;

/// Counters since the start, and sizes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreMetrics {
    /// Newest visible revision.
    pub revision: u64,
    /// Objects.
    pub objects: u64,
    /// Their JSON, in bytes.
    pub object_bytes: u64,
    /// Changes in the windows.
    pub window_changes: u64,
    /// Their JSON, in bytes.
    pub window_bytes: u64,
    /// Writes acknowledged.
    pub commits: u64,
    /// Writes refused because an expectation was broken.
    pub conflicts: u64,
    /// Writes refused by the journal.
    pub journal_refusals: u64,
    /// Durable transactions.
    pub journal_batches: u64,
    /// Changes written by them.
    pub journal_changes: u64,
    /// JSON written by them, in bytes.
    pub journal_bytes: u64,
    /// Failures of the journal.
    pub journal_failures: u64,
    /// Times that the journal's file was made smaller, the start not counted.
    pub journal_compactions: u64,
    /// Watches opened.
    pub watches_opened: u64,
    /// Watches cut because they fell behind the change buffer.
    pub watches_cut: u64,
    /// Lists at an old revision that had to be rebuilt.
    pub rebuilt_snapshots: u64,
}

/// The counters behind [`StoreMetrics`].
#[derive(Default)]
pub(super) struct Counters {
    pub commits: Counter,
    pub conflicts: Counter,
    pub journal_refusals: Counter,
    pub journal_batches: Counter,
    pub journal_changes: Counter,
    pub journal_bytes: Counter,
    pub journal_failures: Counter,
    pub journal_compactions: Counter,
    pub watches_opened: Counter,
    pub watches_cut: Counter,
    pub rebuilt_snapshots: Counter,
}

impl Counters {
    pub fn read(&self) -> StoreMetrics {
        StoreMetrics {
            commits: self.commits.get(),
            conflicts: self.conflicts.get(),
            journal_refusals: self.journal_refusals.get(),
            journal_batches: self.journal_batches.get(),
            journal_changes: self.journal_changes.get(),
            journal_bytes: self.journal_bytes.get(),
            journal_failures: self.journal_failures.get(),
            journal_compactions: self.journal_compactions.get(),
            watches_opened: self.watches_opened.get(),
            watches_cut: self.watches_cut.get(),
            rebuilt_snapshots: self.rebuilt_snapshots.get(),
            ..StoreMetrics::default()
        }
    }
}

/// A number that only grows.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
