//! Access tokens for HTTP servers: client credentials (RFC 6749 §4.4), token exchange (RFC 8693), and those of a person
//! who signed in (RFC 6749 §4.1), which `signed_in` keeps and renews.
//!
//! A token is kept until shortly before it runs out, and however many calls need one at a time, one request is made
//! for it. What a caller presented to the node has no way into any of this: for a caller stands a token that the node
//! signs itself, or one that an operator stored for that caller.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use aegis_core::{
    Secret,
    config::{
        McpServer, SecretRef,
        upstream::{ClientAuthentication, Grant, OauthConfig, SubjectToken},
    },
    secret::{Principal, SecretError, SecretSource, SubjectTokens},
};
use aegis_mcp_client::{
    Http,
    http::Body,
    oauth::{TokenError, Tokens, basic},
};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use tokio::time::Instant;
use url::form_urlencoded;

use super::signed_in::Turns;

/// Tokens that are kept: one for each server, and for each of its callers where they have their own.
const MOST_KEPT: usize = 10_000;
/// An answer with a token is a few kilobytes.
const LARGEST_ANSWER: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(15);
/// Of a token whose end is not told.
const ASSUMED_LIFE: Duration = Duration::from_secs(300);
/// So much before its end a token counts as over: a call made with it must still arrive.
const MARGIN: Duration = Duration::from_secs(60);
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A refusal is told again for so long instead of asked for again.
const HOLD_REFUSAL: Duration = Duration::from_secs(2);
/// Of what the other side says about a refusal.
const LONGEST_REASON: usize = 200;

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OauthError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("nobody is signed in to `{0}`, or not any more: `aegis upstream sign-in {0}`")]
    NotSignedIn(String),
    #[error("tokens for `{0}` are exchanged for a caller, and nobody calls")]
    NoPrincipal(String),
    #[error("the token endpoint {endpoint} can't be reached: {reason}")]
    Unreachable { endpoint: String, reason: String },
    #[error("the token endpoint {endpoint} refused: {reason}")]
    Refused { endpoint: String, reason: String },
    #[error("the token endpoint {endpoint} answered with something that is no token: {reason}")]
    Unreadable { endpoint: String, reason: String },
}

/// What a token endpoint gave.
pub(super) struct Fresh {
    pub(super) access: Secret,
    /// How long it may be used.
    pub(super) life: Duration,
    pub(super) refresh: Option<Secret>,
}

impl From<Tokens> for Fresh {
    fn from(tokens: Tokens) -> Self {
        Self {
            access: Secret::new(tokens.access),
            life: usable_life(tokens.life),
            refresh: tokens.refresh.map(Secret::new),
        }
    }
}

/// An access token, and which of the tokens for its server it is.
#[derive(Debug, Clone)]
pub struct AccessToken {
    pub secret: Secret,
    /// Tells one token from the next without comparing them.
    pub serial: u64,
}

/// The tokens of all servers.
#[derive(derive_more::Debug)]
pub struct AccessTokens {
    #[debug(skip)]
    http: Arc<dyn Http>,
    #[debug(skip)]
    pub(super) secrets: Arc<dyn SecretSource>,
    #[debug(skip)]
    subjects: Arc<dyn SubjectTokens>,
    #[debug(skip)]
    kept: Mutex<HashMap<Key, Arc<Slot>>>,
    /// Renewals under way: a refresh token may be good once, whichever of the servers that share it needs it.
    #[debug(skip)]
    pub(super) renewals: Turns,
}

/// A server that was configured anew does not get the tokens of the old one: they may be good for more, or for
/// somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    server: String,
    principal: Option<Principal>,
    oauth: OauthConfig,
    resource: Option<String>,
}

impl Hash for Key {
    // Equal keys agree in these; the rest seldom tells two apart.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.server.hash(state);
        self.principal.hash(state);
        self.oauth.token_url.hash(state);
    }
}

/// Held while a token is asked for, so that one request serves all who wait.
type Slot = tokio::sync::Mutex<Held>;

#[derive(Debug, Default)]
struct Held {
    serial: u64,
    /// Of the secret store, before it was read.
    generation: u64,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Nothing,
    Token {
        secret: Secret,
        until: Instant,
    },
    Refused {
        error: OauthError,
        until: Instant,
    },
}

impl AccessTokens {
    pub fn new(
        http: Arc<dyn Http>,
        secrets: Arc<dyn SecretSource>,
        subjects: Arc<dyn SubjectTokens>,
    ) -> Self {
        Self { http, secrets, subjects, kept: Mutex::default(), renewals: Turns::default() }
    }

    /// A token for this server. `refused` is the serial of one that the server did not take.
    pub async fn get(
        self: &Arc<Self>,
        server: &McpServer,
        oauth: &OauthConfig,
        principal: Option<&Principal>,
        refused: Option<u64>,
    ) -> Result<AccessToken, OauthError> {
        let principal = match oauth.grant {
            Grant::ClientCredentials | Grant::AuthorizationCode => None,
            Grant::TokenExchange => {
                Some(principal.ok_or_else(|| OauthError::NoPrincipal(server.name.clone()))?)
            }
        };
        let slot = self.slot(server, oauth, principal);
        let mut held = slot.lock().await;
        let (now, generation) = (Instant::now(), self.secrets.generation());
        // What somebody's sign-in gave is good for as long as it is stored, and another may have signed in.
        let is_current = oauth.grant != Grant::AuthorizationCode || held.generation == generation;
        let is_refused = refused == Some(held.serial);
        let before = match &held.state {
            State::Token { secret, until } if *until > now && is_current && !is_refused => {
                return Ok(AccessToken { secret: secret.clone(), serial: held.serial });
            }
            State::Refused { error, until } if *until > now && is_current => return Err(error.clone()),
            State::Token { secret, .. } => Some(secret.clone()),
            State::Nothing | State::Refused { .. } => None,
        };
        let asked = match oauth.grant {
            Grant::AuthorizationCode => {
                self.of_signed_in(server, oauth, before.clone().filter(|_| is_refused)).await
            }
            Grant::ClientCredentials => self.of_client(server, oauth).await,
            Grant::TokenExchange => self.exchanged(server, oauth, principal).await,
        };
        held.generation = generation;
        match asked {
            Ok(Fresh { access: secret, life, .. }) => {
                self.secrets.remember(&secret);
                // One that was only read again is no other.
                if is_refused || before.as_ref() != Some(&secret) {
                    held.serial += 1;
                }
                held.state = State::Token { secret: secret.clone(), until: now + life };
                Ok(AccessToken { secret, serial: held.serial })
            }
            Err(error) => {
                held.state = State::Refused { error: error.clone(), until: now + HOLD_REFUSAL };
                Err(error)
            }
        }
    }

    /// Drops what is held for a server: somebody else may have signed in.
    pub(super) fn forget(&self, server: &str) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|key, _| key.server != server);
    }

    fn slot(&self, server: &McpServer, oauth: &OauthConfig, principal: Option<&Principal>) -> Arc<Slot> {
        let key = Key {
            server: server.name.clone(),
            principal: principal.cloned(),
            oauth: oauth.clone(),
            resource: resource(server, oauth).map(str::to_owned),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT && !kept.contains_key(&key) {
            // Whoever holds one at this moment keeps it; the next who asks gets another.
            let stale = |slot: &Slot| slot.try_lock().is_ok_and(|held| held.is_over());
            kept.retain(|_, slot| !stale(slot));
            if kept.len() >= MOST_KEPT {
                kept.clear();
            }
        }
        Arc::clone(kept.entry(key).or_default())
    }

    async fn of_client(&self, server: &McpServer, oauth: &OauthConfig) -> Result<Fresh, OauthError> {
        let form = Form::of(oauth, "client_credentials");
        let request = self.addressed(server, oauth, None, form).await?;
        self.send(oauth, request).await
    }

    async fn exchanged(
        &self,
        server: &McpServer,
        oauth: &OauthConfig,
        principal: Option<&Principal>,
    ) -> Result<Fresh, OauthError> {
        let (subject, kind) = self.subject(server, oauth, principal).await?;
        let mut form = Form::of(oauth, EXCHANGE);
        form.add("subject_token", subject.expose());
        form.add("subject_token_type", &kind);
        form.add("requested_token_type", ACCESS_TOKEN);
        if let Some(actor) = &oauth.actor_token {
            form.add("actor_token", self.secret(actor, principal).await?.expose());
            form.add("actor_token_type", ACCESS_TOKEN);
        }
        let request = self.addressed(server, oauth, principal, form).await?;
        self.send(oauth, request).await
    }

    /// Asks the token endpoint.
    pub(super) async fn send(
        &self,
        oauth: &OauthConfig,
        request: Request<Bytes>,
    ) -> Result<Fresh, OauthError> {
        let endpoint = shown(&oauth.token_url);
        let unreachable = |reason: String| OauthError::Unreachable { endpoint: endpoint.clone(), reason };
        let exchange = async {
            let response = self.http.send(request).await.map_err(unreachable)?;
            let status = response.status();
            let body = whole(response.into_body()).await;
            let body =
                body.ok_or_else(|| unreachable("its answer broke off, or was too large".to_owned()))?;
            Ok((status, body))
        };
        let (status, body) = tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| Err(unreachable(format!("no answer within {}s", PATIENCE.as_secs()))))?;
        match Tokens::read(status.as_u16(), &body) {
            Ok(tokens) => Ok(tokens.into()),
            Err(error @ TokenError::Refused { .. }) => {
                Err(OauthError::Refused { endpoint, reason: self.harmless(&error.to_string()) })
            }
            Err(TokenError::Unreadable(reason)) => {
                Err(OauthError::Unreadable { endpoint, reason: reason.to_owned() })
            }
        }
    }

    /// A request of this client, for tokens that are good at this server.
    pub(super) async fn addressed(
        &self,
        server: &McpServer,
        oauth: &OauthConfig,
        principal: Option<&Principal>,
        mut form: Form,
    ) -> Result<Request<Bytes>, OauthError> {
        if let Some(resource) = resource(server, oauth) {
            form.add("resource", resource);
        }
        let secret = match &oauth.client_secret {
            Some(reference) => Some(self.secret(reference, principal).await?),
            None => None,
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&oauth.token_url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        match (&secret, oauth.client_authentication) {
            (Some(secret), ClientAuthentication::Basic) => {
                request = request.header(header::AUTHORIZATION, basic(&oauth.client_id, secret.expose()));
            }
            (Some(secret), ClientAuthentication::Post) => {
                form.add("client_id", &oauth.client_id);
                form.add("client_secret", secret.expose());
            }
            (None, _) => form.add("client_id", &oauth.client_id),
        }
        request.body(Bytes::from(form.0)).map_err(|error| OauthError::Unreachable {
            endpoint: shown(&oauth.token_url),
            reason: error.to_string(),
        })
    }

    async fn subject(
        &self,
        server: &McpServer,
        oauth: &OauthConfig,
        principal: Option<&Principal>,
    ) -> Result<(Secret, String), OauthError> {
        let nobody = || OauthError::NoPrincipal(server.name.clone());
        match oauth.subject.as_ref().zip(principal).ok_or_else(nobody)? {
            (SubjectToken::Signed { issuer }, principal) => {
                let token = self.subjects.sign(principal, &oauth.token_url, issuer.as_deref()).await?;
                Ok((token, JWT.to_owned()))
            }
            (SubjectToken::Stored { token, token_type }, principal) => {
                let secret = self.secret(token, Some(principal)).await?;
                Ok((secret, token_type.clone().unwrap_or_else(|| ACCESS_TOKEN.to_owned())))
            }
        }
    }

    async fn secret(
        &self,
        reference: &SecretRef,
        principal: Option<&Principal>,
    ) -> Result<Secret, OauthError> {
        Ok(self.secrets.resolve(reference, principal).await?.secret)
    }

    /// Words of the other side as they may be shown: short, on one line, without what was sent to it.
    fn harmless(&self, text: &str) -> String {
        let redactor = self.secrets.redactor();
        redactor.text(text).chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect()
    }
}

impl Held {
    fn is_over(&self) -> bool {
        match &self.state {
            State::Nothing => true,
            State::Token { until, .. } | State::Refused { until, .. } => *until <= Instant::now(),
        }
    }
}

/// How long a token may be used that is good for so long.
fn usable_life(told: Option<Duration>) -> Duration {
    let life = told.unwrap_or(ASSUMED_LIFE).min(LONGEST_LIFE);
    if life > 2 * MARGIN { life - MARGIN } else { life / 2 }
}

/// The address a token is for.
fn resource<'a>(server: &'a McpServer, oauth: &'a OauthConfig) -> Option<&'a str> {
    oauth.resource.as_deref().or(server.url.as_deref()).filter(|resource| !resource.is_empty())
}

/// A body up to the largest answer.
async fn whole(mut body: Body) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.ok()?.into_data().unwrap_or_default();
        if bytes.len() + data.len() > LARGEST_ANSWER {
            return None;
        }
        bytes.extend_from_slice(&data);
    }
    Some(bytes)
}

/// `application/x-www-form-urlencoded`.
#[derive(Default)]
pub(super) struct Form(String);

impl Form {
    /// A grant for what the configuration says it is to be good for.
    fn of(oauth: &OauthConfig, grant: &str) -> Self {
        let mut form = Self::default();
        form.add("grant_type", grant);
        if !oauth.scopes.is_empty() {
            form.add("scope", &oauth.scopes.join(" "));
        }
        if let Some(audience) = &oauth.audience {
            form.add("audience", audience);
        }
        form
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(form_urlencoded::byte_serialize(value.as_bytes()));
    }
}

/// Without a query, which may be anything.
fn shown(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}
