//! Volumes that a running command fills. It writes past the node, so nobody books what it adds: free space is looked at
//! now and then, and the volume is measured only when that much is gone.

use crate::files::HostVolume;

/// What a file system spends beside what files hold.
const SLACK: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Gauge {
    volume: HostVolume,
    /// Free space below which the volume may be over its limit.
    least: u64,
}

impl Gauge {
    /// `None` for a volume without a limit. Blocks.
    pub(super) fn new(volume: &HostVolume) -> Option<Self> {
        let room = volume.room().ok()??;
        let least = free(volume)?.saturating_sub(room.saturating_add(SLACK));
        (least > 0).then(|| Self { volume: volume.clone(), least })
    }

    /// The volume's name when it is over its limit. Blocks.
    pub(super) fn overrun(&mut self) -> Option<String> {
        if free(&self.volume)? >= self.least {
            return None;
        }
        self.volume.forget();
        match self.volume.room() {
            Ok(Some(0)) => Some(self.volume.id().to_string()),
            // Somebody else has used the space.
            Ok(Some(room)) => {
                self.least = free(&self.volume)?.saturating_sub(room.saturating_add(SLACK));
                None
            }
            Ok(None) | Err(_) => None,
        }
    }
}

/// Bytes that are left where the volume is.
pub(super) fn free(volume: &HostVolume) -> Option<u64> {
    let space = rustix::fs::statvfs(volume.host()).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}
