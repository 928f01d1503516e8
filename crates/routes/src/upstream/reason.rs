//! Why a server can't be called, in two wordings: whoever looks after it is told everything, whoever calls it nothing of
//! this machine's places.

use aegis_core::secret::SecretError;
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
            NoWay::Mcp(error) => told(error),
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

    pub(super) fn after(self, before: &str) -> Self {
        Self { whole: format!("{before}{}", self.whole), told: format!("{before}{}", self.told) }
    }

    pub(super) fn redacted(self, world: &World) -> Self {
        Self { whole: world.redacted(&self.whole), told: world.redacted(&self.told) }
    }
}

impl From<&Error> for Reason {
    fn from(error: &Error) -> Self {
        Self { whole: error.to_string(), told: told(error) }
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

/// A text with `…` for each path of this machine. Addresses of servers stay.
fn without_places(text: &str) -> String {
    let is_end = |character: char| character.is_whitespace() || "`'\"();,".contains(character);
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(character) = rest.chars().next() {
        let length = if rest.starts_with("://") {
            // All of an address stays, path and all.
            rest.find(is_end).unwrap_or(rest.len())
        } else if character == '/' && before.is_none_or(|one: char| is_end(one) || "=:[{<".contains(one)) {
            kept.push('…');
            rest = &rest[rest.find(|c| is_end(c) || c == ':').unwrap_or(rest.len())..];
            before = Some('…');
            continue;
        } else {
            character.len_utf8()
        };
        let (taken, left) = rest.split_at(length);
        kept.push_str(taken);
        before = taken.chars().last();
        rest = left;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_learn_no_places() {
        for (text, kept) in [
            ("No such file or directory (os error 2)", "No such file or directory (os error 2)"),
            ("the file /etc/keys/x.pem can't be read: denied", "the file … can't be read: denied"),
            ("`/opt/a b` and file:/run/x: gone", "`… b` and file:…: gone"),
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
