//! SHA-256 values: entry hashes, tree nodes, roots.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// What stands before the first entry.
    pub const ZERO: Self = Self([0; 32]);

    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hash of an entry, which is its leaf in the tree as well.
    pub fn of_entry(previous: &Self, seq: u64, body: &[u8]) -> Self {
        let mut front = [0; 41];
        front[1..33].copy_from_slice(&previous.0);
        front[33..].copy_from_slice(&seq.to_be_bytes());
        Self(Sha256::new().chain_update(front).chain_update(body).finalize().into())
    }

    /// An interior node of the tree.
    pub(super) fn of_node(left: &Self, right: &Self) -> Self {
        let mut node = [1; 65];
        node[1..33].copy_from_slice(&left.0);
        node[33..].copy_from_slice(&right.0);
        Self::of(&node)
    }

    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn parse(hex: &[u8]) -> Option<Self> {
        from_hex(hex).map(Self)
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Lower-case hexadecimal of exactly `N` bytes; one value has one spelling.
pub(super) fn from_hex<const N: usize>(hex: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if hex.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(hex.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

pub(super) fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(text.as_bytes())
            .ok_or_else(|| serde::de::Error::custom("a SHA-256 is 64 lower-case hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_has_one_spelling() {
        let digest = Digest::of(b"abc");
        let text = digest.to_string();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Digest::parse(text.as_bytes()), Some(digest));
        assert_eq!(Digest::parse(text.to_uppercase().as_bytes()), None);
        assert_eq!(Digest::parse(&text.as_bytes()[1..]), None);
    }

    #[test]
    fn entry_hash_is_the_leaf_of_its_chained_bytes() {
        let previous = Digest::of(b"before");
        let mut bytes = vec![0];
        bytes.extend(previous.as_bytes());
        bytes.extend(7_u64.to_be_bytes());
        bytes.extend(b"{}");
        assert_eq!(Digest::of_entry(&previous, 7, b"{}"), Digest::of(&bytes));
    }
}
