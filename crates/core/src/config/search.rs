use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretRef;

/// The engine behind `web.search`. Its host counts as the call's domain.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SearchConfig {
    pub engine: SearchEngineKind,
    /// The engine's address; needed for `searxng`, a sensible default for the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The key for `brave`: `env:NAME` or `file:/path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub api_key: Option<SecretRef>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SearchEngineKind {
    /// The HTML page of DuckDuckGo; needs no key.
    #[default]
    Duckduckgo,
    /// A SearXNG instance with its JSON format switched on.
    Searxng,
    /// The Brave Search API.
    Brave,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { engine: SearchEngineKind::Duckduckgo, endpoint: None, api_key: None }
    }
}

impl SearchConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: &str| {
            mistakes.push((format!("/spec/web_search/{member}"), message.to_owned()));
        };
        match &self.endpoint {
            Some(endpoint) if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") => {
                wrong("endpoint", "write an address that starts with http:// or https://");
            }
            None if self.engine == SearchEngineKind::Searxng => {
                wrong(
                    "endpoint",
                    "`searxng` has no public address: name your instance, e.g. https://search.example.org",
                );
            }
            _ => {}
        }
        if matches!(self.api_key, Some(SecretRef::Stored(_))) {
            wrong("api_key", "the secret store is for MCP servers: write env:NAME or file:/path");
        }
        if self.engine == SearchEngineKind::Brave && self.api_key.is_none() {
            wrong("api_key", "`brave` needs a key: write env:NAME or file:/path");
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_says_what_it_lacks() {
        let mistakes = |text: &str| -> Vec<String> {
            let config: SearchConfig = serde_json::from_str(text).unwrap();
            config.check().into_iter().map(|(pointer, _)| pointer).collect()
        };
        assert!(mistakes("{}").is_empty());
        assert_eq!(mistakes(r#"{"engine":"searxng"}"#), ["/spec/web_search/endpoint"]);
        assert_eq!(mistakes(r#"{"engine":"brave"}"#), ["/spec/web_search/api_key"]);
        assert_eq!(mistakes(r#"{"endpoint":"ftp://x"}"#), ["/spec/web_search/endpoint"]);
        assert!(mistakes(r#"{"engine":"brave","api_key":"env:KEY"}"#).is_empty());
        assert_eq!(mistakes(r#"{"engine":"brave","api_key":"secret:key"}"#), ["/spec/web_search/api_key"]);
    }
}
