//! What can go wrong with a file, and how a model is told.

use aegis_core::{Failure, FailureKind, path::BadPath, quantity::Size};
use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{0}")]
    BadPath(#[from] BadPath),
    #[error("no volume is mounted there; files are at /workspace and below it")]
    NoVolume,
    #[error("the path is outside what the caller's context grants")]
    NotGranted,
    #[error(
        "nothing is there: the path, or a directory on the way to it, does not exist; fs.list shows what a directory holds"
    )]
    NotFound,
    #[error(
        "the path leads out of the volume, or out of the directory that the caller's context grants: a symbolic \
         link on the way is absolute or climbs too high; name the file by its real path"
    )]
    LeadsOut,
    #[error("a symbolic link on the way is not followed here; name the file by its real path")]
    LinkRefused,
    #[error(
        "a symbolic link on the way is not followed: {deny_list} closes `{closed}` in this volume, and a link could lead \
         there; name the file by its real path"
    )]
    LinkWalled { closed: String, deny_list: String },
    #[error("the symbolic links on the way form a circle, or lead through /proc")]
    LinkCircle,
    #[error("this is a symbolic link to `{target}`, which is left as it is; name the file it points to")]
    LinkTarget { target: String },
    #[error(
        "the node's user may not do that here: the owner or mode of the file or its directory forbids it"
    )]
    PermissionDenied,
    #[error("the file is marked read-only (mode {mode:04o}); nothing was changed")]
    WriteProtected { mode: u32 },
    #[error(
        "the file belongs to user {uid}, group {gid}, and the node may not give a new version to them; nothing was \
         changed"
    )]
    OwnerNotKept { uid: u32, gid: u32 },
    #[error(
        "only a directory may be made here: `{closed}`, which the deny list of the caller's context closes, has to stay what \
         it is; choose another name"
    )]
    OnTheWay { closed: String },
    #[error("a directory is needed there, and what is there (or on the way) is none")]
    NotADirectory,
    #[error("this is a directory; fs.list shows what is in it")]
    IsADirectory,
    #[error("this is a {0}, and only regular files are read and written")]
    NotARegularFile(&'static str),
    #[error(
        "the file has {0} names (hard links) and the others may be outside the volume; an operator can allow such \
         files with `spec.storage.hard_links: allow`"
    )]
    HardLinked(u64),
    #[error(
        "the file is no UTF-8 text (the first other byte is at offset {0}); tool.local-file-read with encoding \
         base64 reads it as it is"
    )]
    NotUtf8(usize),
    #[error("so few bytes do not hold the file's first character; read more of it, or use encoding base64")]
    CharacterCut,
    #[error(
        "the file has {size} bytes and {limit} is the limit (`spec.storage.max_read_bytes`); find the passage with \
         fs.grep, or read the beginning with tool.local-file-read and maxBytes"
    )]
    TooLarge { size: u64, limit: u64 },
    #[error("the volume is read-only")]
    ReadOnlyVolume,
    #[error("the volume's files can't be worked on in place, so it can't be exported")]
    NotAttachable,
    #[error("a volume is mounted there, and a mount point can't be deleted or replaced")]
    MountPoint,
    #[error("another file system is mounted at `{0}` in this directory; nothing below it was deleted")]
    ForeignMount(String),
    #[error("the directory has entries and `recursive` is false; nothing was deleted")]
    DirectoryNotEmpty,
    #[error("entries kept appearing while the directory was deleted; some are left")]
    KeepsFilling,
    #[error("{source} ({entries} entries had been deleted by then)")]
    PartlyDeleted { entries: u64, source: Box<FileError> },
    #[error("names of this form are the node's own, for files that are being written; choose another")]
    ReservedName,
    #[error("{0}")]
    TargetNotFound(String),
    #[error("{0}")]
    TargetNotUnique(String),
    #[error("{0}")]
    InvalidPattern(String),
    #[error("something is at `{0}` already, and nothing was replaced")]
    AlreadyExists(String),
    #[error("{0}")]
    PatchFailed(String),
    #[error("`{0}` is named twice, and which change comes first can't be known; make it one")]
    NamedTwice(String),
    #[error("a directory can't be moved into itself")]
    IntoItself,
    #[error("a directory can't be moved to another volume; move its files one by one")]
    DirectoryAcrossVolumes,
    #[error(
        "the files hold more together than is changed at once (four times `spec.storage.max_read_bytes`); change fewer \
         of them in one call"
    )]
    TooMuchAtOnce,
    #[error("{source}; and {files} of the files that had been changed by then could not be put back")]
    PartlyRevised { files: usize, source: Box<FileError> },
    #[error(
        "the volume may hold {} and has {used} bytes in use, so {growth} more do not fit; delete files first, or ask \
         the operator for a higher size limit",
        Size(*limit)
    )]
    QuotaExceeded { limit: u64, used: u64, growth: u64 },
    #[error("the disk is full; nothing was changed")]
    DiskFull,
    #[error("the file was changed by someone else while editing, and is left as they made it; read it again")]
    ChangedWhileEditing,
    #[error("directories were moved during the work, which was therefore stopped; try again")]
    TreeMoved,
    #[error("the call was cancelled before its work was done")]
    Cancelled,
    #[error("the tenant's workspace can't be opened: {0}")]
    Workspace(#[source] std::io::Error),
    #[error("the operating system says: {0}")]
    System(#[source] std::io::Error),
}

impl FileError {
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::BadPath(BadPath::Traversal)
            | Self::NotGranted
            | Self::LeadsOut
            | Self::LinkRefused
            | Self::LinkWalled { .. }
            | Self::LinkCircle
            | Self::LinkTarget { .. }
            | Self::OnTheWay { .. }
            | Self::PermissionDenied
            | Self::WriteProtected { .. }
            | Self::OwnerNotKept { .. }
            | Self::HardLinked(_)
            | Self::MountPoint
            | Self::IntoItself
            | Self::DirectoryAcrossVolumes
            | Self::ReservedName
            | Self::NotAttachable
            | Self::ForeignMount(_) => FailureKind::PermissionDenied,
            Self::NoVolume | Self::NotFound => FailureKind::NotFound,
            Self::NotADirectory => FailureKind::NotADirectory,
            Self::IsADirectory => FailureKind::IsADirectory,
            Self::NotARegularFile(_) => FailureKind::NotARegularFile,
            Self::NotUtf8(_) | Self::CharacterCut => FailureKind::NotUtf8,
            Self::TooLarge { .. } => FailureKind::FileTooLarge,
            Self::ReadOnlyVolume => FailureKind::ReadOnlyVolume,
            Self::DirectoryNotEmpty | Self::KeepsFilling => FailureKind::DirectoryNotEmpty,
            Self::TargetNotFound(_) => FailureKind::TargetNotFound,
            Self::TargetNotUnique(_) => FailureKind::TargetNotUnique,
            Self::InvalidPattern(_) => FailureKind::InvalidPattern,
            Self::AlreadyExists(_) => FailureKind::AlreadyExists,
            Self::PatchFailed(_) | Self::NamedTwice(_) => FailureKind::PatchFailed,
            Self::TooMuchAtOnce => FailureKind::FileTooLarge,
            Self::PartlyDeleted { source, .. } | Self::PartlyRevised { source, .. } => source.kind(),
            Self::QuotaExceeded { .. } => FailureKind::VolumeQuotaExceeded,
            Self::Cancelled => FailureKind::Timeout,
            Self::BadPath(_)
            | Self::DiskFull
            | Self::ChangedWhileEditing
            | Self::TreeMoved
            | Self::Workspace(_)
            | Self::System(_) => FailureKind::StorageError,
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::XDEV => Self::LeadsOut,
            Errno::LOOP => Self::LinkCircle,
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            Errno::ROFS => Self::ReadOnlyVolume,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::IsADirectory,
            Errno::NXIO | Errno::NODEV | Errno::OPNOTSUPP => Self::NotARegularFile("socket or device"),
            Errno::NOTEMPTY => Self::DirectoryNotEmpty,
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            other => Self::System(other.into()),
        }
    }
}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::System(error),
        }
    }
}
