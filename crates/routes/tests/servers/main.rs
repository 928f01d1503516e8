//! MCP servers as the route sees them: real processes and sockets, with pins and secrets that the test holds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../mcp-client/tests/client/fixture.rs"]
mod fixture;

mod http;
mod listening;
mod looking_after;
mod whose;

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use aegis_core::{
    Grant, Outcome, Secret, ToolSpec, Violation,
    config::{EgressConfig, ExecConfig, McpServer, SecretRef, StorageConfig, upstream::DefinitionTrust},
    progress::{Listener, Silence},
    secret::{Principal, Redactor, Resolved, SecretError, SecretSource, SubjectTokens},
    upstream::{BoxFuture, Definition, PinError, Pins, ServerState, ServerStatus, Standing, Upstreams},
};
use aegis_routes::{
    Catalog,
    egress::Egress,
    exec::Sandbox,
    files::Files,
    upstream::{Confinement, Parts, Servers},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Not a test: the server that the tests start. Its arguments come in a variable, since the harness has its own.
#[test]
#[ignore = "started by the tests as a server"]
fn fixture_server() {
    let arguments = std::env::var("FIXTURE_ARGUMENTS").unwrap_or_default();
    fixture::serve(arguments.split_whitespace().map(ToOwned::to_owned));
}

/// Knows one secret for each user.
struct Keys;

impl SecretSource for Keys {
    fn resolve<'a>(
        &'a self,
        reference: &'a SecretRef,
        principal: Option<&'a Principal>,
    ) -> Pin<Box<dyn Future<Output = Result<Resolved, SecretError>> + Send + 'a>> {
        Box::pin(async move {
            let user = principal.map_or("nobody", |principal| principal.user.as_str());
            match reference {
                SecretRef::Stored(name) if name == "missing" => Err(SecretError::NotStored(name.clone())),
                _ => Ok(Resolved { secret: Secret::new(format!("key-of-{user}")), expires: None }),
            }
        })
    }

    fn remember(&self, _: &Secret) {}

    fn redactor(&self) -> Arc<Redactor> {
        Arc::new(Redactor::new(&[Secret::new("key-of-someone")]))
    }

    fn keep<'a>(
        &'a self,
        reference: &'a SecretRef,
        _: &'a Secret,
    ) -> Pin<Box<dyn Future<Output = Result<(), SecretError>> + Send + 'a>> {
        Box::pin(async move { panic!("{reference}") })
    }

    fn replace<'a>(
        &'a self,
        reference: &'a SecretRef,
        _: &'a Secret,
        _: &'a Secret,
    ) -> Pin<Box<dyn Future<Output = Result<bool, SecretError>> + Send + 'a>> {
        Box::pin(async move { panic!("{reference}") })
    }

    fn generation(&self) -> u64 {
        0
    }
}

struct NoSubjects;

impl SubjectTokens for NoSubjects {
    fn sign<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a str,
        _: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretError>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(Secret::new("subject"))))
    }
}

/// Accepts what it sees first, and keeps to it; while the second is held, it takes its time.
#[derive(Default)]
struct Remembered(Mutex<HashMap<String, String>>, tokio::sync::Mutex<()>);

impl Pins for Remembered {
    fn see<'a>(
        &'a self,
        server: &'a str,
        _: DefinitionTrust,
        seen: &'a [Definition],
    ) -> BoxFuture<'a, Result<Vec<Standing>, PinError>> {
        Box::pin(async move {
            let _turn = self.1.lock().await;
            let mut known = self.0.lock().unwrap();
            let standing = |one: &Definition| {
                let pin = known.entry(format!("{server}/{}", one.tool)).or_insert_with(|| one.digest.clone());
                if *pin == one.digest { Standing::Accepted } else { Standing::Changed }
            };
            Ok(seen.iter().map(standing).collect())
        })
    }
}

struct Stage {
    catalog: Arc<Catalog>,
    servers: Servers,
    pins: Arc<Remembered>,
    _directory: tempfile::TempDir,
}

impl Stage {
    async fn with(servers: Vec<McpServer>) -> Self {
        let catalog = Arc::new(Catalog::default());
        let directory = tempfile::tempdir().unwrap();
        let pins = Arc::new(Remembered::default());
        let own = Principal { tenant: "local".into(), user: "aegis".into() };
        let running = Servers::new(Parts {
            catalog: Arc::clone(&catalog),
            secrets: Arc::new(Keys),
            subjects: Arc::new(NoSubjects),
            pins: pins.clone(),
            egress: EgressConfig::default(),
            directory: directory.path().to_owned(),
            confinement: Confinement {
                sandbox: Sandbox::new(&ExecConfig::default()),
                exec: ExecConfig::default(),
                egress: Egress::new(&EgressConfig::default()).unwrap(),
                files: Arc::new(
                    Files::new(directory.path().join("volumes"), &StorageConfig::default()).unwrap(),
                ),
                journal: Arc::new(Silence),
                data: directory.path().to_owned(),
            },
            own,
            name: "test".into(),
            version: "1",
            via: "this-node".into(),
        })
        .unwrap();
        running.replace(servers).await;
        Self { catalog, servers: running, pins, _directory: directory }
    }

    /// With one fixture called `fix` that runs.
    async fn running(arguments: &str, change: impl FnOnce(&mut McpServer)) -> Self {
        let mut server = program("fix", arguments);
        change(&mut server);
        let stage = Self::with(vec![server]).await;
        stage.tool("fix.echo").await;
        stage
    }

    fn status(&self, name: &str) -> ServerStatus {
        self.servers.list().into_iter().find(|status| status.name == name).unwrap()
    }

    async fn state(&self, name: &str, state: ServerState) {
        self.until(|| self.status(name).state == state).await;
    }

    async fn tool(&self, name: &str) {
        self.until(|| self.catalog.resolve(name).is_some()).await;
    }

    async fn until(&self, happened: impl Fn() -> bool) {
        let waiting = async {
            while !happened() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(20), waiting).await;
        assert!(ended.is_ok(), "{:#?}", self.servers.list());
    }

    async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        self.call_heard(tool, arguments, &Silence, &CancellationToken::new()).await.unwrap()
    }

    async fn call_heard(
        &self,
        tool: &str,
        arguments: Value,
        listener: &dyn Listener,
        cancel: &CancellationToken,
    ) -> Result<Outcome, Violation> {
        let spec = self.catalog.resolve(tool).unwrap_or_else(|| panic!("no {tool}"));
        self.carry_out("local", &spec, arguments, listener, cancel).await
    }

    /// As somebody of another tenant.
    async fn call_as(&self, tenant: &str, tool: &str, arguments: Value) -> Outcome {
        let spec = self.catalog.resolve(tool).unwrap_or_else(|| panic!("no {tool}"));
        self.carry_out(tenant, &spec, arguments, &Silence, &CancellationToken::new()).await.unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
    async fn carry_out(
        &self,
        tenant: &str,
        spec: &ToolSpec,
        arguments: Value,
        listener: &dyn Listener,
        cancel: &CancellationToken,
    ) -> Result<Outcome, Violation> {
        let permit = common::permit(tenant, &spec.name, Grant::default());
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let directory = common::EmptyDirectory;
        self.catalog.carry_out(permit, spec, arguments, &directory, &directory, cancel, listener).await
    }
}

fn program(name: &str, arguments: &str) -> McpServer {
    let mut server = McpServer::named(name);
    server.executable = Some(std::env::current_exe().unwrap().display().to_string());
    server.args =
        ["fixture_server", "--exact", "--ignored", "--nocapture", "--quiet"].map(str::to_owned).to_vec();
    server.environment = [("FIXTURE_ARGUMENTS".to_owned(), arguments.to_owned())].into();
    server
}
