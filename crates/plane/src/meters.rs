//! Counters of what passed through, for `/metrics`. Labels come from the catalog and from enums, so their number is
//! bounded whatever callers send.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aegis_core::{ToolSpec, ViolationKind, record::CallResult};

/// Upper bounds of the histogram's buckets, in microseconds.
const BUCKETS: [u64; 12] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];
/// Names of tools of MCP servers that are counted by themselves; further ones are counted together.
const MOST_LATER: usize = 4096;
const STATUSES: [&str; 4] = ["done", "failed", "refused", "unknown"];

#[derive(Debug)]
pub struct Meters {
    tools: HashMap<String, ToolMeter>,
    /// Of tools that MCP servers offer, which come and go.
    later: RwLock<HashMap<String, Arc<ToolMeter>>>,
    /// Calls of names that are no tool.
    strangers: AtomicU64,
    violations: HashMap<ViolationKind, AtomicU64>,
    in_flight: AtomicU64,
    attested: AtomicU64,
    not_attested: AtomicU64,
}

#[derive(Debug, Default)]
struct ToolMeter {
    by_status: [AtomicU64; STATUSES.len()],
    buckets: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl Meters {
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a ToolSpec>) -> Self {
        Self {
            tools: tools.into_iter().map(|tool| (tool.name.to_string(), ToolMeter::default())).collect(),
            later: RwLock::default(),
            strangers: AtomicU64::new(0),
            violations: ViolationKind::ALL.iter().map(|kind| (*kind, AtomicU64::new(0))).collect(),
            in_flight: AtomicU64::new(0),
            attested: AtomicU64::new(0),
            not_attested: AtomicU64::new(0),
        }
    }

    /// Counts a call as in flight until the guard is dropped.
    pub(crate) fn enter(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// A refusal; doors count those that never become a call.
    pub fn refused(&self, kind: ViolationKind) {
        if let Some(counter) = self.violations.get(&kind) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// An attestation that ended, well or not.
    pub fn attested(&self, well: bool) {
        let counter = if well { &self.attested } else { &self.not_attested };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A tool of the catalog, so that its name may become a label.
    pub(crate) fn know(&self, tool: &ToolSpec) {
        if self.tools.contains_key(tool.name.as_ref()) || self.later(&tool.name).is_some() {
            return;
        }
        let mut later = self.later.write().unwrap_or_else(PoisonError::into_inner);
        if later.len() < MOST_LATER {
            later.entry(tool.name.to_string()).or_default();
        }
    }

    fn later(&self, tool: &str) -> Option<Arc<ToolMeter>> {
        self.later.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()
    }

    pub(crate) fn finished(&self, tool: &str, result: &CallResult, took: Duration) {
        let later = if self.tools.contains_key(tool) { None } else { self.later(tool) };
        let Some(meter) = self.tools.get(tool).or(later.as_deref()) else {
            self.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let status = STATUSES.iter().position(|status| *status == result.status()).unwrap_or(0);
        let bucket = BUCKETS.iter().position(|bound| micros <= *bound).unwrap_or(BUCKETS.len());
        meter.by_status[status].fetch_add(1, Ordering::Relaxed);
        meter.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        meter.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The text format that Prometheus reads.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(8192);
        self.write(&mut text).map_or_else(|_| String::new(), |()| text)
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let later = self.later.read().unwrap_or_else(PoisonError::into_inner).clone();
        let later = later.iter().map(|(name, meter)| (name, meter.as_ref()));
        let mut tools: Vec<_> = self.tools.iter().chain(later).collect();
        tools.sort_by_key(|(name, _)| name.as_str());
        writeln!(text, "# HELP aegis_calls_total Tool calls that ended, by tool and result.")?;
        writeln!(text, "# TYPE aegis_calls_total counter")?;
        for (name, meter) in &tools {
            for (status, counter) in STATUSES.iter().zip(&meter.by_status) {
                if read(counter) > 0 {
                    writeln!(
                        text,
                        "aegis_calls_total{{tool=\"{name}\",status=\"{status}\"}} {}",
                        read(counter)
                    )?;
                }
            }
        }
        writeln!(text, "aegis_calls_total{{tool=\"\",status=\"refused\"}} {}", read(&self.strangers))?;
        writeln!(text, "# HELP aegis_refusals_total Refusals, by violation.")?;
        writeln!(text, "# TYPE aegis_refusals_total counter")?;
        for kind in ViolationKind::ALL {
            let count = self.violations.get(kind).map_or(0, read);
            writeln!(text, "aegis_refusals_total{{violation=\"{kind}\"}} {count}")?;
        }
        writeln!(text, "# HELP aegis_seal_attestations_total Attestations, by result.")?;
        writeln!(text, "# TYPE aegis_seal_attestations_total counter")?;
        for (result, counter) in [("success", &self.attested), ("failure", &self.not_attested)] {
            writeln!(text, "aegis_seal_attestations_total{{result=\"{result}\"}} {}", read(counter))?;
        }
        let forged = self.violations.get(&ViolationKind::SignatureVerificationFailed).map_or(0, read);
        writeln!(
            text,
            "# HELP aegis_seal_signature_failures_total Envelopes whose signature does not hold."
        )?;
        writeln!(text, "# TYPE aegis_seal_signature_failures_total counter")?;
        writeln!(text, "aegis_seal_signature_failures_total {forged}")?;
        writeln!(text, "# HELP aegis_calls_in_flight Tool calls in work.")?;
        writeln!(text, "# TYPE aegis_calls_in_flight gauge")?;
        writeln!(text, "aegis_calls_in_flight {}", self.in_flight())?;
        writeln!(text, "# HELP aegis_call_seconds How long calls took, all gates included.")?;
        writeln!(text, "# TYPE aegis_call_seconds histogram")?;
        for (name, meter) in &tools {
            let mut sum = 0;
            for (index, counter) in meter.buckets.iter().enumerate() {
                sum += read(counter);
                let bound = BUCKETS.get(index).map_or("+Inf".to_owned(), |micros| seconds(*micros));
                writeln!(text, "aegis_call_seconds_bucket{{tool=\"{name}\",le=\"{bound}\"}} {sum}")?;
            }
            writeln!(text, "aegis_call_seconds_sum{{tool=\"{name}\"}} {}", seconds(read(&meter.micros)))?;
            writeln!(text, "aegis_call_seconds_count{{tool=\"{name}\"}} {sum}")?;
        }
        Ok(())
    }
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Meters);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
