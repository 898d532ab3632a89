//! What several tests of the server use.

#![allow(dead_code, clippy::unwrap_used)]

pub mod api;
pub mod front;
pub mod https;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use plimsoll_apiserver::store::Opener;

/// Resident memory of this process in bytes, where the system tells (Linux).
pub fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Files that this process may have open, as far as the system tells.
pub fn most_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap_or_default();
    line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).unwrap_or(1024)
}

/// Memory that takes a certain number of bytes and then fails, as a full disk does.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    /// What is on the disk.
    pub bytes: Arc<Mutex<Vec<u8>>>,
    /// Bytes that still fit.
    pub room: Arc<AtomicU64>,
    /// Whether syncs wait.
    pub held: Arc<(Mutex<bool>, Condvar)>,
}

impl Disk {
    /// Opens a journal on this disk.
    pub fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move || redb::Database::builder().create_with_backend(disk.clone()))
    }

    /// Holds back syncs, or lets them go.
    pub fn hold(&self, hold: bool) {
        *self.held.0.lock().unwrap() = hold;
        self.held.1.notify_all();
    }

    /// From now on only so many bytes fit.
    pub fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::SeqCst);
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock().unwrap();
        let from = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        drop(self.held.1.wait_while(self.held.0.lock().unwrap(), |held| *held).unwrap());
        if self.room.load(Ordering::SeqCst) == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap();
        let room = self.room.load(Ordering::SeqCst);
        let fits = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        // A full disk takes a part of it: the worst case.
        bytes[offset as usize..offset as usize + fits].copy_from_slice(&data[..fits]);
        self.room.store(room - fits as u64, Ordering::SeqCst);
        if fits == data.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}
