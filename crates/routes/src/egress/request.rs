//! What is asked for.

use std::{borrow::Cow, fmt, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use url::Url;

/// An absolute http or https address, in the one spelling that all later checks see.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebAddress(Url);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadWebAddress {
    #[error("`url` is no address: {0}; write one such as https://example.org/page")]
    Unreadable(url::ParseError),
    #[error("`url` must start with http:// or https://, not {0}:")]
    Scheme(String),
}

impl WebAddress {
    pub fn parse(text: &str) -> Result<Self, BadWebAddress> {
        Url::parse(text).map_err(BadWebAddress::Unreadable).and_then(Self::from_url)
    }

    pub(super) fn from_url(mut url: Url) -> Result<Self, BadWebAddress> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BadWebAddress::Scheme(url.scheme().to_owned()));
        }
        url.set_fragment(None);
        // `example.org.` is `example.org`; as one spelling it has one entry in the pool and in every rule.
        if let Some(host) = url.domain().and_then(|domain| domain.strip_suffix('.')).map(str::to_owned) {
            url.set_host(Some(&host)).map_err(BadWebAddress::Unreadable)?;
        }
        Ok(Self(url))
    }

    pub fn url(&self) -> &Url {
        &self.0
    }

    /// As in a URL: an IPv6 literal has its brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// A user name or a password before the host.
    pub fn has_credentials(&self) -> bool {
        !self.0.username().is_empty() || self.0.password().is_some()
    }

    /// The same address with these parameters after its own.
    #[must_use]
    pub fn with_query(&self, pairs: &[(&str, &str)]) -> Self {
        let mut url = self.0.clone();
        url.query_pairs_mut().extend_pairs(pairs);
        Self(url)
    }

    /// The same address, its path ending in `segment`.
    #[must_use]
    pub fn with_last_segment(&self, segment: &str) -> Self {
        let mut url = self.0.clone();
        if url.path_segments().and_then(|mut segments| segments.next_back()) != Some(segment)
            && let Ok(mut path) = url.path_segments_mut()
        {
            path.pop_if_empty().push(segment);
        }
        Self(url)
    }

    /// Scheme, host and port: enough to tell a reader where it is, and no room for anything else.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

impl fmt::Display for WebAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for WebAddress {
    type Error = BadWebAddress;

    fn try_from(text: String) -> Result<Self, BadWebAddress> {
        Self::parse(&text)
    }
}

impl From<WebAddress> for String {
    fn from(address: WebAddress) -> Self {
        address.0.into()
    }
}

impl JsonSchema for WebAddress {
    fn schema_name() -> Cow<'static, str> {
        "WebAddress".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "uri"})
    }
}

/// A GET. Nothing here can change anything at the other end.
#[derive(Debug, Clone)]
pub struct Request {
    pub(super) address: WebAddress,
    pub(super) headers: HeaderMap,
    pub(super) follow_redirects: bool,
    pub(super) timeout: Duration,
}

impl Request {
    /// `timeout` is for everything: every hop and the body.
    pub fn get(address: WebAddress, timeout: Duration) -> Self {
        Self { address, headers: HeaderMap::new(), follow_redirects: true, timeout }
    }

    /// Replaces a header of the same name. Values marked sensitive stay with the first host.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    #[must_use]
    pub fn follow_redirects(mut self, follow: bool) -> Self {
        self.follow_redirects = follow;
        self
    }
}

/// Whether a header's value lets its bearer in somewhere.
pub fn is_credential_header(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION
        || *name == header::PROXY_AUTHORIZATION
        || *name == header::COOKIE
        || aegis_core::redact::is_secret_name(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_spelling() {
        for (text, wanted) in [
            ("HTTP://Example.ORG", "http://example.org/"),
            ("http://example.org./a#part", "http://example.org/a"),
            ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC"),
            ("http://0x7f.1:80/", "http://127.0.0.1/"),
            ("https://[::FFFF:127.0.0.1]/", "https://[::ffff:7f00:1]/"),
            ("http:example.org", "http://example.org/"),
            ("http:\\\\example.org\\a", "http://example.org/a"),
        ] {
            assert_eq!(WebAddress::parse(text).unwrap().to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for text in [
            "",
            "example.org",
            "/etc/passwd",
            "ftp://example.org/",
            "file:///etc/passwd",
            "javascript:1",
            "http://",
        ] {
            assert!(WebAddress::parse(text).is_err(), "{text}");
        }
        assert!(WebAddress::parse("gopher://x/").unwrap_err().to_string().contains("http"));
    }
}
