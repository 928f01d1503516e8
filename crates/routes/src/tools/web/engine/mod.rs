//! Search engines. Which one answers is the operator's choice; what they answer has one shape.

mod brave;
mod duckduckgo;
mod searxng;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashSet, fmt, fs, sync::Arc, time::Duration};

use aegis_core::{
    Failure, FailureKind, Secret,
    config::{SearchConfig, SearchEngineKind, SecretRef},
};
use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::page::{
    one_line,
    tokens::{Scanner, Token},
};
use crate::{
    egress::{BadWebAddress, Egress, FetchError, Limit, Request, WebAddress},
    tool::Run,
};

use brave::Brave;
use duckduckgo::DuckDuckGo;
use searxng::Searxng;

/// For one page of results.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pages of results that one search may ask for.
const MOST_PAGES: usize = 8;
const LARGEST_PAGE: u64 = 4 << 20;
const LONGEST_QUERY: usize = 1024;
const LONGEST_TITLE: usize = 300;
const LONGEST_SNIPPET: usize = 600;

/// One service that finds pages.
pub trait SearchEngine: fmt::Debug + Send + Sync {
    /// As people call it.
    fn name(&self) -> &'static str;

    /// What every request goes to; its host is what a context's domains are held against.
    fn endpoint(&self) -> &WebAddress;

    /// What to ask for the `page`th page of results, counted from 0; `None` when there is no such page.
    fn request(&self, query: &Query<'_>, page: usize) -> Option<Request>;

    /// Makes sense of an answer, or says in a sentence why there is none.
    fn read(&self, status: StatusCode, body: &str) -> Result<Found, String>;
}

#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    pub words: &'a Words,
    pub wanted: usize,
    pub safety: Safety,
}

/// How far adult results are kept out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// As the engine does when nobody asks.
    Moderate,
    Strict,
    Off,
}

/// One page of results.
#[derive(Debug, Default)]
pub struct Found {
    pub hits: Vec<Hit>,
    /// Another page may have more.
    pub more: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Hit {
    pub title: String,
    pub url: String,
    pub snippet: String,
}

/// What to search for: not blank, in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Words(String);

impl Words {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Words {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words = one_line(&text);
        match words.len() {
            0 => Err("`query` is blank; say what to search for".into()),
            length if length > LONGEST_QUERY => {
                Err(format!("`query` has {length} bytes; a search takes up to {LONGEST_QUERY}"))
            }
            _ => Ok(Self(words)),
        }
    }
}

impl JsonSchema for Words {
    fn schema_name() -> Cow<'static, str> {
        "Words".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

/// The configuration of the engine can't be used.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("`web_search.endpoint` is no address to search at: {0}")]
    Endpoint(#[source] BadWebAddress),
    #[error("`web_search.endpoint` carries a user name or a password; write it without them")]
    Credentials,
    #[error("`web_search.endpoint` is missing: `searxng` has no public address, name your instance")]
    NoEndpoint,
    #[error("`web_search.api_key` is missing: `brave` needs a key, write env:NAME or file:/path")]
    NoKey,
    #[error("`web_search.api_key` can't be read from {place}: {reason}")]
    Key { place: String, reason: String },
}

/// The engine that this node asks.
#[derive(Debug, Clone)]
pub struct Engine(Arc<dyn SearchEngine>);

impl Engine {
    /// Reads the key from where the configuration says, so it belongs to the start of the node.
    pub fn from_config(config: &SearchConfig) -> Result<Self, EngineError> {
        let endpoint = |default: Option<&str>| {
            let text = config.endpoint.as_deref().or(default).ok_or(EngineError::NoEndpoint)?;
            let address = WebAddress::parse(text).map_err(EngineError::Endpoint)?;
            if address.has_credentials() { Err(EngineError::Credentials) } else { Ok(address) }
        };
        Ok(Self(match config.engine {
            SearchEngineKind::Duckduckgo => Arc::new(DuckDuckGo::new(endpoint(Some(duckduckgo::ENDPOINT))?)),
            SearchEngineKind::Searxng => Arc::new(Searxng::new(&endpoint(None)?)),
            SearchEngineKind::Brave => {
                let key = resolve(config.api_key.as_ref().ok_or(EngineError::NoKey)?)?;
                Arc::new(Brave::new(endpoint(Some(brave::ENDPOINT))?, &key)?)
            }
        }))
    }

    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    pub fn endpoint(&self) -> &WebAddress {
        self.0.endpoint()
    }

    /// Asks for as many pages as it takes. Fewer hits than wanted are no failure; none at all, because the engine
    /// would not answer, is one.
    pub async fn search(
        &self,
        egress: &Egress,
        run: &Run<'_>,
        query: &Query<'_>,
    ) -> Result<Vec<Hit>, Failure> {
        let mut hits: Vec<Hit> = Vec::new();
        let mut seen = HashSet::new();
        for page in 0..MOST_PAGES {
            let Some(request) = self.0.request(query, page) else { break };
            let found = match self.ask(egress, run, request).await {
                Ok(found) => found,
                Err(_) if !hits.is_empty() => break,
                Err(failure) => return Err(failure),
            };
            let before = hits.len();
            hits.extend(found.hits.iter().filter_map(presentable).filter(|hit| seen.insert(hit.url.clone())));
            if hits.len() >= query.wanted || hits.len() == before || !found.more {
                break;
            }
        }
        hits.truncate(query.wanted);
        Ok(hits)
    }

    async fn ask(&self, egress: &Egress, run: &Run<'_>, request: Request) -> Result<Found, Failure> {
        let fetched = async {
            let reply = egress.get(run, request).await?;
            let (status, content_type) = (reply.status(), reply.content_type());
            let body = reply.read(Limit::Whole(LARGEST_PAGE.min(egress.max_body()))).await?;
            Ok((status, body.text(content_type.as_ref()).unwrap_or_default()))
        };
        let (status, body) = fetched.await.map_err(|error| self.unavailable(error))?;
        self.0.read(status, &body).map_err(|reason| {
            Failure::new(
                FailureKind::UpstreamUnavailable,
                format!("{} gave no results: {reason}", self.name()),
            )
        })
    }

    /// Whatever went wrong on the way, the caller's search engine is not to be had; only a refusal is the caller's
    /// to know as such.
    fn unavailable(&self, error: FetchError) -> Failure {
        match error {
            FetchError::Refused { .. } => error.into(),
            other => Failure::new(
                FailureKind::UpstreamUnavailable,
                format!("{} could not be asked: {other}", self.name()),
            ),
        }
    }
}

fn resolve(key: &SecretRef) -> Result<Secret, EngineError> {
    let failed = |reason: String| EngineError::Key { place: key.to_string(), reason };
    let text = match key {
        SecretRef::Env(name) => std::env::var(name).map_err(|error| failed(error.to_string()))?,
        SecretRef::File(path) => fs::read_to_string(path).map_err(|error| failed(error.to_string()))?,
        SecretRef::Literal(secret) => return Ok(secret.clone()),
        // No checked configuration has it.
        SecretRef::Stored(_) => return Err(failed("the secret store is for MCP servers".into())),
    };
    match text.trim() {
        "" => Err(failed("it is empty".into())),
        text => Ok(Secret::new(text)),
    }
}

/// Leads somewhere, and fits on a screen.
fn presentable(hit: &Hit) -> Option<Hit> {
    let url = WebAddress::parse(&hit.url).ok()?.to_string();
    let title = shortened(&hit.title, LONGEST_TITLE);
    Some(Hit {
        title: if title.is_empty() { url.clone() } else { title },
        url,
        snippet: shortened(&hit.snippet, LONGEST_SNIPPET),
    })
}

/// One line of at most `most` characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let text = one_line(text);
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text,
    }
}

/// The text of a piece of HTML such as engines put into titles: `<strong>`, `&#x27;`.
fn plain(html: &str) -> String {
    let mut scanner = Scanner::new(html);
    let mut text = String::with_capacity(html.len());
    while let Some(token) = scanner.next() {
        if let Token::Text(piece) = token {
            text.push_str(piece);
        }
    }
    decoded(&text)
}

/// Character references as the characters they stand for.
fn decoded(text: &str) -> String {
    html_escape::decode_html_entities(text).into_owned()
}
