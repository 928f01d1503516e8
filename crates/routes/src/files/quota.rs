//! How much a volume may hold. Writers reserve what they will add before they write, so that several at once
//! can't pass the limit together.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::error::FileError;

/// Measuring a volume this fast is always worth it before a refusal.
const CHEAP: Duration = Duration::from_millis(100);
/// Measuring a volume this fast can be done before every command.
const QUICK: Duration = Duration::from_millis(2);
/// A slower measurement is repeated only after so many times its own duration: a caller at the limit can't keep
/// the node counting.
const PAUSE_FACTOR: u32 = 10;

/// What each file and directory takes up beside its bytes, about what a file system spends on one: without it, empty
/// ones could fill the disk's tables for nothing.
pub const PER_ENTRY: u64 = 4096;

#[derive(Debug)]
pub struct Quota {
    limit: Option<u64>,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// `None` until the first change asks.
    used: Option<u64>,
    reserved: u64,
    measured: Option<Measured>,
}

#[derive(Debug)]
struct Measured {
    at: Instant,
    took: Duration,
}

impl Quota {
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, ledger: Mutex::default() }
    }

    /// Sets room aside for replacing `old` bytes with `new`. Shrinking is always allowed, also above the limit.
    ///
    /// What is in use is measured on first need, and once more before a refusal, since files can change behind
    /// the node's back.
    pub fn reserve(
        &self,
        new: u64,
        old: u64,
        measure: &dyn Fn() -> Result<u64, FileError>,
    ) -> Result<Reservation<'_>, FileError> {
        let growth = new.saturating_sub(old);
        let mut reservation = Reservation { quota: self, new, old, growth, open: false };
        let Some(limit) = self.limit else {
            return Ok(reservation);
        };
        let mut ledger = self.ledger();
        let mut used = match ledger.used {
            Some(used) => used,
            None => ledger.measure(measure)?,
        };
        let reserved = ledger.reserved;
        let fits = |used: u64| used.saturating_add(reserved).saturating_add(growth) <= limit;
        if growth > 0 && !fits(used) {
            if ledger.may_measure_again() {
                used = ledger.measure(measure)?;
            }
            if !fits(used) {
                return Err(FileError::QuotaExceeded { limit, used, growth });
            }
        }
        ledger.reserved += growth;
        reservation.open = true;
        Ok(reservation)
    }

    /// What is in use has changed by other hands: it is measured at the next need.
    pub fn forget(&self) {
        self.ledger().used = None;
    }

    /// Other hands have made it grow by about so much. Where measuring takes long, that is taken for the truth until a
    /// refusal hangs on it.
    pub fn grew(&self, bytes: u64) {
        let mut ledger = self.ledger();
        let quick = ledger.measured.as_ref().is_none_or(|last| last.took < QUICK);
        ledger.used = ledger.used.filter(|_| !quick).map(|used| used.saturating_add(bytes));
    }

    /// The limit and what is in use, where there is a limit.
    pub fn limit_and_use(
        &self,
        measure: &dyn Fn() -> Result<u64, FileError>,
    ) -> Result<Option<(u64, u64)>, FileError> {
        let Some(limit) = self.limit else { return Ok(None) };
        let mut ledger = self.ledger();
        let used = match ledger.used {
            Some(used) => used,
            None => ledger.measure(measure)?,
        };
        Ok(Some((limit, used.saturating_add(ledger.reserved))))
    }

    /// Gives back what deleted files held.
    pub fn release(&self, bytes: u64) {
        let mut ledger = self.ledger();
        ledger.used = ledger.used.map(|used| used.saturating_sub(bytes));
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn measure(&mut self, measure: &dyn Fn() -> Result<u64, FileError>) -> Result<u64, FileError> {
        let start = Instant::now();
        let used = measure()?;
        self.used = Some(used);
        self.measured = Some(Measured { at: Instant::now(), took: start.elapsed() });
        Ok(used)
    }

    fn may_measure_again(&self) -> bool {
        self.measured
            .as_ref()
            .is_none_or(|last| last.took < CHEAP || last.at.elapsed() > last.took * PAUSE_FACTOR)
    }
}

/// Room set aside. Dropped without [`Reservation::commit`], it is free again.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'a> {
    quota: &'a Quota,
    new: u64,
    old: u64,
    growth: u64,
    open: bool,
}

impl Reservation<'_> {
    /// Does the deed that makes the new bytes count. Nobody measures the volume between deed and booking, so no
    /// byte counts twice.
    pub fn commit<T, E>(mut self, deed: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        if !self.open {
            return deed();
        }
        let mut ledger = self.quota.ledger();
        let done = deed();
        self.open = false;
        ledger.reserved = ledger.reserved.saturating_sub(self.growth);
        if done.is_ok() {
            ledger.used = ledger.used.map(|used| used.saturating_add(self.new).saturating_sub(self.old));
        }
        done
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.open {
            let mut ledger = self.quota.ledger();
            ledger.reserved = ledger.reserved.saturating_sub(self.growth);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn reservations_count_until_committed_or_dropped() {
        let quota = Quota::new(Some(100));
        let measure = || Ok(40);
        let first = quota.reserve(50, 0, &measure).unwrap();
        assert!(matches!(
            quota.reserve(11, 0, &measure),
            Err(FileError::QuotaExceeded { limit: 100, used: 40, growth: 11 })
        ));
        drop(first);
        quota.reserve(60, 0, &measure).unwrap().commit(|| Ok::<_, FileError>(())).unwrap();
        // A failed deed leaves nothing booked.
        quota.release(60);
        let failed: Result<(), FileError> =
            quota.reserve(60, 0, &measure).unwrap().commit(|| Err(FileError::DiskFull));
        assert!(failed.is_err());
        drop(quota.reserve(60, 0, &measure).unwrap());
    }

    #[test]
    fn replacing_counts_the_old_bytes_back_and_shrinking_is_always_allowed() {
        let quota = Quota::new(Some(100));
        let used = AtomicU64::new(200);
        let measure = || Ok(used.load(Ordering::Relaxed));
        quota.reserve(50, 60, &measure).unwrap().commit(|| Ok::<_, FileError>(())).unwrap();
        assert!(quota.reserve(51, 50, &measure).is_err());
        used.store(95, Ordering::Relaxed);
        quota.reserve(55, 50, &measure).unwrap().commit(|| Ok::<_, FileError>(())).unwrap();
        assert!(quota.reserve(1, 0, &|| Ok(100)).is_err());
    }

    #[test]
    fn no_limit_never_measures() {
        let quota = Quota::new(None);
        let reservation = quota.reserve(u64::MAX, 0, &|| Err(FileError::NotFound)).unwrap();
        reservation.commit(|| Ok::<_, FileError>(())).unwrap();
    }
}
