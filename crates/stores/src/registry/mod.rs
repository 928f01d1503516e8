//! The registry of credentials. It keeps hashes; a token itself is shown once, when it is made.

mod applied;
mod approval_rows;
mod approvals;
mod cache;
mod divide;
mod mint;
mod operator;
mod pins;
mod policy;
mod rows;
mod seal;
mod secrets;
mod standing;
mod store;
mod token;
mod upstreams;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    Secret, Timestamp,
    id::{CredentialId, SessionId, TenantId},
};
use tokio::{runtime::Handle, sync::Semaphore};

pub use self::{
    applied::{AppliedContext, MOST_APPLIED_CONTEXTS, read_applied_contexts},
    approvals::{ApprovalFilter, ApprovalPage, Decided, DecisionRow, Limit, Parked},
    operator::OperatorToken,
    pins::{Pin, PinState, read_accepted_definitions},
    policy::{ContextRow, LabelHolder, LabelRow, MOST_CONTEXT_VERSIONS},
    seal::{
        Authority, Enrolment, LiveSession, MOST_ENROLMENTS, NewEnrolment, NewSession, OpenError, Session,
        SessionStatus, Spent, WorkloadHash,
    },
    secrets::{NewSecret, SecretStoreError, StoredSecret, read_secret_names},
    token::{NewToken, Token, TokenError, TokenState},
    upstreams::{AddedServer, MOST_ADDED_SERVERS, read_added_servers},
};
use self::{
    cache::{Cache, Uses},
    store::Store,
    token::TokenHash,
};
use crate::data_dir::{DataDir, DataDirError};

/// What ended requests left in the write-ahead log is removed together, this long after the first.
const TRACES_TOGETHER: Duration = Duration::from_secs(1);
/// While somebody reads the file, or it can't be written, the pauses between attempts grow up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Uses of tokens are written down together, this long after the first.
const USES_TOGETHER: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Directory(#[from] DataDirError),
    #[error("the registry {path} can't be used: {source}")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{path} is not a registry of aegis: name another data directory, or move the file away")]
    NotARegistry { path: PathBuf },
    #[error(
        "{path} was written in format {found}, and this aegis reads up to {known}: use the newer aegis that wrote it; \
         the file was left as it is"
    )]
    Newer { path: PathBuf, found: usize, known: usize },
    #[error("{0}")]
    Invalid(String),
    #[error("there is no token `{0}`")]
    NoSuchToken(CredentialId),
    #[error("there is no enrolment `{0}`")]
    NoSuchEnrolment(CredentialId),
    #[error("there is no session `{0}`")]
    NoSuchSession(SessionId),
    #[error(transparent)]
    Secret(#[from] SecretStoreError),
    #[error("no randomness for a new token: {0}")]
    Randomness(getrandom::Error),
    #[error("the registry is not available: the node is stopping")]
    Stopped,
}

/// The tokens this node knows. Clones share one store and one cache.
#[derive(Debug, Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Mutex<Store>,
    /// Changed only with the store locked: a token revoked while it is being looked up does not come back.
    cache: Mutex<Cache>,
    uses: Mutex<Uses>,
    /// As with the cache of tokens.
    seal: Mutex<seal::Memory>,
    /// Whether a request has ended whose arguments may still be in the write-ahead log.
    traces: AtomicBool,
    /// How often a stored secret has changed.
    secret_changes: AtomicU64,
    /// One blocking task at a time: unknown tokens, however many, occupy one thread.
    turn: Semaphore,
    data: DataDir,
}

impl Inner {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seal(&self) -> MutexGuard<'_, seal::Memory> {
        self.seal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, hash: &TokenHash) -> Result<Arc<Token>, TokenError> {
        let store = self.store();
        let token = Arc::new(store.find(hash)?.ok_or(TokenError::Unknown)?);
        token.usable_at(Timestamp::now())?;
        self.cache().insert(*hash, Arc::clone(&token));
        drop(store);
        Ok(token)
    }

    /// Whether nothing is left to remove.
    fn remove_traces(&self) -> bool {
        let store = self.store();
        if !self.traces.load(Ordering::Acquire) {
            return true;
        }
        match store.empty_write_ahead_log() {
            Ok(true) => {
                // Whoever says meanwhile that there are traces left them before the store was locked.
                self.traces.store(false, Ordering::Release);
                return true;
            }
            Ok(false) => tracing::debug!("the registry is being read; its write-ahead log stays for now"),
            Err(error) => tracing::warn!(%error, "the registry's write-ahead log could not be emptied"),
        }
        false
    }

    /// Writes down which tokens were used. Coarse, so a failure is worth no more than a line in the log.
    fn write_uses(&self) {
        let mut store = self.store();
        // Taken with the store in hand: whoever comes while it is busy still joins this batch.
        let uses = self.uses().take();
        if !uses.is_empty()
            && let Err(error) = store.note_uses(&uses)
        {
            tracing::warn!(%error, "when tokens were last used could not be noted");
        }
    }
}

impl Registry {
    /// Opens the registry of this data directory, making it on first use. Blocks.
    pub fn open(data: &DataDir) -> Result<Self, RegistryError> {
        let (store, left_traces) = Store::open(data.registry_database())?;
        let inner = Inner {
            store: Mutex::new(store),
            cache: Mutex::default(),
            uses: Mutex::default(),
            seal: Mutex::default(),
            traces: AtomicBool::new(false),
            secret_changes: AtomicU64::new(0),
            turn: Semaphore::new(1),
            data: data.clone(),
        };
        let registry = Self { inner: Arc::new(inner) };
        if left_traces {
            registry.left_traces();
        }
        Ok(registry)
    }

    /// Makes a token. The secret can't be had again.
    pub async fn create(&self, new: NewToken) -> Result<(Token, Secret), RegistryError> {
        self.blocking(move |inner| inner.store().create(&new)).await
    }

    /// Tokens in the order they were made, those of one tenant or all, beginning after `after`.
    pub async fn list(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
        after: Option<&CredentialId>,
    ) -> Result<Vec<Token>, RegistryError> {
        let (tenant, after) = (tenant.cloned(), after.cloned());
        self.blocking(move |inner| inner.store().list(tenant.as_ref(), limit, after.as_ref())).await
    }

    /// Takes a token back: the next call with it is refused. Again, and nothing changes.
    pub async fn revoke(&self, id: &CredentialId) -> Result<Token, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let store = inner.store();
            let token = store.revoke(&id, Timestamp::now())?;
            inner.cache().remove(&id);
            inner.seal().forget_credential(&id);
            drop(store);
            Ok(token)
        })
        .await
    }

    /// Who the bearer of this token is. The time it takes does not depend on how many tokens there are, nor on how
    /// much of the presented one is right: only hashes are compared.
    pub async fn lookup(&self, presented: &str) -> Result<Arc<Token>, TokenError> {
        let hash = TokenHash::of(presented).ok_or(TokenError::Unknown)?;
        let now = Timestamp::now();
        let cached = self.inner.cache().get(&hash);
        let token = match cached {
            Some(token) => token,
            None => self.blocking(move |inner| Ok(inner.find(&hash))).await.map_err(TokenError::from)??,
        };
        token.usable_at(now)?;
        if self.inner.uses().note(&token, now) {
            let inner = Arc::clone(&self.inner);
            tokio::spawn(async move {
                tokio::time::sleep(USES_TOGETHER).await;
                tokio::task::spawn_blocking(move || inner.write_uses());
            });
        }
        Ok(token)
    }

    /// The operator's own token, made on first start and written to a file that only the owner can read. When the
    /// file is gone or no longer fits, a new token takes its place and the old one is revoked.
    pub async fn ensure_operator_token(&self, tenant: &TenantId) -> Result<OperatorToken, RegistryError> {
        let tenant = tenant.clone();
        self.blocking(move |inner| operator::ensure(inner, &tenant)).await
    }

    /// Writes down what is only in memory. The registry can still be used afterwards.
    pub async fn flush(&self) -> Result<(), RegistryError> {
        self.blocking(|inner| {
            inner.write_uses();
            inner.remove_traces();
            Ok(())
        })
        .await
    }

    /// Arguments of a request were deleted, and are still in the write-ahead log. They are removed from there soon.
    fn left_traces(&self) {
        if !self.inner.traces.swap(true, Ordering::AcqRel) {
            // Outside of a runtime, `flush` is left.
            let Ok(runtime) = Handle::try_current() else { return };
            // Nobody waits for this, and it keeps nothing open: a registry that closes removes its log.
            let inner = Arc::downgrade(&self.inner);
            runtime.spawn(async move {
                let mut pause = TRACES_TOGETHER;
                loop {
                    tokio::time::sleep(pause).await;
                    let Some(inner) = inner.upgrade() else { return };
                    let removed = tokio::task::spawn_blocking(move || inner.remove_traces()).await;
                    if !matches!(removed, Ok(false)) {
                        return;
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            });
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, RegistryError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let _turn = self.inner.turn.acquire().await.map_err(|_| RegistryError::Stopped)?;
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.map_err(|_| RegistryError::Stopped)?
    }
}
