//! Sign-ins that are renewed while something else happens to them, against a real token server on loopback.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, mpsc},
};

use aegis_core::{
    Secret, Timestamp,
    config::{McpServer, SecretRef, upstream},
};
use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::sync::Semaphore;
use url::Url;

use super::{
    oauth::{AccessTokens, Fresh, OauthError},
    oauth_tests::{Source, TokenServer, get, tokens},
};

const PLACE: &str = "remote/sign-in";
const ADDRESS: &str = "https://mcp.example.org/mcp";

/// A token server that takes each refresh token once, says when it is asked, and answers when it is let.
struct Stage {
    endpoint: TokenServer,
    asked: Arc<Semaphore>,
    answer: mpsc::Sender<()>,
    tokens: Arc<AccessTokens>,
    source: Arc<Source>,
    server: McpServer,
}

impl Stage {
    /// With a sign-in that has run out.
    async fn set() -> Self {
        let asked = Arc::new(Semaphore::new(0));
        let (answer, let_go) = mpsc::channel();
        let (told, let_go) = (Arc::clone(&asked), Mutex::new(let_go));
        let endpoint = TokenServer::start(move |number, form| {
            told.add_permits(1);
            tokio::task::block_in_place(|| let_go.lock().unwrap().recv().unwrap());
            renewed(number, form)
        })
        .await;
        let (tokens, source) = tokens();
        let server = server(&endpoint, ADDRESS);
        source.put(PLACE, Some(&kept("https://mcp.example.org", "at-0", 1, "rt-0")));
        Self { endpoint, asked, answer, tokens, source, server }
    }

    /// Begins a call that needs a new token, and comes back when the token server was asked for it.
    async fn begin(&self) -> tokio::task::JoinHandle<Result<(String, u64), OauthError>> {
        let (tokens, server) = (Arc::clone(&self.tokens), self.server.clone());
        let call = tokio::spawn(async move { get(&tokens, &server, None, None).await });
        self.asked.acquire().await.unwrap().forget();
        call
    }

    async fn get(&self, refused: Option<u64>) -> Result<(String, u64), OauthError> {
        get(&self.tokens, &self.server, None, refused).await
    }

    fn nobody(&self) -> OauthError {
        OauthError::NotSignedIn(self.server.name.clone())
    }
}

fn server(endpoint: &TokenServer, address: &str) -> McpServer {
    let text = format!(
        "name: remote\nurl: {address}\noauth:\n  grant: authorization_code\n  token_url: {}\n  client_id: aegis\n  \
         sign_in: secret:{PLACE}\n",
        endpoint.url
    );
    upstream::parse(&text).unwrap().remove(0)
}

fn renewed(number: usize, form: &HashMap<String, String>) -> Response {
    assert_eq!(form["grant_type"], "refresh_token");
    if form["refresh_token"] != format!("rt-{}", number - 1) {
        let refused = json!({"error": "invalid_grant"});
        return (StatusCode::BAD_REQUEST, Json(refused)).into_response();
    }
    let told = json!({"access_token": format!("at-{number}"), "token_type": "Bearer", "expires_in": 3600,
        "refresh_token": format!("rt-{number}")});
    Json(told).into_response()
}

fn kept(origin: &str, access: &str, until: u64, refresh: &str) -> String {
    json!({"origin": origin, "access_token": access, "until": until, "refresh_token": refresh}).to_string()
}

fn soon() -> u64 {
    Timestamp::now().millis() + 3_600_000
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_goes_on_when_nobody_waits_for_it() {
    let stage = Stage::set().await;
    let call = stage.begin().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    stage.answer.send(()).unwrap();
    // The refresh token that was spent is not asked with again.
    assert_eq!(stage.get(None).await.unwrap().0, "at-1");
    assert_eq!(stage.endpoint.count(), 1);
    assert!(stage.source.stored(PLACE).unwrap().contains("rt-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_take_the_place_of_a_new_sign_in() {
    let stage = Stage::set().await;
    let call = stage.begin().await;
    let fresh = Fresh {
        access: Secret::new("at-new"),
        life: std::time::Duration::from_secs(3600),
        refresh: Some(Secret::new("rt-new")),
    };
    let place = SecretRef::parse(&format!("secret:{PLACE}"));
    stage.tokens.keep(&place, &Url::parse(ADDRESS).unwrap(), &fresh).await.unwrap();
    stage.answer.send(()).unwrap();
    assert_eq!(call.await.unwrap().unwrap().0, "at-new");
    assert_eq!(stage.get(None).await.unwrap().0, "at-new");
    assert!(stage.source.stored(PLACE).unwrap().contains("rt-new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_does_not_bring_back_what_was_deleted() {
    let stage = Stage::set().await;
    let call = stage.begin().await;
    stage.source.put(PLACE, None);
    stage.answer.send(()).unwrap();
    assert_eq!(call.await.unwrap(), Err(stage.nobody()));
    assert_eq!(stage.source.stored(PLACE), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_is_good_for_as_long_as_it_is_stored() {
    let stage = Stage::set().await;
    stage.source.put(PLACE, Some(&kept("https://mcp.example.org", "at-a", soon(), "rt-0")));
    assert_eq!(stage.get(None).await, Ok(("at-a".to_owned(), 1)));
    // Another secret has changed: the token is the same one.
    stage.source.put("other", Some("x"));
    assert_eq!(stage.get(None).await, Ok(("at-a".to_owned(), 1)));
    stage.source.put(PLACE, Some(&kept("https://mcp.example.org", "at-b", soon(), "rt-0")));
    assert_eq!(stage.get(None).await, Ok(("at-b".to_owned(), 2)));
    // One that is refused is renewed.
    stage.answer.send(()).unwrap();
    assert_eq!(stage.get(Some(2)).await, Ok(("at-1".to_owned(), 3)));
    stage.source.put(PLACE, None);
    assert_eq!(stage.get(None).await, Err(stage.nobody()));
    // At once, too.
    stage.source.put(PLACE, Some(&kept("https://mcp.example.org", "at-c", soon(), "rt-1")));
    assert_eq!(stage.get(None).await.unwrap().0, "at-c");
    assert_eq!(stage.endpoint.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_shown_where_somebody_signed_in() {
    let stage = Stage::set().await;
    stage.source.put(PLACE, Some(&kept("https://mcp.example.org", "at-a", soon(), "rt-0")));
    for elsewhere in
        ["https://evil.example.org/mcp", "http://mcp.example.org/mcp", "https://mcp.example.org:1/mcp"]
    {
        let server = server(&stage.endpoint, elsewhere);
        assert_eq!(get(&stage.tokens, &server, None, None).await, Err(stage.nobody()), "{elsewhere}");
    }
    assert_eq!(stage.endpoint.count(), 0);
    assert_eq!(stage.get(None).await.unwrap().0, "at-a");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_share_a_sign_in_renew_it_once() {
    let stage = Stage::set().await;
    let call = stage.begin().await;
    let other = McpServer { name: "other".into(), ..stage.server.clone() };
    let tokens = Arc::clone(&stage.tokens);
    let second = tokio::spawn(async move { get(&tokens, &other, None, None).await });
    stage.answer.send(()).unwrap();
    assert_eq!(call.await.unwrap().unwrap().0, "at-1");
    assert_eq!(second.await.unwrap().unwrap().0, "at-1");
    assert_eq!(stage.endpoint.count(), 1);
}
