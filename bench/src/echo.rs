//! The bare MCP server that governed calls are held against: the official SDK, stateless, answering in JSON, with one
//! handler that gives back a fixed text.

use std::{io::Write, net::SocketAddr, process::Command, sync::Arc};

use anyhow::Context;
use axum::{Router, serve::ListenerExt};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities,
        ServerConfig,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use tokio::net::TcpListener;

use crate::{process::Server, words::Words, workplace::Workplace};

/// What the echo server answers, and what the file holds that the node reads.
pub(crate) fn text() -> String {
    Words::new(1024).text(1024)
}

#[derive(Debug, Clone)]
struct Echo {
    text: Arc<str>,
}

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text(self.text.as_ref())]).into())
    }
}

/// Serves until killed.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let echo = Echo { text: text().into() };
        let config =
            StreamableHttpServerConfig::default().with_legacy_session_mode(false).with_json_response(true);
        let service = StreamableHttpService::new(
            move || Ok(echo.clone()),
            Arc::new(NeverSessionManager::default()),
            config,
        );
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        // As the node does.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, Router::new().nest_service("/mcp", service)).await?;
        Ok(())
    })
}

/// The echo server in a process of its own.
#[derive(Debug)]
pub(crate) struct EchoServer {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl EchoServer {
    pub(crate) fn start(place: &Workplace) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["yardstick", "echo"]);
        let server = Server::start(&mut command, &place.path().join("echo.log"))?;
        let address = server.greeting.trim().parse().context("the echo server gave no address")?;
        Ok(Self { server, address })
    }
}
