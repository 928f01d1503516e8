use std::{io::Read, sync::Arc, time::Duration};

use aegis_core::{
    Call, Door,
    progress::{Listener, Silence},
};
use anyhow::Context;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    cli::{self, Acting, Global},
    client::Answer,
    ending::Mistake,
    heard::Terminal,
    locate,
    node::Node,
    output::{self, Ending, harmless, json_line, json_pretty},
    program,
};

/// How long a call waits for the MCP server that it is for and that starts with it.
const SERVER_READY: Duration = Duration::from_secs(30);
/// How long others wait for all of them: somebody is there who wants an answer, be it without some server's tools.
pub(super) const SERVERS_READY: Duration = Duration::from_secs(5);

pub(super) async fn run(global: &Global, command: &cli::Call) -> anyhow::Result<Ending> {
    super::log("error");
    let arguments = arguments(&command.arguments)?;
    let answer = match &command.workload {
        Some(workload) if command.seal => {
            let context = command.acting.context.as_deref();
            super::seal::call(global, workload, context, &command.tool, &arguments).await?
        }
        _ => call(global, &command.acting, &command.tool, arguments).await?,
    };
    match waits_for(&answer, command.seal) {
        Some(id) => super::approvals::prompt::go_on(global, command, &id, &answer).await,
        None => Ok(show(global, &answer)),
    }
}

/// The request for approval that a call waits for. Over signed envelopes only the answer itself says so.
fn waits_for(answer: &Answer, sealed: bool) -> Option<String> {
    let Answer::Ok(value) = answer else { return None };
    let id = match &value["approval"]["id"] {
        Value::Null if sealed && value["result"]["pendingApproval"] == true => {
            &value["result"]["approvalRequestId"]
        }
        id => id,
    };
    id.as_str().map(str::to_owned)
}

pub(super) fn arguments(given: &str) -> anyhow::Result<Map<String, Value>> {
    let text = if given == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("can't read the arguments from standard input")?;
        text
    } else {
        given.to_owned()
    };
    serde_json::from_str(&text).map_err(|error| {
        let message = format!("the arguments are no JSON object: {error}");
        Mistake::new(message, "quote them for the shell, e.g. '{\"path\": \"/workspace\"}'").into()
    })
}

/// Through the running node, or through one of our own when none runs.
pub(super) async fn call(
    global: &Global,
    acting: &Acting,
    tool: &str,
    arguments: Map<String, Value>,
) -> anyhow::Result<Answer> {
    let data = locate::data_dir(global)?;
    if let Some(running) = locate::running(&data) {
        let client = locate::client(&data, &running, acting)?;
        let path = format!("/v1/tools/{}", urlencoded(tool));
        let heard: Option<&dyn Listener> = if global.json { None } else { Some(&Terminal) };
        return client.call(&path, &Value::Object(arguments), heard).await;
    }
    let node = embedded(global, acting).await?;
    if let Err(violation) = node.knows_context(acting.context.as_deref()) {
        node.close().await;
        return Ok(Answer::Refused(violation));
    }
    let claimants = node.doors.servers.claimants(tool).await;
    if !claimants.is_empty() {
        node.start_servers().await;
        node.servers_ready(SERVER_READY, |server| claimants.iter().any(|one| one == server)).await;
    }
    let caller = node.local_caller(Door::Cli, acting.context.as_deref());
    let listener: Arc<dyn Listener> = if global.json { Arc::new(Silence) } else { Arc::new(Terminal) };
    let call = Call::new(tool, arguments);
    let reply = node.doors.plane.call_heard(caller, call, CancellationToken::new(), listener).await;
    let answer = match reply.result {
        Err(violation) => Answer::Refused(violation),
        Ok(done) => {
            let is_error = done.outcome.failure.is_some();
            let mut value = json!({
                "call": reply.call,
                "is_error": is_error,
                "result": done.outcome.value,
                "label": done.outcome.label,
            });
            if let Some(approval) = &done.pending {
                // Nobody could decide: this node has no doors, and ends with the command.
                let taken_back = node.doors.plane.approvals().cancel(&approval.id, &approval.caller).await?;
                value["approval"] =
                    json!({"id": approval.id, "state": taken_back.state, "expires": approval.expires});
            }
            if is_error { Answer::ToolFailed(value) } else { Answer::Ok(value) }
        }
    };
    node.close().await;
    Ok(answer)
}

/// A node without doors, for the length of one command.
pub(super) async fn embedded(global: &Global, acting: &Acting) -> anyhow::Result<Node> {
    anyhow::ensure!(
        acting.token.is_none(),
        "a token is checked by a running node, and none runs on this data directory: start one with `aegis up`"
    );
    let file = locate::config_file(global)?;
    let config = locate::read_config(file.as_deref())?;
    let data = locate::data_dir(global)?;
    let node = Node::open(&data, file, config).await?;
    locate::tell_alone(global, &data);
    Ok(node)
}

fn show(global: &Global, answer: &Answer) -> Ending {
    match answer {
        Answer::Refused(violation) => output::refusal(violation, global.json),
        Answer::Ok(value) | Answer::ToolFailed(value) if global.json => {
            json_line(value);
            ending(answer, true)
        }
        Answer::Ok(value) => {
            match &value["result"] {
                Value::String(text) => output::answer(text),
                result => json_pretty(&program::unheard(result, source(value))),
            }
            ending(answer, false)
        }
        Answer::ToolFailed(value) => {
            let result = &value["result"];
            let text = |member: &str| result[member].as_str().unwrap_or_default().to_owned();
            eprintln!("failed ({}): {}", text("error_kind"), harmless(&text("error")));
            eprintln!("  more: aegis explain {}", text("error_kind"));
            Ending::Failed
        }
    }
}

fn ending(answer: &Answer, as_json: bool) -> Ending {
    match answer {
        Answer::Ok(value) => program::ending(&value["result"], source(value), as_json),
        _ => Ending::Failed,
    }
}

fn source(value: &Value) -> &str {
    value["label"]["source"].as_str().unwrap_or_default()
}

/// Tool names are plain; anything else is escaped so that it stays one path segment.
pub(super) fn urlencoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
