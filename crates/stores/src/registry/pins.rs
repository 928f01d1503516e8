//! Which definitions of upstream tools are accepted.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use aegis_core::{
    Timestamp,
    config::upstream::DefinitionTrust,
    id::UserId,
    upstream::{BoxFuture, Definition, PinError, Pins, Standing},
};
use rusqlite::{Connection, Row, TransactionBehavior, params, types::Type};
use serde::{Deserialize, Serialize};

use super::{Registry, RegistryError, rows::read_rows};

const COLUMNS: &str = "server, tool, digest, definition, state, seen, decided, decided_by";
/// Definitions of one tool that are neither accepted nor proposed any more.
const MOST_PAST: usize = 10;
/// Tools of one server that are remembered; a server that makes up new names for ever fills no disk.
const MOST_TOOLS: usize = 20_000;
/// Who accepted what nobody looked at.
const FIRST_USE: &str = "first-use";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    /// Waits for an operator.
    Proposed,
    Accepted,
    Rejected,
    /// Was accepted before another.
    Superseded,
}

impl PinState {
    const ALL: [Self; 4] = [Self::Proposed, Self::Accepted, Self::Rejected, Self::Superseded];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Superseded => "superseded",
        }
    }
}

/// A definition, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pin {
    pub server: String,
    pub definition: Definition,
    pub state: PinState,
    pub seen: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<UserId>,
}

impl Pins for Registry {
    fn see<'a>(
        &'a self,
        server: &'a str,
        trust: DefinitionTrust,
        seen: &'a [Definition],
    ) -> BoxFuture<'a, Result<Vec<Standing>, PinError>> {
        let (server, seen) = (server.to_owned(), seen.to_vec());
        Box::pin(async move {
            self.blocking(move |inner| {
                let mut store = inner.store();
                let path = store.path.clone();
                see(&mut store.connection, &server, trust, &seen)
                    .map_err(|source| RegistryError::Database { path, source })
            })
            .await
            .map_err(|error| PinError(error.to_string()))
        })
    }
}

impl Registry {
    /// What is accepted and proposed of a server, or with `past` everything, by tool.
    pub async fn pins(&self, server: &str, past: bool) -> Result<Vec<Pin>, RegistryError> {
        let server = server.to_owned();
        self.blocking(move |inner| {
            let store = inner.store();
            let list = || -> rusqlite::Result<Vec<Pin>> {
                store
                    .connection
                    .prepare_cached(&format!(
                        "SELECT {COLUMNS} FROM pins WHERE server = ?1
                         AND (?2 OR state IN ('accepted', 'proposed')) ORDER BY tool, seen, state, digest"
                    ))?
                    .query_map(params![server, past], pin)?
                    .collect()
            };
            list().map_err(|error| store.failed(error))
        })
        .await
    }

    /// Accepts or rejects the proposed definitions of these tools, or of all when none is named. With a digest, only a
    /// definition of that digest, which may have been rejected before: what was shown is what is decided. Returns what was
    /// decided.
    pub async fn decide_pins(
        &self,
        server: &str,
        wanted: Vec<(String, Option<String>)>,
        accept: bool,
        operator: &UserId,
    ) -> Result<Vec<Pin>, RegistryError> {
        let (server, operator) = (server.to_owned(), operator.clone());
        self.blocking(move |inner| {
            let mut store = inner.store();
            let path = store.path.clone();
            decide(&mut store.connection, &server, &wanted, accept, &operator)
                .map_err(|source| RegistryError::Database { path, source })
        })
        .await
    }

    /// Forgets a server's definitions but those that were rejected: a server of this name may come back, and who takes it
    /// out and puts it in again has not thereby changed his mind.
    pub async fn forget_pins(&self, server: &str) -> Result<(), RegistryError> {
        let server = server.to_owned();
        self.blocking(move |inner| {
            let store = inner.store();
            let forgotten = store
                .connection
                .execute("DELETE FROM pins WHERE server = ?1 AND state <> 'rejected'", [&server]);
            forgotten.map(drop).map_err(|error| store.failed(error))
        })
        .await
    }
}

/// The definitions that are accepted in a registry's file, whether or not a node has it open. None when there is no such
/// file. Blocks, and changes nothing.
pub fn read_accepted_definitions(database: &Path) -> Result<Vec<Pin>, RegistryError> {
    let list = format!("SELECT {COLUMNS} FROM pins WHERE state = 'accepted' ORDER BY server, tool");
    read_rows(database, "pins", &list, pin)
}

fn see(
    connection: &mut Connection,
    server: &str,
    trust: DefinitionTrust,
    seen: &[Definition],
) -> rusqlite::Result<Vec<Standing>> {
    let known = known(connection, server)?;
    let standing = |definition: &Definition| {
        known.get(definition.tool.as_str()).map(|states| {
            let this =
                states.iter().find(|(digest, _)| *digest == definition.digest).map(|(_, state)| *state);
            let any_accepted = states.iter().any(|(_, state)| *state == PinState::Accepted);
            match this {
                Some(PinState::Accepted) => (Standing::Accepted, false),
                Some(PinState::Rejected) => (Standing::Rejected, false),
                Some(PinState::Proposed) if any_accepted => (Standing::Changed, false),
                Some(PinState::Proposed) => (Standing::New, false),
                Some(PinState::Superseded) | None if any_accepted => (Standing::Changed, true),
                Some(PinState::Superseded) | None => (Standing::New, true),
            }
        })
    };
    // Reads first: a server that has not changed writes nothing.
    let found: Vec<Option<(Standing, bool)>> = seen.iter().map(standing).collect();
    if found.iter().all(|one| matches!(one, Some((_, false)))) && !leaves_proposals(&known, seen) {
        return Ok(found
            .into_iter()
            .map(|one| one.map_or(Standing::New, |(standing, _)| standing))
            .collect());
    }
    let now = Timestamp::now();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut standings = Vec::with_capacity(seen.len());
    let mut tools = known.len();
    // A tool that joins later is a change of the server: under a new name everything else could be new too.
    let is_first_listing = known.is_empty();
    for (definition, found) in seen.iter().zip(found) {
        let standing = match found {
            Some((standing, false)) => {
                if standing == Standing::Accepted {
                    // Back to what was accepted: there is nothing left to decide.
                    drop_proposal(&transaction, server, &definition.tool)?;
                }
                standing
            }
            Some((standing, true)) => {
                propose(&transaction, server, definition, now)?;
                standing
            }
            None if tools >= MOST_TOOLS => Standing::New,
            None => {
                tools += 1;
                match trust {
                    DefinitionTrust::FirstUse if is_first_listing => {
                        insert(&transaction, server, definition, PinState::Accepted, now, Some(FIRST_USE))?;
                        Standing::Accepted
                    }
                    DefinitionTrust::FirstUse | DefinitionTrust::Approve => {
                        propose(&transaction, server, definition, now)?;
                        Standing::New
                    }
                }
            }
        };
        standings.push(standing);
    }
    transaction.commit()?;
    Ok(standings)
}

type Known = HashMap<String, Vec<(String, PinState)>>;

fn known(connection: &Connection, server: &str) -> rusqlite::Result<Known> {
    let mut known = Known::new();
    let mut select = connection.prepare_cached("SELECT tool, digest, state FROM pins WHERE server = ?1")?;
    let mut rows = select.query([server])?;
    while let Some(row) = rows.next()? {
        known.entry(row.get(0)?).or_default().push((row.get(1)?, state(row, 2)?));
    }
    Ok(known)
}

/// Whether a proposal stands that the server no longer makes.
fn leaves_proposals(known: &Known, seen: &[Definition]) -> bool {
    seen.iter().any(|definition| {
        known.get(&definition.tool).is_some_and(|states| {
            states.iter().any(|(digest, state)| *state == PinState::Accepted && *digest == definition.digest)
                && states.iter().any(|(_, state)| *state == PinState::Proposed)
        })
    })
}

fn propose(
    connection: &Connection,
    server: &str,
    definition: &Definition,
    now: Timestamp,
) -> rusqlite::Result<()> {
    drop_proposal(connection, server, &definition.tool)?;
    insert(connection, server, definition, PinState::Proposed, now, None)
}

fn drop_proposal(connection: &Connection, server: &str, tool: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM pins WHERE server = ?1 AND tool = ?2 AND state = 'proposed'")?
        .execute((server, tool))
        .map(drop)
}

fn insert(
    connection: &Connection,
    server: &str,
    definition: &Definition,
    state: PinState,
    now: Timestamp,
    by: Option<&str>,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO pins (server, tool, digest, definition, state, seen, decided, decided_by)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            server,
            definition.tool,
            definition.digest,
            definition.text,
            state.as_str(),
            now.millis(),
            by.map(|_| now.millis()),
            by,
        ])
        .map(drop)
}

fn decide(
    connection: &mut Connection,
    server: &str,
    wanted: &[(String, Option<String>)],
    accept: bool,
    operator: &UserId,
) -> rusqlite::Result<Vec<Pin>> {
    let now = Timestamp::now();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let undecided: Vec<Pin> = transaction
        .prepare(&format!(
            "SELECT {COLUMNS} FROM pins WHERE server = ?1 AND state IN ('proposed', 'rejected') ORDER BY tool, seen"
        ))?
        .query_map([server], pin)?
        .collect::<Result<_, _>>()?;
    let named: HashSet<(&str, Option<&str>)> =
        wanted.iter().map(|(tool, digest)| (tool.as_str(), digest.as_deref())).collect();
    let is_wanted = |pin: &Pin| {
        let (tool, digest) = (pin.definition.tool.as_str(), pin.definition.digest.as_str());
        let waits = pin.state == PinState::Proposed;
        (waits && (wanted.is_empty() || named.contains(&(tool, None))))
            || named.contains(&(tool, Some(digest)))
    };
    let mut decided = Vec::new();
    for mut pin in undecided.into_iter().filter(is_wanted) {
        let tool = &pin.definition.tool;
        if accept {
            transaction.execute(
                "UPDATE pins SET state = 'superseded' WHERE server = ?1 AND tool = ?2 AND state = 'accepted'",
                (server, tool),
            )?;
        }
        pin.state = if accept { PinState::Accepted } else { PinState::Rejected };
        pin.decided = Some(now);
        pin.decided_by = Some(operator.clone());
        transaction.execute(
            "UPDATE pins SET state = ?4, decided = ?5, decided_by = ?6
             WHERE server = ?1 AND tool = ?2 AND digest = ?3",
            params![server, tool, pin.definition.digest, pin.state.as_str(), now.millis(), operator.as_str()],
        )?;
        transaction.execute(
            "DELETE FROM pins WHERE server = ?1 AND tool = ?2 AND digest IN
             (SELECT digest FROM pins WHERE server = ?1 AND tool = ?2 AND state IN ('superseded', 'rejected')
              ORDER BY seen DESC LIMIT -1 OFFSET ?3)",
            params![server, tool, MOST_PAST],
        )?;
        decided.push(pin);
    }
    transaction.commit()?;
    Ok(decided)
}

fn state(row: &Row<'_>, index: usize) -> rusqlite::Result<PinState> {
    let text = row.get_ref(index)?.as_str().map_err(rusqlite::Error::from)?;
    PinState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
        rusqlite::Error::FromSqlConversionFailure(index, Type::Text, format!("no state `{text}`").into())
    })
}

fn pin(row: &Row<'_>) -> rusqlite::Result<Pin> {
    Ok(Pin {
        server: row.get(0)?,
        definition: Definition { tool: row.get(1)?, digest: row.get(2)?, text: row.get(3)? },
        state: state(row, 4)?,
        seen: Timestamp::from_millis(row.get(5)?),
        decided: row.get::<_, Option<u64>>(6)?.map(Timestamp::from_millis),
        decided_by: row.get::<_, Option<String>>(7)?.map(UserId::new),
    })
}
