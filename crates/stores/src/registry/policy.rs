//! What the policy gate must still know after a restart: the versions of contexts that sessions hold on to, and what
//! sessions have read.

use std::borrow::Cow;

use aegis_core::{
    Timestamp,
    id::{ContextName, ContextVersion, CredentialId, SessionId, TenantId},
    label::{Label, TrustClass},
};
use rusqlite::{OptionalExtension, Row, types::Type};
use serde::Serialize;

use super::{Registry, RegistryError, store::Store};

/// Versions of contexts that are kept; beyond these the oldest that is not in force goes.
pub const MOST_CONTEXT_VERSIONS: usize = 1000;

/// A version of a SecurityContext that is, or was, in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContextRow {
    pub name: ContextName,
    pub version: ContextVersion,
    /// The context as JSON.
    pub text: String,
    pub first_seen: Timestamp,
    /// Since when sessions that were opened under it must attest again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired: Option<Timestamp>,
}

/// Whose labels they are. A session has its own; without one they stick to the credential, by context as well: an
/// operator's token also carries the agents that act in other contexts, and neither has read what the other has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LabelHolder {
    Session(SessionId),
    Credential { credential: CredentialId, context: ContextName },
}

impl LabelHolder {
    fn parts(&self) -> (&'static str, &str, &str) {
        match self {
            Self::Session(id) => ("session", id.as_str(), ""),
            Self::Credential { credential, context } => ("credential", credential.as_str(), context.as_str()),
        }
    }
}

/// That a holder has read content of this class from this source, and how long that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRow {
    pub tenant: TenantId,
    pub holder: LabelHolder,
    pub label: Label,
    pub expires: Timestamp,
}

impl Registry {
    /// Writes down the contexts that are in force, each version once. A version that comes back is no longer retired.
    pub async fn keep_contexts(
        &self,
        in_force: Vec<(ContextName, ContextVersion, String)>,
    ) -> Result<(), RegistryError> {
        self.blocking(move |inner| inner.store().keep_contexts(&in_force)).await
    }

    /// Versions of contexts, the newest first, of one name or of all.
    pub async fn contexts(
        &self,
        name: Option<&ContextName>,
        limit: usize,
    ) -> Result<Vec<ContextRow>, RegistryError> {
        let name = name.cloned();
        self.blocking(move |inner| inner.store().contexts(name.as_ref(), limit)).await
    }

    pub async fn context(&self, version: &ContextVersion) -> Result<Option<ContextRow>, RegistryError> {
        let version = version.clone();
        self.blocking(move |inner| inner.store().context(&version)).await
    }

    /// Takes every version of a context but one from the sessions that hold on to it. Tells how many.
    pub async fn retire_contexts(
        &self,
        name: &ContextName,
        but: &ContextVersion,
    ) -> Result<usize, RegistryError> {
        let (name, but) = (name.clone(), but.clone());
        self.blocking(move |inner| inner.store().retire_contexts(&name, &but)).await
    }

    /// Writes down what a holder has read. On disk before it returns.
    pub async fn keep_label(&self, row: LabelRow) -> Result<(), RegistryError> {
        self.blocking(move |inner| inner.store().keep_label(&row)).await
    }

    /// The labels that still count, those that count longest first.
    pub async fn labels(&self, limit: usize) -> Result<Vec<LabelRow>, RegistryError> {
        self.blocking(move |inner| inner.store().labels(limit)).await
    }
}

impl Store {
    fn keep_contexts(
        &mut self,
        in_force: &[(ContextName, ContextVersion, String)],
    ) -> Result<(), RegistryError> {
        let mut keep = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            let mut new = 0;
            {
                let mut insert = transaction.prepare_cached(
                    "INSERT OR IGNORE INTO contexts (version, name, text, first_seen) VALUES (?1, ?2, ?3, ?4)",
                )?;
                let mut revive = transaction.prepare_cached(
                    "UPDATE contexts SET retired = NULL WHERE version = ?1 AND retired IS NOT NULL",
                )?;
                // The order is that in which they came into force, and one that came back did so last.
                let mut renew = transaction.prepare_cached(
                    "UPDATE contexts SET number = (SELECT max(number) FROM contexts) + 1 WHERE version = ?1
                     AND EXISTS (SELECT 1 FROM contexts AS later
                         WHERE later.name = contexts.name AND later.number > contexts.number)",
                )?;
                let now = Timestamp::now().millis();
                for (name, version, text) in in_force {
                    new += insert.execute((version.as_str(), name.as_str(), text, now))?;
                    revive.execute([version.as_str()])?;
                    renew.execute([version.as_str()])?;
                }
            }
            if new > 0 {
                // By rank: coming back leaves gaps among the numbers.
                let versions: Vec<&str> = in_force.iter().map(|(_, version, _)| version.as_str()).collect();
                let versions = serde_json::to_string(&versions).unwrap_or_default();
                transaction.execute(
                    "DELETE FROM contexts
                     WHERE number <= (SELECT number FROM contexts ORDER BY number DESC LIMIT 1 OFFSET ?1)
                     AND version NOT IN (SELECT value FROM json_each(?2))",
                    (MOST_CONTEXT_VERSIONS, versions),
                )?;
            }
            transaction.commit()
        };
        keep().map_err(|error| self.failed(error))
    }

    fn contexts(&self, name: Option<&ContextName>, limit: usize) -> Result<Vec<ContextRow>, RegistryError> {
        let limit = limit.min(MOST_CONTEXT_VERSIONS);
        let list = || -> rusqlite::Result<Vec<ContextRow>> {
            self.connection
                .prepare_cached(
                    "SELECT name, version, text, first_seen, retired FROM contexts
                     WHERE ?1 IS NULL OR name = ?1 ORDER BY number DESC LIMIT ?2",
                )?
                .query_map((name.map(ContextName::as_str), limit), context_row)?
                .collect()
        };
        list().map_err(|error| self.failed(error))
    }

    fn context(&self, version: &ContextVersion) -> Result<Option<ContextRow>, RegistryError> {
        self.connection
            .query_row(
                "SELECT name, version, text, first_seen, retired FROM contexts WHERE version = ?1",
                [version.as_str()],
                context_row,
            )
            .optional()
            .map_err(|error| self.failed(error))
    }

    fn retire_contexts(&self, name: &ContextName, but: &ContextVersion) -> Result<usize, RegistryError> {
        self.connection
            .execute(
                "UPDATE contexts SET retired = ?3 WHERE name = ?1 AND version <> ?2 AND retired IS NULL",
                (name.as_str(), but.as_str(), Timestamp::now().millis()),
            )
            .map_err(|error| self.failed(error))
    }

    fn keep_label(&mut self, row: &LabelRow) -> Result<(), RegistryError> {
        let mut keep = || -> rusqlite::Result<()> {
            let now = Timestamp::now();
            let (kind, holder, context) = row.holder.parts();
            let transaction = self.connection.transaction()?;
            transaction.prepare_cached("DELETE FROM labels WHERE expires <= ?1")?.execute([now.millis()])?;
            transaction
                .prepare_cached(
                    "INSERT INTO labels (tenant, kind, holder, context, trust, source, origin, first_seen, expires)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                     ON CONFLICT DO UPDATE SET expires = max(expires, excluded.expires)",
                )?
                .execute((
                    row.tenant.as_str(),
                    kind,
                    holder,
                    context,
                    row.label.trust.as_str(),
                    row.label.source.as_ref(),
                    row.label.origin.as_deref(),
                    now.millis(),
                    row.expires.millis(),
                ))?;
            transaction.commit()
        };
        keep().map_err(|error| self.failed(error))
    }

    fn labels(&self, limit: usize) -> Result<Vec<LabelRow>, RegistryError> {
        let list = || -> rusqlite::Result<Vec<LabelRow>> {
            self.connection
                .prepare_cached(
                    "SELECT tenant, kind, holder, context, trust, source, origin, expires FROM labels
                     WHERE expires > ?1 ORDER BY expires DESC LIMIT ?2",
                )?
                .query_map((Timestamp::now().millis(), limit), label_row)?
                .collect()
        };
        list().map_err(|error| self.failed(error))
    }
}

fn context_row(row: &Row<'_>) -> rusqlite::Result<ContextRow> {
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    Ok(ContextRow {
        name: ContextName::new(text(0)?),
        version: ContextVersion::new(text(1)?),
        text: row.get(2)?,
        first_seen: Timestamp::from_millis(row.get(3)?),
        retired: row.get::<_, Option<u64>>(4)?.map(Timestamp::from_millis),
    })
}

fn label_row(row: &Row<'_>) -> rusqlite::Result<LabelRow> {
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    let unknown = |index, what: &str| {
        let message = format!("`{what}` is not known here");
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, message.into())
    };
    let holder = match text(1)? {
        "session" => LabelHolder::Session(SessionId::new(text(2)?)),
        "credential" => LabelHolder::Credential {
            credential: CredentialId::new(text(2)?),
            context: ContextName::new(text(3)?),
        },
        other => return Err(unknown(1, other)),
    };
    let trust = text(4)?;
    let trust =
        TrustClass::ALL.into_iter().find(|class| class.as_str() == trust).ok_or_else(|| unknown(4, trust))?;
    let label = Label { trust, source: Cow::Owned(row.get(5)?), origin: row.get(6)? };
    Ok(LabelRow {
        tenant: TenantId::new(text(0)?),
        holder,
        label,
        expires: Timestamp::from_millis(row.get(7)?),
    })
}
