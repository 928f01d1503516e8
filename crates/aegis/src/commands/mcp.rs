use aegis_core::Door;
use aegis_doors::mcp::{
    Names, bridge,
    stdio::{self, Setting},
};

use super::call::{SERVERS_READY, embedded};
use crate::{
    cli::{Global, Mcp},
    client::Answer,
    locate,
    output::{self, Ending},
    signals::Signals,
};

/// Through the running node, or through one of our own when none runs. Nothing but MCP goes to standard output.
pub(super) async fn run(global: &Global, command: &Mcp) -> anyhow::Result<Ending> {
    super::log("error");
    let data = locate::data_dir(global)?;
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    if let Some(running) = locate::running(&data) {
        let client = locate::client(&data, &running, &command.acting)?;
        // A client that was started with a slip of the pen would otherwise see a server without tools, or none at all.
        if let Answer::Refused(violation) = client.get("/v1/tools").await? {
            return Ok(output::refusal(&violation, global.json));
        }
        let url = format!("http://{}/mcp", client.address);
        bridge::run(&url, &client.token, client.context.as_deref(), input, output).await?;
        return Ok(Ending::Done);
    }
    let node = embedded(global, &command.acting).await?;
    if let Err(violation) = node.knows_context(command.acting.context.as_deref()) {
        node.close().await;
        return Ok(output::refusal(&violation, global.json));
    }
    node.start_servers().await;
    // Clients that never list again see what is there by then; the others hear of what comes later.
    node.servers_ready(SERVERS_READY, |_| true).await;
    let caller = node.local_caller(Door::McpStdio, command.acting.context.as_deref());
    let setting = Setting { names: Names::Exact, alone: true };
    let (signals, stopping) = (Signals::listen()?, node.doors.stopping.clone());
    tokio::spawn(async move {
        signals.first().await;
        stopping.cancel();
    });
    let served = stdio::serve_as(node.doors.clone(), caller, setting, input, output).await;
    // However the conversation ended, what it began ends in order.
    node.close().await;
    served?;
    Ok(Ending::Done)
}
