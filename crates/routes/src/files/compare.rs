//! What a change would make of a file, without making it.

use std::sync::Arc;

use aegis_core::{Grant, VolumePath, id::TenantId};
use tokio_util::sync::CancellationToken;

use super::{Edit, FileError, Files, Portion, edit::replace_once, located::Asked, place};

/// A change that somebody wants to make.
#[derive(Debug, Clone)]
pub enum Intended {
    Write(String),
    Edits(Vec<Edit>),
}

/// A file as it is, and as it would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compared {
    pub path: VolumePath,
    pub before: String,
    pub after: String,
}

impl Files {
    /// Reads within the bounds that the change itself would have. For an approver's eyes: whoever asks for the change
    /// may have no right to read.
    pub async fn compare(
        self: &Arc<Self>,
        tenant: &TenantId,
        grant: &Grant,
        path: &str,
        intended: Intended,
        longest: u64,
    ) -> Result<Compared, FileError> {
        let path = VolumePath::parse(path)?;
        let asked = Asked {
            free_from: place::granted_from(&path, grant.paths.as_deref())?,
            path: path.clone(),
            tenant: tenant.clone(),
            cancel: CancellationToken::new(),
        };
        let files = Arc::clone(self);
        let portion = Portion::Whole(longest.min(self.limits.read_bytes));
        let compared = tokio::task::spawn_blocking(move || {
            let mounts = files.volumes.of(&asked.tenant)?;
            let at = asked.locate(mounts)?;
            let before = match (at.volume.storage.read(&at.place, portion), &intended) {
                (Ok(content), _) => String::from_utf8(content.bytes)
                    .map_err(|error| FileError::NotUtf8(error.utf8_error().valid_up_to()))?,
                (Err(FileError::NotFound), Intended::Write(_)) => String::new(),
                (Err(error), _) => return Err(error),
            };
            let after = match intended {
                Intended::Write(content) => content,
                Intended::Edits(edits) => edits.iter().try_fold(before.clone(), |text, edit| {
                    replace_once(&text, &edit.target, &edit.replacement).map(|edited| edited.text)
                })?,
            };
            Ok(Compared { path, before, after })
        });
        compared.await.map_err(|error| FileError::System(std::io::Error::other(error)))?
    }
}
