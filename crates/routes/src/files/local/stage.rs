//! A change of one file in two steps, so that several can be made together.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use tokio_util::sync::CancellationToken;

use super::{
    LocalDirectory, read_portion,
    resolve::READ,
    size_of,
    temporary::Temporary,
    write::{Replacement, renamed, replaceable},
};
use crate::files::{
    error::FileError,
    place::Place,
    quota::{PER_ENTRY, Quota, Reservation},
    storage::{Portion, Staged, Terms},
};

struct Change<'s> {
    storage: &'s LocalDirectory,
    quota: &'s Quota,
    cancel: &'s CancellationToken,
    directory: OwnedFd,
    at: Stat,
    name: String,
    old: Option<(Stat, Vec<u8>)>,
    /// Taken by the commit; a removal has none.
    new: Option<Temporary<OwnedFd>>,
    new_size: Option<u64>,
    reservation: Option<Reservation<'s>>,
    made: bool,
}

fn cost(bytes: u64) -> u64 {
    bytes.saturating_add(PER_ENTRY)
}

impl LocalDirectory {
    pub(super) fn stage_change<'s>(
        &'s self,
        place: &Place,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        terms: &Terms<'s>,
    ) -> Result<Box<dyn Staged + 's>, FileError> {
        let room = || self.room_for_one(terms);
        let (directory, name) = match after {
            Some(_) => self.root.parent(place, Some(&room))?,
            None => self.root.parent(place, None)?,
        };
        let at = rustix::fs::fstat(&directory)?;
        let old = match (replaceable(directory.as_fd(), name)?, before) {
            (None, None) => None,
            (Some(_), None) => return Err(FileError::AlreadyExists(place.path().to_string())),
            (None, Some(_)) => return Err(FileError::ChangedWhileEditing),
            (Some(_), Some(before)) => {
                let fd = rustix::fs::openat(&directory, name, READ | OFlags::NOFOLLOW, Mode::empty())?;
                let stat = self.readable(fd.as_fd())?;
                let bytes = read_portion(&fd, &stat, Portion::Whole(before.len() as u64))?.bytes;
                if bytes != before {
                    return Err(FileError::ChangedWhileEditing);
                }
                Some((stat, bytes))
            }
        };
        let old_cost = old.as_ref().map_or(0, |(stat, _)| cost(size_of(stat)));
        let replacement =
            Replacement { directory: &directory, at: &at, name, old: old.as_ref().map(|(stat, _)| stat) };
        let (new, reservation) = match after {
            None => (None, None),
            Some(after) => {
                let reservation = self.reserve(cost(after.len() as u64), old_cost, terms)?;
                (Some(replacement.ready(directory.try_clone()?, after)?), Some(reservation))
            }
        };
        Ok(Box::new(Change {
            storage: self,
            quota: terms.quota,
            cancel: terms.cancel,
            name: name.to_owned(),
            directory,
            at,
            old,
            new,
            new_size: after.map(|after| after.len() as u64),
            reservation,
            made: false,
        }))
    }
}

impl Change<'_> {
    fn replacement(&self) -> Replacement<'_> {
        let old = self.old.as_ref().map(|(stat, _)| stat);
        Replacement { directory: &self.directory, at: &self.at, name: &self.name, old }
    }

    fn remove(&self, held: u64) -> Result<(), FileError> {
        rustix::fs::unlinkat(&self.directory, self.name.as_str(), AtFlags::empty())?;
        self.quota.release(cost(held));
        Ok(())
    }
}

impl Staged for Change<'_> {
    fn commit(&mut self) -> Result<(), FileError> {
        if self.cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        let _one_writer = self.storage.locks.lock(&self.at, &self.name);
        if !self.replacement().unchanged() {
            return Err(FileError::ChangedWhileEditing);
        }
        match (self.new.take(), self.reservation.take()) {
            (Some(mut new), Some(reservation)) => reservation.commit(|| renamed(&mut new, &self.name))?,
            _ => self.remove(self.old.as_ref().map_or(0, |(stat, _)| size_of(stat)))?,
        }
        self.made = true;
        rustix::fs::fsync(&self.directory)?;
        Ok(())
    }

    fn is_made(&self) -> bool {
        self.made
    }

    fn undo(&mut self) -> Result<(), FileError> {
        let _one_writer = self.storage.locks.lock(&self.at, &self.name);
        match &self.old {
            None => self.remove(self.new_size.unwrap_or(0))?,
            Some((stat, bytes)) => {
                let mut old = self.replacement().ready(self.directory.as_fd(), bytes)?;
                let held = self.new_size.map_or(0, cost);
                // What was there fitted; should others have taken its room meanwhile, it goes back all the same.
                let terms = Terms { quota: self.quota, cancel: &CancellationToken::new() };
                match self.storage.reserve(cost(size_of(stat)), held, &terms) {
                    Ok(reservation) => reservation.commit(|| renamed(&mut old, &self.name))?,
                    Err(_) => renamed(&mut old, &self.name)?,
                }
            }
        }
        rustix::fs::fsync(&self.directory)?;
        Ok(())
    }
}
