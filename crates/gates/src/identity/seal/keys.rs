//! The keys that tokens are signed with. One signs; those it took over from verify until the last token they signed
//! has run out. Of a key that signs no more only the public half is kept.

use std::{
    fmt, io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use aegis_core::{Timestamp, config::TrustedKey};
use aegis_stores::{DataDir, data_dir::DataDirError};
use arc_swap::ArcSwap;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ed25519_dalek::{
    SigningKey, VerifyingKey,
    pkcs8::{Document, spki::SubjectPublicKeyInfoRef},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// 1.2.840.113549.1.1.1
const RSA: &str = "1.2.840.113549.1.1.1";

#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("can't read {path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{path} does not hold the keys of SEAL tokens: restore it from a backup, or delete it, which ends every session"
    )]
    Malformed { path: PathBuf },
    #[error("others may read {path} (mode {mode:03o}), and with it forge sessions: run `chmod 600 {path}`")]
    Exposed { path: PathBuf, mode: u32 },
    #[error("spec.seal.trusted_keys: `{kid}` is no Ed25519 or RSA public key in PEM form")]
    Untrusted { kid: String },
    #[error("no randomness for a new key: {0}")]
    Randomness(getrandom::Error),
    #[error(transparent)]
    Directory(#[from] DataDirError),
}

/// A short name for a key: the first 8 bytes of the SHA-256 of its public half.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(String);

impl KeyId {
    fn of(key: &VerifyingKey) -> Self {
        let digest = Sha256::digest(key.as_bytes());
        Self(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What verifies a token.
#[derive(Debug, Clone)]
pub enum Material {
    Ed25519(VerifyingKey),
    /// PKCS#1.
    Rsa(Vec<u8>),
}

/// The keys in force at one moment.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    signing: Option<Arc<Own>>,
    retired: Vec<Retired>,
    trusted: Vec<(String, Material)>,
}

#[derive(Debug)]
struct Own {
    id: KeyId,
    key: SigningKey,
    created: Timestamp,
}

#[derive(Debug, Clone)]
struct Retired {
    id: KeyId,
    material: Material,
    until: Timestamp,
}

impl Ring {
    /// A ring that only verifies, with keys that were not made here.
    pub fn trusting(keys: &[TrustedKey]) -> Result<Self, KeysError> {
        let trusted = keys
            .iter()
            .map(|key| {
                let material = public_key(&key.public_key_pem)
                    .ok_or_else(|| KeysError::Untrusted { kid: key.kid.clone() })?;
                Ok((key.kid.clone(), material))
            })
            .collect::<Result<_, KeysError>>()?;
        Ok(Self { trusted, ..Self::default() })
    }

    pub(super) fn find(&self, kid: &str) -> Option<&Material> {
        let own = self.retired.iter().find(|key| key.id.0 == kid).map(|key| &key.material);
        let trusted = || self.trusted.iter().find(|(name, _)| name == kid).map(|(_, material)| material);
        own.or_else(trusted)
    }

    /// The public halves of the node's own keys that verify, the one that signs first.
    fn own(&self) -> impl Iterator<Item = (&KeyId, VerifyingKey)> {
        self.retired.iter().filter_map(|key| match &key.material {
            Material::Ed25519(public) => Some((&key.id, *public)),
            Material::Rsa(_) => None,
        })
    }

    /// With the signing key among those that verify, which is where it is looked for.
    fn put_together(
        signing: Option<Own>,
        mut retired: Vec<Retired>,
        trusted: Vec<(String, Material)>,
    ) -> Self {
        if let Some(own) = &signing {
            let until = Timestamp::from_millis(u64::MAX);
            let material = Material::Ed25519(own.key.verifying_key());
            retired.insert(0, Retired { id: own.id.clone(), material, until });
        }
        Self { signing: signing.map(Arc::new), retired, trusted }
    }
}

/// The file's shape.
#[derive(Serialize, Deserialize)]
struct Stored {
    signing: StoredKey,
    retired: Vec<StoredRetired>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    seed: String,
    created: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct StoredRetired {
    public: String,
    until: Timestamp,
}

/// The ring and the file it is kept in.
#[derive(Debug)]
pub(super) struct Keys {
    data: DataDir,
    ring: ArcSwap<Ring>,
    /// One change at a time.
    changing: Mutex<()>,
}

impl Keys {
    /// Reads the keys there are. The first is made when the first token is. Blocks.
    pub(super) fn open(data: &DataDir, trusted: &[TrustedKey], now: Timestamp) -> Result<Self, KeysError> {
        let trusted = Ring::trusting(trusted)?.trusted;
        let path = data.seal_keys();
        let ring = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ring::put_together(None, Vec::new(), trusted)
            }
            Err(source) => return Err(KeysError::Unreadable { path, source }),
            Ok(metadata) if metadata.mode() & 0o077 != 0 => {
                return Err(KeysError::Exposed { path, mode: metadata.mode() & 0o777 });
            }
            Ok(_) => {
                let text = std::fs::read_to_string(&path)
                    .map_err(|source| KeysError::Unreadable { path: path.clone(), source })?;
                let (own, retired) = read(&text, now).ok_or(KeysError::Malformed { path })?;
                Ring::put_together(Some(own), retired, trusted)
            }
        };
        Ok(Self { data: data.clone(), ring: ArcSwap::from_pointee(ring), changing: Mutex::new(()) })
    }

    pub(super) fn ring(&self) -> arc_swap::Guard<Arc<Ring>> {
        self.ring.load()
    }

    /// Whether a token can be signed without making a key first.
    pub(super) fn can_sign(&self) -> bool {
        self.ring.load().signing.is_some()
    }

    pub(super) fn sign(&self, make: impl FnOnce(&SigningKey, &KeyId) -> Option<String>) -> Option<String> {
        let ring = self.ring.load();
        let own = ring.signing.as_ref()?;
        make(&own.key, &own.id)
    }

    /// Makes the first key, if there is none. Blocks.
    pub(super) fn ensure(&self, now: Timestamp) -> Result<(), KeysError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.can_sign() {
            self.replace(fresh(now)?, Vec::new())?;
        }
        Ok(())
    }

    /// Puts a new key in the place of the one that signs, which verifies until `until`. Blocks.
    pub(super) fn rotate(&self, now: Timestamp, until: Timestamp) -> Result<KeyId, KeysError> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = self.ring.load_full();
        let mut retired = ring.retired.clone();
        for key in &mut retired {
            key.until = key.until.min(until);
        }
        retired.retain(|key| key.until > now);
        let own = fresh(now)?;
        let id = own.id.clone();
        self.replace(own, retired)?;
        Ok(id)
    }

    /// On disk first: a token is never signed with a key that a crash could lose.
    fn replace(&self, own: Own, retired: Vec<Retired>) -> Result<(), KeysError> {
        let path = self.data.seal_keys();
        let stored = Stored {
            signing: StoredKey { seed: STANDARD.encode(own.key.to_bytes()), created: own.created },
            retired: retired
                .iter()
                .filter_map(|key| match &key.material {
                    Material::Ed25519(public) => {
                        Some(StoredRetired { public: STANDARD.encode(public.as_bytes()), until: key.until })
                    }
                    Material::Rsa(_) => None,
                })
                .collect(),
        };
        let text =
            serde_json::to_vec_pretty(&stored).map_err(|_| KeysError::Malformed { path: path.clone() })?;
        self.data.write_file(&path, &text, 0o600)?;
        let trusted = self.ring.load().trusted.clone();
        self.ring.store(Arc::new(Ring::put_together(Some(own), retired, trusted)));
        Ok(())
    }

    /// The public halves of the node's own keys.
    pub(super) fn jwks(&self) -> Value {
        let key = |(id, public): (&KeyId, VerifyingKey)| {
            json!({
                "kty": "OKP",
                "crv": "Ed25519",
                "use": "sig",
                "alg": "EdDSA",
                "kid": id,
                "x": URL_SAFE_NO_PAD.encode(public.as_bytes()),
            })
        };
        json!({"keys": self.ring.load().own().map(key).collect::<Vec<_>>()})
    }
}

fn fresh(now: Timestamp) -> Result<Own, KeysError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(KeysError::Randomness)?;
    let key = SigningKey::from_bytes(&seed);
    Ok(Own { id: KeyId::of(&key.verifying_key()), key, created: now })
}

fn read(text: &str, now: Timestamp) -> Option<(Own, Vec<Retired>)> {
    let stored: Stored = serde_json::from_str(text).ok()?;
    let seed: [u8; 32] = STANDARD.decode(stored.signing.seed).ok()?.try_into().ok()?;
    let key = SigningKey::from_bytes(&seed);
    let own = Own { id: KeyId::of(&key.verifying_key()), key, created: stored.signing.created };
    let mut retired = Vec::new();
    for key in stored.retired {
        let public: [u8; 32] = STANDARD.decode(key.public).ok()?.try_into().ok()?;
        let public = VerifyingKey::from_bytes(&public).ok()?;
        if key.until > now {
            retired.push(Retired {
                id: KeyId::of(&public),
                material: Material::Ed25519(public),
                until: key.until,
            });
        }
    }
    Some((own, retired))
}

/// A public key in PEM form: SPKI of either kind, or PKCS#1 of RSA.
fn public_key(pem: &str) -> Option<Material> {
    let (label, document) = Document::from_pem(pem.trim()).ok()?;
    if label == "RSA PUBLIC KEY" {
        return Some(Material::Rsa(document.as_bytes().to_vec()));
    }
    if label != "PUBLIC KEY" {
        return None;
    }
    let info: SubjectPublicKeyInfoRef<'_> = document.decode_msg().ok()?;
    if info.algorithm.oid.to_string() == RSA {
        return Some(Material::Rsa(info.subject_public_key.as_bytes()?.to_vec()));
    }
    VerifyingKey::try_from(info).ok().filter(|key| !key.is_weak()).map(Material::Ed25519)
}
