//! A sign-in in two steps, for whoever has no browser: where somebody has to go, and what they come back with.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use url::Url;

use super::{
    Application, SignInError,
    challenge::Challenge,
    discovery::{self, Found},
    grant::{self, Question},
    registration::{self, Proof, Registered},
    token::Tokens,
    wanted_scopes,
};
use crate::http::Http;

/// Somebody is on the way to a page, and will come back.
#[derive(Debug)]
pub struct Journey {
    redirect: Url,
    found: Found,
    client: Registered,
    scopes: Vec<String>,
    question: Question,
}

impl Journey {
    /// Asks the server who lets people in, and finds out where and as which client. `scopes` are those that the server
    /// asks for when none are given.
    pub async fn begin(
        http: &dyn Http,
        server: &Url,
        application: &Application,
        scopes: &[String],
    ) -> Result<Self, SignInError> {
        let challenge = challenge(http, server).await?;
        let found = discovery::find(http, server, challenge.resource_metadata.as_deref()).await?;
        let client = registration::register(http, application, &found.issuer).await?;
        let scopes = match scopes {
            [] => wanted_scopes(&BTreeSet::new(), &challenge, &found),
            given => given.to_vec(),
        };
        let question = grant::ask(&application.redirect, &found, &client, &scopes)?;
        Ok(Self { redirect: application.redirect.clone(), found, client, scopes, question })
    }

    /// Where to go.
    pub fn page(&self) -> &Url {
        &self.question.page
    }

    /// The `state` that the way back bears.
    pub fn state(&self) -> &str {
        &self.question.state
    }

    /// Who lets people in.
    pub fn issuer(&self) -> &str {
        &self.found.issuer.issuer
    }

    pub fn token_endpoint(&self) -> &str {
        &self.found.issuer.token_endpoint
    }

    /// The server's own name for itself.
    pub fn resource(&self) -> &str {
        &self.found.resource
    }

    pub fn scopes(&self) -> &[String] {
        &self.scopes
    }

    pub fn client_id(&self) -> &str {
        &self.client.client_id
    }

    /// Of a client that has one.
    pub fn client_secret(&self) -> Option<&str> {
        self.client.secret.as_deref()
    }

    /// Whether the secret goes into the form and not into a header.
    pub fn shows_secret_in_form(&self) -> bool {
        self.client.proof == Proof::Post
    }

    /// Takes what somebody came back with to the token endpoint. `back` is the whole address that the page led back to.
    pub async fn end(self, http: &dyn Http, back: &Url) -> Result<Tokens, SignInError> {
        let Self { redirect, found, client, question, .. } = self;
        grant::redeem(http, &redirect, &found, &client, &question, back).await
    }
}

/// What the server says to whoever shows nothing.
async fn challenge(http: &dyn Http, server: &Url) -> Result<Challenge, SignInError> {
    let unusable = || SignInError::Endpoint(server.as_str().into());
    let mut request = Request::new(Bytes::from_static(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = server.as_str().parse().map_err(|_| unusable())?;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    let response = http.send(request).await.map_err(|reason| SignInError::Unreachable(reason.into()))?;
    Ok(Challenge::of(response.headers()))
}
