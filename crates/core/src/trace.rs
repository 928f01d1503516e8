//! Calls as traces of them see them: where a call stands in somebody's trace (W3C Trace Context), and how long each part
//! of it took.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{id::CallId, record::CallRecord, tool::Route, verdict::Gate};

/// Longer `tracestate` headers are dropped, as the specification allows.
const LONGEST_STATE: usize = 512;

/// The trace that a caller is in, and its own place there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    trace: [u8; 16],
    parent: [u8; 8],
    sampled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<String>,
}

impl TraceContext {
    /// Reads the headers `traceparent` and `tracestate`. What is not well formed is no context at all: the call then
    /// begins a trace of its own.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut parts = parent.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = bytes::<1>(version)?[0];
        // Later versions may add parts; the first has exactly four.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let (trace, parent, flags) = (bytes::<16>(trace)?, bytes::<8>(span)?, bytes::<1>(flags)?[0]);
        if trace == [0; 16] || parent == [0; 8] {
            return None;
        }
        let state = state
            .map(str::trim)
            .filter(|state| {
                (1..=LONGEST_STATE).contains(&state.len())
                    && state.bytes().all(|b| (b' '..=b'~').contains(&b))
            })
            .map(str::to_owned);
        Some(Self { trace, parent, sampled: flags & 1 == 1, state })
    }

    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// Where a call stands: in the caller's trace, or at the beginning of one that bears the call's own id, so that it leads
/// to the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub sampled: bool,
}

impl Place {
    pub fn of(call: CallId, context: Option<&TraceContext>) -> Self {
        let id = call.as_bytes();
        let mut span = [0; 8];
        span.copy_from_slice(&id[8..]);
        match context {
            Some(context) => {
                Self { trace: context.trace, span, parent: Some(context.parent), sampled: context.sampled }
            }
            None => Self { trace: id, span, parent: None, sampled: true },
        }
    }

    /// `traceparent` for what the call asks of others.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", Hex(&self.trace), Hex(&self.span), u8::from(self.sampled))
    }

    /// A part of the call, as a span of its own.
    pub fn part(&self, number: u64) -> [u8; 8] {
        // An odd factor gives every part another id, and none of them is the call's.
        let mixed = u64::from_be_bytes(self.span) ^ (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.max(1).to_be_bytes()
    }
}

/// Bytes in hexadecimal.
#[derive(Debug)]
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    if text.len() != N * 2 || !text.bytes().all(lower) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// What took its time in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Gate(Gate),
    Route(Route),
}

/// A part, from when to when since the call began.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    pub part: Part,
    pub from: Duration,
    pub to: Duration,
}

/// A call that has ended.
#[derive(Debug)]
pub struct CallSpan<'a> {
    pub record: &'a CallRecord,
    pub context: Option<&'a TraceContext>,
    pub parts: &'a [Timed],
    pub took: Duration,
}

/// Takes in calls that have ended. Never makes one wait.
pub trait Spans: fmt::Debug + Send + Sync {
    /// Whether anybody wants them; without, nothing is measured.
    fn is_on(&self) -> bool;

    fn ended(&self, call: &CallSpan<'_>);
}

/// Nobody traces.
#[derive(Debug, Clone, Copy)]
pub struct NoSpans;

impl Spans for NoSpans {
    fn is_on(&self) -> bool {
        false
    }

    fn ended(&self, _: &CallSpan<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_callers_trace_goes_on() {
        let context = TraceContext::parse(PARENT, Some("vendor=1")).unwrap();
        assert!(context.is_sampled());
        assert_eq!(context.state(), Some("vendor=1"));
        let call = CallId::fresh();
        let place = Place::of(call, Some(&context));
        assert!(place.traceparent().starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert!(place.traceparent().ends_with("-01"));
        assert_eq!(place.parent, Some([0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]));
        assert_ne!(place.part(0), place.part(1));
        let own = Place::of(call, None);
        assert_eq!(Hex(&own.trace).to_string(), call.to_string().replace('-', ""));
    }

    #[test]
    fn what_is_no_context_is_left_alone() {
        for text in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(text, None), None, "{text}");
        }
        let later = format!("01{}-more", &PARENT[2..]);
        assert!(TraceContext::parse(&later, None).is_some());
        assert_eq!(TraceContext::parse(PARENT, Some(&"x".repeat(600))).unwrap().state(), None);
    }
}
