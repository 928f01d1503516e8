//! The secret store: values sealed in the registry, each bound to its tenant, name and version, with keys that lie in
//! a file of their own.

mod keys;

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use aegis_core::{
    Secret, Timestamp,
    config::is_secret_store_name,
    id::{TenantId, UserId},
};
use rusqlite::{OptionalExtension, Row, TransactionBehavior, params};
use serde::Serialize;

use self::keys::Keys;
use super::{Inner, Registry, RegistryError, rows::read_rows};
use crate::data_dir::DataDirError;

/// Keys and tokens are short; a certificate with its key is still smaller.
const LARGEST_SECRET: usize = 64 * 1024;
/// Secrets that a node keeps, and as many that were there.
const MOST_SECRETS: usize = 10_000;
/// Rows of versions that are gone, of one secret.
const MOST_PAST_VERSIONS: usize = 20;

const COLUMNS: &str = "tenant, name, version, created, created_by, expires";

#[derive(Debug, thiserror::Error)]
pub enum SecretStoreError {
    #[error(
        "others may read {path} (mode {mode:03o}), and with it every secret: run `chmod 600 {path}`, and rotate what is stored"
    )]
    ExposedKeys { path: PathBuf, mode: u32 },
    #[error("can't read {path}: {source}")]
    UnreadableKeys { path: PathBuf, source: io::Error },
    #[error("{path} holds no keys of a secret store: restore it from a backup")]
    MalformedKeys { path: PathBuf },
    #[error(
        "the key that sealed `{name}` is not in {path}: restore the file from a backup, or delete the secret and set it \
         again"
    )]
    LostKey { name: String, path: PathBuf },
    #[error(
        "`{0}` does not open with its key: the registry was changed by somebody else; delete the secret and set it again"
    )]
    Tampered(String),
    #[error(
        "`{0}` can't name a secret: use parts of letters, digits, `.`, `_`, `-`, `@` and `+`, joined by `/`, as in \
         tools/search-key"
    )]
    BadName(String),
    #[error("the value of `{0}` is empty")]
    Empty(String),
    #[error("the value of `{name}` has {bytes} bytes; {LARGEST_SECRET} is the most")]
    TooLarge { name: String, bytes: usize },
    #[error(
        "there is a secret `{name}` already (version {version}): give it a new value with `aegis secret rotate {name}`"
    )]
    Exists { name: String, version: u64 },
    #[error("the secret `{name}` was given another value meanwhile (version {version})")]
    Changed { name: String, version: u64 },
    #[error("there is no secret `{0}`")]
    Missing(String),
    #[error("{MOST_SECRETS} secrets are stored, which is the most: delete one")]
    Full,
    #[error("no randomness for a key: {0}")]
    Randomness(getrandom::Error),
    #[error("the value could not be sealed")]
    Sealing,
    #[error(transparent)]
    Directory(#[from] DataDirError),
}

/// What there is to know of a secret without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredSecret {
    pub tenant: TenantId,
    pub name: String,
    pub version: u64,
    pub created: Timestamp,
    pub created_by: UserId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NewSecret {
    pub tenant: TenantId,
    pub name: String,
    pub value: Secret,
    pub expires: Option<Timestamp>,
    pub created_by: UserId,
}

impl NewSecret {
    fn check(&self) -> Result<(), SecretStoreError> {
        let bytes = self.value.expose().len();
        if !is_secret_store_name(&self.name) {
            Err(SecretStoreError::BadName(self.name.chars().take(200).collect()))
        } else if self.value.expose().trim().is_empty() {
            Err(SecretStoreError::Empty(self.name.clone()))
        } else if bytes > LARGEST_SECRET {
            Err(SecretStoreError::TooLarge { name: self.name.clone(), bytes })
        } else {
            Ok(())
        }
    }
}

/// What a new value is written over.
#[derive(Clone, Copy)]
enum Over {
    Nothing,
    Any,
    Version(u64),
}

impl Registry {
    /// Stores a secret under a name that has none.
    pub async fn set_secret(&self, new: NewSecret) -> Result<StoredSecret, RegistryError> {
        self.blocking(move |inner| inner.write_secret(&new, Over::Nothing)).await
    }

    /// Gives a secret another value. The one before can't be had again.
    pub async fn rotate_secret(&self, new: NewSecret) -> Result<StoredSecret, RegistryError> {
        self.blocking(move |inner| inner.write_secret(&new, Over::Any)).await
    }

    /// As [`Registry::rotate_secret`], if `version` is still the one that is there.
    pub async fn replace_secret(&self, new: NewSecret, version: u64) -> Result<StoredSecret, RegistryError> {
        self.blocking(move |inner| inner.write_secret(&new, Over::Version(version))).await
    }

    pub async fn secret(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<(StoredSecret, Secret)>, RegistryError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.blocking(move |inner| inner.read_secret(&tenant, &name)).await
    }

    /// By tenant and name, without values.
    pub async fn secrets(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<StoredSecret>, RegistryError> {
        let tenant = tenant.cloned();
        self.blocking(move |inner| {
            let store = inner.store();
            let list = || -> rusqlite::Result<Vec<StoredSecret>> {
                store
                    .connection
                    .prepare_cached(&format!(
                        "SELECT {COLUMNS} FROM secrets WHERE ended IS NULL AND (?1 IS NULL OR tenant = ?1)
                         ORDER BY tenant, name LIMIT ?2"
                    ))?
                    .query_map(
                        params![tenant.as_ref().map(TenantId::as_str), limit.min(MOST_SECRETS)],
                        stored,
                    )?
                    .collect()
            };
            list().map_err(|error| store.failed(error))
        })
        .await
    }

    /// The value is gone; what was known of it is returned.
    pub async fn delete_secret(&self, tenant: &TenantId, name: &str) -> Result<StoredSecret, RegistryError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.blocking(move |inner| {
            let store = inner.store();
            let ended = store
                .connection
                .query_row(
                    &format!(
                        "UPDATE secrets SET ended = ?3, sealed = NULL, key = NULL
                         WHERE tenant = ?1 AND name = ?2 AND ended IS NULL RETURNING {COLUMNS}"
                    ),
                    params![tenant.as_str(), name, Timestamp::now().millis()],
                    stored,
                )
                .optional()
                .map_err(|error| store.failed(error))?;
            inner.secret_changes.fetch_add(1, Ordering::Release);
            Ok(ended.ok_or(SecretStoreError::Missing(name))?)
        })
        .await
    }

    /// Grows with every change of a stored secret.
    pub fn secret_changes(&self) -> u64 {
        self.inner.secret_changes.load(Ordering::Acquire)
    }

    /// Seals every secret with a new key and forgets the old one. Returns how many there are.
    pub async fn renew_secret_key(&self) -> Result<usize, RegistryError> {
        self.blocking(Inner::renew_secret_key).await
    }
}

impl Inner {
    fn write_secret(&self, new: &NewSecret, over: Over) -> Result<StoredSecret, RegistryError> {
        new.check()?;
        let mut store = self.store();
        let path = store.path.clone();
        let failed = |source| RegistryError::Database { path: path.clone(), source };
        let transaction =
            store.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let current: Option<u64> = transaction
            .query_row(
                "SELECT version FROM secrets WHERE tenant = ?1 AND name = ?2 AND ended IS NULL",
                (new.tenant.as_str(), &new.name),
                |row| row.get(0),
            )
            .optional()
            .map_err(failed)?;
        match (current, over) {
            (Some(version), Over::Nothing) => {
                return Err(SecretStoreError::Exists { name: new.name.clone(), version }.into());
            }
            (Some(version), Over::Version(read)) if version != read => {
                return Err(SecretStoreError::Changed { name: new.name.clone(), version }.into());
            }
            (None, Over::Any | Over::Version(_)) => {
                return Err(SecretStoreError::Missing(new.name.clone()).into());
            }
            _ => {}
        }
        let (all, last): (usize, Option<u64>) = transaction
            .query_row(
                "SELECT (SELECT count(*) FROM secrets WHERE ended IS NULL),
                        (SELECT max(version) FROM secrets WHERE tenant = ?1 AND name = ?2)",
                (new.tenant.as_str(), &new.name),
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(failed)?;
        if current.is_none() && all >= MOST_SECRETS {
            return Err(SecretStoreError::Full.into());
        }
        let secret = StoredSecret {
            tenant: new.tenant.clone(),
            name: new.name.clone(),
            version: last.unwrap_or(0) + 1,
            created: Timestamp::now(),
            created_by: new.created_by.clone(),
            expires: new.expires,
        };
        let keys = match Keys::read(&self.data)? {
            Some(keys) => keys,
            // A new file would be in the way when the lost one is restored.
            None if all > 0 => {
                let (name, path) = ("the stored secrets".to_owned(), self.data.secret_keys());
                return Err(SecretStoreError::LostKey { name, path }.into());
            }
            None => Keys::create(&self.data)?,
        };
        let key = keys.current().ok_or(SecretStoreError::Sealing)?;
        let sealed = key.seal(new.value.expose(), &about(&secret, &key.id))?;
        let write = || -> rusqlite::Result<()> {
            transaction.execute(
                "UPDATE secrets SET ended = ?3, sealed = NULL, key = NULL
                 WHERE tenant = ?1 AND name = ?2 AND ended IS NULL",
                params![secret.tenant.as_str(), secret.name, secret.created.millis()],
            )?;
            transaction.execute(
                "INSERT INTO secrets (tenant, name, version, key, sealed, created, created_by, expires)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    secret.tenant.as_str(),
                    secret.name,
                    secret.version,
                    key.id,
                    sealed,
                    secret.created.millis(),
                    secret.created_by.as_str(),
                    secret.expires.map(Timestamp::millis),
                ],
            )?;
            transaction.execute(
                "DELETE FROM secrets WHERE tenant = ?1 AND name = ?2 AND version + ?4 <= ?3",
                params![secret.tenant.as_str(), secret.name, secret.version, MOST_PAST_VERSIONS],
            )?;
            transaction.execute(
                "DELETE FROM secrets WHERE number IN
                 (SELECT number FROM secrets WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT -1 OFFSET ?1)",
                [MOST_SECRETS * 2],
            )?;
            Ok(())
        };
        write().map_err(failed)?;
        transaction.commit().map_err(failed)?;
        self.secret_changes.fetch_add(1, Ordering::Release);
        Ok(secret)
    }

    fn read_secret(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<(StoredSecret, Secret)>, RegistryError> {
        let store = self.store();
        let row = store
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS}, key, sealed FROM secrets WHERE tenant = ?1 AND name = ?2 AND ended IS NULL"
            ))
            .and_then(|mut select| {
                select
                    .query_row((tenant.as_str(), name), |row| {
                        Ok((stored(row)?, row.get::<_, String>(6)?, row.get::<_, Vec<u8>>(7)?))
                    })
                    .optional()
            })
            .map_err(|error| store.failed(error))?;
        drop(store);
        let Some((secret, key, sealed)) = row else { return Ok(None) };
        let keys = Keys::read(&self.data)?;
        let value = self.open_secret(keys.as_ref(), &secret, &key, &sealed)?;
        Ok(Some((secret, value)))
    }

    fn open_secret(
        &self,
        keys: Option<&Keys>,
        secret: &StoredSecret,
        key: &str,
        sealed: &[u8],
    ) -> Result<Secret, SecretStoreError> {
        let key = keys.and_then(|keys| keys.get(key)).ok_or_else(|| SecretStoreError::LostKey {
            name: secret.name.clone(),
            path: self.data.secret_keys(),
        })?;
        let mut plain = key
            .open(sealed, &about(secret, &key.id))
            .ok_or_else(|| SecretStoreError::Tampered(secret.name.clone()))?;
        // Moved, not copied: the text is wiped with the secret.
        String::from_utf8(std::mem::take(&mut *plain))
            .map(Secret::new)
            .map_err(|_| SecretStoreError::Tampered(secret.name.clone()))
    }

    fn renew_secret_key(&self) -> Result<usize, RegistryError> {
        let mut store = self.store();
        let path = store.path.clone();
        let failed = |source| RegistryError::Database { path: path.clone(), source };
        let Some(mut keys) = Keys::read(&self.data)? else { return Ok(0) };
        keys.renew(&self.data)?;
        let new = keys.current().ok_or(SecretStoreError::Sealing)?;
        let transaction =
            store.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let rows: Vec<(i64, StoredSecret, String, Vec<u8>)> = transaction
            .prepare(&format!("SELECT {COLUMNS}, key, sealed, number FROM secrets WHERE ended IS NULL"))
            .and_then(|mut select| {
                select
                    .query_map([], |row| Ok((row.get(8)?, stored(row)?, row.get(6)?, row.get(7)?)))?
                    .collect()
            })
            .map_err(failed)?;
        for (number, secret, key, sealed) in &rows {
            let value = self.open_secret(Some(&keys), secret, key, sealed)?;
            let sealed = new.seal(value.expose(), &about(secret, &new.id))?;
            transaction
                .execute(
                    "UPDATE secrets SET key = ?2, sealed = ?3 WHERE number = ?1",
                    params![number, new.id, sealed],
                )
                .map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        // The old sealings may still stand in the write-ahead log; without their key they are noise.
        keys.drop_old(&self.data)?;
        Ok(rows.len())
    }
}

/// Whose secrets there are and how they are called, in a registry's file, whether or not a node has it open. Blocks, and
/// changes nothing.
pub fn read_secret_names(database: &Path) -> Result<Vec<(TenantId, String)>, RegistryError> {
    let list = "SELECT tenant, name FROM secrets WHERE ended IS NULL ORDER BY tenant, name";
    read_rows(database, "secrets", list, |row| Ok((TenantId::new(row.get::<_, String>(0)?), row.get(1)?)))
}

/// What a sealed value is bound to: moved to another row, it does not open.
fn about(secret: &StoredSecret, key: &str) -> Vec<u8> {
    let mut about = b"aegis-secret-1".to_vec();
    for part in [secret.tenant.as_str(), &secret.name, key] {
        about.extend((part.len() as u64).to_be_bytes());
        about.extend(part.as_bytes());
    }
    about.extend(secret.version.to_be_bytes());
    about.extend(secret.expires.map_or(0, Timestamp::millis).to_be_bytes());
    about
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredSecret> {
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    Ok(StoredSecret {
        tenant: TenantId::new(text(0)?),
        name: row.get(1)?,
        version: row.get(2)?,
        created: Timestamp::from_millis(row.get(3)?),
        created_by: UserId::new(text(4)?),
        expires: row.get::<_, Option<u64>>(5)?.map(Timestamp::from_millis),
    })
}
