//! What shows a server who asks: variables for a program, headers for an address. Read by reference when it is
//! needed, and read again when it has changed or run out.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aegis_core::{
    Secret, Timestamp,
    config::{McpServer, SecretRef},
    secret::{Principal, SecretError, SecretSource},
};
use aegis_mcp_client::Credentials;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::oauth::AccessTokens;

/// How long a file is taken to be as it was read.
const FILES_STAY: Duration = Duration::from_secs(10);

/// The variables of a program: those it is given in plain, and its credentials.
pub async fn environment(
    server: &McpServer,
    secrets: &dyn SecretSource,
    principal: Option<&Principal>,
) -> Result<Vec<(String, Secret)>, SecretError> {
    let mut variables: Vec<(String, Secret)> =
        server.environment.iter().map(|(name, value)| (name.clone(), Secret::new(value.as_str()))).collect();
    for (name, reference) in &server.credentials {
        let resolved = secrets.resolve(reference, principal).await?;
        if resolved.secret.expose().contains('\0') {
            return Err(SecretError::Unavailable {
                reference: reference.to_string(),
                reason: "it holds a zero byte, which no variable can".to_owned(),
            });
        }
        variables.push((name.clone(), resolved.secret));
    }
    Ok(variables)
}

/// The headers that one principal's requests to an address carry.
#[derive(derive_more::Debug)]
pub struct HeaderCredentials {
    server: Arc<McpServer>,
    principal: Option<Principal>,
    #[debug(skip)]
    secrets: Arc<dyn SecretSource>,
    tokens: Arc<AccessTokens>,
    kept: Mutex<Option<Kept>>,
    /// Of the token that was given last.
    serial: AtomicU64,
}

/// Headers as they were resolved: nobody should wait for a store at every call.
#[derive(Debug)]
struct Kept {
    headers: HeaderMap,
    generation: u64,
    expires: Option<Timestamp>,
    made: Instant,
}

impl HeaderCredentials {
    pub fn new(
        server: Arc<McpServer>,
        principal: Option<Principal>,
        secrets: Arc<dyn SecretSource>,
        tokens: Arc<AccessTokens>,
    ) -> Self {
        Self { server, principal, secrets, tokens, kept: Mutex::default(), serial: AtomicU64::new(0) }
    }

    async fn make(&self, refused: bool) -> Result<HeaderMap, String> {
        let kept = if refused { None } else { self.kept() };
        let mut headers = match kept {
            Some(headers) => headers,
            None => self.resolve().await?,
        };
        if let Some(oauth) = &self.server.oauth {
            let before = refused.then(|| self.serial.load(Ordering::Relaxed));
            let token = self
                .tokens
                .get(&self.server, oauth, self.principal.as_ref(), before)
                .await
                .map_err(|error| error.to_string())?;
            self.serial.store(token.serial, Ordering::Relaxed);
            headers.insert(header::AUTHORIZATION, sensitive("Authorization", &bearer(&token.secret))?);
        }
        Ok(headers)
    }

    fn kept(&self) -> Option<HeaderMap> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = kept.as_ref()?;
        let reads_files = self.server.credentials.values().any(|one| matches!(one, SecretRef::File(_)));
        let good = kept.generation == self.secrets.generation()
            && kept.expires.is_none_or(|end| end > Timestamp::now())
            && !(reads_files && kept.made.elapsed() > FILES_STAY);
        good.then(|| kept.headers.clone())
    }

    async fn resolve(&self) -> Result<HeaderMap, String> {
        // Before reading: a change that comes meanwhile is noticed next time.
        let (generation, made) = (self.secrets.generation(), Instant::now());
        let mut headers = HeaderMap::new();
        for (name, value) in &self.server.headers {
            headers.insert(header_name(name)?, plain(name, value)?);
        }
        let mut expires: Option<Timestamp> = None;
        for (name, reference) in &self.server.credentials {
            let resolved = self.secrets.resolve(reference, self.principal.as_ref()).await;
            let resolved = resolved.map_err(|error| error.to_string())?;
            headers.insert(header_name(name)?, credential(name, &resolved.secret)?);
            expires = expires.into_iter().chain(resolved.expires).min();
        }
        let kept = Kept { headers: headers.clone(), generation, expires, made };
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(headers)
    }
}

/// What people store is the token; what the header wants is its kind before it.
fn credential(name: &str, secret: &Secret) -> Result<HeaderValue, String> {
    let bare = name.eq_ignore_ascii_case("authorization") && !secret.expose().contains(' ');
    if bare { sensitive(name, &bearer(secret)) } else { sensitive(name, secret) }
}

impl Credentials for HeaderCredentials {
    fn headers(&self, refused: bool) -> BoxFuture<'_, Result<HeaderMap, String>> {
        Box::pin(self.make(refused))
    }
}

fn bearer(token: &Secret) -> Secret {
    Secret::new(format!("Bearer {}", token.expose()))
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    HeaderName::try_from(name).map_err(|_| format!("`{name}` is no header"))
}

fn plain(name: &str, value: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(value).map_err(|_| format!("the header `{name}` has a value that can't be sent"))
}

fn sensitive(name: &str, secret: &Secret) -> Result<HeaderValue, String> {
    let mut value = plain(name, secret.expose())?;
    value.set_sensitive(true);
    Ok(value)
}
