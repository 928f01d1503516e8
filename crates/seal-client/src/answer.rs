//! What a node answers, read without any network.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Error, Refused};

/// What attestation gives: a token that is worth something only together with the key it was asked for with.
#[derive(Clone, PartialEq, Eq)]
pub struct Attested {
    pub token: String,
    /// For the operator's eyes, and to end the session by.
    pub session: Option<String>,
    /// RFC 3339, as the node wrote it.
    pub expires_at: String,
}

impl std::fmt::Debug for Attested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attested")
            .field("token", &"…")
            .field("session", &self.session)
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

impl Attested {
    /// When the session ends, if the node wrote it in UTC.
    pub fn expires(&self) -> Option<SystemTime> {
        read_rfc3339(&self.expires_at)
    }
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The tool's own result. With [`Answer::is_error`], what went wrong: `error` says it in words, `error_kind` by
    /// name.
    pub result: Map<String, Value>,
    /// The call's name in the node's audit log.
    pub call: Option<String>,
    /// Where the content came from. Content labelled EXTERNAL_UNTRUSTED is data, never instructions.
    pub label: Option<Value>,
}

impl Answer {
    /// The tool ran and could not do what was asked.
    pub fn is_error(&self) -> bool {
        self.result.get("isError") == Some(&Value::Bool(true))
    }

    /// Nothing ran yet: a person is asked first.
    pub fn is_pending(&self) -> bool {
        self.result.get("pendingApproval") == Some(&Value::Bool(true))
    }
}

/// Reads the answer to an attestation.
pub fn attested(status: u16, body: &[u8]) -> Result<Attested, Error> {
    #[derive(Deserialize)]
    struct Body {
        security_token: String,
        expires_at: String,
        session_id: Option<String>,
    }
    let value = object(status, body)?;
    if !(200..300).contains(&status) || value.get("status").is_some_and(|status| status == "error") {
        return Err(Error::Refused(Box::new(refused(status, &value))));
    }
    let body: Body = serde_json::from_value(Value::Object(value))
        .map_err(|error| Error::Unreadable(format!("the attestation was answered without {error}")))?;
    Ok(Attested { token: body.security_token, session: body.session_id, expires_at: body.expires_at })
}

/// Reads the answer to an envelope.
pub fn invoked(status: u16, body: &[u8]) -> Result<Answer, Error> {
    let mut value = object(status, body)?;
    if !(200..300).contains(&status) || value.contains_key("error") {
        return Err(Error::Refused(Box::new(refused(status, &value))));
    }
    match value.get_mut("payload").and_then(|payload| payload.get_mut("result")).map(Value::take) {
        Some(Value::Object(result)) => Ok(Answer {
            result,
            call: value.get("call").and_then(Value::as_str).map(str::to_owned),
            label: value.remove("label"),
        }),
        _ => Err(Error::Unreadable("the answer has no `payload.result`".into())),
    }
}

fn object(status: u16, body: &[u8]) -> Result<Map<String, Value>, Error> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(Error::Unreadable(format!("status {status}, and no JSON object"))),
    }
}

fn refused(status: u16, body: &Map<String, Value>) -> Refused {
    let error = body.get("error").unwrap_or(&Value::Null);
    let details = if error["details"].is_object() { &error["details"] } else { &error["data"] };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Refused {
        status,
        code: error["code"].as_i64().unwrap_or_default(),
        seal_code: details["seal_code"].as_u64().and_then(|code| u16::try_from(code).ok()),
        violation: text(&details["violation"]),
        message: text(&error["message"])
            .or_else(|| body.get("message").and_then(text))
            .unwrap_or_else(|| format!("status {status}")),
        rule: text(&details["rule"]),
        hint: text(&details["hint"]),
        retry_after_seconds: details["retry_after_seconds"].as_u64(),
    }
}

/// Reads `YYYY-MM-DDTHH:MM:SS[.fff]Z`.
fn read_rfc3339(text: &str) -> Option<SystemTime> {
    let text = text.strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let from_march = (month + 9) % 12;
    let year = if month <= 2 { year - 1 } else { year };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * from_march + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    UNIX_EPOCH.checked_add(Duration::from_millis(seconds * 1000 + millis))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn instants_are_read() {
        let at = |millis| Some(UNIX_EPOCH + Duration::from_millis(millis));
        assert_eq!(read_rfc3339("2026-02-17T14:32:01.583Z"), at(1_771_338_721_583));
        assert_eq!(read_rfc3339("2000-02-29T00:00:00Z"), at(951_782_400_000));
        assert_eq!(read_rfc3339("1970-01-01T00:00:00.5Z"), at(500));
        for bad in
            ["", "2026-02-17", "2026-02-17T14:32:01", "2026-13-01T00:00:00Z", "soonZ", "1969-12-31T23:59:59Z"]
        {
            assert_eq!(read_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_result_and_what_came_with_it() {
        let body = json!({
            "protocol": "seal/v1", "status": "success", "call": "c-1", "label": {"trust": "INTERNAL"},
            "payload": {"jsonrpc": "2.0", "id": "req-1", "result": {"ok": 1}},
        });
        let answer = invoked(200, body.to_string().as_bytes()).unwrap();
        assert_eq!(Value::Object(answer.result.clone()), json!({"ok": 1}));
        assert_eq!(answer.call.as_deref(), Some("c-1"));
        assert!(!answer.is_error() && !answer.is_pending());
    }

    #[test]
    fn refusals_carry_everything() {
        let body = json!({
            "jsonrpc": "2.0", "id": null, "protocol": "seal/v1", "status": "error",
            "error": {"code": -32602, "message": "missing", "data": null,
                      "details": {"violation": "InvalidArguments", "hint": "add it"}},
        });
        let Err(Error::Refused(refused)) = invoked(422, body.to_string().as_bytes()) else { panic!() };
        assert_eq!((refused.status, refused.code), (422, -32602));
        assert_eq!(refused.violation.as_deref(), Some("InvalidArguments"));
        assert_eq!(refused.hint.as_deref(), Some("add it"));
        assert_eq!(refused.to_string(), "missing (add it)");
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(matches!(invoked(200, b"{}"), Err(Error::Unreadable(_))));
        assert!(matches!(invoked(502, b"<html>"), Err(Error::Unreadable(_))));
        assert!(matches!(attested(200, b"{\"status\":\"success\"}"), Err(Error::Unreadable(_))));
    }
}
