//! Handles and mount paths that give no right. Each is an event; the audit log gets as many as a person would read, and
//! how many there were beyond.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const WINDOW: Duration = Duration::from_secs(60);
const MOST_RECORDED: u64 = 20;

#[derive(Debug)]
pub(super) struct Alarm {
    window: Mutex<(Instant, u64)>,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { window: Mutex::new((Instant::now(), 0)) }
    }
}

impl Alarm {
    /// Whether to record this one, and how many went unrecorded before.
    pub(super) fn count(&self) -> Option<u64> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = &mut *window;
        let mut missed = 0;
        if since.elapsed() > WINDOW {
            missed = count.saturating_sub(MOST_RECORDED);
            (*since, *count) = (Instant::now(), 0);
        }
        *count += 1;
        (*count <= MOST_RECORDED).then_some(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_not_recorded() {
        let alarm = Alarm::default();
        let recorded = (0..1000).filter(|_| alarm.count().is_some()).count() as u64;
        assert_eq!(recorded, MOST_RECORDED);
    }
}
