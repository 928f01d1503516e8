//! A SQLite file that is not there yet, made beside its place and put there whole.
//!
//! Nobody relies on a file that has no name yet, so nothing of it has to be on disk while it is made: one sync before it
//! gets its name takes the place of one for each step. A crash leaves a file under another name, which the next
//! attempt removes.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};

use crate::data_dir::DataDirError;

/// What SQLite keeps beside a file. Left over from one that is gone, it would be applied to the one in its place.
const COMPANIONS: [&str; 4] = ["", "-journal", "-wal", "-shm"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum NewDatabaseError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Directory(#[from] DataDirError),
}

/// Makes the database unless there is one, private to its owner and with a write-ahead log. `fill` is handed a file
/// that is not synced meanwhile. The name is on disk with the next sync of the directory, of which the first commit is
/// one. The caller holds the data directory's lock.
pub(crate) fn ensure(
    path: &Path,
    fill: impl FnOnce(&mut Connection) -> rusqlite::Result<()>,
) -> Result<(), NewDatabaseError> {
    let failed = |source| DataDirError::Io { action: "create", path: path.to_owned(), source };
    let blocked = |(path, source): (PathBuf, io::Error)| DataDirError::Io { action: "remove", path, source };
    // An empty one is what a crash left of an attempt to make it in place. Where a link leads, somebody else put the file,
    // or is to put it.
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.len() > 0 || metadata.is_symlink() => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
        _ => {}
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.new"));
    remove(&temporary).map_err(blocked)?;
    reserve(&temporary).map_err(failed)?;
    let mut connection = Connection::open_with_flags(
        &temporary,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "journal_mode", "memory")?;
    fill(&mut connection)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.close().map_err(|(_, error)| error)?;
    File::open(&temporary).and_then(|file| file.sync_all()).map_err(failed)?;
    remove(path).map_err(blocked)?;
    fs::rename(&temporary, path).map_err(failed)?;
    Ok(())
}

/// An empty file of the owner's own, so that what SQLite then writes to it is private.
fn reserve(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// On failure, with the name that can't be removed.
fn remove(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    for name in with_companions(path) {
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err((name, error)),
            _ => {}
        }
    }
    Ok(())
}

/// Where SQLite keeps what was committed and is not in the file yet.
pub(crate) fn write_ahead_log(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// The file, and the names of what SQLite keeps beside it.
pub(crate) fn with_companions(path: &Path) -> impl Iterator<Item = PathBuf> {
    COMPANIONS.into_iter().map(|suffix| beside(path, suffix))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
