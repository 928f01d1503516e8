//! Instants on the wall clock, in milliseconds, written as RFC 3339 in UTC.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// The last instant RFC 3339 can write with four digits of year; later ones are held here.
const LATEST: u64 = 253_402_300_799_999;

impl Timestamp {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_millis(u64::try_from(since.as_millis()).unwrap_or(LATEST))
    }

    pub fn from_millis(millis: u64) -> Self {
        Self(millis.min(LATEST))
    }

    pub fn millis(self) -> u64 {
        self.0
    }

    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(LATEST)))
    }

    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(LATEST)))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let time = humantime::parse_rfc3339_weak(text).ok()?;
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        Some(Self::from_millis(u64::try_from(since.as_millis()).ok()?))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(self.0)).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is no RFC 3339 time in UTC")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_through_text() {
        let time = Timestamp::from_millis(1_771_338_721_583);
        assert_eq!(time.to_string(), "2026-02-17T14:32:01.583Z");
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn far_future_is_held_at_the_last_writable_instant() {
        let end = Timestamp::from_millis(u64::MAX).plus(Duration::from_secs(u64::MAX));
        assert_eq!(end.to_string(), "9999-12-31T23:59:59.999Z");
    }
}
