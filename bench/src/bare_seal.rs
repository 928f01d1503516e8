//! The handler that signed calls are held against: it reads an envelope, verifies its signature and answers with a fixed
//! text. No session, no replay, no policy, no record.

use std::{fs, io::Write, net::SocketAddr, path::Path, process::Command, sync::Arc};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::{process::Server, workplace::Workplace};

#[derive(Debug)]
struct Bare {
    key: VerifyingKey,
    answer: Bytes,
}

/// The payload of these requests is canonical already.
#[derive(Deserialize)]
struct Envelope<'a> {
    security_token: &'a str,
    signature: &'a str,
    #[serde(borrow)]
    payload: &'a RawValue,
    timestamp: u64,
}

impl Bare {
    fn verifies(&self, body: &[u8]) -> Option<()> {
        let envelope: Envelope<'_> = serde_json::from_slice(body).ok()?;
        let signature = STANDARD.decode(envelope.signature).ok()?;
        let message =
            aegis_seal_client::message(envelope.payload.get(), envelope.security_token, envelope.timestamp);
        self.key.verify_strict(message.as_bytes(), &Signature::from_slice(&signature).ok()?).ok()
    }
}

async fn invoke(State(bare): State<Arc<Bare>>, body: Bytes) -> Response {
    match bare.verifies(&body) {
        Some(()) => ([(header::CONTENT_TYPE, "application/json")], bare.answer.clone()).into_response(),
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// Serves until killed.
pub(crate) fn serve(key: &str, answer: &Path) -> anyhow::Result<()> {
    let key: [u8; 32] = STANDARD.decode(key)?.try_into().ok().context("a key has 32 bytes")?;
    let bare = Bare { key: VerifyingKey::from_bytes(&key)?, answer: fs::read(answer)?.into() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        // As the node does.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new().route("/v1/seal/invoke", post(invoke)).with_state(Arc::new(bare));
        axum::serve(listener, router).await?;
        Ok(())
    })
}

/// The handler in a process of its own.
#[derive(Debug)]
pub(crate) struct BareSeal {
    /// Runs until this is dropped.
    _server: Server,
    pub(crate) address: SocketAddr,
}

impl BareSeal {
    pub(crate) fn start(place: &Workplace, key: &str, answer: &[u8]) -> anyhow::Result<Self> {
        let file = place.path().join("bare-seal.answer");
        fs::write(&file, answer)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["yardstick", "seal", key]).arg(&file);
        let server = Server::start(&mut command, &place.path().join("bare-seal.log"))?;
        let address = server.greeting.trim().parse().context("the bare handler gave no address")?;
        Ok(Self { _server: server, address })
    }
}
