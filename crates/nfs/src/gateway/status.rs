//! What a client is told when something can't be done.

use crate::nfs3::Status;
use aegis_core::{Violation, ViolationKind, path::BadPath};
use aegis_routes::files::FileError;

pub(super) fn of_violation(violation: &Violation) -> Status {
    match violation.kind {
        ViolationKind::RateLimitExceeded | ViolationKind::Overloaded => Status::JukeBox,
        ViolationKind::InternalError | ViolationKind::ShuttingDown | ViolationKind::DeadlineExceeded => {
            Status::ServerFault
        }
        _ => Status::Access,
    }
}

pub(super) fn of_error(error: &FileError) -> Status {
    match error {
        FileError::BadPath(BadPath::TooLong(_) | BadPath::ComponentTooLong(_)) => Status::NameTooLong,
        FileError::BadPath(_) => Status::Invalid,
        FileError::NotFound | FileError::NoVolume => Status::NotFound,
        FileError::TreeMoved => Status::Stale,
        FileError::ChangedWhileEditing => Status::NotSync,
        FileError::AlreadyExists(_) => Status::Exists,
        FileError::NotADirectory => Status::NotADirectory,
        FileError::IsADirectory => Status::IsADirectory,
        FileError::NotARegularFile(_) | FileError::IntoItself => Status::Invalid,
        FileError::DirectoryNotEmpty => Status::NotEmpty,
        FileError::ReadOnlyVolume => Status::ReadOnly,
        FileError::QuotaExceeded { .. } => Status::Quota,
        FileError::DiskFull => Status::NoSpace,
        FileError::TooLarge { .. } => Status::TooLarge,
        FileError::ForeignMount(_) => Status::CrossDevice,
        FileError::NotGranted
        | FileError::LeadsOut
        | FileError::LinkRefused
        | FileError::LinkWalled { .. }
        | FileError::LinkCircle
        | FileError::LinkTarget { .. }
        | FileError::OnTheWay { .. }
        | FileError::PermissionDenied
        | FileError::WriteProtected { .. }
        | FileError::HardLinked(_)
        | FileError::MountPoint
        | FileError::ReservedName => Status::Access,
        FileError::TooMuchAtOnce => Status::ServerFault,
        _ => Status::Io,
    }
}
