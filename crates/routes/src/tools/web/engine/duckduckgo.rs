//! DuckDuckGo's page for browsers without scripts. It needs no key, and asks readers it doubts for a picture puzzle.

use http::StatusCode;
use url::Url;

use super::{Found, Hit, PATIENCE, Query, Safety, SearchEngine, decoded};
use crate::{
    egress::{Request, WebAddress},
    tools::web::page::tokens::{Scanner, Token},
};

pub(super) const ENDPOINT: &str = "https://html.duckduckgo.com/html/";

#[derive(Debug)]
pub(super) struct DuckDuckGo {
    endpoint: WebAddress,
}

impl DuckDuckGo {
    pub(super) fn new(endpoint: WebAddress) -> Self {
        Self { endpoint }
    }
}

impl SearchEngine for DuckDuckGo {
    fn name(&self) -> &'static str {
        "DuckDuckGo"
    }

    fn endpoint(&self) -> &WebAddress {
        &self.endpoint
    }

    /// Further pages need a form with a token, and are what sets its puzzle off; the first has about thirty results.
    fn request(&self, query: &Query<'_>, page: usize) -> Option<Request> {
        let safety = match query.safety {
            Safety::Strict => "1",
            Safety::Moderate => "-1",
            Safety::Off => "-2",
        };
        let address = self.endpoint.with_query(&[("q", query.words.as_str()), ("kp", safety)]);
        (page == 0).then(|| Request::get(address, PATIENCE))
    }

    fn read(&self, status: StatusCode, body: &str) -> Result<Found, String> {
        if body.contains("anomaly-modal") || body.contains("anomaly.js") {
            return Err(
                "it takes this node for a robot and asks for a puzzle to be solved; try again later, or \
                        have the operator set another engine (web_search.engine)"
                    .into(),
            );
        }
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        let page = read_page(body, self.endpoint.url());
        if page.hits.is_empty() && !page.says_none {
            return Err("its page has changed and can't be read; have the operator set another engine \
                        (web_search.engine)"
                .into());
        }
        Ok(Found { hits: page.hits, more: false })
    }
}

#[derive(Default)]
struct ResultPage {
    hits: Vec<Hit>,
    /// The page says in its own words that nothing was found.
    says_none: bool,
}

/// What the text that follows belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Title,
    Snippet,
}

fn read_page(html: &str, base: &Url) -> ResultPage {
    let mut page = ResultPage::default();
    let mut advertisement = false;
    let mut part: Option<(Part, String)> = None;
    let mut text = String::new();
    let mut scanner = Scanner::new(html);
    while let Some(token) = scanner.next() {
        match token {
            Token::Start { name, attributes } => {
                let find = |wanted: &str| {
                    attributes
                        .iter()
                        .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                        .map(|(_, value)| *value)
                };
                let classes = find("class").unwrap_or_default();
                let has = |wanted: &str| classes.split_ascii_whitespace().any(|class| class == wanted);
                if has("result") {
                    advertisement = has("result--ad");
                } else if has("no-results") {
                    page.says_none = true;
                } else if has("result__a") && !advertisement {
                    if let Some(url) = find("href").and_then(|href| target(href, base)) {
                        page.hits.push(Hit { title: String::new(), url, snippet: String::new() });
                        part = Some((Part::Title, name.to_owned()));
                        text.clear();
                    }
                } else if has("result__snippet") && !advertisement {
                    part = Some((Part::Snippet, name.to_owned()));
                    text.clear();
                }
            }
            Token::Text(piece) if part.is_some() => text.push_str(piece),
            Token::Text(_) => {}
            Token::End { name } => {
                let Some((which, _)) = part.take_if(|(_, opened)| opened.eq_ignore_ascii_case(name)) else {
                    continue;
                };
                if let Some(hit) = page.hits.last_mut() {
                    match which {
                        Part::Title => hit.title = decoded(&text),
                        Part::Snippet if hit.snippet.is_empty() => hit.snippet = decoded(&text),
                        Part::Snippet => {}
                    }
                }
            }
        }
    }
    page
}

/// Results lead through `/l/?uddg=…`, which counts the click; the target stands in it.
fn target(href: &str, base: &Url) -> Option<String> {
    let link = base.join(&decoded(href)).ok()?;
    let own =
        link.host_str().is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com"));
    match link.path() {
        "/l/" => link.query_pairs().find(|(name, _)| name == "uddg").map(|(_, target)| target.into_owned()),
        // Advertisements.
        "/y.js" if own => None,
        _ => Some(link.into()),
    }
}
