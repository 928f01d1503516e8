//! Counters of what passed through, for `/metrics`. Labels come from the catalog, the configuration and enums, so their
//! number is bounded whatever callers send. Counting takes no lock.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aegis_core::{Gate, ToolSpec, ViolationKind, record::CallResult, tool::Route};
use arc_swap::ArcSwap;

/// Upper bounds of buckets, in microseconds: of whole calls and routes, and of gates.
type Bounds = [u64; 12];
const OF_CALLS: &Bounds =
    &[50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];
const OF_GATES: &Bounds = &[1, 2, 5, 10, 25, 50, 100, 250, 1_000, 10_000, 100_000, 1_000_000];
/// Names of tools of MCP servers that are counted by themselves; further ones are counted together.
const MOST_LATER: usize = 4096;
/// Servers that are: more than a configuration may name, as they come and go.
const MOST_SERVERS: usize = 1024;
const STATUSES: [&str; 4] = ["done", "failed", "refused", "unknown"];
/// Who a call is, is known before its time begins.
const GATES: [(Gate, &str); 4] = [
    (Gate::Catalog, "catalog"),
    (Gate::Arguments, "arguments"),
    (Gate::Policy, "policy"),
    (Gate::Approval, "approval"),
];
const ROUTES: [Route; 4] = [Route::Files, Route::Upstream, Route::Exec, Route::Builtin];

#[derive(Debug)]
pub struct Meters {
    tools: HashMap<String, ToolMeter>,
    /// Of tools that MCP servers offer, which come and go.
    later: ArcSwap<HashMap<String, Arc<ToolMeter>>>,
    gates: [Histogram; GATES.len()],
    routes: [Histogram; ROUTES.len()],
    servers: ArcSwap<HashMap<String, Arc<Histogram>>>,
    /// Calls of names that are no tool.
    strangers: AtomicU64,
    violations: HashMap<ViolationKind, AtomicU64>,
    in_flight: AtomicU64,
    attested: AtomicU64,
    not_attested: AtomicU64,
}

#[derive(Debug)]
struct ToolMeter {
    by_status: [AtomicU64; STATUSES.len()],
    took: Histogram,
}

impl Default for ToolMeter {
    fn default() -> Self {
        Self { by_status: Default::default(), took: Histogram::new(OF_CALLS) }
    }
}

#[derive(Debug)]
struct Histogram {
    bounds: &'static Bounds,
    /// The last is for what exceeds every bound.
    buckets: [AtomicU64; OF_CALLS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static Bounds) -> Self {
        Self { bounds, buckets: Default::default(), nanos: AtomicU64::new(0) }
    }

    fn add(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.bounds.iter().position(|bound| nanos <= bound * 1000).unwrap_or(self.bounds.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// `label` is one label with its value, as `tool="fs.read"`.
    fn write(&self, text: &mut String, name: &str, label: &str) -> std::fmt::Result {
        let mut sum = 0;
        for (index, counter) in self.buckets.iter().enumerate() {
            sum += counter.load(Ordering::Relaxed);
            let bound = self.bounds.get(index).map_or("+Inf".to_owned(), |micros| seconds(*micros));
            writeln!(text, "{name}_bucket{{{label},le=\"{bound}\"}} {sum}")?;
        }
        let nanos = self.nanos.load(Ordering::Relaxed);
        writeln!(text, "{name}_sum{{{label}}} {}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
        writeln!(text, "{name}_count{{{label}}} {sum}")
    }
}

/// The meter of a name that may be new; `None` when there are too many.
fn among<T>(
    known: &ArcSwap<HashMap<String, Arc<T>>>,
    name: &str,
    most: usize,
    fresh: fn() -> T,
) -> Option<Arc<T>> {
    if let Some(meter) = known.load().get(name) {
        return Some(Arc::clone(meter));
    }
    if known.load().len() >= most {
        return None;
    }
    known.rcu(|before| {
        let mut after = HashMap::clone(before);
        after.entry(name.to_owned()).or_insert_with(|| Arc::new(fresh()));
        after
    });
    known.load().get(name).cloned()
}

impl Meters {
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a ToolSpec>) -> Self {
        Self {
            tools: tools.into_iter().map(|tool| (tool.name.to_string(), ToolMeter::default())).collect(),
            later: ArcSwap::default(),
            gates: std::array::from_fn(|_| Histogram::new(OF_GATES)),
            routes: std::array::from_fn(|_| Histogram::new(OF_CALLS)),
            servers: ArcSwap::default(),
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
        if !self.tools.contains_key(tool.name.as_ref()) {
            among(&self.later, &tool.name, MOST_LATER, ToolMeter::default);
        }
    }

    /// How long a gate looked at a call.
    pub(crate) fn gate(&self, gate: Gate, took: Duration) {
        if let Some(index) = GATES.iter().position(|(known, _)| *known == gate) {
            self.gates[index].add(took);
        }
    }

    /// How long a route took, and which MCP server it led to, by the name that the configuration has for it.
    pub(crate) fn route(&self, route: Route, server: Option<&str>, took: Duration) {
        if let Some(index) = ROUTES.iter().position(|known| *known == route) {
            self.routes[index].add(took);
        }
        if let Some(server) = server
            && let Some(meter) = among(&self.servers, server, MOST_SERVERS, || Histogram::new(OF_CALLS))
        {
            meter.add(took);
        }
    }

    pub(crate) fn finished(&self, tool: &str, result: &CallResult, took: Duration) {
        let later = self.later.load();
        let Some(meter) = self.tools.get(tool).or_else(|| later.get(tool).map(AsRef::as_ref)) else {
            self.strangers.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let status = STATUSES.iter().position(|status| *status == result.status()).unwrap_or(0);
        meter.by_status[status].fetch_add(1, Ordering::Relaxed);
        meter.took.add(took);
    }

    /// The text format that Prometheus reads.
    pub fn render(&self) -> String {
        let mut text = String::with_capacity(8192);
        self.write(&mut text).map_or_else(|_| String::new(), |()| text)
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let later = self.later.load();
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
            meter.took.write(text, "aegis_call_seconds", &format!("tool=\"{name}\""))?;
        }
        writeln!(text, "# HELP aegis_gate_seconds How long gates looked at calls.")?;
        writeln!(text, "# TYPE aegis_gate_seconds histogram")?;
        for ((_, name), took) in GATES.iter().zip(&self.gates) {
            took.write(text, "aegis_gate_seconds", &format!("gate=\"{name}\""))?;
        }
        writeln!(text, "# HELP aegis_route_seconds How long calls that were let through took, by route.")?;
        writeln!(text, "# TYPE aegis_route_seconds histogram")?;
        for (route, took) in ROUTES.iter().zip(&self.routes) {
            took.write(text, "aegis_route_seconds", &format!("route=\"{}\"", route.as_str()))?;
        }
        let servers = self.servers.load();
        if !servers.is_empty() {
            writeln!(text, "# HELP aegis_upstream_seconds How long MCP servers took to answer, by server.")?;
            writeln!(text, "# TYPE aegis_upstream_seconds histogram")?;
            let mut servers: Vec<_> = servers.iter().collect();
            servers.sort_by_key(|(name, _)| name.as_str());
            for (name, took) in servers {
                took.write(text, "aegis_upstream_seconds", &format!("server=\"{name}\""))?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_rendered_with_sums_over_the_buckets() {
        let meters = Meters::new([]);
        meters.gate(Gate::Policy, Duration::from_nanos(900));
        meters.gate(Gate::Policy, Duration::from_micros(30));
        meters.gate(Gate::Identity, Duration::from_secs(9));
        meters.route(Route::Upstream, Some("github"), Duration::from_millis(20));
        meters.route(Route::Files, None, Duration::from_secs(11));
        let text = meters.render();
        for line in [
            "aegis_gate_seconds_bucket{gate=\"policy\",le=\"0.000001\"} 1",
            "aegis_gate_seconds_bucket{gate=\"policy\",le=\"0.000025\"} 1",
            "aegis_gate_seconds_bucket{gate=\"policy\",le=\"0.000050\"} 2",
            "aegis_gate_seconds_sum{gate=\"policy\"} 0.000030900",
            "aegis_gate_seconds_count{gate=\"policy\"} 2",
            "aegis_route_seconds_count{route=\"upstream\"} 1",
            "aegis_route_seconds_bucket{route=\"files\",le=\"10.000000\"} 0",
            "aegis_route_seconds_bucket{route=\"files\",le=\"+Inf\"} 1",
            "aegis_upstream_seconds_bucket{server=\"github\",le=\"0.050000\"} 1",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(!text.contains("identity"));
    }

    #[test]
    fn servers_are_only_so_many_series() {
        let meters = Meters::new([]);
        for number in 0..2 * MOST_SERVERS {
            meters.route(Route::Upstream, Some(&format!("s{number}")), Duration::ZERO);
        }
        assert_eq!(meters.servers.load().len(), MOST_SERVERS);
        let all = format!("aegis_route_seconds_count{{route=\"upstream\"}} {}", 2 * MOST_SERVERS);
        assert!(meters.render().contains(&all));
    }
}
