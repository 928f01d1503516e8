//! Entries and logs for the tests of this crate.

use std::path::{Path, PathBuf};

use aegis_core::{
    Caller, Door, Gate, GateVerdict, Label, Tier, Timestamp,
    config::AuditConfig,
    id::{CallId, ContextName, CredentialId, TenantId, UserId},
    quantity::Span,
    record::{CallRecord, CallResult, Entry, Intent, NodeRecord},
};
use aegis_stores::{
    AuditLog, DataDir,
    audit::{Head, PublicKey, Report, Source, verify},
};
use rusqlite::Connection;
use serde_json::Map;

pub(crate) fn caller(user: &str) -> Caller {
    Caller {
        tenant: TenantId::new("local"),
        user: UserId::new(user),
        tier: Tier::User,
        context: ContextName::new("workspace"),
        credential: CredentialId::new("tok_0123456789abcdef"),
        door: Door::McpHttp,
        session: None,
        pinned: None,
    }
}

pub(crate) fn call_of(call: CallId, user: &str, tool: &str, result: CallResult) -> Entry {
    let mut arguments = Map::new();
    arguments.insert("path".into(), "/workspace/notes/día.txt".into());
    Entry::Call(Box::new(CallRecord {
        time: Timestamp::now(),
        call,
        caller: caller(user),
        tool: tool.into(),
        asked_as: None,
        arguments,
        arguments_sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        verdicts: Gate::REQUIRED.into_iter().map(|gate| GateVerdict::pass(gate).under("1")).collect(),
        result,
        label: Some(Label::node()),
        approval: None,
        proof: None,
        micros: 250,
    }))
}

pub(crate) fn call(tool: &str) -> Entry {
    call_of(CallId::fresh(), "alice", tool, CallResult::Done { bytes: 1024 })
}

pub(crate) fn intent(call: CallId) -> Entry {
    Entry::Intent(Intent {
        time: Timestamp::now(),
        call,
        caller: caller("alice"),
        tool: "fs.write".into(),
        arguments_sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
        approval: None,
    })
}

pub(crate) fn node(action: &str) -> Entry {
    Entry::Node(NodeRecord {
        time: Timestamp::now(),
        action: action.into(),
        caller: None,
        detail: Map::new(),
    })
}

/// A head after every `entries`, and no other unless asked for.
pub(crate) fn config(entries: u32) -> AuditConfig {
    AuditConfig { head_every_entries: entries, head_every: Span::seconds(3600), ..AuditConfig::default() }
}

/// A closed log of `entries` records with a head after every `heads`.
pub(crate) struct Closed {
    pub(crate) home: tempfile::TempDir,
    pub(crate) head: Head,
}

pub(crate) async fn closed(entries: u64, heads: u32) -> Closed {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(heads)).unwrap();
    for number in 0..entries {
        log.record(&call(&format!("fs.tool{number}"))).await.unwrap();
        // One commit each batch of heads, so that heads stand exactly where the test wants them.
        if (number + 1).is_multiple_of(u64::from(heads)) {
            log.seal().await.unwrap();
        }
    }
    let head = log.seal().await.unwrap();
    log.close().await.unwrap();
    Closed { home, head }
}

impl Closed {
    pub(crate) fn database(&self) -> PathBuf {
        self.home.path().join("audit.db")
    }

    pub(crate) fn key(&self) -> PublicKey {
        key(self.home.path())
    }

    pub(crate) fn sql(&self) -> Connection {
        Connection::open(self.database()).unwrap()
    }

    pub(crate) fn verify(&self) -> Report {
        verify_database(self.home.path())
    }
}

pub(crate) fn key(home: &Path) -> PublicKey {
    PublicKey::read(home.join("audit.pub")).unwrap()
}

pub(crate) fn verify_database(home: &Path) -> Report {
    verify(Source::Database(home.join("audit.db")), &key(home), None).unwrap()
}

/// A registry as the steps before the sixth left it.
pub(crate) fn format_five(data: &DataDir) -> Connection {
    let sql = Connection::open(data.registry_database()).unwrap();
    for step in [
        include_str!("../../src/registry/steps/1_tokens.sql"),
        include_str!("../../src/registry/steps/2_seal.sql"),
        include_str!("../../src/registry/steps/3_policy.sql"),
        include_str!("../../src/registry/steps/4_approvals.sql"),
        include_str!("../../src/registry/steps/5_upstream.sql"),
    ] {
        sql.execute_batch(step).unwrap();
    }
    sql.pragma_update(None, "application_id", 0x6165_6772).unwrap();
    sql.pragma_update(None, "user_version", 5).unwrap();
    sql
}
