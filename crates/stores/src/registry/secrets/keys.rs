//! The keys that secrets are sealed with. Whoever holds the file and the registry can read them all.

use std::{io, os::unix::fs::MetadataExt};

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::SecretStoreError;
use crate::data_dir::DataDir;

/// Tells the file from others, and its form from later ones.
const HEADER: &str = "aegis secret keys 1";
const KEY_BYTES: usize = 32;

pub(super) struct Keys {
    /// The last is the one that seals.
    keys: Vec<Key>,
}

pub(super) struct Key {
    pub(super) id: String,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

impl Keys {
    /// `None` when there is no file.
    pub(super) fn read(data: &DataDir) -> Result<Option<Self>, SecretStoreError> {
        let path = data.secret_keys();
        match std::fs::metadata(&path) {
            Ok(metadata) if metadata.mode() & 0o077 != 0 => {
                return Err(SecretStoreError::ExposedKeys { mode: metadata.mode() & 0o777, path });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(SecretStoreError::UnreadableKeys { path, source }),
        }
        let text = std::fs::read_to_string(&path)
            .map(Zeroizing::new)
            .map_err(|source| SecretStoreError::UnreadableKeys { path: path.clone(), source })?;
        let mut lines = text.lines();
        let keys = (lines.next() == Some(HEADER)).then(|| lines.map(Key::parse).collect::<Option<Vec<_>>>());
        match keys.flatten() {
            Some(keys) if !keys.is_empty() => Ok(Some(Self { keys })),
            _ => Err(SecretStoreError::MalformedKeys { path }),
        }
    }

    /// Makes the first key.
    pub(super) fn create(data: &DataDir) -> Result<Self, SecretStoreError> {
        let keys = Self { keys: vec![Key::fresh()?] };
        keys.write(data)?;
        Ok(keys)
    }

    /// Seals with a new key from now on; the others can still open.
    pub(super) fn renew(&mut self, data: &DataDir) -> Result<(), SecretStoreError> {
        self.keys.push(Key::fresh()?);
        self.write(data)
    }

    /// Forgets all but the one that seals.
    pub(super) fn drop_old(&mut self, data: &DataDir) -> Result<(), SecretStoreError> {
        let old = self.keys.len().saturating_sub(1);
        self.keys.drain(..old);
        self.write(data)
    }

    fn write(&self, data: &DataDir) -> Result<(), SecretStoreError> {
        let mut text = Zeroizing::new(format!("{HEADER}\n"));
        for key in &self.keys {
            text.push_str(&key.id);
            text.push(' ');
            text.push_str(&Zeroizing::new(STANDARD.encode(*key.bytes)));
            text.push('\n');
        }
        Ok(data.write_file(&data.secret_keys(), text.as_bytes(), 0o600)?)
    }

    /// The key that seals.
    pub(super) fn current(&self) -> Option<&Key> {
        self.keys.last()
    }

    pub(super) fn get(&self, id: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }
}

impl Key {
    fn fresh() -> Result<Self, SecretStoreError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(bytes.as_mut()).map_err(SecretStoreError::Randomness)?;
        let mut name = [0; 4];
        getrandom::fill(&mut name).map_err(SecretStoreError::Randomness)?;
        Ok(Self { id: format!("{:08x}", u32::from_be_bytes(name)), bytes })
    }

    fn parse(line: &str) -> Option<Self> {
        let (id, text) = line.split_once(' ')?;
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let decoded = Zeroizing::new(STANDARD.decode(text).ok()?);
        if decoded.len() != KEY_BYTES || id.is_empty() {
            return None;
        }
        bytes.copy_from_slice(&decoded);
        Some(Self { id: id.to_owned(), bytes })
    }

    fn cipher(&self) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, self.bytes.as_ref()).ok().map(LessSafeKey::new)
    }

    /// The nonce, then the sealed bytes. `about` is not kept: opening needs the same again.
    pub(super) fn seal(&self, plain: &str, about: &[u8]) -> Result<Vec<u8>, SecretStoreError> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).map_err(SecretStoreError::Randomness)?;
        let mut bytes = Zeroizing::new(plain.as_bytes().to_vec());
        // Room for the tag, so that no half-sealed copy is left behind by a growing buffer.
        bytes.reserve_exact(CHACHA20_POLY1305.tag_len());
        let cipher = self.cipher().ok_or(SecretStoreError::Sealing)?;
        let tag = cipher
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(about), &mut bytes)
            .map_err(|_| SecretStoreError::Sealing)?;
        Ok([&nonce[..], &bytes, tag.as_ref()].concat())
    }

    /// `None` when these bytes were not sealed with this key about this.
    pub(super) fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.split_at_checked(NONCE_LEN)?;
        let mut bytes = Zeroizing::new(sealed.to_vec());
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let plain = self.cipher()?.open_in_place(nonce, Aad::from(about), &mut bytes).ok()?.len();
        bytes.truncate(plain);
        Some(bytes)
    }
}
