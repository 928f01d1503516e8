//! Files by number, changed in place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, Timespec, Timestamps},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use super::{LocalDirectory, is_temporary, resolve::give_to_owner_of, write::writable};
use crate::files::{
    attached::{Altered, Attached, FileFacts, FileKind, Identity, Known, Listed, NewFacts, Space},
    error::FileError,
    place::Place,
    quota::PER_ENTRY,
    storage::{Storage, Terms},
};

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OPEN: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Names in one directory; more are not held in memory at once.
const MOST_NAMES: usize = 1 << 20;
const PERMISSIONS: u32 = 0o777;

impl LocalDirectory {
    /// The directory that holds it, and its name there; the volume's root holds itself.
    fn holder<'p>(&self, place: &'p Place) -> Result<(OwnedFd, &'p str), FileError> {
        if place.within_volume().is_empty() {
            return Ok((self.root.fd().try_clone_to_owned()?, "."));
        }
        let (directory, name) = self.root.parent(place, None)?;
        if is_temporary(name.as_bytes()) {
            return Err(FileError::NotFound);
        }
        Ok((directory, name))
    }

    /// For making something: a name that is nobody's.
    fn maker<'p>(&self, place: &'p Place) -> Result<(OwnedFd, &'p str), FileError> {
        let (directory, name) = self.root.parent(place, None)?;
        if is_temporary(name.as_bytes()) {
            return Err(FileError::ReservedName);
        }
        Ok((directory, name))
    }

    fn open_known(&self, file: &Known<'_>, flags: OFlags) -> Result<(OwnedFd, FileFacts), FileError> {
        let (directory, name) = self.holder(file.place)?;
        let fd = match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(FileError::NotARegularFile("symbolic link")),
            opened => opened?,
        };
        let facts = facts_of(fd.as_fd(), c"", AtFlags::EMPTY_PATH)?;
        if facts.identity != file.identity {
            return Err(FileError::TreeMoved);
        }
        Ok((fd, facts))
    }

    /// A regular file whose content may be touched.
    fn open_content(&self, file: &Known<'_>, flags: OFlags) -> Result<(OwnedFd, FileFacts), FileError> {
        let (fd, facts) = match self.open_known(file, flags | OPEN) {
            Err(FileError::PermissionDenied) if file.own => self.open_own(file, flags | OPEN)?,
            opened => opened?,
        };
        let stat = self.readable(fd.as_fd())?;
        if flags.contains(OFlags::WRONLY) && !file.own {
            writable(&stat)?;
        }
        Ok((fd, facts))
    }

    /// A file that the node's user made read-only and is still making. Nobody else writes it meanwhile: its lock is held.
    fn open_own(&self, file: &Known<'_>, flags: OFlags) -> Result<(OwnedFd, FileFacts), FileError> {
        let (fd, facts) = self.open_known(file, LOOK)?;
        set_mode(fd.as_fd(), facts.mode & PERMISSIONS | 0o200)?;
        let opened = self.open_known(file, flags);
        set_mode(fd.as_fd(), facts.mode & PERMISSIONS)?;
        opened
    }

    fn settled(&self, directory: BorrowedFd<'_>, name: &str, mode: u32) -> Result<FileFacts, FileError> {
        let made = rustix::fs::openat(directory, name, LOOK, Mode::empty())?;
        set_mode(made.as_fd(), mode)?;
        // Owners can't be given through a descriptor that only names the file.
        if let Ok(opened) = rustix::fs::openat(directory, name, OFlags::RDONLY | OPEN, Mode::empty()) {
            give_to_owner_of(directory, opened.as_fd());
        }
        rustix::fs::fsync(directory)?;
        facts_of(made.as_fd(), c"", AtFlags::EMPTY_PATH)
    }
}

impl Attached for LocalDirectory {
    fn facts(&self, place: &Place) -> Result<FileFacts, FileError> {
        let (directory, name) = self.holder(place)?;
        facts_of(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn read_at(
        &self,
        file: &Known<'_>,
        offset: u64,
        count: usize,
    ) -> Result<(Vec<u8>, FileFacts), FileError> {
        let (fd, facts) = self.open_content(file, OFlags::RDONLY)?;
        let left = usize::try_from(facts.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        // A file may grow meanwhile; what is there by then is the next piece's.
        let mut bytes = Vec::with_capacity(count.min(left));
        while bytes.len() < bytes.capacity() {
            let at = offset.saturating_add(bytes.len() as u64);
            match rustix::io::pread(&fd, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((bytes, facts))
    }

    fn write_at(
        &self,
        file: &Known<'_>,
        offset: u64,
        data: &[u8],
        durable: bool,
        terms: &Terms<'_>,
    ) -> Result<Altered, FileError> {
        let (directory, name) = self.holder(file.place)?;
        let _one_writer = self.locks.lock(&rustix::fs::fstat(&directory)?, name);
        let (fd, before) = self.open_content(file, OFlags::WRONLY)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or(FileError::TooLarge { size: u64::MAX, limit: i64::MAX as u64 })?;
        if end > before.size && !data.is_empty() {
            self.reserve(end, before.size, terms)?.commit(|| write_all_at(&fd, data, offset))?;
        } else {
            write_all_at(&fd, data, offset)?;
        }
        if durable {
            rustix::fs::fsync(&fd)?;
        }
        Ok(Altered { before, after: facts_of(fd.as_fd(), c"", AtFlags::EMPTY_PATH)? })
    }

    fn sync(&self, file: &Known<'_>) -> Result<FileFacts, FileError> {
        let (fd, facts) = self.open_content(file, OFlags::RDONLY)?;
        rustix::fs::fsync(&fd)?;
        Ok(facts)
    }

    fn set(&self, file: &Known<'_>, new: &NewFacts, terms: &Terms<'_>) -> Result<Altered, FileError> {
        let (fd, before) = self.open_known(file, LOOK)?;
        if let Some(size) = new.size {
            let (directory, name) = self.holder(file.place)?;
            let _one_writer = self.locks.lock(&rustix::fs::fstat(&directory)?, name);
            let (fd, before) = self.open_content(file, OFlags::WRONLY)?;
            if i64::try_from(size).is_err() {
                return Err(FileError::TooLarge { size, limit: i64::MAX as u64 });
            }
            self.reserve(size, before.size, terms)?.commit(|| rustix::fs::ftruncate(&fd, size))?;
        }
        if let Some(mode) = new.mode {
            if before.kind == FileKind::Link || mode & !PERMISSIONS != 0 {
                return Err(FileError::PermissionDenied);
            }
            set_mode(fd.as_fd(), mode)?;
        }
        if new.accessed.is_some() || new.modified.is_some() {
            let times =
                Timestamps { last_access: timespec(new.accessed), last_modification: timespec(new.modified) };
            let (directory, name) = self.holder(file.place)?;
            rustix::fs::utimensat(&directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(Altered { before, after: facts_of(fd.as_fd(), c"", AtFlags::EMPTY_PATH)? })
    }

    fn create(&self, place: &Place, mode: u32, terms: &Terms<'_>) -> Result<FileFacts, FileError> {
        let (directory, name) = self.maker(place)?;
        let _one_writer = self.locks.lock(&rustix::fs::fstat(&directory)?, name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OPEN;
        let made = self
            .room_for_one(terms)?
            .commit(|| rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o600)));
        match made {
            Err(Errno::EXIST) => Err(FileError::AlreadyExists(place.path().to_string())),
            Err(error) => Err(error.into()),
            Ok(_) => self.settled(directory.as_fd(), name, mode & PERMISSIONS),
        }
    }

    fn make_directory(&self, place: &Place, mode: u32, terms: &Terms<'_>) -> Result<FileFacts, FileError> {
        let (directory, name) = self.maker(place)?;
        let made = self
            .room_for_one(terms)?
            .commit(|| rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o700)));
        match made {
            Err(Errno::EXIST) => Err(FileError::AlreadyExists(place.path().to_string())),
            Err(error) => Err(error.into()),
            Ok(()) => self.settled(directory.as_fd(), name, mode & PERMISSIONS),
        }
    }

    fn make_link(&self, place: &Place, target: &[u8], terms: &Terms<'_>) -> Result<FileFacts, FileError> {
        if !stays_inside(place, target) {
            return Err(FileError::LeadsOut);
        }
        let (directory, name) = self.maker(place)?;
        match self.room_for_one(terms)?.commit(|| rustix::fs::symlinkat(target, &directory, name)) {
            Err(Errno::EXIST) => return Err(FileError::AlreadyExists(place.path().to_string())),
            made => made?,
        }
        rustix::fs::fsync(&directory)?;
        facts_of(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn read_link(&self, file: &Known<'_>) -> Result<(Vec<u8>, FileFacts), FileError> {
        let (directory, name) = self.holder(file.place)?;
        let facts = facts_of(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        if facts.identity != file.identity {
            return Err(FileError::TreeMoved);
        }
        let target = match rustix::fs::readlinkat(&directory, name, Vec::new()) {
            Err(Errno::INVAL) => return Err(FileError::NotARegularFile("file, and no symbolic link")),
            target => target?.into_bytes(),
        };
        if stays_inside(file.place, &target) { Ok((target, facts)) } else { Err(FileError::LeadsOut) }
    }

    fn remove(&self, place: &Place, directory: bool, terms: &Terms<'_>) -> Result<(), FileError> {
        let (holder, name) = self.maker(place)?;
        let _one_writer = self.locks.lock(&rustix::fs::fstat(&holder)?, name);
        let facts = facts_of(holder.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        match (facts.kind == FileKind::Directory, directory) {
            (true, false) => return Err(FileError::IsADirectory),
            (false, true) => return Err(FileError::NotADirectory),
            _ => {}
        }
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&holder, name, flags) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(FileError::DirectoryNotEmpty),
            removed => removed?,
        }
        terms.quota.release(held(&facts));
        rustix::fs::fsync(&holder)?;
        Ok(())
    }

    fn rename_over(&self, from: &Place, to: &Place, terms: &Terms<'_>) -> Result<(), FileError> {
        let ((old, old_name), (new, new_name)) = (self.maker(from)?, self.maker(to)?);
        let (old_at, new_at) = (rustix::fs::fstat(&old)?, rustix::fs::fstat(&new)?);
        let _both = self.locks.lock_both((&old_at, old_name), (&new_at, new_name));
        let moved = facts_of(old.as_fd(), old_name, AtFlags::SYMLINK_NOFOLLOW)?;
        let replaced = facts_of(new.as_fd(), new_name, AtFlags::SYMLINK_NOFOLLOW).ok();
        match rustix::fs::renameat(&old, old_name, &new, new_name) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(FileError::DirectoryNotEmpty),
            Err(Errno::INVAL) => return Err(FileError::IntoItself),
            Err(Errno::XDEV) => return Err(FileError::ForeignMount(old_name.to_owned())),
            renamed => renamed?,
        }
        if let Some(gone) = replaced.filter(|gone| gone.identity != moved.identity) {
            terms.quota.release(held(&gone));
        }
        rustix::fs::fsync(&new)?;
        rustix::fs::fsync(&old)?;
        Ok(())
    }

    fn names(&self, directory: &Known<'_>) -> Result<(FileFacts, Vec<Listed>), FileError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (fd, facts) = self.open_known(directory, flags)?;
        let mut names = Vec::new();
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut entries = RawDir::new(&fd, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || is_temporary(name) {
                continue;
            }
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if names.len() == MOST_NAMES {
                return Err(FileError::TooMuchAtOnce);
            }
            names.push(Listed { name: name.to_owned(), number: entry.ino() });
        }
        Ok((facts, names))
    }

    fn space(&self, terms: &Terms<'_>) -> Result<Space, FileError> {
        let disk = rustix::fs::fstatvfs(self.root.fd())?;
        let unit = disk.f_frsize.max(1);
        let (total, free) = (disk.f_blocks.saturating_mul(unit), disk.f_bavail.saturating_mul(unit));
        let limited = terms.quota.limit_and_use(&|| self.usage(&CancellationToken::new()))?;
        Ok(match limited {
            None => Space { total, free },
            Some((limit, used)) => {
                Space { total: limit.min(total), free: limit.saturating_sub(used).min(free) }
            }
        })
    }
}

fn held(facts: &FileFacts) -> u64 {
    let content = if facts.kind == FileKind::File && facts.links <= 1 { facts.size } else { 0 };
    content.saturating_add(PER_ENTRY)
}

fn write_all_at(fd: &OwnedFd, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        match rustix::io::pwrite(fd, data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                data = &data[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Through the descriptor, so that nothing can be put in the file's place in between; one that only names the file is
/// reached by its name in `/proc`.
fn set_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_raw_fd()), Mode::from_raw_mode(mode))
}

fn timespec(time: Option<Option<(i64, u32)>>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(None) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(Some((seconds, nanoseconds))) => {
            Timespec { tv_sec: seconds, tv_nsec: nanoseconds.min(999_999_999).into() }
        }
    }
}

fn facts_of(
    directory: BorrowedFd<'_>,
    name: impl rustix::path::Arg,
    flags: AtFlags,
) -> Result<FileFacts, FileError> {
    let stat: Statx = rustix::fs::statx(directory, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        _ => FileKind::File,
    };
    let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
    Ok(FileFacts {
        identity: Identity {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            number: stat.stx_ino,
            born: time(stat.stx_btime),
        },
        kind,
        mode: u32::from(stat.stx_mode) & 0o7777,
        links: stat.stx_nlink,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        accessed: time(stat.stx_atime),
        modified: time(stat.stx_mtime),
        changed: time(stat.stx_ctime),
    })
}

/// By its text: relative, and at no point above the volume's root.
fn stays_inside(link: &Place, target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
        return false;
    }
    let mut depth = link.within_volume().split('/').count().saturating_sub(1);
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => match depth.checked_sub(1) {
                Some(above) => depth = above,
                None => return false,
            },
            _ => depth += 1,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use aegis_core::VolumePath;

    use super::*;

    #[test]
    fn links_stay_inside() {
        let mount = VolumePath::parse("/workspace").unwrap();
        let path = VolumePath::parse("a/b/link").unwrap();
        let end = path.as_str().len();
        let place = Place::new(path, &mount, end).unwrap();
        for (target, inside) in [
            ("x", true),
            ("../x", true),
            ("../../x", true),
            ("../../../x", false),
            ("c/../../../..", false),
            ("/etc", false),
            ("", false),
            ("./.././../y/..", true),
        ] {
            assert_eq!(stays_inside(&place, target.as_bytes()), inside, "{target}");
        }
    }
}
