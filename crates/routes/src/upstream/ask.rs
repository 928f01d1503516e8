//! One request to a server on behalf of a call.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use aegis_core::{
    Failure, FailureKind, Label, Outcome, Violation, ViolationKind, outcome::Passed, secret::Principal,
};
use aegis_mcp_client::{Client, Error, Request, Version};
use http::{HeaderName, HeaderValue};
use serde_json::{Value, json, value::RawValue};

use super::{World, answer, bridge, reason, server::Server};
use crate::tool::Run;

/// How long a call waits for a server that has forgotten its session to be greeted again.
const GREETING: Duration = Duration::from_secs(5);
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// What is asked, as JSON text.
pub(super) struct Asked<'a> {
    pub(super) method: &'static str,
    pub(super) params: String,
    /// For the header that names it.
    pub(super) about: Option<&'a str>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the server only takes it as a task (2025-11-25).
    pub(super) as_task: bool,
}

/// Counts a call as in work while it lives.
struct InWork<'a>(&'a Server);

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        self.0.in_work.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) enum Unasked {
    Failed(Failure),
    /// The server answered with an error of the protocol, whose text comes with it.
    Told(Failure, Passed),
    /// Nothing was asked: the server has as much to do as it may.
    Refused(Violation),
}

impl From<Failure> for Unasked {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Unasked {
    /// The outcome of a call that came to nothing, unless it was refused.
    pub(super) fn outcome(self, tool: &str, label: &Label) -> Result<Outcome, Violation> {
        match self {
            Self::Failed(failure) => Ok(answer::failure(tool, label, &failure)),
            Self::Told(failure, passed) => {
                Ok(Outcome { passed: Some(passed), ..answer::failure(tool, label, &failure) })
            }
            Self::Refused(violation) => Err(violation),
        }
    }
}

/// Asks, under the call's deadline, with its progress and questions passed on. Ends when nobody waits any more, and the
/// server is told.
pub(super) async fn ask(
    server: &Arc<Server>,
    world: &Arc<World>,
    run: &Run<'_>,
    asked: Asked<'_>,
) -> Result<Box<RawValue>, Unasked> {
    let Ok(_slot) = server.slots.try_acquire() else {
        let busy = format!(
            "{} calls to the MCP server `{}` are in work, which is its limit",
            server.config.limits.max_concurrent_calls, server.config.name
        );
        return Err(Unasked::Refused(
            Violation::new(ViolationKind::Overloaded, busy)
                .rule(format!("mcp_servers[{}].limits.max_concurrent_calls", server.config.name))
                .retry_after(1),
        ));
    };
    server.in_work.fetch_add(1, Ordering::Relaxed);
    let _in_work = InWork(server);
    let principal = Principal::from(run.permit.caller());
    let limit = server.config.limits.call_timeout.0;
    let work = async {
        let client = server.connection(world, &principal).await.map_err(unavailable)?;
        let failed = |error: &Error| failed(server, world, error);
        match once(&client, world, run, &asked).await {
            // It ran nothing, and knows us again in a moment.
            Err(Error::SessionLost) => {
                let client = greeted(server, world, &principal).await?;
                once(&client, world, run, &asked).await.map_err(|error| failed(&error))
            }
            answered => answered.map_err(|error| failed(&error)),
        }
    };
    tokio::select! {
        biased;
        () = run.cancel.cancelled() => {
            Err(Failure::new(FailureKind::Timeout, "the call was given up before the server answered").into())
        }
        answered = work => answered,
        () = tokio::time::sleep(limit) => Err(Failure::new(
            FailureKind::Timeout,
            format!(
                "the MCP server `{}` gave no answer within {} s (limits.call_timeout); what it was to do may still happen",
                server.config.name,
                limit.as_secs_f32()
            ),
        )
        .into()),
    }
}

async fn once(
    client: &Client,
    world: &World,
    run: &Run<'_>,
    asked: &Asked<'_>,
) -> Result<Box<RawValue>, Error> {
    let listener = run.listener();
    let (mouth, ear) = bridge::between(listener, &world.ways.secrets);
    let manner = listener.manner();
    let stateless = client.version().stateless();
    // Whoever can take questions as an answer gets them as they are, and repeats the request with what they brought.
    let by_result = stateless && manner.is_some_and(|manner| manner.by_result);
    let brought = manner.and_then(|manner| manner.brought.as_ref()).filter(|_| stateless);
    let mut params = asked.params.clone();
    if let Some(brought) = brought {
        for (name, value) in [("requestState", &brought.state), ("inputResponses", &brought.responses)] {
            if let Some(value) = value {
                let rest = params.strip_prefix('{').unwrap_or("}");
                params = format!(r#"{{"{name}":{},{rest}"#, value.get());
            }
        }
    }
    let as_task = asked.as_task && client.version() == Version::V2025_11_25;
    if as_task {
        params = format!(r#"{{"task":{{}},{}"#, params.strip_prefix('{').unwrap_or("}"));
    }
    let params = RawValue::from_string(params).map_err(|error| Error::Protocol(error.to_string().into()))?;
    let abilities =
        manner.map_or_else(|| "{}".to_owned(), |manner| Value::Object(manner.abilities.clone()).to_string());
    let mut request = Request {
        progress: Some(mouth.clone()),
        questions: Some(mouth),
        capabilities: Some(abilities),
        // Only the newest version repeats parameters there.
        headers: if stateless { asked.headers.clone() } else { Vec::new() },
        name: asked.about,
        ..Request::new(asked.method).params(&params)
    };
    // In the protocol's own place, and where whatever stands before an HTTP server looks for it.
    let traceparent = run.permit.place().traceparent();
    for (name, value) in
        [("traceparent", Some(traceparent.as_str())), ("tracestate", run.permit.trace_state())]
    {
        let Some(value) = value else { continue };
        request = request.meta(name, value);
        if let Ok(header) = HeaderValue::from_str(value) {
            request.headers.push((HeaderName::from_static(name), header));
        }
    }
    if let Some(level) = manner.and_then(|manner| manner.log_level.as_deref()).filter(|_| stateless) {
        request = request.meta(LOG_LEVEL, level);
    }
    if let Some(level) = manner.and_then(|manner| manner.log_level.as_deref()).filter(|_| !stateless) {
        // A server that does not take it has a log of its own mind.
        let _ = client.log_from(level).await;
    }
    let answered = async {
        if by_result { client.request(request).await } else { client.request_answering(request).await }
    };
    let answer = ear.during(listener, answered).await?;
    if as_task { super::tasks::finish(client, &answer).await } else { Ok(answer) }
}

async fn greeted(
    server: &Arc<Server>,
    world: &Arc<World>,
    principal: &Principal,
) -> Result<Arc<Client>, Failure> {
    let waiting = async {
        loop {
            if let Ok(client) = server.connection(world, principal).await {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(GREETING, waiting).await;
    found.map_err(|_| unavailable(format!("the MCP server `{}` lost its session", server.config.name)))
}

pub(super) fn unavailable(reason: String) -> Failure {
    Failure::new(FailureKind::UpstreamUnavailable, reason)
}

fn failed(server: &Server, world: &World, error: &Error) -> Unasked {
    let name = &server.config.name;
    let kind = match error {
        Error::Rpc(_) | Error::NeverSatisfied(_) | Error::Protocol(_) => FailureKind::UpstreamError,
        Error::TooLarge { .. } => FailureKind::ResponseTooLarge,
        Error::Silent(_) => FailureKind::Timeout,
        _ => FailureKind::UpstreamUnavailable,
    };
    let open = if matches!(error, Error::Rpc(_)) || error.never_ran() {
        ""
    } else {
        "; what it was to do may have happened"
    };
    let told = reason::told(error);
    let failure = Failure::new(kind, world.redacted(&format!("the MCP server `{name}`: {told}{open}")));
    match error {
        Error::Rpc(error) => {
            let data = error.data.as_ref().and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
            let mut told = json!({"code": error.code, "message": error.message});
            if let Some(data) = data {
                told["data"] = data;
            }
            world.redactor().value(&mut told);
            Unasked::Told(failure, Passed::Error(told.to_string()))
        }
        _ => Unasked::Failed(failure),
    }
}
