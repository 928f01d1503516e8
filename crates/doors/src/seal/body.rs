//! Bodies of people nobody knows yet. A small one is read whenever a request is let in at all; larger ones share a
//! budget, so that strangers who send much and slowly keep out each other and nobody else.

use aegis_core::{Violation, ViolationKind};
use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Enough for any call but one that carries a file.
const SMALL: usize = 64 << 10;
/// What all larger bodies may hold at once, in KiB.
const BUDGET: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Bodies {
    budget: Semaphore,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { budget: Semaphore::new(BUDGET) }
    }
}

/// A whole body, and its share of the budget for as long as it is held.
#[derive(Debug)]
pub(super) struct Whole<'a> {
    pub(super) bytes: Bytes,
    _share: Option<SemaphorePermit<'a>>,
}

/// Why there is no body, and the status where it is not the violation's own.
#[derive(Debug)]
pub(super) struct NoBody {
    pub(super) violation: Violation,
    pub(super) status: Option<StatusCode>,
}

impl From<Violation> for NoBody {
    fn from(violation: Violation) -> Self {
        Self { violation, status: None }
    }
}

impl Bodies {
    /// Reads a body of at most `limit` bytes, within `patience`.
    pub(super) async fn whole(
        &self,
        body: Body,
        limit: usize,
        rule: &str,
        patience: std::time::Duration,
    ) -> Result<Whole<'_>, NoBody> {
        let late = || NoBody {
            violation: Violation::new(
                ViolationKind::MalformedRequest,
                format!("the body did not arrive whole within {} s", patience.as_secs()),
            )
            .rule("spec.network.body_timeout"),
            status: Some(StatusCode::REQUEST_TIMEOUT),
        };
        tokio::time::timeout(patience, self.read(body, limit, rule)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn read(&self, mut body: Body, limit: usize, rule: &str) -> Result<Whole<'_>, NoBody> {
        let too_large = || {
            Violation::new(ViolationKind::RequestTooLarge, format!("the body is larger than {limit} bytes"))
                .rule(rule)
        };
        if http_body::Body::size_hint(&body).lower() > limit as u64 {
            return Err(too_large().into());
        }
        let mut first = Bytes::new();
        let mut joined: Vec<u8> = Vec::new();
        let mut share: Option<SemaphorePermit<'_>> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Violation::new(
                    ViolationKind::MalformedRequest,
                    format!("the body did not arrive whole: {error}"),
                )
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let length = first.len() + joined.len() + data.len();
            if length > limit {
                return Err(too_large().into());
            }
            if length > SMALL {
                self.grow(&mut share, length.div_ceil(1024))?;
            }
            if first.is_empty() && joined.is_empty() {
                // Most bodies come in one piece, and are not copied.
                first = data;
            } else {
                joined.extend_from_slice(&std::mem::take(&mut first));
                joined.extend_from_slice(&data);
            }
        }
        let bytes = if joined.is_empty() { first } else { joined.into() };
        Ok(Whole { bytes, _share: share })
    }

    /// Makes a share as large as `wanted` KiB.
    fn grow<'a>(&'a self, share: &mut Option<SemaphorePermit<'a>>, wanted: usize) -> Result<(), Violation> {
        let held = share.as_ref().map_or(0, SemaphorePermit::num_permits);
        let more = u32::try_from(wanted.saturating_sub(held)).unwrap_or(u32::MAX);
        let Ok(more) = self.budget.try_acquire_many(more) else {
            return Err(Violation::new(ViolationKind::Overloaded, "too many large envelopes are being read")
                .hint("try again shortly")
                .retry_after(1));
        };
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use super::*;

    fn pieces(count: usize, size: usize) -> Body {
        let pieces = (0..count).map(move |_| Ok::<_, Infallible>(vec![b'x'; size]));
        Body::from_stream(futures::stream::iter(pieces))
    }

    async fn read(bodies: &Bodies, body: Body, limit: usize) -> Result<usize, NoBody> {
        bodies.whole(body, limit, "a rule", Duration::from_secs(30)).await.map(|whole| whole.bytes.len())
    }

    #[tokio::test]
    async fn bodies_are_joined_and_limited() {
        let bodies = Bodies::default();
        assert_eq!(read(&bodies, Body::empty(), 10).await.unwrap(), 0);
        assert_eq!(read(&bodies, Body::from("hello"), 5).await.unwrap(), 5);
        assert_eq!(read(&bodies, pieces(100, 4096), 1 << 20).await.unwrap(), 409_600);
        for body in [Body::from("hello!"), pieces(6, 1)] {
            let refused = read(&bodies, body, 5).await.unwrap_err();
            assert_eq!(refused.violation.kind, ViolationKind::RequestTooLarge);
        }
        assert_eq!(bodies.budget.available_permits(), BUDGET, "everything was given back");
    }

    #[tokio::test]
    async fn only_large_bodies_need_a_share() {
        let bodies = Bodies::default();
        let _taken = bodies.budget.try_acquire_many(BUDGET as u32).unwrap();
        assert_eq!(read(&bodies, pieces(16, 4096), 1 << 20).await.unwrap(), SMALL);
        let refused = read(&bodies, pieces(17, 4096), 1 << 20).await.unwrap_err();
        assert_eq!(refused.violation.kind, ViolationKind::Overloaded);
    }

    #[tokio::test]
    async fn a_share_lasts_as_long_as_the_body() {
        let bodies = Bodies::default();
        let whole = bodies.whole(pieces(2, SMALL), 1 << 20, "", Duration::from_secs(30)).await.unwrap();
        assert_eq!(bodies.budget.available_permits(), BUDGET - 128);
        drop(whole);
        assert_eq!(bodies.budget.available_permits(), BUDGET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_comes_is_given_up() {
        let never = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, Infallible>>());
        let refused = read(&Bodies::default(), never, 10).await.unwrap_err();
        assert_eq!(refused.status, Some(StatusCode::REQUEST_TIMEOUT));
    }
}
