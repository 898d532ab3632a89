//! The thread that writes the journal.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::super::{Inner, OpenError, Record, StoreError};
use super::{Durability, Job, Journal, Queue};

/// Time between two attempts to get a failed journal going again.
const RETRY: Duration = Duration::from_millis(500);
/// With relaxed durability no caller waits, so more is gathered for each transaction.
const RELAXED_LINGER: Duration = Duration::from_millis(10);

/// How often a journal that is written to without a pause is looked at for room to give back.
const LOOK: Duration = Duration::from_secs(60);

/// Starts the thread. It ends when the store is gone or closed.
pub(in super::super) fn spawn(journal: Journal, inner: &Arc<Inner>) -> Result<(), OpenError> {
    let Some(handle) = &inner.journal else { return Ok(()) };
    let (queue, store, fatal) = (Arc::clone(&handle.queue), Arc::downgrade(inner), inner.fatal.clone());
    let run = move || {
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run(journal, &queue, &store)));
        if let Err(panic) = ended {
            // Nothing is acknowledged any more, and what is visible is on disk: the process ends.
            let why =
                format!("the journal thread panicked: {}", plimsoll_client::supervise::message(&*panic));
            fail(queue.take(), &why, &store);
            fatal.set(why);
        }
        queue.done.send_replace(true);
    };
    let spawned = std::thread::Builder::new().name("journal".to_owned()).spawn(run);
    spawned.map(drop).map_err(|e| OpenError::Journal(format!("no thread: {e}")))
}

fn run(mut journal: Journal, queue: &Queue, store: &Weak<Inner>) {
    let (mut failed, mut look) = (false, Instant::now() + LOOK);
    loop {
        // Not more than RETRY, because a failed journal is looked after even without writes.
        let (mut jobs, closing) = queue.wait(RETRY);
        if failed {
            refuse(jobs, "the journal has failed");
            failed = !recover(&mut journal, store);
            if closing {
                break;
            }
            if failed {
                std::thread::sleep(RETRY);
            }
            continue;
        }
        if jobs.is_empty() {
            if closing {
                break;
            }
            // There were no writes for a while.
            failed = !compact(&mut journal, store);
            look = Instant::now() + LOOK;
            continue;
        }
        if journal.durability == Durability::Relaxed && !closing {
            std::thread::sleep(RELAXED_LINGER);
            jobs.extend(queue.take());
        }
        jobs.iter().for_each(|j| plimsoll_client::fault::point("journal", &j.change.record.key.name));
        match journal.write(&jobs) {
            Ok(()) => {
                settle(&journal, jobs, store);
                if Instant::now() >= look {
                    failed = !compact(&mut journal, store);
                    look = Instant::now() + LOOK;
                }
            }
            Err(why) => {
                tracing::error!(%why, "the journal failed; writes are refused until it has recovered");
                failed = true;
                fail(jobs, &why, store);
            }
        }
    }
    if let Err(why) = journal.finish() {
        tracing::warn!(%why, "the journal could not be closed cleanly");
    }
}

/// The transaction is on disk: show it and answer.
fn settle(journal: &Journal, jobs: Vec<Job>, store: &Weak<Inner>) {
    let Some(inner) = store.upgrade() else { return };
    inner.counters.journal_batches.add(1);
    inner.counters.journal_changes.add(jobs.len() as u64);
    inner.counters.journal_bytes.add(jobs.iter().map(|j| j.change.record.json.len() as u64).sum());
    if journal.durability == Durability::Durable {
        inner.publish(jobs.iter().map(|j| &j.change));
        let mut head = inner.head();
        jobs.iter().for_each(|j| head.settle(&j.change));
        head.reached(jobs.last().map_or(0, |j| j.change.revision()));
    }
    for job in jobs {
        if let Some(ack) = job.ack {
            // The caller may have gone.
            let _ = ack.send(Ok(()));
        }
    }
}

/// The transaction may or may not be on disk: nothing of it is shown, and what was built on it is refused too.
fn fail(mut jobs: Vec<Job>, why: &str, store: &Weak<Inner>) {
    if let Some(inner) = store.upgrade() {
        inner.counters.journal_failures.add(1);
        let mut head = inner.head();
        head.fail(why);
        if let Some(handle) = &inner.journal {
            jobs.extend(handle.take());
        }
        head.dirty.extend(jobs.iter().map(|j| j.change.record.key.clone()));
    }
    refuse(jobs, why);
}

fn refuse(jobs: Vec<Job>, why: &str) {
    for job in jobs {
        if let Some(ack) = job.ack {
            let _ = ack.send(Err(StoreError::Journal(why.to_owned())));
        }
    }
}

/// Tries to bring the journal to the state that readers see; whether it worked.
fn recover(journal: &mut Journal, store: &Weak<Inner>) -> bool {
    let Some(inner) = store.upgrade() else { return false };
    // Nothing of this changes before it has recovered, because all writes are refused. Reading a large file anew takes its time, for
    // which nobody else has to wait.
    let (revision, states): (u64, Vec<(_, Option<Arc<Record>>)>) = {
        let (head, shared) = (inner.head(), inner.read());
        let states = head.dirty.iter().map(|key| (key.clone(), shared.get(key).cloned())).collect();
        (head.revision(), states)
    };
    let reopened = journal.reopen(revision, states.iter().map(|(key, record)| (key, record.as_deref())));
    let mut head = inner.head();
    debug_assert_eq!(head.revision(), revision, "a write was taken while the journal failed");
    match reopened {
        Ok(()) => {
            tracing::info!("the journal has recovered");
            head.recover();
            true
        }
        Err(why) => {
            tracing::debug!(%why, "the journal is still failing");
            head.still_failing(&why);
            false
        }
    }
}

/// Compacts the file, if that is worth it; whether it can be written to. Writes wait meanwhile.
fn compact(journal: &mut Journal, store: &Weak<Inner>) -> bool {
    let Some(inner) = store.upgrade() else { return true };
    match journal.compact(inner.object_bytes()) {
        Ok(done) => {
            inner.counters.journal_compactions.add(u64::from(done));
            true
        }
        Err(why) => {
            tracing::error!(%why, "the journal failed; writes are refused until it has recovered");
            fail(Vec::new(), &why, store);
            false
        }
    }
}
