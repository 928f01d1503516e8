//! Signed tree heads: what the log was at a moment, in 300 bytes that can be kept elsewhere.

use std::fmt;

use aegis_core::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    digest::{self, Digest},
    key::{AuditKey, KeyId, PublicKey},
    merkle::Frontier,
};

/// The first line of what is signed. No other thing that the key might sign begins like this.
const DOMAIN: &str = "aegis audit head 1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// How many entries it covers.
    pub size: u64,
    pub root: Digest,
    pub time: Timestamp,
    /// Which key signed it.
    pub key: KeyId,
    pub signature: Signature,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadFault {
    #[error("it can't be read")]
    Malformed,
    #[error("it names another key")]
    WrongKey,
    #[error("its signature is not the key's")]
    BadSignature,
}

impl Head {
    pub(super) fn sign(frontier: &Frontier, time: Timestamp, key: &AuditKey) -> Self {
        let mut head = Self {
            size: frontier.size(),
            root: frontier.root(),
            time,
            key: key.public().id().clone(),
            signature: Signature([0; 64]),
        };
        head.signature = key.sign(head.text().as_bytes());
        head
    }

    /// The bytes under the signature.
    pub fn text(&self) -> String {
        format!("{DOMAIN}\nsize {}\nroot {}\ntime {}\nkey {}\n", self.size, self.root, self.time, self.key)
    }

    pub(super) fn parse(text: &[u8], signature: &[u8]) -> Result<Self, HeadFault> {
        let read = || {
            let signature = Signature(signature.try_into().ok()?);
            let text = std::str::from_utf8(text).ok()?;
            let mut lines = text.strip_prefix(DOMAIN)?.strip_prefix('\n')?.lines();
            let mut member = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
            let head = Self {
                size: member("size")?.parse().ok()?,
                root: Digest::parse(member("root")?.as_bytes())?,
                time: Timestamp::parse(member("time")?)?,
                key: KeyId::parse(member("key")?)?,
                signature,
            };
            // One head has one text, whatever the parsers above would forgive.
            (head.text() == text).then_some(head)
        };
        read().ok_or(HeadFault::Malformed)
    }

    pub fn check(&self, key: &PublicKey) -> Result<(), HeadFault> {
        if &self.key != key.id() {
            return Err(HeadFault::WrongKey);
        }
        if key.signed(self.text().as_bytes(), &self.signature) {
            Ok(())
        } else {
            Err(HeadFault::BadSignature)
        }
    }
}

/// An Ed25519 signature, written as hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl From<[u8; 64]> for Signature {
    fn from(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        digest::write_hex(&self.0, f)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        digest::from_hex(text.as_bytes())
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("a signature is 128 lower-case hexadecimal digits"))
    }
}
