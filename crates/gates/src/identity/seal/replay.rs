//! An envelope may be used once.
//!
//! The rule that all of this keeps: an envelope is accepted only when it is certain that it was not accepted before.
//! What was accepted is held by the second it was signed for, until that second is out of the window for good. Where
//! that knowledge has a gap, envelopes that could be in the gap are refused:
//!
//! - After a restart the log says what was accepted; it survives `kill -9`. Only when the machine itself went down
//!   without warning may entries be missing: then every envelope signed for a time up to the start plus the window is
//!   refused, because any of them might have been accepted before.
//! - When the clock is set back by more than the window, seconds come round again that were let go already.
//!
//! Both gaps concern only sessions from before: a session opened since has a token that no earlier envelope can carry.
//! So each session knows in which era it was opened, and one of an earlier era must stay above the floor. To attest
//! again is always a way out.

use std::{
    collections::{BTreeMap, HashSet},
    io,
};

use aegis_stores::replay::{Found, ReplayLog, Used};

/// Envelopes held at once. More than signatures can be checked within two windows; when it is full, the gate refuses
/// rather than forgets.
pub(super) const MOST: usize = 1 << 20;

/// Why an envelope is not accepted.
#[derive(Debug)]
pub(super) enum Unaccepted {
    /// It may have been accepted before, and nobody can know any more.
    Unknowable,
    /// It was accepted before.
    Seen,
    Full,
    Log(io::Error),
}

#[derive(Debug)]
pub(super) struct Replay {
    log: ReplayLog,
    window: i64,
    most: usize,
    held: usize,
    seconds: BTreeMap<i64, HashSet<[u8; 32]>>,
    /// The latest time the clock has shown since it was last set back.
    latest: i64,
    /// Sessions of earlier eras may not go below this second.
    floor: i64,
    era: u64,
}

impl Replay {
    /// Takes up where the log ended. `sessions` says whether there are any from before.
    pub(super) fn new(
        mut log: ReplayLog,
        found: Found,
        sessions: bool,
        window: i64,
        most: usize,
        now: i64,
    ) -> io::Result<Self> {
        let gap = !found.whole || (sessions && !found.any);
        let mut floor = found.floor.unwrap_or(i64::MIN);
        if gap {
            floor = floor.max(now + window + 1);
        }
        log.begin(floor)?;
        let mut replay =
            Self { log, window, most, held: 0, seconds: BTreeMap::new(), latest: now, floor, era: 1 };
        for used in found.used {
            if used.second >= now - window - 1 {
                replay.hold(used);
            }
        }
        Ok(replay)
    }

    /// The era of a session that is opened now.
    pub(super) fn era(&mut self, now: i64) -> io::Result<u64> {
        self.log.ensure()?;
        self.tell_time(now);
        Ok(self.era)
    }

    /// Accepts an envelope for the only time. To be called once its signature has been found good.
    pub(super) fn accept(&mut self, used: Used, era: u64, now: i64) -> Result<(), Unaccepted> {
        self.tell_time(now);
        // Against the latest time, not the present one: a clock that goes back a little brings nothing back.
        if used.second < self.latest - self.window || (era < self.era && used.second < self.floor) {
            return Err(Unaccepted::Unknowable);
        }
        if self.seconds.get(&used.second).is_some_and(|keys| keys.contains(&used.key)) {
            return Err(Unaccepted::Seen);
        }
        if self.held >= self.most {
            return Err(Unaccepted::Full);
        }
        self.log.append(used, self.done()).map_err(Unaccepted::Log)?;
        self.hold(used);
        Ok(())
    }

    pub(super) fn close(&mut self) -> io::Result<()> {
        self.log.close()
    }

    fn hold(&mut self, used: Used) {
        if self.seconds.entry(used.second).or_default().insert(used.key) {
            self.held += 1;
        }
    }

    /// Seconds before this one are out of the window, with one to spare.
    fn done(&self) -> i64 {
        self.latest - self.window - 1
    }

    fn tell_time(&mut self, now: i64) {
        if now < self.latest - self.window {
            self.floor = self.floor.max(self.latest - self.window);
            self.era += 1;
            self.latest = now;
        } else if now > self.latest {
            self.latest = now;
            while let Some(oldest) = self.seconds.first_entry()
                && *oldest.key() < now - self.window - 1
            {
                self.held -= oldest.remove().len();
            }
        }
    }
}
