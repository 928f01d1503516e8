//! Audit records as a node writes them for a governed read.

use std::path::Path;

use aegis_core::{
    Caller, Door, Gate, GateVerdict, Label, Tier, Timestamp, TrustClass, call,
    config::AuditConfig,
    id::{CallId, CredentialId},
    record::{CallRecord, CallResult, Entry},
};
use aegis_stores::{AuditLog, DataDir};
use serde_json::{Map, Value};

use crate::{load::runtime, words::Words};

/// Makes records that differ in what differs in life: ids, times, paths, sizes. Their bodies have about 800 bytes.
#[derive(Debug)]
pub(crate) struct Records {
    words: Words,
    start: Timestamp,
    made: u64,
}

impl Records {
    pub(crate) fn new(seed: u64) -> Self {
        Self { words: Words::new(seed), start: Timestamp::from_millis(1_767_225_600_000), made: 0 }
    }

    pub(crate) fn record(&mut self) -> Entry {
        self.made += 1;
        let mut path = "/workspace".to_owned();
        for _ in 0..3 {
            path.push('/');
            path.push_str(self.words.word());
        }
        path.push_str(".md");
        let arguments = Map::from_iter([("path".to_owned(), Value::from(path.as_str()))]);
        let user = self.words.random().below(100);
        let credential = format!("tok_{:016x}", user * 7919);
        let verdicts = vec![
            GateVerdict::pass(Gate::Identity).by(credential.as_str()),
            GateVerdict::pass(Gate::Catalog),
            GateVerdict::pass(Gate::Arguments),
            GateVerdict::pass(Gate::Policy)
                .by("security_contexts[workspace].capabilities[0]")
                .under("workspace@3f9c1a2b77d0"),
        ];
        Entry::Call(Box::new(CallRecord {
            time: self.start.plus(std::time::Duration::from_millis(self.made)),
            call: CallId::fresh(),
            caller: Caller {
                tenant: "local".into(),
                user: format!("agent-{user}").as_str().into(),
                tier: Tier::User,
                context: "workspace".into(),
                credential: CredentialId::new(&credential),
                door: Door::McpHttp,
                session: None,
                pinned: None,
            },
            tool: "fs.read".into(),
            asked_as: None,
            arguments_sha256: call::digest(&arguments),
            arguments,
            verdicts,
            result: CallResult::Done { bytes: self.words.random().below(8192) as u64 },
            label: Some(Label::new(TrustClass::ExternalUntrusted, "filesystem").from(path)),
            approval: None,
            proof: None,
            micros: 40 + self.words.random().below(400) as u64,
        }))
    }
}

/// Makes an audit log of `count` records in this data directory.
pub(crate) fn fill(data: &Path, count: u64) -> anyhow::Result<()> {
    let log = AuditLog::open(&DataDir::open(data)?, &AuditConfig::default())?;
    let mut records = Records::new(count);
    runtime()?.block_on(async {
        for _ in 0..count {
            log.record(&records.record()).await?;
        }
        log.close().await?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_as_long_as_in_life() {
        let mut records = Records::new(1);
        let bytes: usize = (0..100).map(|_| serde_json::to_vec(&records.record()).unwrap().len()).sum();
        assert!((550..900).contains(&(bytes / 100)), "{}", bytes / 100);
    }
}
