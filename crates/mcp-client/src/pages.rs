//! Lists, page by page, up to a bound.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    client::{Client, Request},
    error::Error,
    message::push_string,
};

/// What can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Listed {
    Tools,
    Resources,
    ResourceTemplates,
    Prompts,
}

impl Listed {
    pub fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    #[serde(default)]
    tools: Vec<Box<RawValue>>,
    #[serde(default)]
    resources: Vec<Box<RawValue>>,
    #[serde(default)]
    resource_templates: Vec<Box<RawValue>>,
    #[serde(default)]
    prompts: Vec<Box<RawValue>>,
    #[serde(default)]
    next_cursor: Option<String>,
}

impl Client {
    /// A whole list. One that has more pages or entries than it may, or goes in a circle, is an error: half a list
    /// would be taken for the whole.
    pub async fn list(&self, what: Listed) -> Result<Vec<Box<RawValue>>, Error> {
        let limits = &self.shared.limits;
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut cursor: Option<String> = None;
        loop {
            let params = cursor.as_ref().map(|cursor| {
                let mut text = String::from(r#"{"cursor":"#);
                push_string(&mut text, cursor);
                text.push('}');
                text
            });
            let params = params.and_then(|text| RawValue::from_string(text).ok());
            let request = Request { params: params.as_deref(), ..Request::new(what.method()) };
            let result = self.request(request).await?;
            let page: Page = serde_json::from_str(result.get())
                .map_err(|error| Error::protocol(format!("a page of `{}`: {error}", what.method())))?;
            entries.extend(match what {
                Listed::Tools => page.tools,
                Listed::Resources => page.resources,
                Listed::ResourceTemplates => page.resource_templates,
                Listed::Prompts => page.prompts,
            });
            if entries.len() > limits.entries {
                let most = limits.entries;
                return Err(Error::Endless(
                    format!("more than {most} entries in `{}`", what.method()).into(),
                ));
            }
            // An empty cursor is how some say that there is none.
            let Some(next) = page.next_cursor.filter(|next| !next.is_empty()) else { return Ok(entries) };
            if seen.len() + 1 >= limits.pages {
                let most = limits.pages;
                return Err(Error::Endless(format!("more than {most} pages of `{}`", what.method()).into()));
            }
            if !seen.insert(next.clone()) {
                return Err(Error::Endless(format!("`{}` goes in a circle", what.method()).into()));
            }
            cursor = Some(next);
        }
    }
}
