//! Against a real token server on loopback, which speaks the wire format of the RFCs.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use aegis_core::{
    Secret,
    config::{McpServer, SecretRef, upstream},
    secret::{Principal, Redactor, Resolved, SecretError, SecretSource, SubjectTokens},
};
use aegis_mcp_client::{Credentials, Http, http::Body};
use axum::{
    Form, Json, Router,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};

use super::{
    credentials::HeaderCredentials,
    oauth::{AccessTokens, OauthError},
};

/// A secret source that knows two things, and what it was given to keep.
#[derive(Default)]
pub(super) struct Source {
    known: Mutex<Vec<Secret>>,
    asked: AtomicUsize,
    generation: AtomicUsize,
    stored: Mutex<HashMap<String, Secret>>,
}

impl Source {
    /// Puts something into the store, or takes it out, as an operator does.
    pub(super) fn put(&self, name: &str, value: Option<&str>) {
        let mut stored = self.stored.lock().unwrap();
        match value {
            Some(value) => stored.insert(name.to_owned(), Secret::new(value)),
            None => stored.remove(name),
        };
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn stored(&self, name: &str) -> Option<String> {
        self.stored.lock().unwrap().get(name).map(|secret| secret.expose().to_owned())
    }
}

impl SecretSource for Source {
    fn resolve<'a>(
        &'a self,
        reference: &'a SecretRef,
        principal: Option<&'a Principal>,
    ) -> Pin<Box<dyn Future<Output = Result<Resolved, SecretError>> + Send + 'a>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let SecretRef::Stored(name) = reference else { panic!("{reference}") };
            let value = match (name.as_str(), principal) {
                ("client", _) => "client s3cret/+".to_owned(),
                ("key", _) => format!("key-value-{}", self.generation.load(Ordering::SeqCst)),
                ("tokens/{user}", Some(principal)) => format!("token-of-{}", principal.user),
                _ => self.stored(name).ok_or_else(|| SecretError::NotStored(name.clone()))?,
            };
            let secret = Secret::new(value);
            self.remember(&secret);
            Ok(Resolved { secret, expires: None })
        })
    }

    fn keep<'a>(
        &'a self,
        reference: &'a SecretRef,
        secret: &'a Secret,
    ) -> Pin<Box<dyn Future<Output = Result<(), SecretError>> + Send + 'a>> {
        let SecretRef::Stored(name) = reference else { panic!("{reference}") };
        self.put(name, Some(secret.expose()));
        Box::pin(std::future::ready(Ok(())))
    }

    fn replace<'a>(
        &'a self,
        reference: &'a SecretRef,
        before: &'a Secret,
        secret: &'a Secret,
    ) -> Pin<Box<dyn Future<Output = Result<bool, SecretError>> + Send + 'a>> {
        let SecretRef::Stored(name) = reference else { panic!("{reference}") };
        let is_there = self.stored(name).as_deref() == Some(before.expose());
        if is_there {
            self.put(name, Some(secret.expose()));
        }
        Box::pin(std::future::ready(Ok(is_there)))
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst) as u64
    }

    fn remember(&self, secret: &Secret) {
        self.known.lock().unwrap().push(secret.clone());
    }

    fn redactor(&self) -> Arc<Redactor> {
        Arc::new(Redactor::new(&*self.known.lock().unwrap()))
    }
}

struct Signer;

impl SubjectTokens for Signer {
    fn sign<'a>(
        &'a self,
        principal: &'a Principal,
        audience: &'a str,
        _: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretError>> + Send + 'a>> {
        Box::pin(async move { Ok(Secret::new(format!("signed:{}:{audience}", principal.user))) })
    }
}

struct Loopback(Client<HttpConnector, Full<Bytes>>);

impl Http for Loopback {
    fn send(&self, request: http::Request<Bytes>) -> BoxFuture<'_, Result<http::Response<Body>, String>> {
        Box::pin(async move {
            let sent = self.0.request(request.map(Full::new)).await.map_err(|error| error.to_string())?;
            Ok(sent.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}

type Asked = (HeaderMap, HashMap<String, String>);
type Answer = dyn Fn(usize, &HashMap<String, String>) -> Response + Send + Sync;

/// What a token server was asked, and what it answers.
pub(super) struct TokenServer {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl TokenServer {
    pub(super) async fn start(
        answer: impl Fn(usize, &HashMap<String, String>) -> Response + Send + Sync + 'static,
    ) -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer: Arc<Answer> = Arc::new(answer);
        let log = Arc::clone(&asked);
        let handler = move |headers: HeaderMap, Form(form): Form<HashMap<String, String>>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let number = {
                    let mut log = log.lock().unwrap();
                    log.push((headers, form.clone()));
                    log.len()
                };
                tokio::task::yield_now().await;
                answer(number, &form)
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let router = Router::new().route("/token", post(handler));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, asked }
    }

    pub(super) fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn last(&self) -> Asked {
        self.asked.lock().unwrap().last().unwrap().clone()
    }

    fn server(&self, more: &str) -> McpServer {
        let text = format!(
            "name: remote\nurl: https://mcp.example.org/mcp\nidentity: per_principal\noauth:\n  token_url: {}\n  \
             client_id: aegis node\n{more}",
            self.url
        );
        upstream::parse(&text).unwrap().remove(0)
    }
}

const CLIENT: &str = "  grant: client_credentials\n  client_secret: secret:client\n";
const EXCHANGE: &str = "  grant: token_exchange\n  client_secret: secret:client\n  subject: {signed: {}}\n";

fn granted(token: &str, seconds: u64) -> Response {
    Json(json!({"access_token": token, "token_type": "bearer", "expires_in": seconds})).into_response()
}

pub(super) fn tokens() -> (Arc<AccessTokens>, Arc<Source>) {
    let source = Arc::new(Source::default());
    let http = Arc::new(Loopback(Client::builder(TokioExecutor::new()).build_http()));
    let secrets: Arc<dyn SecretSource> = source.clone();
    (Arc::new(AccessTokens::new(http, secrets, Arc::new(Signer))), source)
}

pub(super) async fn get(
    tokens: &Arc<AccessTokens>,
    server: &McpServer,
    user: Option<&str>,
    refused: Option<u64>,
) -> Result<(String, u64), OauthError> {
    let principal = user.map(|user| Principal { tenant: "local".into(), user: user.into() });
    let oauth = server.oauth.as_ref().unwrap();
    let token = tokens.get(server, oauth, principal.as_ref(), refused).await?;
    Ok((token.secret.expose().to_owned(), token.serial))
}

#[tokio::test]
async fn client_credentials_as_the_rfc_writes_them() {
    let endpoint = TokenServer::start(|number, _| granted(&format!("at-{number}"), 3600)).await;
    let server = endpoint.server(&format!("{CLIENT}  scopes: [read, write]\n  audience: them\n"));
    let (tokens, _) = tokens();
    assert_eq!(get(&tokens, &server, None, None).await.unwrap().0, "at-1");
    let (headers, form) = endpoint.last();
    // `client s3cret/+` as in a form, then base64.
    assert_eq!(headers["authorization"], "Basic YWVnaXMrbm9kZTpjbGllbnQrczNjcmV0JTJGJTJC");
    assert_eq!(form["grant_type"], "client_credentials");
    assert_eq!((form["scope"].as_str(), form["audience"].as_str()), ("read write", "them"));
    assert_eq!(form["resource"], "https://mcp.example.org/mcp");
    assert!(!form.contains_key("client_secret") && !form.contains_key("subject_token"));
    // It is kept, for every caller.
    assert_eq!(get(&tokens, &server, Some("ann"), None).await.unwrap().0, "at-1");
    assert_eq!(endpoint.count(), 1);
}

#[tokio::test]
async fn a_client_may_show_its_secret_in_the_form() {
    let endpoint = TokenServer::start(|_, _| granted("at", 3600)).await;
    let server = endpoint.server(&format!("{CLIENT}  client_authentication: post\n  resource: ''\n"));
    get(&tokens().0, &server, None, None).await.unwrap();
    let (headers, form) = endpoint.last();
    assert!(!headers.contains_key("authorization") && !form.contains_key("resource"));
    assert_eq!(
        (form["client_id"].as_str(), form["client_secret"].as_str()),
        ("aegis node", "client s3cret/+")
    );
}

#[tokio::test]
async fn tokens_are_exchanged_for_each_caller() {
    let endpoint =
        TokenServer::start(|_, form| granted(&format!("for-{}", &form["subject_token"]), 3600)).await;
    let server = endpoint.server(EXCHANGE);
    let (tokens, _) = tokens();
    let (ann, bob) = (
        get(&tokens, &server, Some("ann"), None).await.unwrap(),
        get(&tokens, &server, Some("bob"), None).await.unwrap(),
    );
    assert_eq!(ann.0, format!("for-signed:ann:{}", endpoint.url));
    assert_eq!(bob.0, format!("for-signed:bob:{}", endpoint.url));
    let (_, form) = endpoint.last();
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:token-exchange");
    assert_eq!(form["subject_token_type"], "urn:ietf:params:oauth:token-type:jwt");
    assert_eq!(form["requested_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    get(&tokens, &server, Some("ann"), None).await.unwrap();
    assert_eq!(endpoint.count(), 2, "each is kept");
    assert_eq!(get(&tokens, &server, None, None).await, Err(OauthError::NoPrincipal("remote".into())));

    let stored = endpoint.server(
        "  grant: token_exchange\n  actor_token: secret:client\n  subject: {stored: {token: 'secret:tokens/{user}'}}\n",
    );
    assert_eq!(get(&tokens, &stored, Some("ann"), None).await.unwrap().0, "for-token-of-ann");
    let (_, form) = endpoint.last();
    assert_eq!(form["subject_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert_eq!((form["actor_token"].as_str(), form["client_id"].as_str()), ("client s3cret/+", "aegis node"));
}

#[tokio::test]
async fn a_token_does_not_outlive_what_it_was_asked_for() {
    let endpoint = TokenServer::start(|number, _| granted(&format!("at-{number}"), 3600)).await;
    let (tokens, _) = tokens();
    let wide = endpoint.server(&format!("{CLIENT}  scopes: [read, write]\n"));
    let narrow = endpoint.server(&format!("{CLIENT}  scopes: [read]\n"));
    let mut elsewhere = narrow.clone();
    elsewhere.url = Some("https://other.example.org/mcp".into());
    for (server, token) in [(&wide, "at-1"), (&narrow, "at-2"), (&elsewhere, "at-3"), (&narrow, "at-2")] {
        assert_eq!(get(&tokens, server, None, None).await.unwrap().0, token);
    }
    assert_eq!(endpoint.count(), 3);
}

#[tokio::test]
async fn many_who_wait_make_one_request() {
    let endpoint = TokenServer::start(|number, _| granted(&format!("at-{number}"), 3600)).await;
    let server = endpoint.server(CLIENT);
    let (tokens, _) = tokens();
    let all = join_all((0..100).map(|_| get(&tokens, &server, None, None))).await;
    assert!(all.iter().all(|one| one.as_ref().unwrap().0 == "at-1"));
    assert_eq!(endpoint.count(), 1);
    // A refused one is got anew, once for all who were refused.
    let all = join_all((0..100).map(|_| get(&tokens, &server, None, Some(1)))).await;
    assert!(all.iter().all(|one| one.as_ref().unwrap() == &("at-2".to_owned(), 2)));
    assert_eq!(endpoint.count(), 2);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_runs_out() {
    let endpoint = TokenServer::start(|number, _| granted(&format!("at-{number}"), 0)).await;
    let server = endpoint.server(CLIENT);
    let (tokens, _) = tokens();
    assert_eq!(get(&tokens, &server, None, None).await.unwrap().0, "at-1");
    assert_eq!(get(&tokens, &server, None, None).await.unwrap().0, "at-2");
}

#[tokio::test]
async fn what_is_no_token_is_told_without_secrets() {
    let bad =
        |answer: Value| move |_: usize, _: &HashMap<String, String>| Json(answer.clone()).into_response();
    for answer in [
        json!({"token_type": "bearer"}),
        json!({"access_token": "", "token_type": "bearer"}),
        json!({"access_token": "a\nb", "token_type": "bearer"}),
        json!({"access_token": "at", "token_type": "N_A"}),
        json!(["at"]),
    ] {
        let endpoint = TokenServer::start(bad(answer.clone())).await;
        let found = get(&tokens().0, &endpoint.server(CLIENT), None, None).await;
        assert!(matches!(found, Err(OauthError::Unreadable { .. })), "{answer}: {found:?}");
    }
    let endpoint = TokenServer::start(|_, _| {
        let said = json!({"error": "invalid_client", "error_description": "no client with client s3cret/+\u{1b}[2J"});
        (StatusCode::UNAUTHORIZED, Json(said)).into_response()
    })
    .await;
    let (tokens, _) = tokens();
    let server = endpoint.server(CLIENT);
    let error = get(&tokens, &server, None, None).await.unwrap_err().to_string();
    assert!(error.contains("invalid_client (no client with [redacted][2J)"), "{error}");
    // It is not asked again at once.
    assert!(get(&tokens, &server, None, None).await.is_err());
    assert_eq!(endpoint.count(), 1);

    let endpoint =
        TokenServer::start(|_, _| (StatusCode::FOUND, [("location", "http://127.0.0.1:1/")]).into_response())
            .await;
    let error = get(&self::tokens().0, &endpoint.server(CLIENT), None, None).await.unwrap_err();
    assert!(matches!(error, OauthError::Refused { .. }), "no redirect is followed: {error}");
}

#[tokio::test]
async fn headers_are_resolved_once_until_something_changes() {
    let endpoint = TokenServer::start(|number, _| granted(&format!("at-{number}"), 3600)).await;
    let mut server = endpoint.server(CLIENT);
    server.credentials.insert("X-Api-Key".into(), SecretRef::parse("secret:key"));
    server.headers.insert("X-Plain".into(), "yes".into());
    let (tokens, source) = tokens();
    let secrets: Arc<dyn SecretSource> = source.clone();
    let credentials = HeaderCredentials::new(Arc::new(server), None, secrets, tokens);
    let headers = credentials.headers(false).await.unwrap();
    assert_eq!(
        (&headers["authorization"], &headers["x-api-key"]),
        (&"Bearer at-1".parse().unwrap(), &"key-value-0".parse().unwrap())
    );
    assert!(headers["authorization"].is_sensitive() && headers["x-api-key"].is_sensitive());
    assert_eq!(headers["x-plain"], "yes");
    let asked = source.asked.load(Ordering::SeqCst);
    credentials.headers(false).await.unwrap();
    assert_eq!(source.asked.load(Ordering::SeqCst), asked);
    source.generation.fetch_add(1, Ordering::SeqCst);
    assert_eq!(credentials.headers(false).await.unwrap()["x-api-key"], "key-value-1");
    assert_eq!(credentials.headers(true).await.unwrap()["authorization"], "Bearer at-2");
}
