//! Entries of one directory, in bounded memory however many there are.

use std::{collections::BinaryHeap, os::fd::AsFd};

use rustix::fs::{FileType, OFlags};
use tokio_util::sync::CancellationToken;

use super::{is_temporary, resolve::Root, tree};
use crate::files::{
    error::FileError,
    place::Place,
    storage::{Entry, Listing},
};

/// How many entries go by between two looks at whether the caller is still there.
const STRIDE: u64 = 4096;

pub(super) fn list(
    root: &Root,
    place: &Place,
    limit: usize,
    cancel: &CancellationToken,
) -> Result<Listing, FileError> {
    let directory = root.open_directory(place)?;
    // The heap's top is the last name kept: a name after it is only counted.
    let mut kept: BinaryHeap<(Vec<u8>, bool, bool)> = BinaryHeap::new();
    let mut total = 0_u64;
    tree::entries(directory.as_fd(), &mut Vec::new(), |name, kind| {
        let name = name.to_bytes();
        if is_temporary(name) {
            return Ok(());
        }
        total += 1;
        if total.is_multiple_of(STRIDE) && cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        if kept.len() >= limit {
            match kept.peek() {
                Some((last, ..)) if name < last.as_slice() => kept.pop(),
                _ => return Ok(()),
            };
        }
        kept.push((name.to_owned(), kind == FileType::Directory, kind == FileType::Symlink));
        Ok(())
    })?;
    let entries = kept
        .into_sorted_vec()
        .into_iter()
        .map(|(name, is_directory, is_symlink)| Entry {
            is_directory: is_directory || (is_symlink && leads_to_directory(root, place, &name)),
            is_symlink,
            name,
        })
        .collect();
    Ok(Listing { entries, total })
}

/// A link that leads out, nowhere, or in a circle is shown as a file.
fn leads_to_directory(root: &Root, place: &Place, name: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else { return false };
    let rest = format!("{}/{name}", place.rest());
    root.open_parts(place.scope(), rest.trim_start_matches('/'), OFlags::PATH | OFlags::CLOEXEC)
        .and_then(|fd| Ok(rustix::fs::fstat(fd)?))
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}
