use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::normal_host,
    quantity::{Size, Span},
};

/// A page is held in memory while it is read and converted.
const LARGEST_BODY: u64 = 256 << 20;
const LONGEST_CONNECT_SECONDS: u64 = 120;

/// What may leave the node over HTTP.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EgressConfig {
    /// Hosts (`intranet.example`), addresses (`127.0.0.1`) or networks (`10.1.0.0/16`) that may be reached although
    /// they are loopback, private, link-local or otherwise not public. A host may resolve to any such address; an
    /// address or a network is open to every name. Cloud metadata services open only by their own name or address.
    #[schemars(with = "Vec<String>")]
    pub allow_private: Vec<PrivateTarget>,
    /// The largest response body, after decompression.
    pub max_body: Size,
    /// The most redirects that are followed.
    #[schemars(range(max = 20))]
    pub max_redirects: u8,
    /// How long a connection may take to open: resolving the name, connecting, and the TLS handshake.
    pub connect_timeout: Span,
    /// PEM file with certificate authorities to trust besides the built-in ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_ca_file: Option<String>,
    /// Sent as `User-Agent`.
    pub user_agent: String,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self {
            allow_private: Vec::new(),
            max_body: Size(5 << 20),
            max_redirects: 5,
            connect_timeout: Span::seconds(10),
            extra_ca_file: None,
            user_agent: concat!("aegis/", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

impl EgressConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: String| {
            mistakes.push((format!("/spec/egress/{member}"), message));
        };
        if !(1..=LARGEST_BODY).contains(&self.max_body.0) {
            wrong("max_body", format!("write a size from 1 byte to {}", Size(LARGEST_BODY)));
        }
        if self.connect_timeout.0.is_zero() || self.connect_timeout > Span::seconds(LONGEST_CONNECT_SECONDS) {
            wrong("connect_timeout", format!("write a time above 0 and up to {LONGEST_CONNECT_SECONDS}s"));
        }
        if self.user_agent.is_empty() || !self.user_agent.bytes().all(|b| (b' '..=b'~').contains(&b)) {
            wrong("user_agent", "write printable ASCII, for example `aegis/1.0 (ops@example.org)`".into());
        }
        mistakes
    }
}

/// Something that is not public and yet may be reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PrivateTarget {
    /// Lower case, without a trailing dot.
    Host(String),
    Network(IpNetwork),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names nothing to open: {reason}")]
pub struct BadPrivateTarget {
    text: String,
    reason: String,
}

impl FromStr for PrivateTarget {
    type Err = BadPrivateTarget;

    fn from_str(text: &str) -> Result<Self, BadPrivateTarget> {
        let bad = |reason: &str| BadPrivateTarget { text: text.to_owned(), reason: reason.to_owned() };
        if let Some((address, length)) = text.split_once('/') {
            let network = address
                .parse()
                .ok()
                .zip(length.parse().ok())
                .and_then(|(address, length)| IpNetwork::new(address, length))
                .ok_or_else(|| bad("write a network as 10.1.0.0/16 or fd00:1::/32"))?;
            if network.first() != network.address {
                return Err(bad(&format!("the network is {}/{}", network.first(), network.length)));
            }
            return Ok(Self::Network(network));
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self::Network(IpNetwork::single(address)));
        }
        let host = normal_host(text);
        let label_ok = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if host.len() > 253 || !host.split('.').all(label_ok) {
            return Err(bad("write a host name, an address or a network, without scheme, port or wildcard"));
        }
        // `127.1` and `0x7f.1` are spellings of an address that no name can have.
        let last = host.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
            return Err(bad("write an address with all its parts, as 127.0.0.1"));
        }
        Ok(Self::Host(host))
    }
}

impl fmt::Display for PrivateTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Network(network) => network.fmt(f),
        }
    }
}

impl TryFrom<String> for PrivateTarget {
    type Error = BadPrivateTarget;

    fn try_from(text: String) -> Result<Self, BadPrivateTarget> {
        text.parse()
    }
}

impl From<PrivateTarget> for String {
    fn from(target: PrivateTarget) -> Self {
        target.to_string()
    }
}

/// An address with the number of leading bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    address: IpAddr,
    length: u8,
}

impl IpNetwork {
    /// `None` when the family has fewer bits than `length`. An IPv4 address in IPv6 clothes counts as IPv4.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        let canonical = address.to_canonical();
        let length = if canonical.is_ipv4() && address.is_ipv6() { length.checked_sub(96)? } else { length };
        (length <= bits(canonical)).then_some(Self { address: canonical, length })
    }

    pub fn single(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, length: bits(address) }
    }

    pub fn is_single(&self) -> bool {
        self.length == bits(self.address)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.length) == self.first()
    }

    fn first(&self) -> IpAddr {
        masked(self.address, self.length)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_single() { self.address.fmt(f) } else { write!(f, "{}/{}", self.address, self.length) }
    }
}

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        text.parse::<PrivateTarget>().map(|target| target.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn targets_have_one_spelling() {
        for (text, wanted) in [
            ("Intranet.Example.", "intranet.example"),
            ("localhost", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("fd00::/8", "fd00::/8"),
        ] {
            assert_eq!(shown(text), Ok(wanted.to_owned()), "{text}");
        }
    }

    #[test]
    fn unknown_syntax_is_refused_at_load() {
        for text in [
            "",
            "*",
            "*.corp",
            "http://localhost",
            "localhost:8080",
            "10.0.0.0/33",
            "10.1.2.3/16",
            "10.0.0.0/",
            "127.1",
            "0x7f.1",
            "2130706433",
            "a b",
            "a..b",
            "fd00::/129",
            "/8",
            "user@host",
            "[::1",
            "10.0.0.0-10.0.0.9",
            "::ffff:10.0.0.0/90",
        ] {
            assert!(shown(text).is_err(), "{text} became {:?}", shown(text));
        }
        assert!(shown("10.1.2.3/16").unwrap_err().contains("10.1.0.0/16"));
    }

    #[test]
    fn networks_contain_by_bits_and_family() {
        let network = |text: &str| match text.parse() {
            Ok(PrivateTarget::Network(network)) => network,
            other => panic!("{other:?}"),
        };
        let holds = |text: &str, address: &str| network(text).contains(address.parse().unwrap());
        assert!(holds("10.1.0.0/16", "10.1.255.255"));
        assert!(holds("10.1.0.0/16", "::ffff:10.1.0.1"));
        assert!(!holds("10.1.0.0/16", "10.2.0.0"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fdff::1"));
        assert!(!holds("fd00::/8", "fc00::1"));
        assert!(holds("::/0", "2001:db8::1"));
    }

    #[test]
    fn limits_have_bounds() {
        assert!(EgressConfig::default().check().is_empty());
        let wild = EgressConfig {
            max_body: Size(1 << 40),
            connect_timeout: Span::seconds(0),
            user_agent: "a\nb".into(),
            ..EgressConfig::default()
        };
        assert_eq!(wild.check().len(), 3);
    }

    #[test]
    fn survives_a_round_trip() {
        let text = r#"{"allow_private":["intranet.example","10.0.0.0/8"],"max_body":"1Mi","extra_ca_file":"/etc/ca.pem"}"#;
        let config: EgressConfig = serde_json::from_str(text).unwrap();
        let again: EgressConfig = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again.allow_private, config.allow_private);
        assert_eq!(again.max_body, Size(1 << 20));
        assert_eq!(again.extra_ca_file.as_deref(), Some("/etc/ca.pem"));
        assert!(serde_json::from_str::<EgressConfig>(r#"{"allow_private":["10.0.0.0/99"]}"#).is_err());
    }
}
