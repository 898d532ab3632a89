//! The writers' side: check, assign a revision, hand over to the journal, answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use super::journal::{Durability, Job};
use super::{Change, ChangeKind, Encoded, Inner, Key, Record, StoreError};

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Absent,
    /// The object at this revision.
    Revision(u64),
    /// The object, at whatever revision.
    Present,
    /// Whatever there is.
    Anything,
}

/// What a write does.
#[derive(Clone, Debug)]
pub enum Op {
    /// Stores an object.
    Put(Encoded),
    /// Removes it. `last`: its last state, if that differs from what is stored.
    Delete {
        /// What the deletion shows to watches.
        last: Option<Encoded>,
    },
}

/// One write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where.
    pub key: Key,
    /// Precondition.
    pub expected: Expected,
    /// What.
    pub op: Op,
}

impl Write {
    /// Stores an object.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it is not an object with `metadata`.
    pub fn put(key: Key, expected: Expected, object: &Value) -> Result<Self, StoreError> {
        Ok(Self { key, expected, op: Op::Put(Encoded::new(object)?) })
    }

    /// Removes an object.
    pub fn delete(key: Key, expected: Expected) -> Self {
        Self { key, expected, op: Op::Delete { last: None } }
    }

    fn bytes(&self) -> usize {
        match &self.op {
            Op::Put(encoded) | Op::Delete { last: Some(encoded) } => encoded.len(),
            Op::Delete { last: None } => 0,
        }
    }
}

/// The writers' view of the store.
pub(super) struct Head {
    /// Revision of the newest write, visible or not.
    revision: u64,
    /// Newest state of the objects that have writes which are not visible yet.
    pending: HashMap<Key, Pending>,
    /// Objects that the journal doesn't have as they are visible, because it failed.
    pub dirty: BTreeSet<Key>,
    /// Answers that show writes up to a revision, which are not durable yet.
    waiting: Vec<(u64, Ack)>,
    /// Why the journal refuses writes.
    failure: Option<String>,
    closed: bool,
}

type Ack = oneshot::Sender<Result<(), StoreError>>;

struct Pending {
    revision: u64,
    record: Option<Arc<Record>>,
}

impl Head {
    pub fn new(revision: u64) -> Self {
        Self {
            revision,
            pending: HashMap::new(),
            dirty: BTreeSet::new(),
            waiting: Vec::new(),
            failure: None,
            closed: false,
        }
    }

    /// State of an object that has writes which are not visible yet.
    pub fn pending(&self, key: &Key) -> Option<Option<&Arc<Record>>> {
        self.pending.get(key).map(|p| p.record.as_ref())
    }

    /// Why the journal refuses writes.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Revision of the newest write, visible or not.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The change has become visible.
    pub fn settle(&mut self, change: &Change) {
        let key = &change.record.key;
        if self.pending.get(key).is_some_and(|p| p.revision == change.revision()) {
            self.pending.remove(key);
        }
    }

    /// Writes up to a revision are durable and visible.
    pub fn reached(&mut self, revision: u64) {
        for (_, ack) in self.waiting.extract_if(.., |(at, _)| *at <= revision) {
            // The caller may have gone.
            let _ = ack.send(Ok(()));
        }
    }

    /// The journal has failed: nothing that isn't visible will become so.
    pub fn fail(&mut self, why: &str) {
        self.failure = Some(why.to_owned());
        self.pending.clear();
        for (_, ack) in self.waiting.drain(..) {
            let _ = ack.send(Err(StoreError::Journal(why.to_owned())));
        }
    }

    fn wait_for(&mut self, revision: u64) -> Answer {
        let (ack, answer) = oneshot::channel();
        self.waiting.push((revision, ack));
        answer
    }

    /// The journal could not be brought back, for this reason.
    pub fn still_failing(&mut self, why: &str) {
        self.failure = Some(why.to_owned());
    }

    /// The journal has recovered and has everything.
    pub fn recover(&mut self) {
        self.failure = None;
        self.dirty.clear();
    }

    fn refuse(&self) -> Result<(), StoreError> {
        match &self.failure {
            _ if self.closed => Err(StoreError::Closed),
            Some(why) => Err(StoreError::Journal(why.clone())),
            None => Ok(()),
        }
    }
}

/// What a write makes of the current state.
fn check(current: Option<&Arc<Record>>, write: &Write) -> Result<ChangeKind, StoreError> {
    match (write.expected, current) {
        (Expected::Absent, Some(current)) => {
            return Err(StoreError::AlreadyExists { current: Arc::clone(current) });
        }
        (Expected::Revision(_) | Expected::Present, None) => return Err(StoreError::NotFound),
        (Expected::Revision(revision), Some(current)) if current.revision != revision => {
            return Err(StoreError::Conflict { current: Arc::clone(current) });
        }
        _ => {}
    }
    match (&write.op, current) {
        (Op::Put(_), None) => Ok(ChangeKind::Added),
        (Op::Put(_), Some(_)) => Ok(ChangeKind::Modified),
        (Op::Delete { .. }, Some(_)) => Ok(ChangeKind::Deleted),
        (Op::Delete { .. }, None) => Err(StoreError::NotFound),
    }
}

pub(super) async fn commit(inner: &Inner, write: Write) -> Result<Arc<Record>, StoreError> {
    let permit = match &inner.journal {
        Some(journal) => Some(journal.admit(write.bytes()).await?),
        None => None,
    };
    let (record, answer) = submit(inner, write, permit)?;
    if let Some(answer) = answer {
        // The journal's thread answers everything it takes; a lost answer means that it is gone.
        answer.await.unwrap_or(Err(StoreError::Closed)).inspect_err(|_| {
            inner.counters.journal_refusals.add(1);
        })?;
    }
    inner.counters.commits.add(1);
    Ok(record)
}

type Answer = oneshot::Receiver<Result<(), StoreError>>;

/// The part of a write that happens under the lock.
fn submit(
    inner: &Inner,
    write: Write,
    permit: Option<tokio::sync::OwnedSemaphorePermit>,
) -> Result<(Arc<Record>, Option<Answer>), StoreError> {
    let mut head = inner.head();
    head.refuse().inspect_err(|_| inner.counters.journal_refusals.add(1))?;
    let current = match head.pending.get(&write.key) {
        Some(pending) => pending.record.clone(),
        None => inner.read().get(&write.key).cloned(),
    };
    let kind = check(current.as_ref(), &write).inspect_err(|_| inner.counters.conflicts.add(1))?;
    let revision = head.revision + 1;
    head.revision = revision;
    let Write { key, op, .. } = write;
    let record = Arc::new(match (op, &current) {
        (Op::Put(encoded) | Op::Delete { last: Some(encoded) }, _) => encoded.stamp(key.clone(), revision),
        (Op::Delete { last: None }, Some(current)) => current.restamped(revision),
        (Op::Delete { last: None }, None) => return Err(StoreError::NotFound),
    });
    let change = Arc::new(Change::new(kind, Arc::clone(&record), current));
    let durability = inner.journal.as_ref().map(|j| j.durability);
    let answer = match durability {
        // No caller has to wait for the disk: visible at once, in order, because the head is still locked.
        None | Some(Durability::Relaxed) => {
            inner.publish([&change]);
            None
        }
        Some(Durability::Durable) => {
            let after = (kind != ChangeKind::Deleted).then(|| Arc::clone(&record));
            head.pending.insert(key, Pending { revision, record: after });
            Some(oneshot::channel())
        }
    };
    let (ack, answer) = answer.unzip();
    if let Some(journal) = &inner.journal {
        journal.push(Job { change, ack, _permit: permit });
    }
    Ok((record, answer))
}

/// Waits until everything that [`super::Store::latest`] may have shown is durable.
pub(super) async fn settled(inner: &Inner) -> Result<(), StoreError> {
    let answer = {
        let mut head = inner.head();
        if head.pending.is_empty() {
            return Ok(());
        }
        let revision = head.revision;
        head.wait_for(revision)
    };
    answer.await.unwrap_or(Err(StoreError::Closed))
}

/// Waits until a record that [`super::Store::latest`] gave is durable.
pub(super) async fn confirm(inner: &Inner, record: &Record) -> Result<(), StoreError> {
    if inner.journal.as_ref().is_none_or(|j| j.durability == Durability::Relaxed) {
        return Ok(());
    }
    let answer = {
        let mut head = inner.head();
        match head.pending.get(&record.key) {
            Some(pending) if pending.revision == record.revision => head.wait_for(record.revision),
            Some(Pending { record: Some(current), .. }) => {
                return Err(StoreError::Conflict { current: Arc::clone(current) });
            }
            Some(Pending { record: None, .. }) => return Err(StoreError::NotFound),
            // Not pending: visible and durable, replaced by a later write, or lost with the journal.
            None => match inner.read().get(&record.key) {
                Some(current) if current.revision == record.revision => return Ok(()),
                Some(current) => return Err(StoreError::Conflict { current: Arc::clone(current) }),
                None => return Err(StoreError::NotFound),
            },
        }
    };
    answer.await.unwrap_or(Err(StoreError::Closed))
}

/// Refuses further writes and waits until the journal's thread is gone.
pub(super) async fn close(inner: &Inner) {
    inner.head().closed = true;
    if let Some(journal) = &inner.journal {
        journal.close().await;
    }
}
