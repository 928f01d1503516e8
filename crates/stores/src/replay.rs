//! Signed envelopes that were accepted, on disk before their call runs.
//!
//! An envelope may be used once. What was used is kept in memory; this log is what survives the process. Each entry is
//! one small write into the page cache, so that it is there after `kill -9`; it is not synced, since a power failure
//! takes every process along: then the log says that it is not whole, and the gate refuses what it can't know.
//!
//! Two files take turns, so that nothing has to be rewritten: when all that the older one holds is past its time, it
//! is emptied and becomes the newer one.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
};

use crate::data_dir::DataDir;

const MAGIC: [u8; 8] = *b"aegisrp1";
/// Magic, boot, floor, turn, closed.
const HEADER: usize = 8 + 16 + 8 + 8 + 8;
/// Key and second.
const ENTRY: usize = 32 + 8;
/// Entries after which the files take turns, when they may. The bound on a file follows from the gate's bound on what
/// it holds in memory.
const TURN: u64 = 1 << 16;

/// An accepted envelope: a digest of who signed what, and the second it was signed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    pub key: [u8; 32],
    pub second: i64,
}

/// What was found on opening.
#[derive(Debug, Default)]
pub struct Found {
    pub used: Vec<Used>,
    /// Entries for earlier seconds may have been let go.
    pub floor: Option<i64>,
    /// Every entry that was ever acknowledged is there, but for those below the floor.
    pub whole: bool,
    /// Whether there was a log at all.
    pub any: bool,
}

#[derive(Debug)]
pub struct ReplayLog {
    data: DataDir,
    boot: [u8; 16],
    floor: i64,
    /// The file that is written to; made with the first entry.
    current: Option<Written>,
    /// Which of the two names the next file has, how many came before it, and the latest second in the other one.
    turn: u64,
    other_last: i64,
}

#[derive(Debug)]
struct Written {
    file: File,
    entries: u64,
    last: i64,
}

struct Header {
    boot: [u8; 16],
    floor: i64,
    turn: u64,
    closed: bool,
}

impl Header {
    fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.boot);
        bytes[24..32].copy_from_slice(&self.floor.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.turn.to_le_bytes());
        bytes[40] = u8::from(self.closed);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.get(..HEADER)?.try_into().ok()?;
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if bytes[..8] != MAGIC {
            return None;
        }
        Some(Self {
            boot: bytes[8..24].try_into().ok()?,
            floor: number(24)?.cast_signed(),
            turn: number(32)?,
            closed: bytes[40] == 1,
        })
    }
}

impl ReplayLog {
    /// Reads what earlier processes left. Changes nothing yet. Blocks.
    pub fn open(data: &DataDir) -> io::Result<(Self, Found)> {
        let boot = boot();
        let mut found = Found { whole: true, ..Found::default() };
        let mut files = Vec::new();
        for name in [data.seal_replay(0), data.seal_replay(1)] {
            let mut bytes = Vec::new();
            match File::open(&name) {
                Ok(mut file) => file.read_to_end(&mut bytes)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            found.any = true;
            let Some(header) = Header::read(&bytes) else {
                // Made, and killed before the header was written: nothing was acknowledged in it. Anything else that
                // has no header is damaged.
                found.whole &= bytes.len() < HEADER;
                continue;
            };
            found.whole &= header.closed || (boot.is_some() && boot == Some(header.boot));
            found.floor = found.floor.max(Some(header.floor));
            // A last entry that is cut short was never acknowledged.
            let used: Vec<Used> = bytes[HEADER..].as_chunks::<ENTRY>().0.iter().map(entry).collect();
            let last = used.iter().map(|used| used.second).max().unwrap_or(i64::MIN);
            files.push((header.turn, name, used.len() as u64, last));
            found.used.extend(used);
        }
        files.sort_unstable_by_key(|file| file.0);
        let mut log = Self {
            data: data.clone(),
            boot: boot.unwrap_or_default(),
            floor: found.floor.unwrap_or(i64::MIN),
            current: None,
            turn: 0,
            other_last: i64::MIN,
        };
        if let Some((turn, name, entries, last)) = files.pop() {
            log.turn = turn;
            log.other_last = files.pop().map_or(i64::MIN, |file| file.3);
            log.current = Some(Written { file: OpenOptions::new().write(true).open(name)?, entries, last });
        }
        Ok((log, found))
    }

    /// Begins to write: what is not known of seconds below `floor` stays unknown, and from now on the log counts as
    /// left open. With no file yet, the first entry does it.
    pub fn begin(&mut self, floor: i64) -> io::Result<()> {
        self.floor = self.floor.max(floor);
        self.write_header(false)
    }

    /// Makes the log, if there is none yet. To be called before the first session is opened: then a log that is not
    /// there, when sessions are, was lost.
    pub fn ensure(&mut self) -> io::Result<()> {
        if self.current.is_some() { Ok(()) } else { self.take_turns(i64::MIN) }
    }

    /// Writes an entry down. It is in the kernel's hands when this returns. `done` is the second before which no
    /// envelope is accepted any more.
    ///
    /// Does not wait for a disk, so it may be called on the reactor.
    pub fn append(&mut self, used: Used, done: i64) -> io::Result<()> {
        let full = self.current.as_ref().is_some_and(|current| current.entries >= TURN);
        if self.current.is_none() || (full && self.other_last < done) {
            self.take_turns(done)?;
        }
        let Some(current) = &mut self.current else { return Err(io::ErrorKind::NotFound.into()) };
        let mut bytes = [0; ENTRY];
        bytes[..32].copy_from_slice(&used.key);
        bytes[32..].copy_from_slice(&used.second.to_le_bytes());
        // At a place, not at the end: what a failed write left half done is written over by the next.
        current.file.write_all_at(&bytes, HEADER as u64 + current.entries * ENTRY as u64)?;
        current.entries += 1;
        current.last = current.last.max(used.second);
        Ok(())
    }

    /// Says that nothing is missing, whatever happens to the machine. Blocks.
    pub fn close(&mut self) -> io::Result<()> {
        if let Some(current) = &self.current {
            current.file.sync_all()?;
        }
        self.write_header(true)?;
        match &self.current {
            Some(current) => current.file.sync_all(),
            None => Ok(()),
        }
    }

    fn write_header(&self, closed: bool) -> io::Result<()> {
        let Some(current) = &self.current else { return Ok(()) };
        let header = Header { boot: self.boot, floor: self.floor, turn: self.turn, closed };
        current.file.write_all_at(&header.bytes(), 0)
    }

    fn take_turns(&mut self, done: i64) -> io::Result<()> {
        if let Some(current) = &self.current {
            self.other_last = current.last;
            self.turn += 1;
            self.floor = self.floor.max(done);
        }
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.name())?;
        self.current = Some(Written { file, entries: 0, last: i64::MIN });
        self.write_header(false)
    }

    fn name(&self) -> PathBuf {
        self.data.seal_replay(self.turn % 2)
    }
}

fn entry(bytes: &[u8; ENTRY]) -> Used {
    let (mut key, mut second) = ([0; 32], [0; 8]);
    key.copy_from_slice(&bytes[..32]);
    second.copy_from_slice(&bytes[32..]);
    Used { key, second: i64::from_le_bytes(second) }
}

/// What tells one run of the kernel from the next: writes that were not synced survive only within one.
fn boot() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.trim().chars().filter(|character| *character != '-').collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(number: u64, second: i64) -> Used {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        Used { key, second }
    }

    fn open(directory: &tempfile::TempDir) -> (ReplayLog, Found) {
        ReplayLog::open(&DataDir::open(directory.path()).unwrap()).unwrap()
    }

    #[test]
    fn files_take_turns_only_when_nothing_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, found) = open(&directory);
        assert!(found.whole && !found.any && found.used.is_empty());
        log.begin(i64::MIN).unwrap();
        // Second 0 to 9 in the first file; it is full, and the next entry goes to the other.
        for number in 0..TURN {
            log.append(used(number, (number % 10).cast_signed()), -100).unwrap();
        }
        log.append(used(TURN, 10), -90).unwrap();
        assert_eq!(log.turn, 1);
        for number in 0..TURN + 5 {
            log.append(used(TURN + 1 + number, 11), 5).unwrap();
        }
        assert_eq!(log.turn, 1, "the first file holds what may still come again");
        drop(log);
        let (mut log, found) = open(&directory);
        assert!(found.whole && found.any);
        assert_eq!(found.used.len() as u64, 2 * TURN + 6);
        log.begin(i64::MIN).unwrap();
        log.append(used(0, 40), 10).unwrap();
        assert_eq!(log.turn, 2);
        drop(log);
        let (_, found) = open(&directory);
        assert_eq!(found.used.len() as u64, TURN + 7, "the first file made room");
        assert_eq!(found.floor, Some(10), "and says up to where");
    }

    #[test]
    fn another_boot_without_a_close_is_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        for closed in [false, true] {
            let (mut log, _) = open(&directory);
            log.begin(i64::MIN).unwrap();
            log.boot = [9; 16];
            log.ensure().unwrap();
            log.begin(i64::MIN).unwrap();
            log.append(used(1, 1), 0).unwrap();
            if closed {
                log.close().unwrap();
            }
            drop(log);
            assert_eq!(open(&directory).1.whole, closed);
        }
    }
}
