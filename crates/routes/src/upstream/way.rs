//! How a server is reached: its program with what it is given, or its address with what it is shown.

use std::{path::PathBuf, sync::Arc};

use aegis_core::{
    config::{
        McpServer,
        upstream::{HttpTransport, INHERITED_ENVIRONMENT, Reach},
    },
    id::TenantId,
    secret::{Principal, SecretSource},
    upstream::VIA,
};
use aegis_mcp_client::{
    Client, Command, Credentials, Endpoint, Error, Handler, Http, Identity, Limits, Preference,
};
use http::{HeaderName, HeaderValue};
use serde_json::json;
use url::Url;

use super::{
    credentials::{HeaderCredentials, environment},
    oauth::AccessTokens,
    sandboxed::Confinement,
    sign_in::SignIns,
};

/// A server that takes this long to say whether it knows the newest version is asked in the older way too.
const PROBE: std::time::Duration = std::time::Duration::from_secs(3);

/// What connections are made of, whichever server they lead to.
#[derive(derive_more::Debug)]
pub(super) struct Ways {
    #[debug(skip)]
    pub(super) secrets: Arc<dyn SecretSource>,
    #[debug(skip)]
    pub(super) tokens: Arc<AccessTokens>,
    #[debug(skip)]
    pub(super) http: Arc<dyn Http>,
    /// Where programs start that name no directory.
    pub(super) directory: PathBuf,
    pub(super) confinement: Confinement,
    /// Whose volumes a server sees that all callers share.
    pub(super) tenant: TenantId,
    pub(super) node: String,
    pub(super) version: &'static str,
    /// This node, for [`VIA`].
    pub(super) via: HeaderValue,
    pub(super) sign_ins: SignIns,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NoWay {
    #[error("{0}")]
    Secret(#[from] aegis_core::secret::SecretError),
    #[error("{0}")]
    Mcp(#[from] Error),
    #[error("{0}")]
    Config(String),
}

/// A variable of the node's own environment.
fn own_variable(name: &str) -> Option<(String, String)> {
    Some((name.to_owned(), std::env::var(name).ok()?))
}

impl Ways {
    fn identity(&self) -> Identity {
        // What callers can be asked differs from one to the next; servers that want to know beforehand hear the most.
        let capabilities = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        Identity::new(&self.node, self.version, capabilities.as_object().unwrap_or(&serde_json::Map::new()))
    }

    pub(super) async fn open(
        &self,
        server: &McpServer,
        principal: Option<&Principal>,
        handler: &Arc<dyn Handler>,
    ) -> Result<Client, NoWay> {
        let limits = Limits {
            message: usize::try_from(server.limits.max_message.0).unwrap_or(usize::MAX),
            pending: server.limits.max_concurrent_calls as usize + 64,
            entries: server.limits.max_tools as usize,
            handshake: server.limits.start_timeout.0,
            probe: PROBE.min(server.limits.start_timeout.0 / 3),
            ..Limits::default()
        };
        match server.reach() {
            Some(Reach::Program { executable, args }) => match &server.sandbox {
                Some(sandbox) => {
                    let environment = self.named_environment(server, principal).await?;
                    let tenant = principal.map_or(&self.tenant, |principal| &principal.tenant);
                    let confined = self.confinement.confine(server, sandbox, tenant, environment).await;
                    let confined = confined.map_err(NoWay::Config)?;
                    let preference = Preference::Any;
                    Ok(Client::hosted(&confined, preference, &self.identity(), &limits, handler).await?)
                }
                None => {
                    let command = self.command(server, executable, args, principal).await?;
                    Ok(Client::spawn(&command, &self.identity(), &limits, handler).await?)
                }
            },
            Some(Reach::Address { url, transport }) => {
                let endpoint = self.endpoint(server, url, transport, principal)?;
                // A missing secret is told as what it is, not as an address that can't be reached.
                endpoint.credentials.headers(false).await.map_err(NoWay::Config)?;
                Ok(match transport {
                    HttpTransport::Sse => {
                        Client::connect_older(&endpoint, &self.identity(), &limits, handler).await?
                    }
                    HttpTransport::Auto | HttpTransport::StreamableHttp => {
                        Client::connect(&endpoint, &self.identity(), &limits, handler).await?
                    }
                })
            }
            None => Err(NoWay::Config("the configuration says neither `executable` nor `url`".into())),
        }
    }

    async fn command(
        &self,
        server: &McpServer,
        executable: &str,
        args: &[String],
        principal: Option<&Principal>,
    ) -> Result<Command, NoWay> {
        let mut environment: Vec<_> = INHERITED_ENVIRONMENT.into_iter().filter_map(own_variable).collect();
        environment.extend(self.named_environment(server, principal).await?);
        let directory = match &server.working_directory {
            Some(chosen) => PathBuf::from(chosen),
            None => self.own_directory(&server.name).await?,
        };
        Ok(Command {
            program: executable.to_owned(),
            args: args.to_vec(),
            environment,
            directory: Some(directory),
            preference: Preference::Any,
        })
    }

    /// The variables that a server's entry names: of the node's own environment, in plain, and its credentials.
    async fn named_environment(
        &self,
        server: &McpServer,
        principal: Option<&Principal>,
    ) -> Result<Vec<(String, String)>, NoWay> {
        let inherited = server.inherit_environment.iter().filter_map(|name| own_variable(name));
        let given = environment(server, &*self.secrets, principal).await?;
        let given = given.into_iter().map(|(name, value)| (name, value.expose().to_owned()));
        Ok(inherited.chain(given).collect())
    }

    /// Where a program starts that was given no place: an empty directory, never one with the node's keys in it.
    async fn own_directory(&self, server: &str) -> Result<PathBuf, NoWay> {
        let directory = self.directory.join(server);
        let made = tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).await;
        made.map_err(|error| NoWay::Config(format!("`{}` can't be made: {error}", directory.display())))?;
        Ok(directory)
    }

    fn endpoint(
        &self,
        server: &McpServer,
        url: &str,
        transport: HttpTransport,
        principal: Option<&Principal>,
    ) -> Result<Endpoint, NoWay> {
        let url = Url::parse(url).map_err(|error| NoWay::Config(format!("`url` is no address: {error}")))?;
        let (secrets, tokens) = (Arc::clone(&self.secrets), Arc::clone(&self.tokens));
        let credentials: Arc<dyn Credentials> =
            Arc::new(HeaderCredentials::new(Arc::new(server.clone()), principal.cloned(), secrets, tokens));
        Ok(Endpoint {
            url,
            http: Arc::clone(&self.http),
            credentials,
            headers: vec![(HeaderName::from_static(VIA), self.via.clone())],
            preference: if transport == HttpTransport::Sse { Preference::Handshake } else { Preference::Any },
        })
    }
}
