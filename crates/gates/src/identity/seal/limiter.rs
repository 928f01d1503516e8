//! How often somebody may ask. A bucket per name that fills again evenly, in bounded memory.

use std::{collections::HashMap, hash::Hash};

use aegis_core::Timestamp;

/// Names per generation; two generations are held.
const GENERATION: usize = 8192;

#[derive(Debug)]
pub(super) struct Limiter<K> {
    per_minute: u32,
    young: HashMap<K, Bucket>,
    old: HashMap<K, Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// In milliseconds of refilling, so that no fraction is lost.
    level: u64,
    at: Timestamp,
}

const MINUTE: u64 = 60_000;

impl<K: Hash + Eq + Clone> Limiter<K> {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.max(1), young: HashMap::new(), old: HashMap::new() }
    }

    /// Takes one, or says after how many seconds there will be one.
    pub(super) fn take(&mut self, name: &K, now: Timestamp) -> Result<(), u64> {
        let cost = (MINUTE / u64::from(self.per_minute)).max(1);
        let full = cost * u64::from(self.per_minute);
        let known = self.young.get(name).copied().or_else(|| self.old.remove(name));
        let mut bucket = known.unwrap_or(Bucket { level: full, at: now });
        // A clock that was set back refills nothing.
        let passed = now.millis().saturating_sub(bucket.at.millis());
        bucket.level = bucket.level.saturating_add(passed).min(full);
        bucket.at = now;
        let taken = match bucket.level.checked_sub(cost) {
            Some(left) => {
                bucket.level = left;
                Ok(())
            }
            None => Err((cost - bucket.level).div_ceil(1000).max(1)),
        };
        if self.young.len() >= GENERATION && !self.young.contains_key(name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name.clone(), bucket);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_empties_and_fills_again() {
        let mut limiter = Limiter::new(3);
        let mut now = Timestamp::from_millis(1_000_000);
        for _ in 0..3 {
            assert_eq!(limiter.take(&"a", now), Ok(()));
        }
        assert_eq!(limiter.take(&"a", now), Err(20));
        assert_eq!(limiter.take(&"b", now), Ok(()));
        now = now.minus(Duration::from_secs(500));
        assert!(limiter.take(&"a", now).is_err(), "a clock that goes back gives nothing");
        now = now.plus(Duration::from_secs(20));
        assert_eq!(limiter.take(&"a", now), Ok(()));
        assert!(limiter.take(&"a", now).is_err());
    }

    #[test]
    fn any_number_of_names_fits() {
        let mut limiter = Limiter::new(1);
        for number in 0..10 * GENERATION {
            assert_eq!(limiter.take(&number, Timestamp::from_millis(0)), Ok(()));
            assert!(limiter.young.len() + limiter.old.len() <= 2 * GENERATION);
        }
    }
}
