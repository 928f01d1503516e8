//! A gate in a directory of its own, and a client that signs.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use aegis_core::{
    Caller, Door, Secret, Timestamp, ViolationKind,
    caller::Tier,
    config::SealConfig,
    id::{ContextName, ContextVersion, CredentialId},
};
use aegis_gates::identity::seal::{
    Attestation, Attested, Clock, Enrolment, NewEnrolment, Refusal, SealGate, Verified,
    canonical::{Order, canonical},
};
use aegis_stores::{DataDir, Registry, registry::NewToken};
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Value, json};
use tempfile::TempDir;

/// When every test begins.
pub(crate) const BEGIN: u64 = 1_771_338_721;

/// Shows what it was set to.
#[derive(Debug)]
pub(crate) struct SetClock(AtomicU64);

impl SetClock {
    pub(crate) fn new(second: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(second * 1000)))
    }

    pub(crate) fn set(&self, second: u64) {
        self.0.store(second * 1000, Ordering::SeqCst);
    }

    pub(crate) fn second(&self) -> u64 {
        self.0.load(Ordering::SeqCst) / 1000
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct Stage {
    pub(crate) gate: SealGate,
    pub(crate) registry: Registry,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) config: SealConfig,
    data: DataDir,
    directory: TempDir,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut SealConfig)) -> Self {
        let mut config = SealConfig { attestations_per_minute: 10_000, ..SealConfig::default() };
        change(&mut config);
        let directory = tempfile::tempdir().unwrap();
        Self::at(directory, config, SetClock::new(BEGIN), 1 << 16).await
    }

    pub(crate) async fn at(
        directory: TempDir,
        config: SealConfig,
        clock: Arc<SetClock>,
        most: usize,
    ) -> Self {
        let data = DataDir::open(directory.path()).unwrap();
        let registry = Registry::open(&data).unwrap();
        let gate = SealGate::open_with(&data, registry.clone(), &config, clock.clone(), most).await.unwrap();
        Self { gate, registry, clock, config, data, directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Another process on the same data, after the first was killed.
    pub(crate) async fn killed(self) -> Self {
        let Self { gate, registry, clock, config, data, directory } = self;
        drop((gate, registry, data));
        Self::at(directory, config, clock, 1 << 16).await
    }

    pub(crate) async fn enrol(&self, contexts: &[&str]) -> (Enrolment, Secret) {
        self.gate.enroll(enrolment(contexts)).await.unwrap()
    }

    /// A session of a freshly enrolled workload.
    pub(crate) async fn client(&self) -> Client {
        let (_, workload) = self.enrol(&["research"]).await;
        self.client_of(&workload, 1).await.unwrap()
    }

    pub(crate) async fn client_of(&self, workload: &Secret, seed: u8) -> Result<Client, Refusal> {
        let key = SigningKey::from_bytes(&[seed; 32]);
        let wanted = wanted(&key, Some(workload.expose()), Some("research"), &json!({}));
        let attested = self.attest(&wanted, None).await?;
        Ok(Client { key, attested })
    }

    pub(crate) async fn attest(&self, body: &Value, bearer: Option<&Caller>) -> Result<Attested, Refusal> {
        let wanted = Attestation::parse(body.to_string().as_bytes())?;
        self.gate.attest(&wanted, bearer, version).await
    }

    /// A bearer token, as its caller.
    pub(crate) async fn bearer(&self, tier: Tier, context: &str, expires: Option<Timestamp>) -> Caller {
        let new = NewToken {
            tenant: "local".into(),
            user: "ann".into(),
            tier,
            context: context.into(),
            expires,
            note: None,
        };
        let (token, _) = self.registry.create(new).await.unwrap();
        Caller {
            tenant: token.tenant,
            user: token.user,
            tier,
            context: token.context,
            credential: token.id,
            door: Door::Rest,
            session: None,
            pinned: None,
        }
    }

    pub(crate) async fn send(&self, envelope: &Value) -> Result<Verified, Refusal> {
        self.gate.verify(envelope.to_string().as_bytes()).await
    }
}

/// Contexts that exist.
pub(crate) fn version(name: &ContextName) -> Option<ContextVersion> {
    let known = ["research", "writing", "tenant-acme-lab", "zaru-free", "aegis-system-operator"];
    known.contains(&name.as_str()).then(|| ContextVersion::new(format!("{name}@0123")))
}

pub(crate) fn enrolment(contexts: &[&str]) -> NewEnrolment {
    NewEnrolment {
        contexts: contexts.iter().map(|name| ContextName::new(*name)).collect(),
        tier: Tier::User,
        tenant: "local".into(),
        user: "robot".into(),
        expires: None,
        uses: None,
        key: None,
        note: None,
    }
}

pub(crate) fn wanted(key: &SigningKey, workload: Option<&str>, context: Option<&str>, more: &Value) -> Value {
    let mut body = json!({"public_key": STANDARD.encode(key.verifying_key().as_bytes())});
    if let Some(workload) = workload {
        body["workload_id"] = workload.into();
    }
    if let Some(context) = context {
        body["security_context"] = context.into();
    }
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) key: SigningKey,
    pub(crate) attested: Attested,
}

impl Client {
    pub(crate) fn token(&self) -> &str {
        self.attested.token.expose()
    }

    pub(crate) fn credential(&self) -> &CredentialId {
        &self.attested.session.credential
    }

    /// A call of `fs.read`, signed for this second.
    pub(crate) fn call(&self, id: &str, second: u64) -> Value {
        self.envelope(&call(id), second)
    }

    pub(crate) fn envelope(&self, payload: &Value, second: u64) -> Value {
        signed(&self.key, self.token(), payload, second)
    }
}

pub(crate) fn call(id: &str) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": "fs.read", "arguments": {"path": "/workspace/a.txt"}},
    })
}

pub(crate) fn signed(key: &SigningKey, token: &str, payload: &Value, second: u64) -> Value {
    let message = json!({"payload": payload, "security_token": token, "timestamp": second});
    let message = canonical(&message.to_string(), Order::CodePoint).unwrap();
    json!({
        "protocol": "seal/v1",
        "security_token": token,
        "signature": STANDARD.encode(key.sign(&message).to_bytes()),
        "payload": payload,
        "timestamp": Timestamp::from_millis(second * 1000),
    })
}

/// A refusal as one word and number.
pub(crate) fn reason<T>(result: Result<T, Refusal>) -> (ViolationKind, Option<u16>) {
    match result {
        Ok(_) => panic!("it was accepted"),
        Err(refusal) => (refusal.violation.kind, refusal.seal_code),
    }
}
