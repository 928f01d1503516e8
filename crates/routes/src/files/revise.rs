//! Several files changed as one step, or not at all; or nothing changed and everything said.

use std::{collections::HashSet, sync::Arc};

use aegis_core::{
    Event, Failure, Grant, VolumePath, event::EventName, id::TenantId, patch::FilePatch, path::BadPath,
};
use tokio_util::sync::CancellationToken;

use super::{
    AppliedHunk, Edit, FileError, Files, Portion,
    edit::replace_once,
    located::{Asked, Located},
    patch,
    storage::Staged,
    volume::mounted_below,
};
use crate::tool::Run;

/// All contents of one revision together, in multiples of the most that is read of one file.
const MOST_CONTENT: u64 = 4;

/// What is to become of one file.
#[derive(derive_more::Debug)]
pub struct Revision {
    from: Option<String>,
    to: Option<String>,
    #[debug(skip)]
    change: Change,
}

type Change = Box<dyn FnOnce(Option<&[u8]>) -> Result<(Option<Vec<u8>>, Vec<AppliedHunk>), FileError> + Send>;

/// A file as it was and as it is, or would be.
#[derive(Debug)]
pub struct Revised {
    /// Where it is, or was.
    pub path: VolumePath,
    /// Where it was, where that is another place.
    pub renamed_from: Option<VolumePath>,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    pub hunks: Vec<AppliedHunk>,
}

impl Revised {
    pub fn changes(&self) -> bool {
        self.renamed_from.is_some() || self.before != self.after
    }
}

impl Revision {
    fn of(
        path: String,
        change: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, FileError> + Send + 'static,
    ) -> Self {
        let change: Change = Box::new(|content| Ok((Some(change(content)?), Vec::new())));
        Self { from: Some(path.clone()), to: Some(path), change }
    }

    /// The whole content, new or not.
    pub fn write(path: String, content: String) -> Self {
        Self::of(path, |_| Ok(content.into_bytes()))
    }

    /// More at the end; a file that is not there is made.
    pub fn append(path: String, content: String) -> Self {
        Self::of(path, move |before| Ok([before.unwrap_or_default(), content.as_bytes()].concat()))
    }

    pub fn edits(path: String, edits: Vec<Edit>) -> Self {
        Self::of(path, move |before| {
            let before = before.ok_or(FileError::NotFound)?;
            let text =
                std::str::from_utf8(before).map_err(|error| FileError::NotUtf8(error.valid_up_to()))?;
            let changed = edits.iter().try_fold(text.to_owned(), |text, edit| {
                replace_once(&text, &edit.target, &edit.replacement).map(|edited| edited.text)
            });
            changed.map(String::into_bytes)
        })
    }

    pub fn patch(file: FilePatch) -> Self {
        let (from, to) = (file.old.clone(), file.new.clone());
        Self { from, to, change: Box::new(move |content| patch::apply(&file, content)) }
    }

    /// The same content elsewhere.
    pub fn moved(from: String, to: String) -> Self {
        let change: Change =
            Box::new(|content| Ok((Some(content.ok_or(FileError::NotFound)?.to_owned()), Vec::new())));
        Self { from: Some(from), to: Some(to), change }
    }

    /// The paths that it names, as the caller wrote them.
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.from.as_deref().into_iter().chain(self.to.as_deref())
    }
}

/// For whom, and within which bounds.
#[derive(Debug, Clone)]
struct Bounds {
    tenant: TenantId,
    grant: Grant,
    cancel: CancellationToken,
}

/// A revision whose files have been found and read.
#[derive(Debug)]
struct Planned {
    from: Option<Located>,
    to: Option<Located>,
    revised: Revised,
}

impl Files {
    /// Makes all of the changes or, when one of them can't be made, none. With `rehearse`, none in any case.
    pub async fn revise(
        self: &Arc<Self>,
        run: &Run<'_>,
        revisions: Vec<Revision>,
        rehearse: bool,
    ) -> Result<Vec<Revised>, Failure> {
        if let Some(climbs) = revisions
            .iter()
            .flat_map(Revision::paths)
            .find(|path| VolumePath::parse(path).is_err_and(|error| error == BadPath::Traversal))
        {
            run.emit(Event::new(EventName::PathTraversalBlocked).with("path", climbs));
        }
        let bounds = Bounds {
            tenant: run.permit.caller().tenant.clone(),
            grant: run.permit.limits().clone(),
            cancel: run.cancel.clone(),
        };
        let files = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let planned = files.plan(&bounds, revisions)?;
            if !rehearse {
                files.sweep.mark();
                put_in_place(&planned, &bounds.cancel)?;
            }
            Ok::<_, FileError>(planned)
        });
        let planned = match done.await.map_err(|error| FileError::System(std::io::Error::other(error)))? {
            Ok(planned) => planned,
            Err(error) => {
                if let FileError::QuotaExceeded { limit, used, growth } = error {
                    let event = Event::new(EventName::QuotaExceeded);
                    run.emit(event.with("bytes", growth).with("used", used).with("limit", limit));
                }
                return Err(error.into());
            }
        };
        if !rehearse {
            planned.iter().flat_map(Planned::events).for_each(|event| run.emit(event));
        }
        Ok(planned.into_iter().map(|planned| planned.revised).collect())
    }

    /// What the changes would make of the files. For an approver's eyes: whoever asks for the change may have no right
    /// to read.
    pub async fn compare(
        self: &Arc<Self>,
        tenant: &TenantId,
        grant: &Grant,
        revisions: Vec<Revision>,
    ) -> Result<Vec<Revised>, FileError> {
        let bounds =
            Bounds { tenant: tenant.clone(), grant: grant.clone(), cancel: CancellationToken::new() };
        let files = Arc::clone(self);
        let planned = tokio::task::spawn_blocking(move || files.plan(&bounds, revisions));
        let planned = planned.await.map_err(|error| FileError::System(std::io::Error::other(error)))??;
        Ok(planned.into_iter().map(|planned| planned.revised).collect())
    }

    fn plan(&self, bounds: &Bounds, revisions: Vec<Revision>) -> Result<Vec<Planned>, FileError> {
        let mounts = self.volumes.of(&bounds.tenant)?;
        let locate = |path: &str| {
            let (tenant, cancel) = (bounds.tenant.clone(), bounds.cancel.clone());
            Asked::new(VolumePath::parse(path)?, &bounds.grant, tenant, cancel)?.locate(Arc::clone(&mounts))
        };
        let mut seen: HashSet<VolumePath> = HashSet::new();
        let mut room = self.limits.read_bytes.saturating_mul(MOST_CONTENT);
        let mut planned = Vec::with_capacity(revisions.len());
        for revision in revisions {
            if bounds.cancel.is_cancelled() {
                return Err(FileError::Cancelled);
            }
            let from = revision.from.as_deref().map(locate).transpose()?;
            let to = revision.to.as_deref().map(locate).transpose()?;
            let moved = from.as_ref().map(|at| at.place.path()) != to.as_ref().map(|at| at.place.path());
            for at in from.iter().filter(|_| moved).chain(&to) {
                if !seen.insert(at.place.path().clone()) {
                    return Err(FileError::NamedTwice(at.place.path().to_string()));
                }
                // A change that its volume does not take is refused before anything is read.
                at.volume.terms(&bounds.cancel)?;
                if mounted_below(&at.mounts, at.place.path()).next().is_some() {
                    return Err(FileError::MountPoint);
                }
            }
            to.as_ref().map_or(Ok(()), Located::may_be_file)?;
            let before = match &from {
                None => None,
                Some(at) => match at.volume.storage.read(&at.place, Portion::Whole(self.limits.read_bytes)) {
                    Ok(content) => Some(content.bytes),
                    Err(FileError::NotFound) => None,
                    Err(error) => return Err(at.told(error)),
                },
            };
            if let Some(at) = to.as_ref().filter(|_| moved) {
                at.is_free()?;
            }
            let (after, hunks) = (revision.change)(before.as_deref())?;
            let size = |content: &Option<Vec<u8>>| content.as_ref().map_or(0, |content| content.len() as u64);
            room = room
                .checked_sub(size(&before).saturating_add(size(&after)))
                .ok_or(FileError::TooMuchAtOnce)?;
            let path_of = |at: &Located| at.place.path().clone();
            let path = to.as_ref().or(from.as_ref()).map(path_of).ok_or(FileError::NotFound)?;
            let renamed_from = from.as_ref().filter(|_| moved && to.is_some()).map(path_of);
            planned.push(Planned { from, to, revised: Revised { path, renamed_from, before, after, hunks } });
        }
        Ok(planned)
    }
}

impl Located {
    /// Nothing is there, so that something can be put there.
    pub(super) fn is_free(&self) -> Result<(), FileError> {
        match self.volume.storage.read(&self.place, Portion::Start(0)) {
            Err(FileError::NotFound) => Ok(()),
            Ok(_)
            | Err(FileError::IsADirectory | FileError::NotARegularFile(_) | FileError::HardLinked(_)) => {
                Err(FileError::AlreadyExists(self.place.path().to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

impl Planned {
    fn events(&self) -> impl Iterator<Item = Event> {
        let Self { from, to, revised } = self;
        let changes = revised.changes();
        let gone = from.as_ref().filter(|_| to.is_none()).map(|at| at.event(EventName::FileDeleted));
        let moved = revised.renamed_from.as_ref().and(from.as_ref());
        let moved = moved.map(|at| at.event(EventName::FileRenamed).with("to", revised.path.as_str()));
        let size = revised.after.as_ref().map_or(0, Vec::len);
        let written = to
            .as_ref()
            .filter(|_| changes && revised.before != revised.after)
            .map(|at| at.event(EventName::FileWritten).with("bytes", size));
        gone.into_iter().chain(moved).chain(written)
    }
}

/// All staged first: what can fail has failed by then, and if a rename still does, those before it are taken back.
fn put_in_place(planned: &[Planned], cancel: &CancellationToken) -> Result<(), FileError> {
    let mut staged: Vec<Box<dyn Staged + '_>> = Vec::new();
    for Planned { from, to, revised } in planned.iter().filter(|planned| planned.revised.changes()) {
        let moved = revised.renamed_from.is_some() || to.is_none();
        if let (Some(at), Some(after)) = (to, &revised.after) {
            let terms = at.volume.terms(cancel)?;
            let before = revised.before.as_deref().filter(|_| !moved);
            staged.push(at.volume.storage.stage(&at.place, before, Some(after), &terms)?);
        }
        if let Some(at) = from.as_ref().filter(|_| moved) {
            let terms = at.volume.terms(cancel)?;
            staged.push(at.volume.storage.stage(&at.place, revised.before.as_deref(), None, &terms)?);
        }
    }
    commit(&mut staged)
}

fn commit(staged: &mut [Box<dyn Staged + '_>]) -> Result<(), FileError> {
    for index in 0..staged.len() {
        let Err(error) = staged[index].commit() else { continue };
        // One that failed may have been made all the same, and only not be safe on disk.
        let made = staged[..=index].iter_mut().rev().filter(|staged| staged.is_made());
        let left = made.filter_map(|staged| staged.undo().err()).count();
        return Err(match left {
            0 => error,
            files => FileError::PartlyRevised { files, source: Box::new(error) },
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Fails before the change or after it, or not at all.
    struct Step<'a> {
        name: &'static str,
        fails_before: bool,
        fails_after: bool,
        made: bool,
        undone: &'a RefCell<Vec<&'static str>>,
    }

    impl Staged for Step<'_> {
        fn commit(&mut self) -> Result<(), FileError> {
            self.made = !self.fails_before;
            if self.fails_before || self.fails_after { Err(FileError::ChangedWhileEditing) } else { Ok(()) }
        }

        fn is_made(&self) -> bool {
            self.made
        }

        fn undo(&mut self) -> Result<(), FileError> {
            self.undone.borrow_mut().push(self.name);
            Ok(())
        }
    }

    #[test]
    fn whatever_was_made_is_taken_back() {
        for (fails_before, fails_after, taken_back) in
            [(false, true, vec!["b", "a"]), (true, false, vec!["a"]), (false, false, vec![])]
        {
            let undone = RefCell::default();
            let step = |name, fails_before, fails_after| -> Box<dyn Staged + '_> {
                Box::new(Step { name, fails_before, fails_after, made: false, undone: &undone })
            };
            let mut staged =
                vec![step("a", false, false), step("b", fails_before, fails_after), step("c", false, false)];
            assert_eq!(commit(&mut staged).is_err(), fails_before || fails_after);
            drop(staged);
            assert_eq!(undone.into_inner(), taken_back);
        }
    }
}
