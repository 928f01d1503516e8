//! Domain patterns, matched on label boundaries.

use std::fmt;

use serde::{Deserialize, Serialize};

/// `example.org` (it and its subdomains), `*.example.org` (subdomains only) or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DomainPattern {
    /// Lower case, no trailing dot; empty for `*`.
    suffix: String,
    subdomains_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no domain pattern: write `example.org`, `*.example.org` or `*`")]
pub struct BadDomainPattern(String);

impl DomainPattern {
    pub fn parse(text: &str) -> Result<Self, BadDomainPattern> {
        let bad = || BadDomainPattern(text.to_owned());
        if text == "*" {
            return Ok(Self { suffix: String::new(), subdomains_only: false });
        }
        let (name, subdomains_only) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let suffix = normal_host(name);
        let label_ok = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let bracketed = suffix.starts_with('[') && suffix.ends_with(']');
        if !bracketed && !suffix.split('.').all(label_ok) {
            return Err(bad());
        }
        Ok(Self { suffix, subdomains_only })
    }

    /// Whether `host` (a name or a literal address, as in a URL) falls under this pattern.
    pub fn matches(&self, host: &str) -> bool {
        let host = mapped_address(host).unwrap_or_else(|| normal_host(host));
        if host.is_empty() {
            return false;
        }
        if self.suffix.is_empty() {
            return true;
        }
        if host == self.suffix {
            return !self.subdomains_only;
        }
        host.strip_suffix(&self.suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

/// Lower case without the trailing dot of a fully qualified name.
pub fn normal_host(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// An IPv4 address that is written as an IPv6 one, as rules name it.
pub fn mapped_address(host: &str) -> Option<String> {
    let bare = host.strip_prefix('[')?.strip_suffix(']')?;
    Some(bare.parse::<std::net::Ipv6Addr>().ok()?.to_ipv4_mapped()?.to_string())
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.suffix.as_str(), self.subdomains_only) {
            ("", _) => f.write_str("*"),
            (suffix, true) => write!(f, "*.{suffix}"),
            (suffix, false) => f.write_str(suffix),
        }
    }
}

impl TryFrom<String> for DomainPattern {
    type Error = BadDomainPattern;

    fn try_from(text: String) -> Result<Self, BadDomainPattern> {
        Self::parse(&text)
    }
}

impl From<DomainPattern> for String {
    fn from(pattern: DomainPattern) -> Self {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str) -> bool {
        DomainPattern::parse(pattern).unwrap().matches(host)
    }

    #[test]
    fn label_boundaries() {
        assert!(matches("example.com", "example.com"));
        assert!(matches("example.com", "API.Example.com."));
        assert!(!matches("example.com", "evilexample.com"));
        assert!(!matches("example.com", "example.com.evil.org"));
        assert!(!matches("*.example.com", "example.com"));
        assert!(matches("*.example.com", "a.b.example.com"));
        assert!(!matches("*", ""));
        assert!(matches("*", "anything"));
        assert!(!matches("example.com", ".example.com"));
    }

    #[test]
    fn unknown_syntax_is_refused() {
        for text in ["", "ex*mple.com", "https://example.com", "a..b", "*.*.com", "example.com/x", "a b"] {
            assert!(DomainPattern::parse(text).is_err(), "{text}");
        }
    }
}
