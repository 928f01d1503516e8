//! How an authorisation server knows this client: it was told beforehand, reads a document of ours, or is asked.

use http::{
    Method,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use serde_json::json;
use url::{Host, Url};

use super::{Application, SignInError, discovery::Issuer, endpoint, send, token::refusal};
use crate::http::Http;

/// How the token endpoint is shown who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    Basic,
    Post,
    None,
}

impl Proof {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "client_secret_basic" => Some(Self::Basic),
            "client_secret_post" => Some(Self::Post),
            "none" => Some(Self::None),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::None => "none",
        }
    }
}

/// This client as one issuer knows it. Another issuer does not.
#[derive(Clone, derive_more::Debug)]
pub(super) struct Registered {
    pub(super) issuer: String,
    pub(super) client_id: String,
    #[debug(skip)]
    pub(super) secret: Option<String>,
    pub(super) proof: Proof,
}

#[derive(Deserialize)]
struct Answer {
    client_id: String,
    #[serde(default)]
    client_secret: Option<String>,
    #[serde(default)]
    token_endpoint_auth_method: Option<String>,
}

pub(super) async fn register(
    http: &dyn Http,
    application: &Application,
    issuer: &Issuer,
) -> Result<Registered, SignInError> {
    let of = |client_id: String, secret: Option<String>, proof| Registered {
        issuer: issuer.issuer.clone(),
        client_id,
        proof: proof_for(issuer, secret.is_some(), proof),
        secret,
    };
    if let Some(known) = &application.known
        && known.issuer.as_ref().is_none_or(|own| *own == issuer.issuer)
    {
        return Ok(of(known.client_id.clone(), known.secret.clone(), None));
    }
    if let Some(document) =
        application.document.as_ref().filter(|_| issuer.client_id_metadata_document_supported)
    {
        return Ok(of(document.to_string(), None, None));
    }
    let Some(place) = &issuer.registration_endpoint else { return Err(SignInError::Unregistered) };
    let body = json!({
        "client_name": application.name,
        "redirect_uris": [application.redirect.as_str()],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "application_type": if is_native(&application.redirect) { "native" } else { "web" },
        "token_endpoint_auth_method": wanted(issuer).as_str(),
    });
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (ACCEPT, "application/json".to_owned())];
    let (status, bytes) =
        send(http, Method::POST, &endpoint(place)?, &headers, body.to_string().into_bytes()).await?;
    if status != 200 && status != 201 {
        return Err(SignInError::refused("registering this client", status, refusal(&bytes)));
    }
    // Said without the parser's own words, which quote the answer and thus perhaps the secret.
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| SignInError::Unreadable {
        at: place.as_str().into(),
        reason: "there is no `client_id` in it, or something is not the text that it should be".into(),
    })?;
    let method = answer.token_endpoint_auth_method.as_deref().and_then(Proof::parse);
    Ok(of(answer.client_id, answer.client_secret, method))
}

/// A program on somebody's machine comes back to that machine.
fn is_native(redirect: &Url) -> bool {
    let local = match redirect.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => true,
    };
    local || !matches!(redirect.scheme(), "http" | "https")
}

/// What is asked for at registration. A secret in a program on somebody's machine is none.
fn wanted(issuer: &Issuer) -> Proof {
    let offered = offered(issuer);
    [Proof::None, Proof::Basic, Proof::Post]
        .into_iter()
        .find(|method| offered.contains(method))
        .unwrap_or(Proof::Basic)
}

fn proof_for(issuer: &Issuer, has_secret: bool, registered: Option<Proof>) -> Proof {
    match registered {
        _ if !has_secret => Proof::None,
        Some(method) => method,
        None => {
            let offered = offered(issuer);
            [Proof::Basic, Proof::Post, Proof::None]
                .into_iter()
                .find(|method| offered.contains(method))
                .unwrap_or(Proof::Basic)
        }
    }
}

/// An issuer that says nothing takes `client_secret_basic` (RFC 8414).
fn offered(issuer: &Issuer) -> Vec<Proof> {
    match &issuer.token_endpoint_auth_methods_supported {
        Some(names) => names.iter().filter_map(|name| Proof::parse(name)).collect(),
        None => vec![Proof::Basic],
    }
}
