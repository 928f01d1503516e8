//! A SearXNG instance, asked for JSON. Its settings must have `json` among `search.formats`.

use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;

use super::{Found, Hit, PATIENCE, Query, Safety, SearchEngine, plain};
use crate::egress::{Request, WebAddress};

#[derive(Debug)]
pub(super) struct Searxng {
    endpoint: WebAddress,
}

impl Searxng {
    /// `instance` is the address that people open, or that of its `/search`.
    pub(super) fn new(instance: &WebAddress) -> Self {
        Self { endpoint: instance.with_last_segment("search") }
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    results: Vec<Entry>,
    /// Pairs of an engine and what is wrong with it.
    #[serde(default)]
    unresponsive_engines: Vec<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
struct Entry {
    url: Option<String>,
    title: Option<String>,
    content: Option<String>,
}

impl SearchEngine for Searxng {
    fn name(&self) -> &'static str {
        "SearXNG"
    }

    fn endpoint(&self) -> &WebAddress {
        &self.endpoint
    }

    fn request(&self, query: &Query<'_>, page: usize) -> Option<Request> {
        let safety = match query.safety {
            Safety::Strict => "2",
            Safety::Moderate => "1",
            Safety::Off => "0",
        };
        let page = (page + 1).to_string();
        let address = self.endpoint.with_query(&[
            ("q", query.words.as_str()),
            ("format", "json"),
            ("safesearch", safety),
            ("pageno", &page),
        ]);
        let json = HeaderValue::from_static("application/json");
        Some(Request::get(address, PATIENCE).header(header::ACCEPT, json))
    }

    fn read(&self, status: StatusCode, body: &str) -> Result<Found, String> {
        match status {
            StatusCode::FORBIDDEN => {
                return Err("it answered 403; its settings.yml needs `json` under search.formats".into());
            }
            StatusCode::TOO_MANY_REQUESTS => {
                return Err("it answered 429: too many searches, wait a while".into());
            }
            status if !status.is_success() => return Err(format!("it answered {status}")),
            _ => {}
        }
        let answer: Answer = serde_json::from_str(body)
            .map_err(|_| "its answer is not the JSON of a search; check web_search.endpoint".to_owned())?;
        if answer.results.is_empty() && !answer.unresponsive_engines.is_empty() {
            let names: Vec<&str> = answer
                .unresponsive_engines
                .iter()
                .filter_map(|pair| pair.first()?.as_str())
                .take(5)
                .collect();
            return Err(format!("the engines behind it do not answer ({})", names.join(", ")));
        }
        let hits = answer.results.into_iter().filter_map(|entry| {
            Some(Hit {
                title: plain(&entry.title.unwrap_or_default()),
                url: entry.url?,
                snippet: plain(&entry.content.unwrap_or_default()),
            })
        });
        Ok(Found { hits: hits.collect(), more: true })
    }
}
