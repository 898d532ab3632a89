//! What is on disk, and how it is read and written.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::super::{ChangeKind, Directory, FIRST_REVISION, Key, OpenError, Record};
use super::{Durability, Job, Opener};
use crate::private;

/// `resource NUL namespace NUL name` → revision, place of the stamp, JSON.
const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
/// Numbers: see the constants below.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// Version of this layout.
const FORMAT_KEY: &str = "format";
const FORMAT: u64 = 1;
/// Revision of the newest write.
const REVISION_KEY: &str = "revision";
/// 1 while a process has it open with relaxed durability: acknowledged revisions may be missing.
const RELAXED_KEY: &str = "relaxed";

/// Revisions skipped after a crash with relaxed durability, so that none is given out twice: more than can have been
/// acknowledged and not written, because the queue is bounded.
const RELAXED_GAP: u64 = 1_000_000;

/// Files smaller than this are left as they are, in bytes.
const COMPACT_FROM: u64 = 64 << 20;
/// A file is compacted when it is so many times as large as the objects in it.
const COMPACT_FACTOR: u64 = 4;

/// redb's page cache, in bytes. Everything is in memory anyway, so it only serves writes.
const CACHE_BYTES: usize = 32 << 20;

/// What a start finds.
pub(in super::super) struct Loaded {
    pub revision: u64,
    pub records: Vec<Record>,
}

/// The open database.
pub(in super::super) struct Journal {
    // Before the opener: fields drop in this order, and the opener holds the lock of the directory, which
    // must outlive the database.
    /// `None` between a failure and the next success.
    db: Option<Database>,
    opener: Opener,
    /// Where it is, when it is a file.
    path: Option<PathBuf>,
    /// Size of the file after it was compacted last.
    compacted: u64,
    pub(super) durability: Durability,
}

/// Opens the journal of a directory, which stays locked as long as the opener lives.
pub(in super::super) fn directory_opener(directory: Directory) -> (Opener, PathBuf) {
    let path = directory.journal();
    let opened = AtomicBool::new(false);
    let opener: Opener = Box::new(move || {
        // One that was there and is gone must not come back empty: memory is the truth then.
        if !opened.load(Ordering::Relaxed) {
            create(&directory)?;
        }
        let file = private::open(&directory.journal(), File::options().read(true).write(true))?;
        let db = Database::builder().set_cache_size(CACHE_BYTES).create_file(file)?;
        opened.store(true, Ordering::Relaxed);
        Ok(db)
    });
    (opener, path)
}

/// Creates the journal if there is none: under another name, synced, then renamed. A process that is killed meanwhile
/// leaves nothing that looks like a journal.
fn create(directory: &Directory) -> Result<(), redb::DatabaseError> {
    let (path, new) = (directory.journal(), directory.new_journal());
    private::remove_if_there(&new)?;
    if is_unfinished(&path)? {
        tracing::warn!(path = %path.display(), "removing a journal that was never finished: it holds nothing");
        private::remove_if_there(&path)?;
    }
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let file = private::open(&new, File::options().read(true).write(true).create_new(true))?;
    let copy = file.try_clone()?;
    drop(Database::builder().set_cache_size(CACHE_BYTES).create_file(file)?);
    copy.sync_all()?;
    Ok(private::rename(&new, &path)?)
}

/// Bytes of redb's header page.
const HEADER: usize = 4096;
/// Bytes at the beginning that redb writes last when it creates a file, and never takes away.
const MAGIC: usize = 9;
/// No file is larger while redb creates it.
const LARGEST_UNFINISHED: u64 = 16 << 20;

/// Whether a file is what a process left that was killed while redb created it (`TransactionalMemory::new`), as versions
/// did that created it under its own name: without the magic number, and without anything after the header.
fn is_unfinished(path: &Path) -> std::io::Result<bool> {
    let mut file = match private::open(path, File::options().read(true)) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    if file.metadata()?.len() > LARGEST_UNFINISHED {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    let magic = file.by_ref().take(MAGIC as u64).read_to_end(&mut bytes)?;
    if bytes.iter().any(|b| *b != 0) {
        return Ok(false);
    }
    file.read_to_end(&mut bytes)?;
    Ok(magic < MAGIC || bytes.iter().skip(HEADER).all(|b| *b == 0))
}

impl Journal {
    pub fn open(
        opener: Opener,
        path: Option<PathBuf>,
        durability: Durability,
    ) -> Result<(Self, Loaded), OpenError> {
        let db = opener().map_err(|e| OpenError::Journal(named(path.as_deref(), &e)))?;
        let mut journal = Self { opener, path, compacted: 0, db: Some(db), durability };
        let loaded = journal.load()?;
        let live = loaded.records.iter().map(|r| r.json.len() as u64).sum();
        journal.compact(live).map_err(|e| OpenError::Journal(named(journal.path.as_deref(), &e)))?;
        Ok((journal, loaded))
    }

    /// Size of the file in bytes; 0 when it is none.
    pub(super) fn size(&self) -> u64 {
        self.path.as_ref().and_then(|p| p.metadata().ok()).map_or(0, |m| m.len())
    }

    /// Frees the disk space that objects of `live` bytes don't need, when that is most of the file. Whether it did.
    ///
    /// # Errors
    /// When it could not, and the file could not be opened anew: after a failure the database refuses everything.
    pub(super) fn compact(&mut self, live: u64) -> Result<bool, String> {
        let size = self.size();
        if size < COMPACT_FROM.max(self.compacted.saturating_mul(2)) || size / COMPACT_FACTOR < live {
            return Ok(false);
        }
        let Some(db) = &mut self.db else { return Ok(false) };
        match db.compact() {
            Ok(done) => {
                self.compacted = self.size();
                tracing::debug!(before = size, after = self.size(), live, "the journal was compacted");
                Ok(done)
            }
            Err(error) => {
                self.compacted = size;
                tracing::warn!(%error, "the journal could not be compacted");
                self.db = None;
                self.db = Some((self.opener)().map_err(|e| e.to_string())?);
                Ok(false)
            }
        }
    }

    /// Reads everything, and makes the tables if they aren't there.
    fn load(&self) -> Result<Loaded, OpenError> {
        let Some(db) = &self.db else {
            return Err(OpenError::Journal("not open".to_owned()));
        };
        let broken = |why: &dyn std::fmt::Display| OpenError::Journal(named(self.path.as_deref(), why));
        let revision = self.init(db).map_err(|e| broken(&e))??;
        let records = read_all(db).map_err(|e| broken(&e))?;
        let records = records.into_iter().collect::<Result<Vec<_>, _>>().map_err(|e| broken(&e))?;
        Ok(Loaded { revision, records })
    }

    /// Checks the format, makes the tables, finds the revision to go on from.
    fn init(&self, db: &Database) -> Result<Result<u64, OpenError>, redb::Error> {
        let txn = db.begin_write()?;
        let revision;
        {
            txn.open_table(OBJECTS)?;
            let mut meta = txn.open_table(META)?;
            let read = |m: &redb::Table<'_, &str, u64>, key: &str| m.get(key).map(|v| v.map(|v| v.value()));
            let found = read(&meta, FORMAT_KEY)?.unwrap_or(FORMAT);
            if found != FORMAT {
                return Ok(Err(OpenError::Format { found, known: FORMAT }));
            }
            let crashed = read(&meta, RELAXED_KEY)?.unwrap_or(0) == 1;
            let gap = if crashed { RELAXED_GAP } else { 0 };
            revision = read(&meta, REVISION_KEY)?.unwrap_or(FIRST_REVISION).saturating_add(gap);
            meta.insert(FORMAT_KEY, FORMAT)?;
            meta.insert(REVISION_KEY, revision)?;
            meta.insert(RELAXED_KEY, u64::from(self.durability == Durability::Relaxed))?;
        }
        txn.commit()?;
        Ok(Ok(revision))
    }

    /// Writes changes in one durable transaction.
    pub(super) fn write(&self, jobs: &[Job]) -> Result<(), String> {
        let last = jobs.last().map_or(0, |j| j.change.revision());
        let changes = jobs.iter().map(|j| {
            let record = &j.change.record;
            let after = (j.change.kind != ChangeKind::Deleted).then_some(&**record);
            (&record.key, after)
        });
        self.transact(last, changes).map_err(|e| e.to_string())
    }

    /// After a failure: opens the database anew and writes these states, which it may have missed or got wrong.
    pub(super) fn reopen<'a>(
        &mut self,
        revision: u64,
        states: impl Iterator<Item = (&'a Key, Option<&'a Record>)>,
    ) -> Result<(), String> {
        // The old one has a lock on the file.
        self.db = None;
        self.db = Some((self.opener)().map_err(|e| e.to_string())?);
        self.transact(revision, states).map_err(|e| e.to_string())
    }

    fn transact<'a>(
        &self,
        revision: u64,
        states: impl Iterator<Item = (&'a Key, Option<&'a Record>)>,
    ) -> Result<(), redb::Error> {
        let Some(db) = &self.db else {
            return Err(redb::Error::DatabaseClosed);
        };
        let txn = db.begin_write()?;
        {
            let mut objects = txn.open_table(OBJECTS)?;
            let mut value = Vec::new();
            for (key, state) in states {
                let row = row_key(key);
                match state {
                    Some(record) => {
                        encode_row(record, &mut value);
                        objects.insert(row.as_str(), value.as_slice())?;
                    }
                    None => {
                        objects.remove(row.as_str())?;
                    }
                }
            }
            txn.open_table(META)?.insert(REVISION_KEY, revision)?;
        }
        // redb syncs the file before this returns.
        txn.commit()?;
        Ok(())
    }

    /// An orderly end: nothing that was acknowledged is missing.
    pub(super) fn finish(self) -> Result<(), String> {
        let Some(db) = &self.db else { return Ok(()) };
        let mark = || -> Result<(), redb::Error> {
            let txn = db.begin_write()?;
            txn.open_table(META)?.insert(RELAXED_KEY, 0)?;
            txn.commit()?;
            Ok(())
        };
        mark().map_err(|e| e.to_string())
    }
}

/// What is wrong with a journal, and where it is.
fn named(path: Option<&Path>, why: &dyn std::fmt::Display) -> String {
    match path {
        Some(path) => format!(
            "{}: {why}; restore it from a copy, or move it away to begin with nothing",
            path.display()
        ),
        None => why.to_string(),
    }
}

fn row_key(key: &Key) -> String {
    format!("{}\0{}\0{}", key.resource, key.namespace, key.name)
}

/// Little-endian revision and place of the stamp, then the JSON.
const ROW_HEAD: usize = 12;

fn encode_row(record: &Record, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&record.revision.to_le_bytes());
    out.extend_from_slice(&u32::try_from(record.stamp).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&record.json);
}

fn decode_row(key: &str, value: &[u8], last_resource: &mut Arc<str>) -> Result<Record, String> {
    let broken = || format!("a row can't be read: {key:?}");
    let mut parts = key.splitn(3, '\0');
    let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(broken());
    };
    // Rows come in order, so a resource's name is made once.
    if **last_resource != *resource {
        *last_resource = resource.into();
    }
    let (head, json) = value.split_at_checked(ROW_HEAD).ok_or_else(broken)?;
    let (revision, stamp) = head.split_at(8);
    let revision = u64::from_le_bytes(revision.try_into().map_err(|_| broken())?);
    let stamp = u32::from_le_bytes(stamp.try_into().map_err(|_| broken())?);
    let key = Key::new(Arc::clone(last_resource), namespace, name);
    Record::decode(key, revision, stamp as usize, Bytes::copy_from_slice(json))
}

fn read_all(db: &Database) -> Result<Vec<Result<Record, String>>, redb::Error> {
    let txn = db.begin_read()?;
    let table = txn.open_table(OBJECTS)?;
    let mut resource: Arc<str> = "".into();
    let mut records = Vec::new();
    for row in table.iter()? {
        let (key, value) = row?;
        records.push(decode_row(key.value(), value.value(), &mut resource));
    }
    Ok(records)
}
