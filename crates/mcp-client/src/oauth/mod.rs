//! Servers that want somebody to sign in: OAuth 2.1 as MCP has it. [`SignIn`] is a way out that signs in when it is told
//! to, and otherwise passes everything on.

mod challenge;
mod discovery;
mod grant;
mod journey;
mod registration;
mod token;

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{
    HeaderName, HeaderValue, Method, Request, Response,
    header::{ACCEPT, AUTHORIZATION},
};
use tokio::sync::Mutex;
use url::{Host, Url};

use self::{challenge::Challenge, discovery::Found, grant::Token, registration::Registered};
pub use self::{
    journey::Journey,
    token::{TokenError, Tokens, basic},
};
use crate::{
    error::Error,
    http::{Body, Http, read_body},
};

/// The largest document of an authorisation server that is read.
const LARGEST: usize = 256 << 10;
/// How often one request signs in: once to get in, once to be allowed more.
const MOST_ROUNDS: usize = 2;
/// Issuers that know this client.
const MOST_ISSUERS: usize = 16;
const OFFLINE: &str = "offline_access";

/// Shows somebody a page and waits until they come back.
pub trait Browser: Send + Sync {
    /// The address that the page led back to, with all its parameters.
    fn visit(&self, page: Url) -> BoxFuture<'_, Result<Url, String>>;
}

/// This client, as authorisation servers are told of it.
#[derive(Debug, Clone)]
pub struct Application {
    pub name: String,
    /// Where pages lead back to.
    pub redirect: Url,
    /// A document about this client on the web, which is then its name (Client ID Metadata Documents).
    pub document: Option<Url>,
    /// A name that an operator was given.
    pub known: Option<Known>,
}

#[derive(Clone, derive_more::Debug)]
pub struct Known {
    pub client_id: String,
    #[debug(skip)]
    pub secret: Option<String>,
    /// Who gave it. With none, it is shown to any issuer that the server names.
    pub issuer: Option<String>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum SignInError {
    #[error("the server names no authorisation server that could be found")]
    NoIssuer,
    #[error("the server calls itself `{0}`, which is somewhere else; nobody was asked to sign in")]
    OtherResource(Arc<str>),
    #[error("the authorisation server should be `{expected}` and says that it is `{found}`")]
    OtherIssuer { expected: Arc<str>, found: Arc<str> },
    #[error("the authorisation server does not know this client and registers none; give it a client id")]
    Unregistered,
    #[error("the authorisation server does not support PKCE with S256")]
    NoProofKey,
    #[error("`{0}` can't be used: it must be https, or on this machine, without a name or password in it")]
    Endpoint(Arc<str>),
    #[error("the authorisation server `{issuer}` sends people to a page of somebody else: `{page}`")]
    ForeignPage { issuer: Arc<str>, page: Arc<str> },
    #[error("what `{at}` answered can't be read: {reason}")]
    Unreadable { at: Arc<str>, reason: Arc<str> },
    #[error("{deed} was refused with HTTP status {status}: {reason}")]
    Refused { deed: &'static str, status: u16, reason: Arc<str> },
    #[error("nobody signed in: {0}")]
    Declined(Arc<str>),
    #[error("the answer from signing in was dropped: {0}")]
    Forged(&'static str),
    #[error("the authorisation server can't be reached: {0}")]
    Unreachable(Arc<str>),
    #[error("the system gave no random bytes")]
    NoRandomness,
}

impl SignInError {
    fn refused(deed: &'static str, status: u16, said: Option<String>) -> Self {
        let reason = said.map_or_else(|| "it was not said why".into(), Arc::from);
        Self::Refused { deed, status, reason }
    }
}

/// A way out to one server. Its tokens go to that server's origin and nowhere else.
#[derive(derive_more::Debug)]
pub struct SignIn {
    server: Url,
    #[debug(skip)]
    http: Arc<dyn Http>,
    #[debug(skip)]
    browser: Arc<dyn Browser>,
    application: Application,
    standing: Mutex<Standing>,
}

/// What earlier sign-ins left.
#[derive(Debug, Default)]
struct Standing {
    /// Changes with every token, so that requests that were refused together sign in once.
    turn: u64,
    token: Option<Token>,
    issuer: Option<String>,
    /// Everything that was ever asked for at that issuer.
    scopes: BTreeSet<String>,
    clients: Vec<Registered>,
}

impl SignIn {
    pub fn new(
        server: Url,
        http: Arc<dyn Http>,
        browser: Arc<dyn Browser>,
        application: Application,
    ) -> Self {
        Self { server, http, browser, application, standing: Mutex::default() }
    }

    async fn pass(&self, request: Request<Bytes>) -> Result<Response<Body>, String> {
        let is_own =
            Url::parse(&request.uri().to_string()).is_ok_and(|url| url.origin() == self.server.origin());
        if !is_own {
            return self.http.send(request).await;
        }
        let mut rounds = 0;
        loop {
            let (turn, header) = {
                let standing = self.standing.lock().await;
                (standing.turn, standing.token.as_ref().and_then(bearer))
            };
            let mut next = Request::new(request.body().clone());
            *next.method_mut() = request.method().clone();
            *next.uri_mut() = request.uri().clone();
            *next.headers_mut() = request.headers().clone();
            if let Some(header) = header {
                next.headers_mut().insert(AUTHORIZATION, header);
            }
            let response = self.http.send(next).await?;
            let challenge = match response.status().as_u16() {
                401 => Challenge::of(response.headers()),
                403 => Challenge::of(response.headers()),
                _ => return Ok(response),
            };
            let more = response.status().as_u16() == 403;
            if rounds == MOST_ROUNDS || (more && !challenge.wants_more()) {
                return Ok(response);
            }
            rounds += 1;
            let mut standing = self.standing.lock().await;
            if standing.turn != turn {
                continue;
            }
            if more && !standing.would_gain(&challenge) {
                return Ok(response);
            }
            self.sign_in(&mut standing, &challenge, more).await.map_err(|error| error.to_string())?;
        }
    }

    async fn sign_in(
        &self,
        standing: &mut Standing,
        challenge: &Challenge,
        more: bool,
    ) -> Result<(), SignInError> {
        let http = &*self.http;
        let found = discovery::find(http, &self.server, challenge.resource_metadata.as_deref()).await?;
        // Whatever another issuer gave is worth nothing here, and is not shown to this one.
        if standing.issuer.as_ref() != Some(&found.issuer.issuer) {
            *standing = Standing {
                turn: standing.turn,
                clients: std::mem::take(&mut standing.clients),
                ..Standing::default()
            };
        }
        let client = self.client(standing, &found).await?;
        let old = standing.token.take();
        let renewed = match old.and_then(|old| old.refresh).filter(|_| !more) {
            Some(refresh) => grant::renew(http, &found, &client, &refresh).await.ok(),
            None => None,
        };
        let scopes = wanted_scopes(&standing.scopes, challenge, &found);
        let token = match renewed {
            Some(token) => token,
            None => {
                grant::obtain(http, &*self.browser, &self.application.redirect, &found, &client, &scopes)
                    .await?
            }
        };
        standing.scopes.extend(scopes);
        standing.issuer = Some(found.issuer.issuer);
        standing.token = Some(token);
        standing.turn += 1;
        Ok(())
    }

    async fn client(&self, standing: &mut Standing, found: &Found) -> Result<Registered, SignInError> {
        if let Some(known) = standing.clients.iter().find(|client| client.issuer == found.issuer.issuer) {
            return Ok(known.clone());
        }
        let client = registration::register(&*self.http, &self.application, &found.issuer).await?;
        if standing.clients.len() == MOST_ISSUERS {
            standing.clients.remove(0);
        }
        standing.clients.push(client.clone());
        Ok(client)
    }
}

impl Http for SignIn {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(self.pass(request))
    }
}

impl Standing {
    /// Whether signing in again could be told apart from what was done before.
    fn would_gain(&self, challenge: &Challenge) -> bool {
        let asked = challenge.scope.as_deref().unwrap_or_default();
        asked.split_whitespace().any(|scope| !self.scopes.contains(scope))
    }
}

/// What the challenge asks for, else all that the resource has; with what was asked for before, and with leave to renew
/// where the issuer has that.
fn wanted_scopes(before: &BTreeSet<String>, challenge: &Challenge, found: &Found) -> Vec<String> {
    let mut scopes = before.clone();
    match (&challenge.scope, &found.scopes) {
        (Some(asked), _) => scopes.extend(asked.split_whitespace().map(str::to_owned)),
        (None, Some(all)) => scopes.extend(all.iter().cloned()),
        (None, None) => {}
    }
    let renewable = found.issuer.scopes_supported.iter().flatten().any(|scope| scope == OFFLINE);
    if !scopes.is_empty() && renewable {
        scopes.insert(OFFLINE.to_owned());
    }
    scopes.into_iter().collect()
}

fn bearer(token: &Token) -> Option<HeaderValue> {
    if token.is_stale() && token.refresh.is_some() {
        // Without it the server says so, and the token is renewed.
        return None;
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.access)).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// An address that codes and secrets may go to.
fn endpoint(text: &str) -> Result<Url, SignInError> {
    let refused = || SignInError::Endpoint(text.into());
    let url = Url::parse(text).map_err(|_| refused())?;
    let local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    // `https://accounts.example@evil.example` looks like somebody else's.
    let is_plain = url.username().is_empty() && url.password().is_none();
    let safe = is_plain && (url.scheme() == "https" || (url.scheme() == "http" && local));
    if safe { Ok(url) } else { Err(refused()) }
}

/// A document, or `None` where there is none.
async fn get(http: &dyn Http, url: &Url) -> Result<Option<Bytes>, SignInError> {
    let url = endpoint(url.as_str())?;
    let (status, bytes) =
        send(http, Method::GET, &url, &[(ACCEPT, "application/json".to_owned())], Vec::new()).await?;
    Ok((status == 200).then_some(bytes))
}

async fn send(
    http: &dyn Http,
    method: Method,
    url: &Url,
    headers: &[(HeaderName, String)],
    body: Vec<u8>,
) -> Result<(u16, Bytes), SignInError> {
    let unusable = || SignInError::Endpoint(url.as_str().into());
    let mut request = Request::new(Bytes::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = url.as_str().parse().map_err(|_| unusable())?;
    for (name, value) in headers {
        request.headers_mut().insert(name, HeaderValue::from_str(value).map_err(|_| unusable())?);
    }
    let response = http.send(request).await.map_err(|reason| SignInError::Unreachable(reason.into()))?;
    let status = response.status().as_u16();
    let bytes = read_body(response.into_body(), LARGEST).await;
    let bytes = bytes.map_err(|error: Error| SignInError::Unreachable(error.to_string().into()))?;
    Ok((status, bytes))
}
