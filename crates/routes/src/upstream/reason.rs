//! Why a server can't be called, in two wordings: whoever looks after it is told everything, whoever calls it nothing of
//! this machine's places.

use aegis_core::{redact, secret::SecretError};
use aegis_mcp_client::Error;

use super::{World, way::NoWay};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) whole: String,
    /// For those who call.
    pub(super) told: String,
}

impl Reason {
    pub(super) fn of(error: &NoWay) -> Self {
        let told = match error {
            NoWay::Mcp(error) => return error.into(),
            NoWay::Secret(SecretError::NoFile { reason, .. }) => {
                format!("the file of a credential can't be read: {}", without_places(reason))
            }
            error => without_places(&error.to_string()),
        };
        Self { whole: error.to_string(), told }
    }

    pub(super) fn and(self, more: &str) -> Self {
        Self { whole: self.whole + more, told: self.told + more }
    }

    /// More for whoever looks after the server.
    pub(super) fn and_inside(self, more: &str) -> Self {
        Self { whole: self.whole + more, ..self }
    }

    pub(super) fn after(self, before: &str) -> Self {
        Self { whole: format!("{before}{}", self.whole), told: format!("{before}{}", self.told) }
    }

    pub(super) fn redacted(self, world: &World) -> Self {
        Self { whole: world.redacted(&self.whole), told: world.redacted(&self.told) }
    }
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Self {
        let (whole, told) = (error.to_string(), told(error));
        match error {
            // Not the answer to anybody's call: it is kept, and shown to everybody.
            Error::Rpc(_) => Self {
                whole: redact::message(&whole).into_owned(),
                told: redact::message(&told).into_owned(),
            },
            _ => Self { whole, told },
        }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { told: text.clone(), whole: text }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// An error as those hear of it who call.
pub(super) fn told(error: &Error) -> String {
    match error {
        Error::Start { reason, .. } => format!("its program can't be started: {}", without_places(reason)),
        // In the server's own words, which are for its callers.
        Error::Rpc(_) => error.to_string(),
        error => without_places(&error.to_string()),
    }
}

/// Addresses of servers, which are no places of this machine.
const ADDRESSES: [&str; 4] = ["http", "https", "ws", "wss"];

/// A text with `…` for each path of this machine. Addresses of servers stay.
fn without_places(text: &str) -> String {
    let is_end = |character: char| character.is_whitespace() || "`'\"();,".contains(character);
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    let mut is_quoted = false;
    while let Some(character) = rest.chars().next() {
        let begins = before.is_none_or(|one: char| is_end(one) || "=:[{<".contains(one));
        let is_address = rest.starts_with("://");
        let is_place = match character {
            '/' => begins,
            '~' => begins && rest[..rest.find(is_end).unwrap_or(rest.len())].contains('/'),
            _ => is_address && !ADDRESSES.iter().any(|known| scheme(&kept).eq_ignore_ascii_case(known)),
        };
        if is_place {
            let start = if is_address { "://".len() } else { 0 };
            // A path may have blanks and anything else in it; only where it is quoted is its end known.
            let ends = |c: char| if is_quoted { c == '`' } else { is_end(c) || c == ':' };
            let end = rest[start..].find(ends).map_or(rest.len(), |end| start + end);
            kept.push_str(if is_address { ":…" } else { "…" });
            before = Some('…');
            rest = &rest[end..];
            continue;
        }
        // All of an address stays, path and all.
        let length = if is_address { rest.find(is_end).unwrap_or(rest.len()) } else { character.len_utf8() };
        is_quoted ^= character == '`';
        let (taken, left) = rest.split_at(length);
        kept.push_str(taken);
        before = taken.chars().last();
        rest = left;
    }
    kept
}

/// The name that a text ends with.
fn scheme(text: &str) -> &str {
    let before = text.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || "+-.".contains(c));
    &text[before.len()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_learn_no_places() {
        for (text, kept) in [
            ("No such file or directory (os error 2)", "No such file or directory (os error 2)"),
            ("the file /etc/keys/x.pem can't be read: denied", "the file … can't be read: denied"),
            ("`/opt/a b: c` and file:/run/x: gone", "`…` and file:…: gone"),
            ("file:///opt/x, unix:///run/x.sock: gone", "file:…, unix:…: gone"),
            ("`file:///opt/a b` or ~/x y, ~ann/x, ~5", "`file:…` or … y, …, ~5"),
            (
                "`wss://a.example/b` and (HTTPS://c.example/d)",
                "`wss://a.example/b` and (HTTPS://c.example/d)",
            ),
            ("`run /opt/x", "`run …"),
            (
                "can't reach https://mcp.example.org/a/b: refused",
                "can't reach https://mcp.example.org/a/b: refused",
            ),
            ("HTTP status 404 (n/a), PATH=/bin:/usr/bin", "HTTP status 404 (n/a), PATH=…:…"),
            ("run `aegis secret set search/token`", "run `aegis secret set search/token`"),
        ] {
            assert_eq!(without_places(text), kept);
        }
        let error = Error::Start { program: "/opt/x/server".into(), reason: "not found".into() };
        let reason = Reason::from(&error);
        assert_eq!(reason.told, "its program can't be started: not found");
        assert!(reason.whole.contains("/opt/x/server"), "{reason:?}");
    }
}
