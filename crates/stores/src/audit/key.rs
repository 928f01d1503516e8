//! The node's audit key. Whoever holds the private half can sign heads; the public half checks them.

use std::{fmt, io, os::unix::fs::MetadataExt, path::PathBuf};

use aegis_core::call::hex;
use ed25519_dalek::{
    Signer, SigningKey, VerifyingKey,
    pkcs8::{
        DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, spki::der::pem::LineEnding,
    },
};
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{digest::Digest, head::Signature};
use crate::data_dir::{DataDir, DataDirError};

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("can't read {path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} holds no Ed25519 key in PEM form: restore it from a backup")]
    Malformed { path: PathBuf },
    #[error(
        "{path} is missing, and the audit log was signed with it: restore it from a backup, or move audit.db and \
         audit.pub away to begin a new log"
    )]
    Lost { path: PathBuf },
    #[error(
        "others may read {path} (mode {mode:03o}), and with it sign forged records: run `chmod 600 {path}`"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{path} is not the public half of audit.key: restore the one that is missing its other half, or delete {path}"
    )]
    Unmatched { path: PathBuf },
    #[error("no randomness for a new audit key: {0}")]
    Randomness(getrandom::Error),
    #[error(transparent)]
    Directory(#[from] DataDirError),
}

/// A short name for a public key: the first 8 bytes of its SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        super::digest::from_hex::<8>(text.as_bytes()).map(|_| Self(text.to_owned()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    id: KeyId,
}

impl PublicKey {
    fn new(key: VerifyingKey) -> Self {
        let mut id = Digest::of(key.as_bytes()).to_string();
        id.truncate(16);
        Self { key, id: KeyId(id) }
    }

    pub fn read(path: impl Into<PathBuf>) -> Result<Self, KeyError> {
        let path = path.into();
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::from_pem(&text).ok_or(KeyError::Malformed { path }),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(KeyError::Malformed { path }),
            Err(source) => Err(KeyError::Unreadable { path, source }),
        }
    }

    pub fn from_pem(text: &str) -> Option<Self> {
        VerifyingKey::from_public_key_pem(text).ok().map(Self::new)
    }

    pub fn id(&self) -> &KeyId {
        &self.id
    }

    pub(super) fn signed(&self, message: &[u8], signature: &Signature) -> bool {
        self.key.verify_strict(message, &ed25519_dalek::Signature::from_bytes(signature.as_bytes())).is_ok()
    }
}

pub(super) struct AuditKey {
    key: SigningKey,
    public: PublicKey,
}

impl AuditKey {
    /// Reads the key, or makes one for a log that has no head yet.
    pub(super) fn open(data: &DataDir, log_is_signed: bool) -> Result<Self, KeyError> {
        let path = data.audit_key();
        let key = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.mode() & 0o077 != 0 => {
                return Err(KeyError::Exposed { path, mode: metadata.mode() & 0o777 });
            }
            Ok(_) => {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| KeyError::Unreadable { path: path.clone(), source })?;
                SigningKey::from_pkcs8_pem(&text).map_err(|_| KeyError::Malformed { path })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && log_is_signed => {
                return Err(KeyError::Lost { path });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(data)?,
            Err(source) => return Err(KeyError::Unreadable { path, source }),
        };
        let public = PublicKey::new(key.verifying_key());
        let path = data.audit_public_key();
        if !path.exists() {
            let text = public
                .key
                .to_public_key_pem(LineEnding::LF)
                .map_err(|_| KeyError::Malformed { path: data.audit_key() })?;
            // The private half is on disk, and this one follows from it.
            data.place_file(&path, text.as_bytes(), 0o644)?;
        } else if PublicKey::read(&path)? != public {
            return Err(KeyError::Unmatched { path });
        }
        Ok(Self { key, public })
    }

    fn create(data: &DataDir) -> Result<SigningKey, KeyError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(KeyError::Randomness)?;
        let key = SigningKey::from_bytes(&seed);
        let path = data.audit_key();
        let text =
            key.to_pkcs8_pem(LineEnding::LF).map_err(|_| KeyError::Malformed { path: path.clone() })?;
        data.write_file(&path, text.as_bytes(), 0o600)?;
        Ok(key)
    }

    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// For digests of what the log hides. It follows from the private half, so that there is no second file to lose, and
    /// nothing follows from it.
    pub(super) fn digest_key(&self) -> DigestKey {
        let seed = hmac::Key::new(hmac::HMAC_SHA256, self.key.as_bytes());
        let key = hmac::sign(&seed, b"aegis audit log: digests of what is hidden");
        DigestKey(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
    }

    pub(super) fn sign(&self, message: &[u8]) -> Signature {
        Signature::from(self.key.sign(message).to_bytes())
    }
}

/// Makes digests that tell equals from others and that nobody without the key can test guesses against.
pub(super) struct DigestKey(hmac::Key);

impl DigestKey {
    pub(super) fn keyed(&self, digest: &str) -> String {
        format!("hmac:{}", hex(hmac::sign(&self.0, digest.as_bytes()).as_ref()))
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey")
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuditKey({})", self.public.id)
    }
}
