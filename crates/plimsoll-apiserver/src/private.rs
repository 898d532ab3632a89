//! Files and directories that only their owner may read, and files that are written whole or not at all.
//!
//! The store holds Secrets, `pki/` holds keys: etcd keeps its data directory at 0700 and its files at 0600
//! (`client/pkg/fileutil`), and so does this module. Without Unix permissions only the atomic writing is left.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// End of the names of files that are being written: `.NAME.PID.plimsoll`.
const TEMPORARY: &str = ".plimsoll";

/// Creates a directory and its missing parents for the owner alone. A directory that exists stays as it is.
///
/// # Errors
/// As of the file system.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(dir)
}

/// Opens a file for the owner alone: a new one gets 0600, one that exists is tightened. A symbolic link is refused.
///
/// # Errors
/// As of the file system.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_itself(path, options)?;
    restrict_open(&file, path);
    Ok(file)
}

/// As [`open`], at a path that the user gave: through symbolic links.
///
/// # Errors
/// As of the file system.
pub fn open_through(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let file = options.open(path)?;
    restrict_open(&file, path);
    Ok(file)
}

/// Writes a file for the owner alone, in the place of what is there: under another name, synced, then renamed, so that
/// neither a reader nor a crash ever sees a part of it. A symbolic link is replaced, not followed.
///
/// # Errors
/// As of the file system.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let temporary = dir.join(format!(".{}.{}{TEMPORARY}", name.to_string_lossy(), std::process::id()));
    remove_if_there(&temporary)?;
    let written = open(&temporary, File::options().write(true).create_new(true))
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| rename(&temporary, path));
    if written.is_err() {
        // The error of the write says more than one of the removal.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// As [`write`], to where the user says: through symbolic links, and straight into what is no regular file
/// (`/dev/stdout`).
///
/// # Errors
/// As of the file system.
pub fn write_through(path: &Path, text: &str) -> io::Result<()> {
    match path.metadata() {
        Ok(there) if !there.is_file() => fs::write(path, text),
        Ok(_) => write(&path.canonicalize()?, text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => write(path, text),
        Err(e) => Err(e),
    }
}

/// Renames a file and syncs the directory, so that the new name survives a power failure.
///
/// # Errors
/// As of the file system.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    match to.parent() {
        Some(dir) => sync_dir(dir),
        None => Ok(()),
    }
}

/// Removes a file or link, if it is there.
///
/// # Errors
/// As of the file system.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes what [`write`] left in a directory when its process was killed. The caller keeps other processes away.
pub fn clean_up(dir: &Path) {
    for path in entries(dir).filter(|p| is_temporary(p)) {
        if let Err(error) = remove_if_there(&path) {
            tracing::warn!(path = %path.display(), %error, "an unfinished file could not be removed");
        }
    }
}

/// Whether [`write`] gives its temporary files such a name.
pub fn is_temporary(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|n| n.to_string_lossy().starts_with('.') && n.to_string_lossy().ends_with(TEMPORARY))
}

/// What is in a directory; nothing if it can't be read.
pub fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|e| e.path())
}

/// Takes the rights of group and others from a file or directory that exists. A symbolic link is left alone, and so is
/// what belongs to another user.
pub fn restrict(path: &Path) {
    match open_itself(path, File::options().read(true)) {
        Ok(file) => restrict_open(&file, path),
        // A link, or nothing there: nothing to tighten.
        Err(error) => tracing::debug!(path = %path.display(), %error, "permissions are left as they are"),
    }
}

/// Whether group or others have rights.
#[cfg(unix)]
pub fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.permissions().mode() & 0o077 != 0)
}

/// Whether group or others have rights.
#[cfg(not(unix))]
pub fn is_open_to_others(_: &Path) -> bool {
    false
}

/// Whether a directory is meant for many users, as `/tmp` is (the sticky bit).
#[cfg(unix)]
pub fn is_shared(dir: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    dir.metadata().is_ok_and(|m| m.permissions().mode() & 0o1000 != 0)
}

/// Whether a directory is meant for many users, as `/tmp` is (the sticky bit).
#[cfg(not(unix))]
pub fn is_shared(_: &Path) -> bool {
    false
}

#[cfg(unix)]
fn open_itself(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path).map_err(|e| {
        if e.raw_os_error() == Some(libc::ELOOP) {
            let why =
                "it is a symbolic link, which is not followed here; replace it with the file that it names";
            return io::Error::other(why);
        }
        e
    })
}

#[cfg(not(unix))]
fn open_itself(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.open(path)
}

#[cfg(unix)]
fn restrict_open(file: &File, path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(there) = file.metadata() else { return };
    let mode = there.permissions().mode();
    if mode & 0o077 == 0 || !(there.is_file() || there.is_dir()) {
        return;
    }
    match file.set_permissions(fs::Permissions::from_mode(mode & 0o700)) {
        Ok(()) => tracing::info!(path = %path.display(), "permissions are restricted to the owner"),
        // File systems without permissions refuse, and so does the system for files of other users.
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "permissions could not be restricted to the owner");
        }
    }
}

#[cfg(not(unix))]
fn restrict_open(_: &File, _: &Path) {}

#[cfg(unix)]
fn sync_dir(dir: &Path) -> io::Result<()> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    match File::open(dir)?.sync_all() {
        // Some network file systems have no such thing.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        done => done,
    }
}

#[cfg(not(unix))]
fn sync_dir(_: &Path) -> io::Result<()> {
    Ok(())
}
