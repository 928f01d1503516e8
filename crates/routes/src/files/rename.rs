//! Giving a file or a directory another name.

use std::sync::Arc;

use aegis_core::{Failure, VolumePath, event::EventName};

use super::{FileError, Files, Portion, Revision, located::Located, volume::mounted_below};
use crate::tool::Run;

/// What was, or would be, renamed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    pub from: VolumePath,
    pub to: VolumePath,
    /// Whether the two are different names.
    pub changes: bool,
}

impl Files {
    /// Never replaces what is at `to`. Between two volumes a file is copied and then removed; a directory is not moved
    /// there.
    pub async fn rename(
        self: &Arc<Self>,
        run: &Run<'_>,
        from: &str,
        to: &str,
        rehearse: bool,
    ) -> Result<Renamed, Failure> {
        let target = self.asked(run, to)?;
        let (at, (renamed, across)) = self
            .change_at(run, from, move |at, files, terms| {
                let mounts = Arc::clone(&at.mounts);
                let target = target.locate(mounts)?;
                let (from, to) = (at.place.path().clone(), target.place.path().clone());
                let changes = from != to;
                let directory = present(at)?;
                let across = !Arc::ptr_eq(&at.volume, &target.volume);
                if changes {
                    check(at, &target, directory, across)?;
                }
                if changes && !across && !rehearse {
                    target.volume.terms(&at.cancel)?;
                    files.mark_changes();
                    at.volume.storage.rename(&at.place, &target.place, terms)?;
                }
                Ok((Renamed { from, to, changes }, across))
            })
            .await?;
        if renamed.changes && across {
            let moved = Revision::moved(from.to_owned(), to.to_owned());
            self.revise(run, vec![moved], rehearse).await?;
        } else if renamed.changes && !rehearse {
            run.emit(at.event(EventName::FileRenamed).with("to", renamed.to.as_str()));
        }
        Ok(renamed)
    }
}

/// Whether it is a directory; something must be there.
fn present(at: &Located) -> Result<bool, FileError> {
    match at.volume.storage.read(&at.place, Portion::Start(0)) {
        Ok(_) | Err(FileError::NotARegularFile(_) | FileError::HardLinked(_)) => Ok(false),
        Err(FileError::IsADirectory) => Ok(true),
        Err(error) => Err(error),
    }
}

fn check(at: &Located, target: &Located, directory: bool, across: bool) -> Result<(), FileError> {
    for end in [at, target] {
        if end.place.within_volume().is_empty()
            || mounted_below(&end.mounts, end.place.path()).next().is_some()
        {
            return Err(FileError::MountPoint);
        }
    }
    if target.place.path().below(at.place.path().as_str()).is_some() {
        return Err(FileError::IntoItself);
    }
    if across && directory {
        return Err(FileError::DirectoryAcrossVolumes);
    }
    target.is_free()
}
