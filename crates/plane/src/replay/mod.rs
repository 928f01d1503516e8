//! Recorded calls decided again, under other rules. Reads the record only: nothing is called, charged or written.
//!
//! One thread walks the log in order, because what a session has read depends on the records before; the others
//! decide. Nothing is kept but counts, a few examples, and one small entry per session.

mod hindsight;
mod labels;
mod past;
mod report;

use std::{
    borrow::Cow,
    collections::HashMap,
    ops::{ControlFlow, Range},
    panic::resume_unwind,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use aegis_core::{
    Caller, Timestamp, ToolSpec, Verdict, Violation, ViolationKind,
    verdict::{Shadow, ShadowEffect},
};
use aegis_gates::{
    ArgumentsGate, PolicyGate,
    approval::reasons,
    policy::{Circumstances, SESSION_MEMORY, SessionLabels},
};
use aegis_routes::Catalog;
use aegis_stores::audit::{LogReader, ReadError};

pub use self::report::{ByRule, Change, Example, Report, Unreadable};
use self::{
    labels::Memory,
    past::{Glance, Past, Then},
};

/// A batch is handed over when it holds this much.
const BATCH_BYTES: usize = 256 << 10;
const QUEUED: usize = 8;
/// Callers that a thread remembers between records, so that it need not read them anew each time.
const MOST_CALLERS: usize = 4096;

/// The rules to decide by.
#[derive(Debug)]
pub struct Replay<'a> {
    catalog: &'a Catalog,
    policy: &'a PolicyGate,
    arguments: ArgumentsGate,
    label_memory: Duration,
}

#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    records: Vec<(u64, Range<usize>, Arc<SessionLabels>)>,
}

impl<'a> Replay<'a> {
    /// `label_memory` is how long a caller without a session keeps what it has read (`spec.policy.label_memory`).
    pub fn new(catalog: &'a Catalog, policy: &'a PolicyGate, label_memory: Duration) -> Self {
        let arguments = ArgumentsGate::new(catalog.specs().iter().map(AsRef::as_ref));
        Self { catalog, policy, arguments, label_memory }
    }

    /// Decides every call since then again. Blocks.
    pub fn run(&self, log: &LogReader, since: Option<Timestamp>) -> Result<Report, ReadError> {
        // What was read shortly before still counts.
        let begin =
            since.map_or(Ok(0), |since| log.before(since.minus(self.label_memory.max(SESSION_MEMORY))))?;
        let (full, batches) = sync_channel(QUEUED);
        let batches = Mutex::new(batches);
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            let deciders: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.decide_all(&batches))).collect();
            let mut walk = Walk {
                since,
                memory: Memory::new(self.label_memory),
                batch: Batch::default(),
                full,
                report: Report::default(),
            };
            let walked = log.walk(begin, |seq, body| walk.pass(seq, body));
            let mut report = walk.finish();
            for decider in deciders {
                report.merge(decider.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            walked.map(|()| report)
        })
    }

    fn decide_all(&self, batches: &Mutex<Receiver<Batch>>) -> Report {
        let mut report = Report::default();
        let mut callers = Callers::default();
        loop {
            let received = batches.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(batch) = received else { return report };
            for (seq, range, labels) in batch.records {
                let body = batch.bytes.get(range).unwrap_or_default();
                let past = serde_json::from_slice::<Past<'_>>(body).ok();
                let read = past.and_then(|past| Some((callers.of(past.caller.get())?, past)));
                match read {
                    Some((caller, past)) => self.decide(&mut report, seq, &caller, &past, &labels),
                    None => report.unreadable.add(seq),
                }
            }
        }
    }
}

/// What the rules say of a call now, and which of them.
#[derive(Debug)]
enum Now {
    Allowed(String),
    Asks(String),
    Denied(String),
    Undecidable(String),
}

impl Replay<'_> {
    fn decide(
        &self,
        report: &mut Report,
        seq: u64,
        caller: &Caller,
        past: &Past<'_>,
        labels: &Arc<SessionLabels>,
    ) {
        let then = past.then();
        if then == Then::NotByRules {
            report.not_by_rules += 1;
            return;
        }
        let Some(tool) = self.catalog.resolve(&past.tool) else {
            report.unknown_tools += 1;
            return;
        };
        report.saw(past.time);
        let (now, shadows) = self.now(caller, &tool, past, labels);
        let example = || Example {
            seq,
            time: past.time,
            call: past.call,
            tool: past.tool.to_string(),
            caller: format!("{} of {} ({})", caller.user, caller.tenant, caller.context),
            was: then.as_str(),
        };
        for shadow in shadows {
            let rule = match shadow.effect {
                ShadowEffect::Deny => format!("{}: would deny", shadow.rule),
                ShadowEffect::AskApproval => format!("{}: would ask", shadow.rule),
            };
            report.would_have.add(&rule, &example());
        }
        match (then, now) {
            (_, Now::Undecidable(rule)) => report.undecidable.add(&rule, &example()),
            (Then::Denied, Now::Denied(_))
            | (Then::Asked, Now::Asks(_))
            | (Then::Allowed, Now::Allowed(_)) => report.unchanged += 1,
            (_, Now::Denied(rule)) => report.newly_denied.add(&rule, &example()),
            (_, Now::Asks(rule)) => report.newly_asking.add(&rule, &example()),
            (_, Now::Allowed(rule)) => report.newly_allowed.add(&rule, &example()),
        }
    }

    fn now(
        &self,
        caller: &Caller,
        tool: &ToolSpec,
        past: &Past<'_>,
        labels: &Arc<SessionLabels>,
    ) -> (Now, Vec<Shadow>) {
        let hidden = hindsight::hidden(tool, &past.arguments);
        let mut arguments = Cow::Borrowed(&past.arguments);
        if !hidden.is_empty() {
            arguments = Cow::Owned(hindsight::filled(&past.arguments));
        }
        let circumstances = Circumstances { labels, now: past.time, hidden: &hidden };
        let mut decision = self.policy.decide_under(caller, tool, &arguments, &circumstances);
        // A call that was refused by its tool's name alone was recorded before its arguments were looked at.
        if decision.granted.is_some() && !past.arguments_were_checked() {
            if self.arguments.check(tool, arguments.to_mut()).is_err() {
                let now = match hidden.first() {
                    None => Now::Denied(String::new()),
                    Some(argument) => Now::Undecidable(format!("the schema of `{}` ({argument})", tool.name)),
                };
                return (now, Vec::new());
            }
            decision = self.policy.decide_under(caller, tool, &arguments, &circumstances);
        }
        let named_only = |violation: &Violation| violation.kind == ViolationKind::ToolNotAllowed;
        let doubtful = !hidden.is_empty() && hindsight::loses_target(tool, &hidden, &past.arguments);
        let now = match (decision.verdict.verdict, decision.granted) {
            (Verdict::Deny(violation), _) if !doubtful || named_only(&violation) => {
                Now::Denied(violation.rule.unwrap_or_else(|| violation.kind.to_string()))
            }
            _ if doubtful => Now::Undecidable(format!("security_contexts[{}]", caller.context)),
            (Verdict::Pass { rule }, Some(granted)) => match decision.undecidable.first() {
                Some(rule) => Now::Undecidable(rule.place()),
                None => {
                    let place = &granted.grant.rule;
                    let asks = reasons(tool, &arguments, granted.approval, place, decision.asks);
                    match asks.into_iter().next() {
                        Some(ask) => Now::Asks(ask.rule),
                        None => Now::Allowed(rule.unwrap_or_default()),
                    }
                }
            },
            (Verdict::Pass { .. } | Verdict::Deny(_), _) => Now::Denied(String::new()),
        };
        (now, decision.verdict.would_have)
    }
}

/// The walking end: keeps the order, and what each session has read.
struct Walk {
    since: Option<Timestamp>,
    memory: Memory,
    batch: Batch,
    full: SyncSender<Batch>,
    report: Report,
}

impl Walk {
    fn pass(&mut self, seq: u64, body: &[u8]) -> ControlFlow<()> {
        let Ok(entry) = serde_json::from_slice::<Glance<'_>>(body) else {
            self.report.unreadable.add(seq);
            return ControlFlow::Continue(());
        };
        if entry.entry != "call" {
            return ControlFlow::Continue(());
        }
        let labels = self.memory.pass(&entry);
        if self.since.is_some_and(|since| entry.time < since) {
            return ControlFlow::Continue(());
        }
        let start = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(body);
        self.batch.records.push((seq, start..self.batch.bytes.len(), labels));
        if self.batch.bytes.len() < BATCH_BYTES { ControlFlow::Continue(()) } else { self.hand_over() }
    }

    fn hand_over(&mut self) -> ControlFlow<()> {
        // Fails only when every decider is gone, which a panic of theirs will tell.
        match self.full.send(std::mem::take(&mut self.batch)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }

    fn finish(mut self) -> Report {
        let _ = self.hand_over();
        self.report
    }
}

/// Callers by their text in the record: few of them make many calls.
#[derive(Debug, Default)]
struct Callers {
    known: HashMap<Box<str>, Arc<Caller>>,
}

impl Callers {
    fn of(&mut self, text: &str) -> Option<Arc<Caller>> {
        if let Some(caller) = self.known.get(text) {
            return Some(Arc::clone(caller));
        }
        let mut caller: Caller = serde_json::from_str(text).ok()?;
        // The question is what the rules say now, not what a session keeps of older ones.
        caller.pinned = None;
        if self.known.len() >= MOST_CALLERS {
            self.known.clear();
        }
        let caller = Arc::new(caller);
        self.known.insert(text.into(), Arc::clone(&caller));
        Some(caller)
    }
}
