//! The data directory: one process at a time, closed to other users.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::OpenError;
use crate::private;

/// File name of the journal.
pub(super) const JOURNAL: &str = "plimsoll.redb";
/// File name of a journal that is being created.
pub(super) const NEW_JOURNAL: &str = "plimsoll.redb.new";
const LOCK: &str = "lock";
/// Directory of the credentials.
const PKI: &str = "pki";
const KUBECONFIG: &str = "kubeconfig";

/// A locked data directory. The lock is released with the last clone, and clones in stores count.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    _lock: Arc<File>,
}

impl Directory {
    /// Locks a directory, which is created if need be, before anything in it is read or written. What it holds of ours
    /// is closed to other users, and the directory with it unless it holds other things too; `also` names further files
    /// that are no other things.
    ///
    /// # Errors
    /// The directory can't be used, or another process has it.
    pub fn lock(path: &Path, also: &[&Path]) -> Result<Self, OpenError> {
        let shown = path.display().to_string();
        let refused = |source| OpenError::Directory { dir: shown.clone(), source };
        private::create_dir_all(path).map_err(refused)?;
        let options = &mut File::options();
        let file =
            private::open(&path.join(LOCK), options.read(true).write(true).create(true).truncate(false));
        let mut lock = file
            .map_err(|source| OpenError::Directory { dir: path.join(LOCK).display().to_string(), source })?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(refused(source)),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Only to be helpful.
                let _ = lock.read_to_string(&mut pid);
                let pid = pid.trim();
                let holder = if pid.is_empty() { String::new() } else { format!(" (pid {pid})") };
                return Err(OpenError::InUse { dir: shown, holder });
            }
        }
        // Likewise: a full disk must not prevent reads.
        let _ = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| write!(lock, "{}", std::process::id()));
        let directory = Self { path: path.to_owned(), _lock: Arc::new(lock) };
        directory.restrict(also);
        Ok(directory)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the credentials.
    pub fn pki(&self) -> PathBuf {
        self.path.join(PKI)
    }

    pub(super) fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    pub(super) fn new_journal(&self) -> PathBuf {
        self.path.join(NEW_JOURNAL)
    }

    /// Closes what is ours to other users. A directory made for other things too keeps its permissions: taking it from
    /// other users would break what they do there (`--data /tmp`).
    fn restrict(&self, also: &[&Path]) {
        for dir in [self.path.clone(), self.pki()] {
            private::clean_up(&dir);
        }
        let own = [JOURNAL, NEW_JOURNAL, LOCK, PKI, KUBECONFIG].map(|name| self.path.join(name));
        own.iter().for_each(|path| private::restrict(path));
        private::entries(&self.pki()).for_each(|path| private::restrict(&path));
        if !private::is_open_to_others(&self.path) {
            return;
        }
        let also: Vec<PathBuf> = also.iter().filter_map(|p| std::path::absolute(p).ok()).collect();
        let is_ours = |path: &PathBuf| {
            own.contains(path) || std::path::absolute(path).is_ok_and(|path| also.contains(&path))
        };
        let other = private::entries(&self.path).find(|path| !is_ours(path));
        let why = match other.as_deref().and_then(Path::file_name) {
            Some(other) => format!("it holds other things ({})", other.to_string_lossy()),
            None if private::is_shared(&self.path) => "it is shared (its sticky bit is set)".to_owned(),
            // Through the path that the user gave, which may be a link.
            None => {
                let itself = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
                return private::restrict(&itself);
            }
        };
        tracing::warn!(
            "--data {}: other users may enter this directory and {why}, so its permissions stay; our files in it are \
             closed to other users. A directory of its own is better, or chmod 700",
            self.path.display()
        );
    }
}
