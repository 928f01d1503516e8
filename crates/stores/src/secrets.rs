//! Secrets by reference: out of the node's environment, a file, or the secret store.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    sync::{Arc, PoisonError, RwLock},
};

use aegis_core::{
    Secret, Timestamp,
    config::{SecretRef, is_secret_store_name},
    id::TenantId,
    secret::{Principal, Redactor, Resolved, SecretError, SecretSource},
    upstream::BoxFuture,
};

use sha2::{Digest, Sha256};

use crate::registry::{NewSecret, Registry, RegistryError, SecretStoreError};

/// Passing values that texts are searched for, such as access tokens. The oldest make room: by then their holders have
/// asked again.
const MOST_PASSING: usize = 4096;
/// Who stored what no person did.
const KEPT_BY: &str = "node";
/// A key or a certificate; a device would never end.
const LARGEST_FILE: u64 = 64 * 1024;

/// Finds secrets, and remembers what it gave out so that it can be taken out of texts.
#[derive(Debug)]
pub struct SecretResolver {
    registry: Registry,
    /// Whose store holds what is not a caller's own.
    tenant: TenantId,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// As many as there are references, for those who have a value of their own. However many tokens come and go,
    /// these are never forgotten.
    lasting: HashMap<Place, Secret>,
    /// Access tokens, and what stood in a place before.
    passing: VecDeque<Secret>,
    redactor: Arc<Redactor>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Place {
    reference: String,
    principal: Option<Principal>,
}

impl Place {
    fn of(reference: &SecretRef, principal: Option<&Principal>) -> Self {
        let text = match reference {
            // All literals are shown alike.
            SecretRef::Literal(secret) => format!("literal {:x?}", Sha256::digest(secret.expose())),
            reference => reference.to_string(),
        };
        Self { reference: text, principal: principal.filter(|_| reference.is_per_principal()).cloned() }
    }
}

impl Known {
    fn keep(&mut self, place: Place, secret: &Secret) {
        let before = self.lasting.insert(place, secret.clone());
        if before.as_ref() == Some(secret) {
            return;
        }
        // Whoever was given the old value may still have it.
        if let Some(before) = before {
            self.pass(before);
        }
        self.build();
    }

    fn pass(&mut self, secret: Secret) {
        if self.passing.len() == MOST_PASSING {
            self.passing.pop_front();
        }
        self.passing.push_back(secret);
    }

    fn build(&mut self) {
        self.redactor = Arc::new(Redactor::new(self.lasting.values().chain(&self.passing)));
    }
}

impl SecretResolver {
    pub fn new(registry: Registry, tenant: TenantId) -> Self {
        Self { registry, tenant, known: RwLock::default() }
    }

    async fn find(
        &self,
        reference: &SecretRef,
        principal: Option<&Principal>,
    ) -> Result<Resolved, SecretError> {
        let (text, expires) = match reference {
            SecretRef::Literal(secret) => (secret.clone(), None),
            SecretRef::Env(name) => {
                let value = std::env::var(name).map_err(|_| SecretError::NoVariable(name.clone()))?;
                (Secret::new(value), None)
            }
            SecretRef::File(path) => (read_file(path.clone()).await?, None),
            SecretRef::Stored(name) => self.stored(reference, name, principal).await?,
        };
        if text.expose().is_empty() {
            return Err(SecretError::Empty(reference.to_string()));
        }
        Ok(Resolved { secret: text, expires })
    }

    /// A value of the node's own, for where the reference leads.
    fn kept(&self, reference: &SecretRef, secret: &Secret) -> Result<NewSecret, SecretError> {
        let SecretRef::Stored(name) = reference else {
            return Err(unavailable(reference, &"only the secret store can be written to"));
        };
        Ok(NewSecret {
            tenant: self.tenant.clone(),
            name: name.clone(),
            value: secret.clone(),
            expires: None,
            created_by: KEPT_BY.into(),
        })
    }

    async fn stored(
        &self,
        reference: &SecretRef,
        name: &str,
        principal: Option<&Principal>,
    ) -> Result<(Secret, Option<Timestamp>), SecretError> {
        let (tenant, name) = if reference.is_per_principal() {
            let principal = principal.ok_or_else(|| SecretError::NoPrincipal(reference.to_string()))?;
            (&principal.tenant, expanded(name, principal)?)
        } else {
            (&self.tenant, name.to_owned())
        };
        let found = self.registry.secret(tenant, &name).await;
        let found = found.map_err(|error| unavailable(reference, &error))?;
        let (about, secret) = found.ok_or(SecretError::NotStored(name))?;
        if about.expires.is_some_and(|end| end <= Timestamp::now()) {
            let reason = format!("it expired; give it a new value with `aegis secret rotate {}`", about.name);
            return Err(unavailable(reference, &reason));
        }
        Ok((secret, about.expires))
    }
}

fn unavailable(reference: &SecretRef, reason: &dyn std::fmt::Display) -> SecretError {
    SecretError::Unavailable { reference: reference.to_string(), reason: reason.to_string() }
}

/// One part of a name stays one part: a user called `a/b` is not the user `b` of the group `a`.
fn expanded(name: &str, principal: &Principal) -> Result<String, SecretError> {
    for part in [principal.user.as_str(), principal.tenant.as_str()] {
        if part.contains('/') || !is_secret_store_name(part) {
            return Err(SecretError::UnusableName(part.chars().take(100).collect()));
        }
    }
    Ok(name.replace("{user}", principal.user.as_str()).replace("{tenant}", principal.tenant.as_str()))
}

async fn read_file(path: String) -> Result<Secret, SecretError> {
    let failed = |path: String, reason: String| SecretError::NoFile { path, reason };
    let shown = path.clone();
    let read = tokio::task::spawn_blocking(move || -> Result<Secret, SecretError> {
        let metadata = fs::metadata(&path).map_err(|error| failed(path.clone(), error.to_string()))?;
        if !metadata.is_file() || metadata.len() > LARGEST_FILE {
            return Err(failed(path, "it is no file of a secret's size".to_owned()));
        }
        let text = fs::read_to_string(&path).map_err(|error| failed(path, error.to_string()))?;
        // Editors end files with a line break, which is no part of the secret.
        let mut text = text;
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        Ok(Secret::new(text))
    });
    read.await.map_err(|error| failed(shown, error.to_string()))?
}

impl SecretSource for SecretResolver {
    fn resolve<'a>(
        &'a self,
        reference: &'a SecretRef,
        principal: Option<&'a Principal>,
    ) -> BoxFuture<'a, Result<Resolved, SecretError>> {
        Box::pin(async move {
            let resolved = self.find(reference, principal).await?;
            let place = Place::of(reference, principal);
            self.known.write().unwrap_or_else(PoisonError::into_inner).keep(place, &resolved.secret);
            Ok(resolved)
        })
    }

    fn keep<'a>(
        &'a self,
        reference: &'a SecretRef,
        secret: &'a Secret,
    ) -> BoxFuture<'a, Result<(), SecretError>> {
        Box::pin(async move {
            let new = self.kept(reference, secret)?;
            let there = self.registry.secret(&self.tenant, &new.name).await;
            let is_there = there.map_err(|error| unavailable(reference, &error))?.is_some();
            let written = if is_there {
                self.registry.rotate_secret(new).await
            } else {
                self.registry.set_secret(new).await
            };
            written.map_err(|error| unavailable(reference, &error)).map(drop)
        })
    }

    fn replace<'a>(
        &'a self,
        reference: &'a SecretRef,
        before: &'a Secret,
        secret: &'a Secret,
    ) -> BoxFuture<'a, Result<bool, SecretError>> {
        Box::pin(async move {
            let new = self.kept(reference, secret)?;
            let there = self.registry.secret(&self.tenant, &new.name).await;
            let there = there.map_err(|error| unavailable(reference, &error))?;
            let Some((about, _)) = there.filter(|(_, value)| value == before) else { return Ok(false) };
            match self.registry.replace_secret(new, about.version).await {
                Ok(_) => Ok(true),
                Err(RegistryError::Secret(
                    SecretStoreError::Changed { .. } | SecretStoreError::Missing(_),
                )) => Ok(false),
                Err(error) => Err(unavailable(reference, &error)),
            }
        })
    }

    fn generation(&self) -> u64 {
        self.registry.secret_changes()
    }

    fn remember(&self, secret: &Secret) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.passing.contains(secret) {
            return;
        }
        known.pass(secret.clone());
        known.build();
    }

    fn redactor(&self) -> Arc<Redactor> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).redactor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_do_not_push_out_what_lasts() {
        let mut known = Known::default();
        let place = |user: &str| {
            let principal = Principal { tenant: "local".into(), user: user.into() };
            Place::of(&SecretRef::parse("secret:keys/{user}"), Some(&principal))
        };
        known.keep(place("ann"), &Secret::new("key-of-ann-1"));
        known.keep(place("bob"), &Secret::new("key-of-bob-1"));
        known.keep(place("ann"), &Secret::new("key-of-ann-2"));
        let text = "key-of-ann-1 key-of-ann-2 key-of-bob-1";
        assert_eq!(known.redactor.text(text), "[redacted] [redacted] [redacted]");
        for number in 0..=MOST_PASSING {
            known.pass(Secret::new(format!("access-token-{number}-")));
        }
        known.build();
        assert_eq!(known.redactor.text(text), "key-of-ann-1 [redacted] [redacted]");
        assert_eq!(known.redactor.text("access-token-0- access-token-4096-"), "access-token-0- [redacted]");
        assert_eq!((known.lasting.len(), known.passing.len()), (2, MOST_PASSING));
    }

    #[test]
    fn each_literal_has_a_place() {
        let place = |text: &str| Place::of(&SecretRef::Literal(Secret::new(text)), None);
        assert_ne!(place("one"), place("two"));
        assert!(!place("one").reference.contains("one"));
    }
}
