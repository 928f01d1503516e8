//! The secret store as operators change it: values go in and don't come out, and every change is recorded.

use std::sync::Arc;

use aegis_core::{
    Caller, Timestamp,
    id::TenantId,
    record::{Entry, NodeRecord},
};
use aegis_stores::{
    audit::{AuditError, AuditLog},
    registry::{NewSecret, Registry, RegistryError, StoredSecret},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::servers::Servers;

#[derive(Debug, thiserror::Error)]
pub enum SecretsError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the audit log can't be written: {0}")]
    Unrecordable(#[from] AuditError),
}

/// A change, and which servers had to notice it.
#[derive(Debug, Clone, Serialize)]
pub struct Changed {
    #[serde(flatten)]
    pub secret: StoredSecret,
    /// Servers that are given it.
    pub used_by: Vec<String>,
    /// Those of them that were started anew to get it.
    pub restarted: Vec<String>,
    /// Whether it is another than before.
    pub changed: bool,
}

#[derive(Debug)]
pub struct Secrets {
    registry: Registry,
    audit: AuditLog,
    servers: Arc<Servers>,
}

impl Secrets {
    pub fn new(registry: Registry, audit: AuditLog, servers: Arc<Servers>) -> Self {
        Self { registry, audit, servers }
    }

    pub async fn list(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<(StoredSecret, Vec<String>)>, SecretsError> {
        let mut listed = Vec::new();
        for secret in self.registry.secrets(tenant, limit).await? {
            let used_by = self.used_by(&secret.name).await;
            listed.push((secret, used_by));
        }
        Ok(listed)
    }

    /// Stores a secret under a name that has none.
    pub async fn set(&self, new: NewSecret, operator: &Caller) -> Result<Changed, SecretsError> {
        let (tenant, name) = (new.tenant.clone(), new.name.clone());
        let stored = self.registry.set_secret(new).await?;
        if let Err(error) = self.record("secret-set", json!(stored), operator).await {
            // What the record does not know must not be there.
            self.registry.delete_secret(&tenant, &name).await?;
            return Err(error);
        }
        Ok(self.noticed(stored).await)
    }

    /// Gives a secret another value; programs that hold it start anew. The same value again changes nothing.
    pub async fn rotate(&self, new: NewSecret, operator: &Caller) -> Result<Changed, SecretsError> {
        match self.same(&new).await {
            Some(stored) if stored.expires == new.expires => Ok(self.unchanged(stored).await),
            _ => self.replace(new, operator).await,
        }
    }

    /// As [`Secrets::rotate`], but it is good for as long as it was before, unless that is over.
    pub async fn renew(&self, new: NewSecret, operator: &Caller) -> Result<Changed, SecretsError> {
        if let Some(stored) = self.same(&new).await {
            return Ok(self.unchanged(stored).await);
        }
        let known = self.registry.secrets(Some(&new.tenant), usize::MAX).await?;
        let before = known.into_iter().find(|secret| secret.name == new.name);
        let expires = before.and_then(|secret| secret.expires).filter(|expires| *expires > Timestamp::now());
        self.replace(NewSecret { expires, ..new }, operator).await
    }

    /// What is stored, where it has this value. One that can't be opened is what a new value mends.
    async fn same(&self, new: &NewSecret) -> Option<StoredSecret> {
        let (stored, value) = self.registry.secret(&new.tenant, &new.name).await.ok()??;
        (value.expose() == new.value.expose()).then_some(stored)
    }

    async fn unchanged(&self, secret: StoredSecret) -> Changed {
        let used_by = self.used_by(&secret.name).await;
        Changed { secret, used_by, restarted: Vec::new(), changed: false }
    }

    async fn replace(&self, new: NewSecret, operator: &Caller) -> Result<Changed, SecretsError> {
        // The old value can't be brought back, so the record comes first.
        let about = json!({"tenant": new.tenant, "name": new.name, "expires": new.expires});
        self.record("secret-rotated", about, operator).await?;
        let stored = self.registry.rotate_secret(new).await?;
        Ok(self.noticed(stored).await)
    }

    /// Forgets a secret. Programs that hold it start anew, and say that it is missing.
    pub async fn delete(
        &self,
        tenant: &TenantId,
        name: &str,
        operator: &Caller,
    ) -> Result<Changed, SecretsError> {
        self.record("secret-deleted", json!({"tenant": tenant, "name": name}), operator).await?;
        let stored = self.registry.delete_secret(tenant, name).await?;
        Ok(self.noticed(stored).await)
    }

    /// Seals everything with a new key. Returns how many secrets there are.
    pub async fn renew_key(&self, operator: &Caller) -> Result<usize, SecretsError> {
        self.record("secret-key-renewed", json!({}), operator).await?;
        Ok(self.registry.renew_secret_key().await?)
    }

    async fn used_by(&self, name: &str) -> Vec<String> {
        self.servers.holders_of(name).await.into_iter().map(|(server, _)| server).collect()
    }

    async fn noticed(&self, secret: StoredSecret) -> Changed {
        let holders = self.servers.holders_of(&secret.name).await;
        let mut restarted = Vec::new();
        for (server, _) in holders.iter().filter(|(_, is_program)| *is_program) {
            match self.servers.restart_holder(server).await {
                Ok(()) => restarted.push(server.clone()),
                Err(error) => {
                    tracing::warn!(%server, %error, "a server could not be started anew after its secret has changed");
                }
            }
        }
        Changed {
            secret,
            used_by: holders.into_iter().map(|(server, _)| server).collect(),
            restarted,
            changed: true,
        }
    }

    async fn record(&self, action: &str, about: Value, operator: &Caller) -> Result<(), SecretsError> {
        let mut detail = Map::new();
        detail.insert("secret".into(), about);
        let record = NodeRecord {
            time: Timestamp::now(),
            action: action.to_owned(),
            caller: Some(operator.clone()),
            detail,
        };
        self.audit.record_durable(&Entry::Node(record)).await?;
        Ok(())
    }
}
