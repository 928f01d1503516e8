//! Tools that read the web.

pub mod engine;
pub mod fetch;
mod page;
pub mod search;
#[cfg(test)]
mod tests;

pub use engine::{Engine, EngineError};

use super::assistant::{http_fetch::HttpFetch, web_search::AssistantWebSearch};
use crate::{catalog::Catalog, egress::Egress};

use fetch::WebFetch;
use search::WebSearch;

/// The web tools, under both families of names.
#[must_use]
pub fn register_web(catalog: Catalog, egress: &Egress, engine: &Engine) -> Catalog {
    catalog
        .with(WebFetch::new(egress.clone()))
        .with(WebSearch::new(egress.clone(), engine.clone()))
        .with(HttpFetch::new(egress.clone()))
        .with(AssistantWebSearch::new(egress.clone(), engine.clone()))
}
