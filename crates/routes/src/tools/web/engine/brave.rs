//! The Brave Search API. Every request costs, so no page is asked for in vain.

use aegis_core::Secret;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Deserialize;

use super::{EngineError, Found, Hit, PATIENCE, Query, Safety, SearchEngine, plain};
use crate::egress::{Request, WebAddress};

pub(super) const ENDPOINT: &str = "https://api.search.brave.com/res/v1/web/search";
const TOKEN: HeaderName = HeaderName::from_static("x-subscription-token");
/// Limits of the API.
const MOST_PER_PAGE: usize = 20;
const LAST_PAGE: usize = 9;

#[derive(Debug)]
pub(super) struct Brave {
    endpoint: WebAddress,
    /// Marked sensitive, so that it neither prints nor leaves for another host.
    key: HeaderValue,
}

impl Brave {
    pub(super) fn new(endpoint: WebAddress, key: &Secret) -> Result<Self, EngineError> {
        let mut key = HeaderValue::from_str(key.expose()).map_err(|_| EngineError::Key {
            place: "the configuration".into(),
            reason: "it has characters that no key has".into(),
        })?;
        key.set_sensitive(true);
        Ok(Self { endpoint, key })
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    web: Option<Web>,
    #[serde(default)]
    query: Option<About>,
}

#[derive(Deserialize)]
struct Web {
    #[serde(default)]
    results: Vec<Entry>,
}

#[derive(Deserialize)]
struct About {
    #[serde(default)]
    more_results_available: bool,
}

#[derive(Deserialize)]
struct Entry {
    title: Option<String>,
    url: Option<String>,
    description: Option<String>,
}

impl SearchEngine for Brave {
    fn name(&self) -> &'static str {
        "Brave Search"
    }

    fn endpoint(&self) -> &WebAddress {
        &self.endpoint
    }

    fn request(&self, query: &Query<'_>, page: usize) -> Option<Request> {
        if page > LAST_PAGE {
            return None;
        }
        let safety = match query.safety {
            Safety::Strict => "strict",
            Safety::Moderate => "moderate",
            Safety::Off => "off",
        };
        let count = query.wanted.clamp(1, MOST_PER_PAGE).to_string();
        let page = page.to_string();
        let address = self.endpoint.with_query(&[
            ("q", query.words.as_str()),
            ("count", &count),
            ("offset", &page),
            ("safesearch", safety),
            ("text_decorations", "false"),
        ]);
        let json = HeaderValue::from_static("application/json");
        Some(Request::get(address, PATIENCE).header(header::ACCEPT, json).header(TOKEN, self.key.clone()))
    }

    fn read(&self, status: StatusCode, body: &str) -> Result<Found, String> {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(format!("it answered {status}; the operator should check web_search.api_key"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                return Err("it answered 429: the plan's rate or quota is used up, wait a while".into());
            }
            StatusCode::UNPROCESSABLE_ENTITY => {
                return Err("it can't take this query (422); it may be too long, use fewer words".into());
            }
            status if !status.is_success() => return Err(format!("it answered {status}")),
            _ => {}
        }
        let answer: Answer = serde_json::from_str(body)
            .map_err(|_| "its answer is not the JSON of a search; check web_search.endpoint".to_owned())?;
        let hits = answer.web.into_iter().flat_map(|web| web.results).filter_map(|entry| {
            Some(Hit {
                title: plain(&entry.title.unwrap_or_default()),
                url: entry.url?,
                snippet: plain(&entry.description.unwrap_or_default()),
            })
        });
        Ok(Found {
            hits: hits.collect(),
            more: answer.query.is_some_and(|about| about.more_results_available),
        })
    }
}
