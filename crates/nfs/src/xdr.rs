//! XDR (RFC 4506): words of four bytes, opaque data padded to them.

use bytes::{Buf, Bytes};

/// The bytes are no such thing as was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the arguments can't be read")]
pub struct Garbled;

/// Reads values off the front. Opaque data is shared with the record, not copied.
#[derive(Debug, Clone)]
pub struct Decoder {
    bytes: Bytes,
}

impl Decoder {
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }

    pub fn word(&mut self) -> Result<u32, Garbled> {
        self.bytes.try_get_u32().map_err(|_| Garbled)
    }

    pub fn double(&mut self) -> Result<u64, Garbled> {
        self.bytes.try_get_u64().map_err(|_| Garbled)
    }

    pub fn flag(&mut self) -> Result<bool, Garbled> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbled),
        }
    }

    /// As many bytes as it says itself, if those are at most `most`.
    pub fn opaque(&mut self, most: usize) -> Result<Bytes, Garbled> {
        let length = usize::try_from(self.word()?).map_err(|_| Garbled)?;
        if length > most {
            return Err(Garbled);
        }
        self.fixed(length)
    }

    pub fn fixed(&mut self, length: usize) -> Result<Bytes, Garbled> {
        let padded = length.checked_next_multiple_of(4).ok_or(Garbled)?;
        if self.bytes.len() < padded {
            return Err(Garbled);
        }
        let mut taken = self.bytes.split_to(padded);
        taken.truncate(length);
        Ok(taken)
    }

    /// A value that may be missing.
    pub fn optional<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Garbled>,
    ) -> Result<Option<T>, Garbled> {
        if self.flag()? { value(self).map(Some) } else { Ok(None) }
    }

    /// Nothing may follow.
    pub fn end(self) -> Result<(), Garbled> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Garbled) }
    }
}

/// Writes values one after the other.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity) }
    }

    pub fn word(&mut self, word: u32) -> &mut Self {
        self.bytes.extend(word.to_be_bytes());
        self
    }

    pub fn double(&mut self, double: u64) -> &mut Self {
        self.bytes.extend(double.to_be_bytes());
        self
    }

    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.word(u32::from(flag))
    }

    /// Its length first. Nothing that is sent comes near 4 GiB.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.word(u32::try_from(bytes.len()).unwrap_or(u32::MAX)).fixed(bytes)
    }

    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    pub fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) -> &mut Self {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
        self
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
