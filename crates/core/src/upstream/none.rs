//! A node without servers.

use super::{
    BoxFuture, Lacks, LogLine, ServerStatus, ServerTool, SharedResource, SignInBegun, SignInWish, SignedIn,
    TestReport, UpstreamError, Upstreams,
};
use crate::{Secret, config::McpServer};

/// No servers at all, where a node is put together without any.
#[derive(Debug, Clone, Copy)]
pub struct NoUpstreams;

impl Upstreams for NoUpstreams {
    fn list(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    fn tools(&self, _: &str) -> Vec<ServerTool> {
        Vec::new()
    }

    fn logs(&self, _: &str, _: usize) -> Option<Vec<LogLine>> {
        None
    }

    fn restart<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), UpstreamError>> {
        Box::pin(async move { Err(UpstreamError::Unknown(server.to_owned())) })
    }

    fn started<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn test<'a>(&'a self, _: &'a McpServer) -> BoxFuture<'a, TestReport> {
        Box::pin(async {
            TestReport {
                works: false,
                error: Some("this node starts no servers".to_owned()),
                protocol: None,
                server: None,
                tools: Vec::new(),
                resources: 0,
                prompts: 0,
                millis: 0,
            }
        })
    }

    fn replace<'a>(&'a self, _: Vec<McpServer>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn lacks<'a>(&'a self, _: &'a McpServer) -> BoxFuture<'a, Lacks> {
        Box::pin(std::future::ready(Lacks::default()))
    }

    fn shared_resources(&self) -> BoxFuture<'_, Vec<SharedResource>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    fn begin_sign_in<'a>(
        &'a self,
        server: &'a McpServer,
        _: &'a SignInWish,
        _: bool,
    ) -> BoxFuture<'a, Result<SignInBegun, UpstreamError>> {
        Box::pin(async move { Err(UpstreamError::Unknown(server.name.clone())) })
    }

    fn finish_sign_in<'a>(
        &'a self,
        server: &'a McpServer,
        _: &'a Secret,
    ) -> BoxFuture<'a, Result<SignedIn<'a>, UpstreamError>> {
        Box::pin(async move { Err(UpstreamError::Unknown(server.name.clone())) })
    }

    fn pins_changed<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
