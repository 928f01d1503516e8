//! `web.fetch`: one page, as Markdown when it is HTML.

use std::{sync::Arc, thread::available_parallelism, time::Duration};

use aegis_core::{
    Failure, FailureKind, Label, Tier, TrustClass,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{
    engine::shortened,
    page::{self, Page},
};
use crate::{
    egress::{ContentType, Egress, FetchError, Limit, Reply, Request, WebAddress},
    tool::{Answer, Facts, Run, Tool},
};

/// Of an error page, as much as tells the reason.
const ERROR_PAGE: u64 = 16 << 10;
const LONGEST_ERROR: usize = 500;

#[derive(Debug)]
pub struct WebFetch {
    egress: Egress,
    /// Converting a page keeps a core busy; as many at once as there are cores.
    turns: Arc<Semaphore>,
}

impl WebFetch {
    pub fn new(egress: Egress) -> Self {
        let cores = available_parallelism().map_or(2, usize::from);
        Self { egress, turns: Arc::new(Semaphore::new(cores)) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The address of the page; the scheme must be http or https.
    #[schemars(length(min = 1))]
    url: WebAddress,
    /// Convert HTML to Markdown.
    #[serde(default = "yes")]
    to_markdown: bool,
    /// Follow redirects; every hop is checked anew.
    #[serde(default = "yes")]
    follow_redirects: bool,
    /// The time limit for everything, in seconds.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 300))]
    timeout_secs: u64,
}

fn yes() -> bool {
    true
}

fn half_a_minute() -> u64 {
    30
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Where the content came from, after redirects.
    url: String,
    status: u16,
    /// As the server said; left out when it said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// `markdown` when the page was converted, `source` when it is as the server sent it, `redirect` when it is a
    /// note about a redirect that was not followed.
    format: Format,
    content: String,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    Markdown,
    Source,
    Redirect,
}

impl Tool for WebFetch {
    type Input = Input;
    type Output = Output;

    const ANSWERS_TEXT: bool = true;

    fn facts(&self) -> Facts {
        Facts {
            name: "web.fetch".into(),
            aliases: Vec::new(),
            title: "Fetch a page".into(),
            category: "web".into(),
            description: "Fetch one http(s) address and return its text. HTML comes as Markdown: the main content \
                          with its links, tables and code. JSON and other text come as they are. Status 4xx and 5xx \
                          is an error that names the status."
                .into(),
            tags: vec!["web".into(), "http".into(), "read".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::ReadOnly,
            idempotent: true,
            approval: ApprovalRule::NotRequired,
            route: Route::Upstream,
            targets: vec![Target::Url { argument: "url".into() }],
            label: Label::new(TrustClass::ExternalUntrusted, "remote-http"),
            examples: vec![
                Example { title: "Read a page".into(), arguments: json!({"url": "https://example.org/"}) },
                Example {
                    title: "See the HTML itself".into(),
                    arguments: json!({"url": "https://example.org/", "to_markdown": false, "timeout_secs": 10}),
                },
            ],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let request = Request::get(input.url, Duration::from_secs(input.timeout_secs))
            .follow_redirects(input.follow_redirects);
        let reply = self.egress.get(run, request).await?;
        let address = reply.address().clone();
        let (status, content_type) = (reply.status(), reply.content_type());
        if status.is_client_error() || status.is_server_error() {
            return Err(status_failure(reply).await);
        }
        let mut output = Output {
            url: address.to_string(),
            status: status.as_u16(),
            content_type: content_type.as_ref().map(|content_type| content_type.essence().to_owned()),
            title: None,
            format: Format::Source,
            content: String::new(),
        };
        if let Some(target) = reply.location() {
            output.format = Format::Redirect;
            output.content = format!("{status}: redirects to {target}, which was not followed.");
            return Ok(Answer::from(output, address));
        }
        let text = read_text(reply, Limit::Whole(self.egress.max_body())).await?;
        if input.to_markdown && text.is_html {
            let page = self.convert(run, text.content, &address).await?;
            output.format = Format::Markdown;
            output.title = page.title;
            output.content = page.markdown;
        } else {
            output.content = text.content;
        }
        Ok(Answer::from(output, address))
    }

    fn text(output: &Output) -> Option<String> {
        Some(output.content.clone())
    }
}

impl WebFetch {
    async fn convert(&self, run: &Run<'_>, html: String, address: &WebAddress) -> Result<Page, Failure> {
        let turn = tokio::select! {
            turn = Arc::clone(&self.turns).acquire_owned() => turn,
            () = run.cancel.cancelled() => return Err(FetchError::Cancelled.into()),
        };
        let url = address.url().clone();
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            page::to_markdown(&html, &url)
        });
        work.await.map_err(|_| {
            Failure::new(
                FailureKind::UpstreamUnavailable,
                "the page can't be converted to Markdown; fetch it with `to_markdown: false`",
            )
        })
    }
}

/// A body that is text.
pub(crate) struct TextBody {
    pub(crate) content: String,
    pub(crate) is_html: bool,
    pub(crate) truncated: bool,
}

/// Reads a reply as text, or says what it is instead. Pictures and archives are not even downloaded.
pub(crate) async fn read_text(reply: Reply, limit: Limit) -> Result<TextBody, Failure> {
    let content_type = reply.content_type();
    let declared = reply.declared_size();
    if content_type.as_ref().is_some_and(ContentType::is_binary) {
        return Err(not_text(content_type.as_ref(), declared));
    }
    let body = reply.read(limit).await?;
    let is_html = body.is_html(content_type.as_ref());
    match body.text(content_type.as_ref()) {
        Some(content) => Ok(TextBody { content, is_html, truncated: body.truncated }),
        None => {
            let size = if body.truncated { declared } else { Some(body.bytes.len() as u64) };
            Err(not_text(content_type.as_ref(), size))
        }
    }
}

fn not_text(content_type: Option<&ContentType>, size: Option<u64>) -> Failure {
    let kind = content_type.map_or("of no stated type", ContentType::essence);
    let size = size.map_or_else(|| "of unstated size".to_owned(), |size| format!("{size} bytes"));
    Failure::new(
        FailureKind::NotUtf8,
        format!("the answer is not text but {kind}, {size}; only text, JSON and HTML can be returned"),
    )
    .with("content_type", content_type.map(ContentType::essence).unwrap_or_default())
}

async fn status_failure(reply: Reply) -> Failure {
    let address = reply.address().clone();
    let status = reply.status();
    let content_type = reply.content_type();
    let binary = content_type.as_ref().is_some_and(ContentType::is_binary);
    // What the page says is a courtesy: when it can't be had, the status still can.
    let said = match reply.read(Limit::First(ERROR_PAGE)).await {
        Ok(body) if !binary => {
            let is_html = body.is_html(content_type.as_ref());
            let text = body.text(content_type.as_ref()).unwrap_or_default();
            let text = if is_html { page::to_text(&text, address.url()) } else { text };
            shortened(&text, LONGEST_ERROR)
        }
        _ => String::new(),
    };
    let mut message = format!("{} answered {}", address.origin(), shown(status));
    if !said.is_empty() {
        message.push_str(": ");
        message.push_str(&said);
    }
    Failure::new(FailureKind::HttpStatusError, message)
        .with("status", status.as_u16())
        .with("url", address.to_string())
        .with("body", said)
}

/// `404 Not Found`, or the number alone for a status that has no name.
fn shown(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}
