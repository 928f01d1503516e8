//! The time, as the gate sees it. Tests bring a clock that they can stop and set.

use std::{fmt, sync::Arc};

use aegis_core::Timestamp;

pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Timestamp;
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// Whole Unix seconds.
pub(super) fn second(now: Timestamp) -> i64 {
    i64::try_from(now.millis() / 1000).unwrap_or(i64::MAX)
}
