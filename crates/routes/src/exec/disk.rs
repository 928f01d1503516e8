//! Volumes that a running program fills. It writes past the node, so nobody books what it adds: what the file system has
//! left, in bytes and in files, is looked at every second. The volume is measured when as much is gone as it may still hold,
//! and for programs that run long, now and then.

use std::time::{Duration, Instant};

use aegis_core::id::VolumeId;
use tokio::time::MissedTickBehavior;

use crate::files::{HostVolume, PER_ENTRY};

/// What a file system spends beside what files hold.
const SLACK: u64 = 64 << 20;
const SLACK_FILES: u64 = 4096;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// As many looks as what was measured holds for, where the file system has changed since: less than the slack can be
/// gone, and callers of the node reckon with what was measured.
const LOOKS_THAT_HOLD: u64 = 60;
/// What took long to measure holds longer, by so many times.
const PAUSE_FACTOR: u64 = 10;
/// Files that come and go can spoil a measurement. One that fails for so many looks is not bad luck.
const MOST_FAILURES: u32 = 10;

/// What the file system of a volume has left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Left {
    bytes: u64,
    /// Zero where the file system does not count them.
    files: u64,
}

impl Left {
    /// Blocks.
    pub(super) fn of(volume: &HostVolume) -> Option<Self> {
        let space = rustix::fs::statvfs(volume.host()).ok()?;
        Some(Self { bytes: space.f_bavail.saturating_mul(space.f_frsize), files: space.f_favail })
    }

    /// What has gone since, as quotas count it.
    pub(super) fn gone_since(self, before: Self) -> u64 {
        let files = before.files.saturating_sub(self.files);
        before.bytes.saturating_sub(self.bytes).saturating_add(files.saturating_mul(PER_ENTRY))
    }

    /// What must be left while no more than `room` is used up.
    fn least(self, room: u64) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(room.saturating_add(SLACK)),
            files: self.files.saturating_sub((room / PER_ENTRY).saturating_add(SLACK_FILES)),
        }
    }

    fn most(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    fn is_below(self, least: Self) -> bool {
        self.bytes < least.bytes || self.files < least.files
    }
}

/// What was found when a volume was measured.
#[derive(Debug, Clone, Copy)]
struct Measured {
    room: u64,
    left: Left,
    took: Duration,
}

/// Why a program must not go on: what it did, as the rest of a sentence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Overrun {
    #[error("filled the volume `{0}` beyond its size limit")]
    Full(VolumeId),
    /// A limit that nobody can hold it to is none.
    #[error("kept the volume `{0}` from being measured")]
    Unmeasurable(VolumeId),
}

#[derive(Debug)]
struct Gauge {
    volume: HostVolume,
    /// `None` makes the next look measure.
    measured: Option<Measured>,
    /// The most that was left since then: what others free meanwhile is no room for this volume.
    most_left: Left,
    looks: u64,
    failures: u32,
}

impl Gauge {
    /// `None` for a volume without a limit. Blocks.
    fn new(volume: &HostVolume) -> Option<Self> {
        let began = Instant::now();
        let room = match volume.room() {
            Ok(None) => return None,
            Ok(Some(room)) => Some(room),
            Err(_) => None,
        };
        let (took, left) = (began.elapsed(), Left::of(volume));
        Some(Self {
            volume: volume.clone(),
            measured: room.zip(left).map(|(room, left)| Measured { room, left, took }),
            most_left: left.unwrap_or_default(),
            looks: 0,
            failures: 0,
        })
    }

    /// Blocks.
    fn overrun(&mut self) -> Option<Overrun> {
        let left = Left::of(&self.volume)?;
        self.looks += 1;
        self.most_left = self.most_left.most(left);
        if self.measured.is_some_and(|measured| self.holds(measured, left)) {
            return None;
        }
        self.volume.forget();
        let began = Instant::now();
        match self.volume.room() {
            Ok(Some(0)) => Some(Overrun::Full(self.volume.id().clone())),
            Ok(Some(room)) => {
                self.measured = Some(Measured { room, left, took: began.elapsed() });
                (self.most_left, self.looks, self.failures) = (left, 0, 0);
                None
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(volume = %self.volume.id(), %error, "a volume that a program writes to can't be measured");
                self.measured = None;
                self.failures += 1;
                (self.failures >= MOST_FAILURES).then(|| Overrun::Unmeasurable(self.volume.id().clone()))
            }
        }
    }

    /// Whether the volume can't be over its limit by more than the slack.
    fn holds(&self, measured: Measured, left: Left) -> bool {
        let looks = LOOKS_THAT_HOLD.max(measured.took.as_secs().saturating_mul(PAUSE_FACTOR));
        let is_recent = self.looks < looks || left == measured.left;
        is_recent && !left.is_below(self.most_left.least(measured.room))
    }
}

/// Why a program that writes to these volumes must not start, if it must not. Blocks.
pub(crate) fn refused(volumes: &[HostVolume]) -> Option<String> {
    volumes.iter().find_map(|volume| {
        // What others have written past the node counts, too.
        volume.forget();
        match volume.room() {
            Ok(Some(0)) => Some(format!("the volume at {} is full: delete files there", volume.mount_path())),
            Ok(_) => None,
            Err(error) => Some(format!("the volume at {} can't be measured: {error}", volume.mount_path())),
        }
    })
}

/// Ends when one of the volumes is over its limit.
pub(crate) async fn overrun(volumes: Vec<HostVolume>) -> Overrun {
    let gauges =
        tokio::task::spawn_blocking(move || volumes.iter().filter_map(Gauge::new).collect::<Vec<_>>());
    let mut gauges = gauges.await.unwrap_or_default();
    if gauges.is_empty() {
        return std::future::pending().await;
    }
    let mut ticks = tokio::time::interval(BETWEEN_LOOKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looked = tokio::task::spawn_blocking(move || {
            let over = gauges.iter_mut().find_map(Gauge::overrun);
            (gauges, over)
        });
        match looked.await {
            Ok((_, Some(overrun))) => return overrun,
            Ok((kept, None)) => gauges = kept,
            Err(_) => return std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_as_bytes_do() {
        let before = Left { bytes: 10 << 30, files: 1 << 20 };
        let least = before.least(1 << 30);
        assert!(!before.is_below(least));
        assert!(!Left { bytes: 9 << 30, ..before }.is_below(least));
        assert!(Left { bytes: 8 << 30, ..before }.is_below(least));
        // A limit of so many bytes is one of so many empty files, too.
        let empty = |files: u64| Left { files: before.files - files, ..before };
        assert!(!empty((1 << 30) / PER_ENTRY).is_below(least));
        assert!(empty((1 << 30) / PER_ENTRY + SLACK_FILES + 1).is_below(least));
        assert_eq!(
            Left { bytes: (10 << 30) - 5, files: before.files - 2 }.gone_since(before),
            5 + 2 * PER_ENTRY
        );
    }

    #[test]
    fn a_file_system_that_counts_no_files_is_judged_by_its_bytes() {
        let before = Left { bytes: 10 << 30, files: 0 };
        assert!(!before.is_below(before.least(1 << 30)));
        assert!(Left { bytes: 1, files: 0 }.is_below(before.least(1 << 30)));
    }
}
