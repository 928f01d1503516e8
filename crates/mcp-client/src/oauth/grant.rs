//! From a person's consent to a token: the authorisation code grant with PKCE, and its renewal.

use std::time::{Duration, Instant};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{
    HeaderName, Method,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use super::{
    Browser, SignInError,
    discovery::{Found, Issuer},
    endpoint,
    registration::{Proof, Registered},
    send,
    token::{TokenError, Tokens, basic},
};
use crate::http::Http;

/// A token is renewed this long before it ends.
const MARGIN: Duration = Duration::from_secs(30);

#[derive(Clone, derive_more::Debug)]
pub(super) struct Token {
    #[debug(skip)]
    pub(super) access: String,
    #[debug(skip)]
    pub(super) refresh: Option<String>,
    pub(super) ends: Option<Instant>,
}

impl Token {
    pub(super) fn is_stale(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= Instant::now() + MARGIN)
    }
}

impl From<Tokens> for Token {
    fn from(tokens: Tokens) -> Self {
        let ends = tokens.life.and_then(|life| Instant::now().checked_add(life));
        Self { access: tokens.access, refresh: tokens.refresh, ends }
    }
}

/// A page where somebody agrees, and what their answer is known by.
#[derive(derive_more::Debug)]
pub(super) struct Question {
    pub(super) page: Url,
    pub(super) state: String,
    #[debug(skip)]
    verifier: String,
}

/// Sends somebody to agree, and takes the code that they come back with to the token endpoint.
pub(super) async fn obtain(
    http: &dyn Http,
    browser: &dyn Browser,
    redirect: &Url,
    found: &Found,
    client: &Registered,
    scopes: &[String],
) -> Result<Token, SignInError> {
    let question = ask(redirect, found, client, scopes)?;
    let visited = browser.visit(question.page.clone()).await;
    let back = visited.map_err(|reason| SignInError::Declined(reason.into()))?;
    redeem(http, redirect, found, client, &question, &back).await.map(Token::from)
}

/// What somebody is to be asked. Nothing has been sent yet.
pub(super) fn ask(
    redirect: &Url,
    found: &Found,
    client: &Registered,
    scopes: &[String],
) -> Result<Question, SignInError> {
    let issuer = &found.issuer;
    let methods = issuer.code_challenge_methods_supported.as_deref().unwrap_or_default();
    if !methods.iter().any(|method| method == "S256") {
        return Err(SignInError::NoProofKey);
    }
    let (verifier, state) = (random()?, random()?);
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
    let mut url = page(issuer)?;
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.client_id)
        .append_pair("redirect_uri", redirect.as_str())
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256")
        .append_pair("state", &state)
        .append_pair("resource", &found.resource);
    if !scopes.is_empty() {
        url.query_pairs_mut().append_pair("scope", &scopes.join(" "));
    }
    Ok(Question { page: url, state, verifier })
}

/// Where a person signs in. Whoever calls themselves an issuer could name another's page there, and take the code that
/// comes back from it to their own token endpoint.
fn page(issuer: &Issuer) -> Result<Url, SignInError> {
    let page = endpoint(&issuer.authorization_endpoint)?;
    if Url::parse(&issuer.issuer).is_ok_and(|own| own.host() == page.host()) {
        return Ok(page);
    }
    Err(SignInError::ForeignPage { issuer: issuer.issuer.as_str().into(), page: page.as_str().into() })
}

/// Takes the code that somebody came back with to the token endpoint.
pub(super) async fn redeem(
    http: &dyn Http,
    redirect: &Url,
    found: &Found,
    client: &Registered,
    question: &Question,
    back: &Url,
) -> Result<Tokens, SignInError> {
    let code = code(back, redirect, &question.state, &found.issuer)?;
    let form = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", redirect.as_str()),
        ("code_verifier", &question.verifier),
        ("resource", &found.resource),
    ];
    token(http, &found.issuer, client, &form).await
}

pub(super) async fn renew(
    http: &dyn Http,
    found: &Found,
    client: &Registered,
    refresh: &str,
) -> Result<Token, SignInError> {
    let form = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", &found.resource)];
    let mut tokens = token(http, &found.issuer, client, &form).await?;
    tokens.refresh.get_or_insert_with(|| refresh.to_owned());
    Ok(tokens.into())
}

/// The code, if it is the answer to our question and comes from whom we asked (RFC 9207).
fn code(back: &Url, redirect: &Url, state: &str, issuer: &Issuer) -> Result<String, SignInError> {
    let place = |url: &Url| (url.origin(), url.path().to_owned());
    if place(back) != place(redirect) {
        return Err(SignInError::Forged("it came to another address"));
    }
    let parameter = |wanted: &str| {
        let mut values =
            back.query_pairs().filter(|(name, _)| name == wanted).map(|(_, value)| value.into_owned());
        values.next()
    };
    if parameter("state").as_deref() != Some(state) {
        return Err(SignInError::Forged("its `state` is not ours"));
    }
    match parameter("iss") {
        Some(iss) if iss != issuer.issuer => {
            return Err(SignInError::OtherIssuer {
                expected: issuer.issuer.as_str().into(),
                found: iss.into(),
            });
        }
        None if issuer.authorization_response_iss_parameter_supported => {
            return Err(SignInError::Forged("it lacks the `iss` that the issuer announced"));
        }
        _ => {}
    }
    if let Some(error) = parameter("error") {
        return Err(SignInError::Declined(error.into()));
    }
    parameter("code").ok_or(SignInError::Forged("it has no code"))
}

async fn token(
    http: &dyn Http,
    issuer: &Issuer,
    client: &Registered,
    form: &[(&str, &str)],
) -> Result<Tokens, SignInError> {
    let (headers, body) = shown(client, form);
    let place = endpoint(&issuer.token_endpoint)?;
    let (status, bytes) = send(http, Method::POST, &place, &headers, body).await?;
    Tokens::read(status, &bytes).map_err(|error| match error {
        TokenError::Refused { status, said } => SignInError::refused("asking for a token", status, said),
        TokenError::Unreadable(reason) => {
            SignInError::Unreadable { at: place.as_str().into(), reason: reason.into() }
        }
    })
}

/// The request to the token endpoint, with who asks shown in the way that is agreed on.
fn shown(client: &Registered, form: &[(&str, &str)]) -> (Vec<(HeaderName, String)>, Vec<u8>) {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(form);
    let mut headers = vec![
        (CONTENT_TYPE, "application/x-www-form-urlencoded".to_owned()),
        (ACCEPT, "application/json".to_owned()),
    ];
    let secret = client.secret.as_deref().unwrap_or_default();
    match client.proof {
        Proof::Basic => headers.push((AUTHORIZATION, basic(&client.client_id, secret))),
        Proof::Post => {
            body.append_pair("client_id", &client.client_id).append_pair("client_secret", secret);
        }
        Proof::None => {
            body.append_pair("client_id", &client.client_id);
        }
    }
    (headers, body.finish().into_bytes())
}

/// 256 bits that nobody can guess, as text.
fn random() -> Result<String, SignInError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| SignInError::NoRandomness)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(announces: bool) -> Issuer {
        serde_json::from_value(serde_json::json!({
            "issuer": "https://as", "authorization_endpoint": "https://as/a", "token_endpoint": "https://as/t",
            "authorization_response_iss_parameter_supported": announces,
        }))
        .unwrap()
    }

    fn taken(back: &str, announces: bool) -> Result<String, SignInError> {
        let redirect = Url::parse("http://127.0.0.1:9/callback").unwrap();
        code(&Url::parse(back).unwrap(), &redirect, "s", &issuer(announces))
    }

    #[test]
    fn only_the_answer_to_our_question_is_taken() {
        assert_eq!(taken("http://127.0.0.1:9/callback?code=c&state=s", false).unwrap(), "c");
        assert_eq!(taken("http://127.0.0.1:9/callback?code=c&state=s&iss=https://as", true).unwrap(), "c");
        for (back, announces) in [
            ("http://127.0.0.1:9/callback?code=c&state=t", false),
            ("http://127.0.0.1:9/callback?code=c", false),
            ("http://127.0.0.1:9/other?code=c&state=s", false),
            ("http://127.0.0.1:9/callback?code=c&state=s", true),
            ("http://127.0.0.1:9/callback?code=c&state=s&iss=https://as/", true),
            ("http://127.0.0.1:9/callback?code=c&state=s&iss=https://evil", false),
            ("http://127.0.0.1:9/callback?error=access_denied&state=s", false),
            ("http://127.0.0.1:9/callback?state=s", false),
        ] {
            assert!(taken(back, announces).is_err(), "{back}");
        }
    }
    #[test]
    fn nobody_is_sent_to_the_page_of_another() {
        assert_eq!(page(&issuer(false)).unwrap().as_str(), "https://as/a");
        for elsewhere in [
            "https://other/a",
            "https://as.other/a",
            "https://as@other/a",
            "https://other@as/a",
            "http://as/a",
        ] {
            let issuer = Issuer { authorization_endpoint: elsewhere.into(), ..issuer(false) };
            assert!(page(&issuer).is_err(), "{elsewhere}");
        }
    }
}
