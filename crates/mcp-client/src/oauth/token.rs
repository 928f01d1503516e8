//! What a token endpoint is shown and what it answers (RFC 6749), whichever the grant.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded;

/// What somebody's consent is worth.
#[derive(derive_more::Debug)]
pub struct Tokens {
    /// Fits into a header.
    #[debug(skip)]
    pub access: String,
    #[debug(skip)]
    pub refresh: Option<String>,
    /// How long the access token is good for, where that is told.
    pub life: Option<Duration>,
}

/// Of an answer, only `error` and `error_description` are ever told: anything else in it may be a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("{}", .said.clone().unwrap_or_else(|| format!("status {status}")))]
    Refused { status: u16, said: Option<String> },
    #[error("{0}")]
    Unreadable(&'static str),
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
}

#[derive(Default, Deserialize)]
struct Refusal {
    error: Option<String>,
    error_description: Option<String>,
}

impl Tokens {
    /// Reads what a token endpoint answered.
    pub fn read(status: u16, body: &[u8]) -> Result<Self, TokenError> {
        if status != 200 {
            return Err(TokenError::Refused { status, said: refusal(body) });
        }
        // Said without the parser's own words, which quote the answer.
        let Ok(granted) = serde_json::from_slice::<Granted>(body) else {
            // Some refuse with a status that grants.
            return Err(match refusal(body) {
                Some(said) => TokenError::Refused { status, said: Some(said) },
                None => TokenError::Unreadable("there is no `access_token` in it, or no `token_type`"),
            });
        };
        let access = granted.access_token;
        if access.is_empty() || !access.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Unreadable("the `access_token` can't be sent in a header"));
        }
        if !granted.token_type.eq_ignore_ascii_case("bearer") {
            return Err(TokenError::Unreadable("its `token_type` is not Bearer"));
        }
        let refresh = granted.refresh_token.filter(|token| !token.is_empty());
        Ok(Self { access, refresh, life: granted.expires_in.as_ref().and_then(seconds) })
    }
}

/// Some servers write the number as text. What is no length of time is as good as not told.
fn seconds(told: &Value) -> Option<Duration> {
    let seconds = match told {
        Value::String(text) => text.trim().parse().ok()?,
        told => told.as_f64()?,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Why something was refused, as RFC 6749 §5.2 and RFC 7591 §3.2.2 have it told; on one line. It is whole: what is
/// secret in it could not be found any more in a part.
pub(super) fn refusal(body: &[u8]) -> Option<String> {
    let said: Refusal = serde_json::from_slice(body).unwrap_or_default();
    let reason = match (said.error?, said.error_description) {
        (error, Some(more)) => format!("{error} ({more})"),
        (error, None) => error,
    };
    Some(reason.chars().filter(|c| !c.is_control()).collect())
}

/// `Authorization: Basic`. RFC 6749 §2.3.1: both halves as in a form, before they are joined.
pub fn basic(client_id: &str, secret: &str) -> String {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", encode(client_id), encode(secret))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: u16, body: &Value) -> Result<Tokens, TokenError> {
        Tokens::read(status, body.to_string().as_bytes())
    }

    #[test]
    fn lives_are_read_as_they_are_written() {
        let life = |told: Value| {
            let answer = json!({"access_token": "at", "token_type": "bearer", "expires_in": told});
            read(200, &answer).unwrap().life
        };
        let told = Some(Duration::from_secs(3600));
        assert_eq!(
            [life(json!(3600)), life(json!("3600")), life(json!(3600.0)), life(json!("3600.0"))],
            [told; 4]
        );
        for odd in
            [json!(null), json!(-1), json!("soon"), json!("inf"), json!(1e300), json!(true), json!([1])]
        {
            assert_eq!(life(odd.clone()), None, "{odd}");
        }
    }

    #[test]
    fn nothing_of_an_answer_is_told_but_why_it_refuses() {
        let tokens =
            json!({"access_token": "at-secret", "token_type": "bearer", "refresh_token": "rt-secret"});
        let strange = json!({"access_token": "at-secret", "token_type": {"rt-secret": 1}});
        let unsendable = json!({"access_token": "at-secret\n", "token_type": "bearer"});
        let other = json!({"access_token": "at-secret", "token_type": "rt-secret"});
        for (status, answer) in
            [(201, tokens.clone()), (500, tokens.clone()), (200, strange), (200, unsendable), (200, other)]
        {
            let error = read(status, &answer).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
        for status in [200, 400] {
            let refused = read(status, &json!({"error": "invalid_grant", "error_description": "over\nnow"}));
            assert_eq!(refused.unwrap_err().to_string(), "invalid_grant (overnow)");
        }
        assert_eq!(Tokens::read(502, b"<html>at-secret").unwrap_err().to_string(), "status 502");
        assert!(read(200, &tokens).is_ok_and(|read| read.refresh.as_deref() == Some("rt-secret")));
    }
}
