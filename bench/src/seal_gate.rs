//! The SEAL gate by itself, with sessions to send envelopes for.

use std::{
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use aegis_core::{
    Tier,
    config::SealConfig,
    id::{ContextName, ContextVersion},
};
use aegis_gates::identity::seal::{Attestation, NewEnrolment, SealGate};
use aegis_seal_client::{Key, canonical, message};
use aegis_stores::{DataDir, Registry};
use anyhow::bail;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::load::runtime;

const CONTEXT: &str = "bench";
/// The size of what is signed.
pub(crate) const SIGNED: usize = 1024;
/// Every session is one commit; on a disk a hundred thousand would take minutes.
const MEMORY: &str = "/dev/shm";
/// Sessions for one enrolment: less than the most that may be asked for in a minute.
const EACH: usize = 50_000;

pub(crate) struct Gate {
    gate: SealGate,
    runtime: Runtime,
    pub(crate) key: Key,
    pub(crate) tokens: Vec<String>,
    number: u64,
    _data: TempDir,
}

/// An envelope, and what its signature is over.
pub(crate) struct Signed {
    pub(crate) body: Vec<u8>,
    pub(crate) message: Vec<u8>,
}

impl Gate {
    /// A gate with so many live sessions.
    pub(crate) fn with(sessions: usize) -> anyhow::Result<Self> {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("aegis-bench");
        let memory = Path::new(MEMORY);
        let data = if memory.is_dir() { builder.tempdir_in(memory)? } else { builder.tempdir()? };
        let runtime = runtime()?;
        let config = SealConfig { attestations_per_minute: 100_000, ..SealConfig::default() };
        let gate = runtime.block_on(async {
            let directory = DataDir::open(data.path())?;
            let registry = Registry::open(&directory)?;
            anyhow::Ok(SealGate::open(&directory, registry, &config).await?)
        })?;
        let key = Key::from_seed(&[7; 32]);
        let mut made = Self { gate, runtime, key, tokens: Vec::new(), number: 0, _data: data };
        made.open(sessions)?;
        Ok(made)
    }

    /// Opens more sessions, in the place of those there were.
    pub(crate) fn open(&mut self, count: usize) -> anyhow::Result<()> {
        self.tokens.clear();
        let mut workload = String::new();
        for number in 0..count {
            if number % EACH == 0 {
                workload = self.enrol()?;
            }
            let wanted = Attestation::parse(&self.key.attestation(&workload, CONTEXT))?;
            let version = |name: &ContextName| Some(ContextVersion::new(format!("{name}@1")));
            let attested = self.runtime.block_on(self.gate.attest(&wanted, None, version))?;
            self.tokens.push(attested.token.expose().to_owned());
        }
        Ok(())
    }

    fn enrol(&self) -> anyhow::Result<String> {
        let new = NewEnrolment {
            contexts: vec![CONTEXT.into()],
            tier: Tier::User,
            tenant: "local".into(),
            user: "agent".into(),
            expires: None,
            uses: None,
            key: None,
            note: None,
        };
        let (_, workload) = self.runtime.block_on(self.gate.enroll(new))?;
        Ok(workload.expose().to_owned())
    }

    /// An envelope that was never sent, for this moment.
    pub(crate) fn sign(&mut self, token: &str) -> anyhow::Result<Signed> {
        self.number += 1;
        let at = SystemTime::now();
        let second = at.duration_since(UNIX_EPOCH)?.as_secs();
        let mut payload = call(self.number, "");
        let short = message(&canonical(&payload), token, second).len();
        payload = call(self.number, &"x".repeat(SIGNED.saturating_sub(short)));
        let message = message(&canonical(&payload), token, second).into_bytes();
        if message.len() != SIGNED {
            bail!("{} bytes are signed instead of {SIGNED}", message.len());
        }
        Ok(Signed { body: self.key.envelope(token, &payload, at), message })
    }

    /// Seconds per envelope.
    pub(crate) fn verify(&self, envelopes: &[Signed]) -> anyhow::Result<f64> {
        self.runtime.block_on(async {
            let begun = Instant::now();
            for envelope in envelopes {
                self.gate.verify(&envelope.body).await?;
            }
            Ok(begun.elapsed().as_secs_f64() / envelopes.len() as f64)
        })
    }
}

fn call(number: u64, padding: &str) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": format!("req-{number:016x}"),
        "method": "tools/call",
        "params": {"name": "fs.write", "arguments": {"path": "/workspace/a.txt", "content": padding}},
    })
}
