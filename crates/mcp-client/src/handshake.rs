//! Agreeing on a version.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::{
    client::{Request, exchange},
    error::{Error, RpcError},
    http::Exchange,
    message,
    shared::{Shared, Wire},
    version::Version,
};

/// Texts a server gives about itself are cut to this.
const LONGEST_TEXT: usize = 16 << 10;

/// Which greeting to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// The newest that the server knows.
    #[default]
    Any,
    /// `initialize`, as up to 2025-11-25.
    Handshake,
    /// 2026-07-28 and nothing else.
    Stateless,
}

/// Who this client says it is, and what it can do, as JSON text.
#[derive(Debug, Clone)]
pub struct Identity {
    pub(crate) client: String,
    pub(crate) capabilities: String,
    /// The capabilities for a request during which nobody can be asked.
    pub(crate) without_questions: String,
}

impl Identity {
    /// `capabilities` are those of a request during which someone can be asked.
    pub fn new(name: &str, version: &str, capabilities: &Map<String, Value>) -> Self {
        let mut silent = capabilities.clone();
        for question in ["elicitation", "sampling", "roots"] {
            silent.remove(question);
        }
        Self {
            client: serde_json::json!({"name": name, "version": version}).to_string(),
            capabilities: Value::Object(capabilities.clone()).to_string(),
            without_questions: Value::Object(silent).to_string(),
        }
    }
}

/// What the server said of itself. Text from outside.
#[derive(Debug, Clone)]
pub struct Facts {
    pub version: Version,
    pub name: String,
    pub server_version: String,
    pub instructions: Option<String>,
    pub capabilities: Map<String, Value>,
}

impl Facts {
    /// Whether a capability is declared: `tools`, or within it `tools.listChanged`.
    pub fn can(&self, capability: &str, within: Option<&str>) -> bool {
        match (self.capabilities.get(capability), within) {
            (Some(_), None) => true,
            (Some(found), Some(within)) => found.get(within) == Some(&Value::Bool(true)),
            (None, _) => false,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Greeting {
    #[serde(default)]
    protocol_version: Option<String>,
    #[serde(default)]
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Map<String, Value>,
    #[serde(default)]
    server_info: Option<Info>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(rename = "_meta", default)]
    meta: Option<GreetingMeta>,
}

#[derive(Deserialize)]
struct GreetingMeta {
    #[serde(rename = "io.modelcontextprotocol/serverInfo", default)]
    server: Option<Info>,
}

#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    name: String,
    #[serde(default)]
    version: String,
}

pub(crate) async fn run(shared: &Arc<Shared>, preference: Preference) -> Result<(), Error> {
    let patience = shared.limits.handshake;
    let agreed = tokio::time::timeout(patience, agree(shared, preference)).await;
    let facts = match agreed {
        Ok(Ok(facts)) => facts,
        Ok(Err(error)) => {
            shared.end(&error);
            return Err(error);
        }
        Err(_) => {
            let silent = Error::Silent(patience);
            shared.end(&silent);
            return Err(silent);
        }
    };
    let stateless = facts.version.stateless();
    // Nothing else sets them.
    let _ = shared.facts.set(facts);
    if !stateless {
        shared.send(message::notice("notifications/initialized", None)).await?;
    }
    Ok(())
}

async fn agree(shared: &Arc<Shared>, preference: Preference) -> Result<Facts, Error> {
    match preference {
        Preference::Handshake => initialize(shared).await,
        Preference::Stateless => discover(shared).await,
        Preference::Any => either(shared).await,
    }
}

/// Asks in the newest way, and in the older one when that gets no answer or a wrong one.
async fn either(shared: &Arc<Shared>) -> Result<Facts, Error> {
    let mut newest = std::pin::pin!(discover(shared));
    let first = tokio::select! {
        answered = &mut newest => Some(answered),
        () = tokio::time::sleep(shared.limits.probe) => None,
    };
    match first {
        Some(Ok(facts)) => Ok(facts),
        // Nothing to go on with, or nobody to ask again.
        Some(Err(
            error @ (Error::Closed(_)
            | Error::Unreachable(_)
            | Error::Unauthorised { .. }
            | Error::Redirected { .. }
            | Error::Credentials(_)
            | Error::TooLarge { .. }),
        )) => Err(error),
        Some(Err(_)) => initialize(shared).await,
        // A slow server may yet answer either.
        None => {
            let older = std::pin::pin!(initialize(shared));
            match futures::future::select(newest, older).await {
                futures::future::Either::Left((Ok(facts), _)) => Ok(facts),
                futures::future::Either::Left((Err(_), older)) => older.await,
                futures::future::Either::Right((Ok(facts), _)) => Ok(facts),
                futures::future::Either::Right((Err(error), newest)) => newest.await.map_err(|_| error),
            }
        }
    }
}

async fn discover(shared: &Arc<Shared>) -> Result<Facts, Error> {
    let asked = || exchange(shared, Version::V2026_07_28, Request::new("server/discover"));
    let result = match asked().await {
        // It says no and yes at once: asked again, it may have made up its mind.
        Err(Error::Rpc(error)) if error.supports(Version::V2026_07_28) => asked().await?,
        answered => answered?,
    };
    let greeting = parse(&result)?;
    if !greeting.supported_versions.iter().any(|version| version == Version::V2026_07_28.as_str()) {
        return Err(no_version(&greeting.supported_versions.join(", ")));
    }
    Ok(facts(Version::V2026_07_28, greeting))
}

async fn initialize(shared: &Arc<Shared>) -> Result<Facts, Error> {
    let params = format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
        Version::NEWEST_WITH_HANDSHAKE,
        shared.identity.capabilities,
        shared.identity.client
    );
    let params = RawValue::from_string(params)
        .map_err(|error| Error::protocol(format!("our own greeting is broken: {error}")))?;
    let request = Request::new("initialize").params(&params);
    let result = match exchange(shared, Version::NEWEST_WITH_HANDSHAKE, request).await {
        Err(Error::Rpc(error)) if error.code == RpcError::UNSUPPORTED_VERSION => {
            return Err(no_version(&error.to_string()));
        }
        answered => answered?,
    };
    let greeting = parse(&result)?;
    let offered = greeting.protocol_version.clone().unwrap_or_default();
    let version = Version::parse(&offered).filter(|version| !version.stateless());
    let version = version.ok_or_else(|| no_version(&offered))?;
    if let Wire::Http(exchange) = &shared.wire {
        Exchange::agreed(exchange, version);
    }
    Ok(facts(version, greeting))
}

fn parse(result: &RawValue) -> Result<Greeting, Error> {
    serde_json::from_str(result.get())
        .map_err(|error| Error::protocol(format!("its greeting can't be read: {error}")))
}

fn no_version(offered: &str) -> Error {
    Error::NoVersion(format!("it offers: {}", cut(offered.to_owned())).into())
}

fn facts(version: Version, greeting: Greeting) -> Facts {
    let server = greeting.meta.and_then(|meta| meta.server).or(greeting.server_info);
    let (name, server_version) = server.map(|info| (info.name, info.version)).unwrap_or_default();
    Facts {
        version,
        name: cut(name),
        server_version: cut(server_version),
        instructions: greeting.instructions.map(cut),
        capabilities: greeting.capabilities,
    }
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(LONGEST_TEXT) {
        text.truncate(end);
    }
    text
}
