//! The trace of what was refused before there was a caller. Anybody can send such requests without end, so the record
//! must not grow with them: so many a minute are recorded one by one, and the rest of that minute as one number per
//! violation.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aegis_core::{
    Event, Timestamp, Violation, ViolationKind,
    event::EventName,
    record::{Entry, NodeRecord},
    redact,
};
use serde_json::{Map, Value};

use crate::Doors;

/// An envelope was refused.
pub(super) const ENVELOPE: &str = "seal-refused";
pub(super) const ATTESTATION: &str = "seal-attestation-refused";

const WINDOW: Duration = Duration::from_secs(60);
/// Recorded one by one in each window.
const EACH: u32 = 60;

#[derive(Debug)]
pub(super) struct Refusals {
    window: Arc<Mutex<Window>>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    recorded: u32,
    /// How many more there were, by violation: as many rows as there are kinds.
    uncounted: BTreeMap<ViolationKind, u64>,
}

/// What to do about one refusal.
#[derive(Debug, PartialEq, Eq)]
enum Trace {
    Record,
    /// The first that is only counted: somebody must write the number down when the window ends.
    CountAndReport(Duration),
    Count,
}

impl Window {
    fn new(now: Instant) -> Self {
        Self { began: now, recorded: 0, uncounted: BTreeMap::new() }
    }

    fn take(&mut self, now: Instant, kind: ViolationKind) -> Trace {
        let end = self.began + WINDOW;
        // With numbers still to be reported, the window goes on until they are.
        if now >= end && self.uncounted.is_empty() {
            *self = Self::new(now);
        }
        if self.recorded < EACH {
            self.recorded += 1;
            return Trace::Record;
        }
        let first = self.uncounted.is_empty();
        *self.uncounted.entry(kind).or_default() += 1;
        if first { Trace::CountAndReport(end.saturating_duration_since(now)) } else { Trace::Count }
    }

    fn close(&mut self, now: Instant) -> BTreeMap<ViolationKind, u64> {
        std::mem::replace(self, Self::new(now)).uncounted
    }
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self { window: Arc::new(Mutex::new(Window::new(Instant::now()))) }
    }

    /// Counts a refusal, tells listeners and leaves its trace in the audit log. `action` says what was refused,
    /// `claimed` whom it said to be from, which nobody has checked.
    pub(super) async fn take(
        &self,
        doors: &Arc<Doors>,
        action: &str,
        violation: &Violation,
        claimed: Map<String, Value>,
    ) {
        doors.plane.meters().refused(violation.kind);
        let name = if action == ATTESTATION {
            EventName::AttestationFailed
        } else {
            EventName::SignatureVerificationFailed
        };
        let event = Event::new(name)
            .with("violation", violation.kind.as_str())
            .with("message", violation.message.as_str());
        doors.plane.bus().announce_node(event);
        let trace = lock(&self.window).take(Instant::now(), violation.kind);
        match trace {
            Trace::Count => {}
            Trace::Record => {
                let mut detail = claimed;
                detail.insert("violation".into(), violation.kind.as_str().into());
                detail.insert("message".into(), redact::message(&violation.message).into());
                write(doors, action, detail).await;
            }
            Trace::CountAndReport(rest) => self.report_in(doors, rest),
        }
    }

    /// Writes the numbers down when the window ends, or the node does.
    fn report_in(&self, doors: &Arc<Doors>, rest: Duration) {
        let window = Arc::clone(&self.window);
        let held = Arc::clone(doors);
        doors.plane.see_through(async move {
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                () = held.stopping.cancelled() => {}
            }
            let counted = lock(&window).close(Instant::now());
            let by_kind: Map<String, Value> =
                counted.into_iter().map(|(kind, count)| (kind.to_string(), count.into())).collect();
            let detail = Map::from_iter([("further".to_owned(), Value::Object(by_kind))]);
            write(&held, ENVELOPE, detail).await;
        });
    }
}

/// Not waited for: what was refused stays refused whether or not it can be recorded, and a node whose log can't be
/// written refuses everything else anyway.
async fn write(doors: &Doors, action: &str, detail: Map<String, Value>) {
    let record = NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller: None, detail };
    if let Err(error) = doors.plane.audit().record(&Entry::Node(record)).await {
        tracing::error!(%error, "a refused envelope could not be recorded");
    }
}

fn lock(window: &Mutex<Window>) -> MutexGuard<'_, Window> {
    window.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ViolationKind = ViolationKind::SignatureVerificationFailed;

    #[test]
    fn a_flood_becomes_a_number() {
        let start = Instant::now();
        let mut window = Window::new(start);
        for _ in 0..EACH {
            assert_eq!(window.take(start, KIND), Trace::Record);
        }
        let soon = start + Duration::from_secs(20);
        assert_eq!(window.take(soon, KIND), Trace::CountAndReport(Duration::from_secs(40)));
        for _ in 0..1_000_000 {
            assert_eq!(window.take(soon, KIND), Trace::Count);
        }
        // Late, but not yet reported: nothing is forgotten.
        assert_eq!(window.take(start + 2 * WINDOW, ViolationKind::TokenInvalid), Trace::Count);
        let counted = window.close(start + 2 * WINDOW);
        assert_eq!(counted.into_values().collect::<Vec<_>>(), [1_000_001, 1]);
        assert_eq!(window.take(start + 2 * WINDOW, KIND), Trace::Record);
    }

    #[test]
    fn quiet_times_begin_anew() {
        let start = Instant::now();
        let mut window = Window::new(start);
        for minute in 0..100 {
            let now = start + minute * WINDOW;
            assert!((0..EACH).all(|_| window.take(now, KIND) == Trace::Record), "{minute}");
        }
    }
}
