//! The node's data directory: one owner at a time, one format number, small files that are never half written.

use std::{
    fs::{self, DirBuilder, File, FileType, OpenOptions, Permissions},
    io::{self, Read, Seek, Write},
    ops::Deref,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::FlockOperation;

use crate::new_database;

/// The layout this build reads and writes.
pub const FORMAT: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("{path} is not a directory: name a directory with --data or AEGIS_DATA")]
    NotADirectory { path: PathBuf },
    #[error(
        "there is no data directory at {path}: start a node with `aegis up` first, or name another with --data"
    )]
    Missing { path: PathBuf },
    #[error(
        "{path} is in use by another node{}: stop that one, or give this one a directory of its own with --data",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "{path} was written in format {found}, and this aegis reads up to {FORMAT}: use the newer aegis that wrote it; \
         nothing was changed"
    )]
    Newer { path: PathBuf, found: u32 },
    #[error(
        "{path}/VERSION does not hold a format number: restore it from a backup (this aegis writes {FORMAT}); \
         nothing was changed"
    )]
    UnreadableVersion { path: PathBuf },
    #[error(
        "{path} holds a node's data but no VERSION file, so its format is not known: restore VERSION from a backup \
         (this aegis writes {FORMAT}); nothing was changed"
    )]
    LostVersion { path: PathBuf },
    #[error(
        "others may write to {path} (mode {mode:03o}), and with it forge keys and records: run `chmod go-w {path}`"
    )]
    OthersMayWrite { path: PathBuf, mode: u32 },
    #[error(
        "{path} belongs to user {owner}, who could change keys and records, and this process runs as user {own}: run \
         aegis as the owner, or hand the directory over with chown"
    )]
    ForeignOwner { path: PathBuf, owner: u32, own: u32 },
    #[error(
        "{path} is {found}, and a node keeps a file there: take it away, and restore the file from a backup if there \
         was one; nothing was changed"
    )]
    NotAFile { path: PathBuf, found: &'static str },
    #[error("can't {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

impl DataDirError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// Where things lie in a data directory. Reading needs no more than this.
#[derive(Debug, Clone)]
pub struct DataPaths {
    root: PathBuf,
}

impl DataPaths {
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn audit_database(&self) -> PathBuf {
        self.root.join("audit.db")
    }

    pub fn registry_database(&self) -> PathBuf {
        self.root.join("registry.db")
    }

    /// The private half of the audit key: Ed25519, PKCS#8 PEM, mode 0600.
    pub fn audit_key(&self) -> PathBuf {
        self.root.join("audit.key")
    }

    /// The public half: all that a verifier needs besides the log.
    pub fn audit_public_key(&self) -> PathBuf {
        self.root.join("audit.pub")
    }

    /// The keys that SEAL tokens are signed with, mode 0600.
    pub fn seal_keys(&self) -> PathBuf {
        self.root.join("seal.keys")
    }

    /// The keys that stored secrets are sealed with, mode 0600.
    pub fn secret_keys(&self) -> PathBuf {
        self.root.join("secret.keys")
    }

    /// One of the two files that hold used envelopes.
    pub fn seal_replay(&self, turn: u64) -> PathBuf {
        self.root.join(format!("seal-replay-{turn}"))
    }

    /// The key that NFS file handles are made with: 32 random bytes, mode 0600.
    pub fn nfs_key(&self) -> PathBuf {
        self.root.join("nfs.key")
    }

    pub fn operator_token(&self) -> PathBuf {
        self.root.join("operator.token")
    }

    /// How clients find the running node.
    pub fn node_file(&self) -> PathBuf {
        self.root.join("node.json")
    }

    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Opening a pipe waits for its other end, for ever if there is none, so no name is opened before it was looked at.
    fn refuse_what_is_no_file(&self) -> Result<(), DataDirError> {
        let databases = [self.audit_database(), self.registry_database()];
        let beside = databases.iter().flat_map(|path| new_database::with_companions(path));
        let plain = [
            self.version_file(),
            self.lock_file(),
            self.audit_key(),
            self.audit_public_key(),
            self.seal_keys(),
            self.secret_keys(),
            self.seal_replay(0),
            self.seal_replay(1),
            self.nfs_key(),
            self.operator_token(),
            self.node_file(),
        ];
        for path in plain.into_iter().chain(beside) {
            match fs::metadata(&path) {
                Ok(metadata) if !metadata.is_file() => {
                    return Err(DataDirError::NotAFile { path, found: kind(metadata.file_type()) });
                }
                // What is not there, or can't be looked at, is told by whoever needs it.
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a node, or a command that acts as one, holds the directory at this moment.
    pub fn in_use(&self) -> bool {
        let held = |file: File| rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_err();
        File::open(self.lock_file()).is_ok_and(held)
    }

    fn lock_file(&self) -> PathBuf {
        self.root.join("lock")
    }

    fn version_file(&self) -> PathBuf {
        self.root.join("VERSION")
    }

    /// The directory's format, or none when it has never been one of a node.
    fn version(&self) -> Result<Option<u32>, DataDirError> {
        let path = self.version_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let used = self.audit_database().exists() || self.registry_database().exists();
                return if used {
                    Err(DataDirError::LostVersion { path: self.root.clone() })
                } else {
                    Ok(None)
                };
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(DataDirError::UnreadableVersion { path: self.root.clone() });
            }
            Err(error) => return Err(DataDirError::io("read", &path)(error)),
        };
        match text.trim().parse() {
            Ok(found) if found > FORMAT => Err(DataDirError::Newer { path: self.root.clone(), found }),
            Ok(found) => Ok(Some(found)),
            Err(_) => Err(DataDirError::UnreadableVersion { path: self.root.clone() }),
        }
    }
}

/// A data directory that this process alone may write to, for as long as a clone of this value lives.
#[derive(Debug, Clone)]
pub struct DataDir {
    paths: DataPaths,
    earlier_registry: bool,
    _lock: Arc<File>,
}

impl Deref for DataDir {
    type Target = DataPaths;

    fn deref(&self) -> &DataPaths {
        &self.paths
    }
}

impl DataDir {
    /// Takes the directory for this process, making it on first use.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataDirError> {
        let path = path.as_ref();
        make_private(path)?;
        let path = fs::canonicalize(path).map_err(DataDirError::io("resolve", path))?;
        refuse_what_others_may_write(&path)?;
        let paths = DataPaths { root: path };
        paths.refuse_what_is_no_file()?;
        // Before the lock file is made: a newer directory stays exactly as it is.
        paths.version()?;
        let lock = Arc::new(lock(&paths)?);
        // An empty one is what an interrupted attempt to make it left.
        let earlier_registry = fs::metadata(paths.registry_database()).is_ok_and(|found| found.len() > 0);
        let directory = Self { paths, earlier_registry, _lock: lock };
        // Again, now that nobody else can be writing it.
        if directory.version()?.is_none() {
            directory.write_file(&directory.version_file(), format!("{FORMAT}\n").as_bytes(), 0o600)?;
        }
        make_private(&directory.volumes())?;
        Ok(directory)
    }

    /// The paths of a directory that a node may be using at this moment. Takes no lock and changes nothing.
    pub fn read_only(path: impl AsRef<Path>) -> Result<DataPaths, DataDirError> {
        let path = path.as_ref();
        let root = match fs::canonicalize(path) {
            Ok(root) => root,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(DataDirError::Missing { path: path.to_owned() });
            }
            Err(error) => return Err(DataDirError::io("resolve", path)(error)),
        };
        if !root.is_dir() {
            return Err(DataDirError::NotADirectory { path: root });
        }
        let paths = DataPaths { root };
        paths.refuse_what_is_no_file()?;
        if paths.version()?.is_none() {
            return Err(DataDirError::Missing { path: path.to_owned() });
        }
        Ok(paths)
    }

    /// Whether an earlier process made the registry, and so may have kept a log too.
    pub(crate) fn has_earlier_registry(&self) -> bool {
        self.earlier_registry
    }

    /// Replaces a small file of this directory as a whole: after a crash it holds the old content or the new.
    pub fn write_file(&self, path: &Path, content: &[u8], mode: u32) -> Result<(), DataDirError> {
        self.place_file(path, content, mode)?;
        let sync = || File::open(&self.root)?.sync_all();
        sync().map_err(DataDirError::io("write", path))
    }

    /// As [`DataDir::write_file`], for what can be made again: after a crash of the machine the file may still be the
    /// one that was there before, or none.
    pub(crate) fn place_file(&self, path: &Path, content: &[u8], mode: u32) -> Result<(), DataDirError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // One fixed name per file: the lock rules out a second writer, and a crash leaves nothing that piles up.
        let temporary = self.root.join(format!(".{name}.new"));
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DataDirError::io("remove", &temporary)(error));
            }
            _ => {}
        }
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        write().map_err(DataDirError::io("write", path))
    }
}

fn kind(found: FileType) -> &'static str {
    if found.is_dir() {
        "a directory"
    } else if found.is_fifo() {
        "a named pipe"
    } else if found.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn make_private(path: &Path) -> Result<(), DataDirError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(DataDirError::NotADirectory { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(DataDirError::io("create", path)),
        Err(error) => Err(DataDirError::io("look at", path)(error)),
    }
}

fn refuse_what_others_may_write(path: &Path) -> Result<(), DataDirError> {
    let metadata = fs::metadata(path).map_err(DataDirError::io("look at", path))?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(DataDirError::OthersMayWrite { path: path.to_owned(), mode });
    }
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        return Err(DataDirError::ForeignOwner { path: path.to_owned(), owner, own });
    }
    Ok(())
}

/// The lock goes with the open file, so it ends with the process however that ends.
fn lock(paths: &DataPaths) -> Result<File, DataDirError> {
    let path = paths.lock_file();
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(DataDirError::io("open", &path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(DataDirError::InUse { path: paths.root.clone(), pid });
        }
        Err(error) => return Err(DataDirError::io("lock", &path)(error.into())),
    }
    let mut note_holder = || -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
    };
    note_holder().map_err(DataDirError::io("write", &path))?;
    Ok(file)
}
