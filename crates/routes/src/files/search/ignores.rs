//! `.gitignore` and `.ignore` files, read through descriptors like everything else.

use std::{
    io::Read,
    os::fd::{AsFd, BorrowedFd},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::Arc,
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};
use rustix::fs::{FileType, Mode, OFlags};

use super::walk::join;
use crate::files::{
    local::{Links, READ, Root},
    place::Place,
};

/// Later names win over earlier ones in the same directory.
const NAMES: [&str; 2] = [".gitignore", ".ignore"];
const MAX_BYTES: u64 = 1 << 20;

/// The rules of one directory and of those above it, up to the volume's root.
#[derive(Debug)]
pub(super) struct Ignores {
    above: Option<Arc<Ignores>>,
    rules: Vec<Gitignore>,
}

impl Ignores {
    /// The rules above the directory `from`, which is itself below `place`.
    pub(super) fn above(root: &Root, place: &Place, from: &[u8]) -> Option<Arc<Self>> {
        let mut ignores = None;
        let start = place.within_volume().as_bytes();
        let all = join(start, from);
        let all = all.strip_suffix(b"/").unwrap_or(&all);
        if all.is_empty() {
            return None;
        }
        // Each proper prefix of the way down: the last directory reads its own.
        let ends = std::iter::once(0).chain(memchr::memchr_iter(b'/', all));
        for end in ends {
            let opened = root.beneath(root.fd(), &all[..end], READ | OFlags::DIRECTORY, Links::Refuse);
            if let Ok(directory) = opened {
                ignores = Self::read(ignores, directory.as_fd(), &all[..end]);
            }
        }
        ignores
    }

    /// The rules inside the directory `path` below `place`.
    pub(super) fn within(
        above: Option<Arc<Self>>,
        directory: BorrowedFd<'_>,
        place: &Place,
        path: &[u8],
    ) -> Option<Arc<Self>> {
        Self::read(above, directory, &join(place.within_volume().as_bytes(), path))
    }

    fn read(above: Option<Arc<Self>>, directory: BorrowedFd<'_>, at: &[u8]) -> Option<Arc<Self>> {
        let rules: Vec<Gitignore> = NAMES.iter().filter_map(|name| rules(directory, name, at)).collect();
        if rules.is_empty() { above } else { Some(Arc::new(Self { above, rules })) }
    }

    /// Whether the entry at `path` below `place` is to be left out: the nearest rule that speaks about it decides.
    pub(super) fn ignore(&self, place: &Place, path: &[u8], is_directory: bool) -> bool {
        let path = virtual_path(&join(place.within_volume().as_bytes(), path));
        let mut level = Some(self);
        while let Some(ignores) = level {
            for rules in ignores.rules.iter().rev() {
                match rules.matched(&path, is_directory) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            level = ignores.above.as_deref();
        }
        false
    }
}

fn rules(directory: BorrowedFd<'_>, name: &str, at: &[u8]) -> Option<Gitignore> {
    let fd = rustix::fs::openat(directory, name, READ | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    std::fs::File::from(fd).take(MAX_BYTES).read_to_end(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(virtual_path(at));
    for line in String::from_utf8_lossy(&text).lines() {
        // A line that is no glob ignores nothing, as in git.
        let _ = builder.add_line(None, line);
    }
    builder.build().ok()
}

/// Paths from the volume's root, written absolute so that rules and entries share one base.
fn virtual_path(within_volume: &[u8]) -> PathBuf {
    let mut path = PathBuf::from("/");
    path.push(std::ffi::OsStr::from_bytes(within_volume));
    path
}
