//! Traces for an OpenTelemetry collector: OTLP over HTTP, in JSON.
//!
//! A call hands its span over and goes on; when the queue is full, the span is dropped and counted. What is in a span
//! says which tool, who, which gate and how it ended. Arguments and answers are not in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    Door,
    config::OtlpConfig,
    record::{CallRecord, CallResult},
    secret::SecretSource,
    tool::Route,
    trace::{CallSpan, Hex, Part, Place, Spans, Timed},
    verdict::{GateVerdict, Verdict},
};
use aegis_mcp_client::Http;
use http_body_util::BodyExt;
use hyper::{
    Method, Request,
    body::Bytes,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Spans in one request.
const BATCH: usize = 512;
/// How often a collector that does not answer well is tried with the same spans.
const TRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// Where calls hand their spans over.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Sender<Vec<Value>>,
    dropped: Arc<AtomicU64>,
    percent: u8,
}

/// What sends them.
pub struct Sender {
    config: OtlpConfig,
    resource: Value,
    version: &'static str,
    queue: mpsc::Receiver<Vec<Value>>,
    dropped: Arc<AtomicU64>,
    http: Arc<dyn Http>,
    secrets: Arc<dyn SecretSource>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The two ends of the queue. Nothing is sent until [`Sender::run`].
pub fn exporter(
    config: &OtlpConfig,
    node: &str,
    version: &'static str,
    http: Arc<dyn Http>,
    secrets: Arc<dyn SecretSource>,
) -> (Exporter, Sender) {
    let (sender, receiver) = mpsc::channel(config.queue as usize);
    let dropped = Arc::new(AtomicU64::new(0));
    let name = config.service_name.as_deref().unwrap_or(node);
    let resource = json!({"attributes": [
        text("service.name", name),
        text("service.version", version),
        text("service.instance.id", node),
        text("telemetry.sdk.name", "aegis"),
        text("telemetry.sdk.language", "rust"),
    ]});
    let exporter = Exporter { queue: sender, dropped: Arc::clone(&dropped), percent: config.sample_percent };
    let config = config.clone();
    (exporter, Sender { config, resource, version, queue: receiver, dropped, http, secrets })
}

impl Spans for Exporter {
    fn is_on(&self) -> bool {
        true
    }

    fn ended(&self, call: &CallSpan<'_>) {
        let place = Place::of(call.record.call, call.context);
        let wanted = match call.context {
            Some(context) => context.is_sampled(),
            // Of the random end of the id, so that every part of a trace is decided alike.
            None => u64::from_be_bytes(place.span) % 100 < u64::from(self.percent),
        };
        if wanted && self.queue.try_send(spans(call, &place)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Sender {
    /// Sends until the node stops, and then what is left.
    pub async fn run(mut self, stopping: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let more = tokio::select! {
                received = self.queue.recv() => received,
                () = stopping.cancelled() => None,
            };
            let Some(first) = more else { break };
            batch.extend(first);
            let full = async {
                while batch.len() < BATCH {
                    match self.queue.recv().await {
                        Some(spans) => batch.extend(spans),
                        None => break,
                    }
                }
            };
            tokio::select! {
                _ = tokio::time::timeout(self.config.interval.0, full) => {}
                () = stopping.cancelled() => {}
            }
            self.send(std::mem::take(&mut batch)).await;
        }
        while let Ok(spans) = self.queue.try_recv() {
            batch.extend(spans);
        }
        if !batch.is_empty() {
            self.send(batch).await;
        }
    }

    async fn send(&self, spans: Vec<Value>) {
        let count = spans.len();
        let body = json!({"resourceSpans": [{
            "resource": self.resource,
            "scopeSpans": [{"scope": {"name": "aegis", "version": self.version}, "spans": spans}],
        }]});
        let body = Bytes::from(body.to_string());
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=TRIES {
            let tried = tokio::time::timeout(self.config.timeout.0, self.post(body.clone())).await;
            let reason = match tried {
                Ok(Ok(())) => break,
                Ok(Err(Refused { reason, for_good })) if for_good => {
                    tracing::warn!(count, "the trace collector refused spans: {reason}");
                    break;
                }
                Ok(Err(Refused { reason, .. })) => reason,
                Err(_) => "no answer in time".to_owned(),
            };
            if attempt == TRIES {
                tracing::warn!(count, "spans are lost: {reason}");
            } else {
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                dropped,
                "calls went untraced: more ended than spec.observability.otlp.queue holds"
            );
        }
    }

    async fn post(&self, body: Bytes) -> Result<(), Refused> {
        let for_good = |reason: String| Refused { reason, for_good: true };
        let base = self.config.endpoint.trim_end_matches('/');
        let url = if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") };
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url.parse().map_err(|_| for_good("the endpoint is no address".to_owned()))?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut set = |name: &str, value: &str, secret: bool| -> Result<(), Refused> {
            let unusable = || for_good(format!("the header `{name}` can't be sent"));
            let mut value = HeaderValue::from_str(value).map_err(|_| unusable())?;
            value.set_sensitive(secret);
            let name = HeaderName::try_from(name).map_err(|_| unusable())?;
            request.headers_mut().insert(name, value);
            Ok(())
        };
        for (name, value) in &self.config.headers {
            set(name, value, false)?;
        }
        for (name, reference) in &self.config.credentials {
            let resolved = self.secrets.resolve(reference, None).await;
            set(name, resolved.map_err(|error| for_good(error.to_string()))?.secret.expose(), true)?;
        }
        let sent = self.http.send(request).await;
        let response = sent.map_err(|reason| Refused { reason, for_good: false })?;
        let status = response.status();
        // Read to its end, so that the connection can be used again.
        let mut body = response.into_body();
        while let Some(Ok(_)) = body.frame().await {}
        match status.as_u16() {
            200..=299 => Ok(()),
            code @ (429 | 502 | 503 | 504) => {
                Err(Refused { reason: format!("status {code}"), for_good: false })
            }
            code => Err(for_good(format!("status {code}"))),
        }
    }
}

struct Refused {
    reason: String,
    /// Trying again would change nothing.
    for_good: bool,
}

/// The call, and each of its parts.
fn spans(call: &CallSpan<'_>, place: &Place) -> Vec<Value> {
    let record = call.record;
    let start = u128::from(record.time.millis()) * 1_000_000;
    let nanos = |since: Duration| (start + since.as_nanos()).to_string();
    let mut whole = json!({
        "traceId": Hex(&place.trace).to_string(),
        "spanId": Hex(&place.span).to_string(),
        "name": name(record),
        "kind": SERVER,
        "startTimeUnixNano": nanos(Duration::ZERO),
        "endTimeUnixNano": nanos(call.took),
        "attributes": attributes(record),
        "status": status(&record.result),
    });
    if let Some(parent) = place.parent {
        whole["parentSpanId"] = Hex(&parent).to_string().into();
    }
    if let Some(state) = call.context.and_then(|context| context.state()) {
        whole["traceState"] = state.into();
    }
    let mut all = vec![whole];
    for (number, Timed { part, from, to }) in call.parts.iter().enumerate() {
        let (name, kind, attributes) = described(*part, record);
        all.push(json!({
            "traceId": Hex(&place.trace).to_string(),
            "spanId": Hex(&place.part(number as u64)).to_string(),
            "parentSpanId": Hex(&place.span).to_string(),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": nanos(*from),
            "endTimeUnixNano": nanos(*to),
            "attributes": attributes,
        }));
    }
    all
}

fn over_mcp(record: &CallRecord) -> bool {
    matches!(record.caller.door, Door::McpHttp | Door::McpStdio)
}

fn name(record: &CallRecord) -> String {
    let method = if over_mcp(record) { "tools/call" } else { "execute_tool" };
    format!("{method} {}", record.tool)
}

/// By the semantic conventions for generative AI and MCP, and ours under `aegis.`.
fn attributes(record: &CallRecord) -> Vec<Value> {
    let caller = &record.caller;
    let mut all = vec![
        text("gen_ai.operation.name", "execute_tool"),
        text("gen_ai.tool.name", &record.tool),
        text("gen_ai.tool.call.id", &record.call.to_string()),
        text("gen_ai.tool.type", "function"),
        text("enduser.id", caller.user.as_str()),
        text("aegis.tenant", caller.tenant.as_str()),
        text("aegis.context", caller.context.as_str()),
        text(
            "aegis.door",
            serde_json::to_value(caller.door).ok().as_ref().and_then(Value::as_str).unwrap_or_default(),
        ),
    ];
    if over_mcp(record) {
        all.push(text("mcp.method.name", "tools/call"));
        all.extend(caller.session.as_ref().map(|session| text("mcp.session.id", session.as_str())));
    }
    all.extend(record.approval.as_ref().map(|approval| text("aegis.approval", approval.as_str())));
    if let Some(label) = &record.label {
        all.push(text("aegis.label.trust", label.trust.as_str()));
        all.push(text("aegis.label.source", &label.source));
    }
    match &record.result {
        CallResult::Failed { kind, .. } => all.push(text("error.type", kind.as_str())),
        CallResult::Refused { kind, rule, .. } => {
            all.push(text("error.type", kind));
            all.extend(rule.as_ref().map(|rule| text("aegis.rule", rule)));
        }
        CallResult::Done { bytes } => {
            all.push(json!({"key": "aegis.response.bytes", "value": {"intValue": bytes.to_string()}}));
        }
        CallResult::Unknown => all.push(text("error.type", "unknown")),
    }
    all
}

fn status(result: &CallResult) -> Value {
    match result {
        CallResult::Done { .. } => json!({"code": 1}),
        CallResult::Failed { kind, .. } => json!({"code": 2, "message": kind}),
        CallResult::Refused { kind, .. } => json!({"code": 2, "message": kind}),
        CallResult::Unknown => json!({"code": 2, "message": "unknown"}),
    }
}

fn described(part: Part, record: &CallRecord) -> (String, u8, Vec<Value>) {
    match part {
        Part::Gate(gate) => {
            let gate_name = serde_json::to_value(gate).unwrap_or_default();
            let gate_name = gate_name.as_str().unwrap_or_default();
            let said = record.verdicts.iter().find(|verdict| verdict.gate == gate);
            let mut attributes = vec![text("aegis.gate", gate_name)];
            attributes.extend(said.map(|said| text("aegis.verdict", verdict(said))));
            (format!("gate {gate_name}"), INTERNAL, attributes)
        }
        Part::Route(route) => {
            let kind = if route == Route::Upstream { CLIENT } else { INTERNAL };
            (format!("route {}", route.as_str()), kind, vec![text("aegis.route", route.as_str())])
        }
    }
}

fn verdict(said: &GateVerdict) -> &'static str {
    match said.verdict {
        Verdict::Pass { .. } => "pass",
        Verdict::Deny(_) => "deny",
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}
