//! What the shape of an MCP server's entry can't hold: how it is reached, whose names it takes, where its secrets lie.

mod oauth;

use super::{Identity, McpServer};
use crate::{
    config::{SecretRef, ToolPattern},
    document::{self, Diagnostic, pointer},
    quantity::{Size, Span},
    redact,
};

/// Groups of tools that are the node's own. `web` and `email` are providers, which a server may take the place of.
const RESERVED: [&str; 7] = ["fs", "cmd", "aegis", "zaru", "tool", "local", "mcp"];

const LONGEST_SECONDS: u64 = 24 * 3600;
/// A message is held in memory.
const LARGEST_MESSAGE: u64 = 1 << 30;
const MOST_SERVERS: usize = 500;

type Mistakes = Vec<(String, String)>;

/// Reads servers from a text of their own, one or a list of them, and checks them as in a node configuration.
pub fn parse(text: &str) -> Result<Vec<McpServer>, Vec<Diagnostic>> {
    let listed = document::parse::<serde_json::Value>(text)?.value.is_array();
    if listed {
        let parsed = document::parse::<Vec<McpServer>>(text)?;
        return found(&parsed, parsed.value.clone(), "/spec/mcp_servers");
    }
    let parsed = document::parse::<McpServer>(text)?;
    found(&parsed, vec![parsed.value.clone()], "/spec/mcp_servers/0")
}

fn found<T>(
    parsed: &document::Parsed<T>,
    servers: Vec<McpServer>,
    above: &str,
) -> Result<Vec<McpServer>, Vec<Diagnostic>> {
    let place = |pointer: &str| pointer.strip_prefix(above).unwrap_or_default().to_owned();
    let mistakes: Vec<Diagnostic> = check(&servers)
        .into_iter()
        .map(|(pointer, message)| parsed.diagnostic(&place(&pointer), message))
        .collect();
    if mistakes.is_empty() { Ok(servers) } else { Err(mistakes) }
}

/// What speaks against having `added` beside the servers there are.
pub fn check_added(servers: &[McpServer], added: &McpServer) -> Result<(), String> {
    let mut all = servers.to_vec();
    all.push(added.clone());
    let own = format!("/spec/mcp_servers/{}", servers.len());
    match check(&all).into_iter().find(|(pointer, _)| pointer.starts_with(&own)) {
        Some((pointer, message)) => match pointer.strip_prefix(&own).unwrap_or_default() {
            "" => Err(message),
            member => Err(format!("{}: {message}", member.trim_start_matches('/'))),
        },
        None => Ok(()),
    }
}

pub(in crate::config) fn check(servers: &[McpServer]) -> Mistakes {
    let mut mistakes = Vec::new();
    if servers.len() > MOST_SERVERS {
        mistakes.push(("/spec/mcp_servers".to_owned(), format!("at most {MOST_SERVERS} servers")));
        return mistakes;
    }
    for (index, server) in servers.iter().enumerate() {
        let mut one = One { server, at: format!("/spec/mcp_servers/{index}"), mistakes: &mut mistakes };
        one.reach();
        one.names();
        one.secrets();
        one.oauth();
        one.sandbox();
        one.bounds();
        one.collisions(&servers[..index]);
    }
    mistakes
}

struct One<'a> {
    server: &'a McpServer,
    at: String,
    mistakes: &'a mut Mistakes,
}

impl One<'_> {
    fn wrong(&mut self, path: &[&str], message: impl Into<String>) {
        let mut place = self.at.clone();
        path.iter().for_each(|part| pointer::push(&mut place, part));
        self.mistakes.push((place, message.into()));
    }

    fn reach(&mut self) {
        let server = self.server;
        match (&server.executable, &server.url) {
            (None, None) => {
                self.wrong(&[], format!("say how `{}` is reached: `executable` or `url`", server.name));
            }
            (Some(_), Some(_)) => {
                self.wrong(&["url"], "a server is a program or an address: leave `executable` or `url` out");
            }
            _ => {}
        }
        if let Some(url) = &server.url {
            if !(url.starts_with("http://") || url.starts_with("https://"))
                || url.contains(char::is_whitespace)
            {
                self.wrong(&["url"], "write an address that starts with https:// or http://");
            }
            for (member, given) in [
                ("args", !server.args.is_empty()),
                ("environment", !server.environment.is_empty()),
                ("inherit_environment", !server.inherit_environment.is_empty()),
                ("working_directory", server.working_directory.is_some()),
                ("sandbox", server.sandbox.is_some()),
            ] {
                if given {
                    self.wrong(&[member], "this is for programs; the server has a `url`");
                }
            }
        } else {
            for (member, given) in [
                ("headers", !server.headers.is_empty()),
                ("oauth", server.oauth.is_some()),
                ("transport", server.transport != super::HttpTransport::Auto),
            ] {
                if given {
                    self.wrong(&[member], "this is for addresses; the server has no `url`");
                }
            }
        }
        if server.working_directory.as_ref().is_some_and(|directory| !directory.starts_with('/')) {
            self.wrong(&["working_directory"], "write the whole path, from the root");
        }
        for (member, names) in [
            ("environment", server.environment.keys().collect::<Vec<_>>()),
            ("inherit_environment", server.inherit_environment.iter().collect()),
            (
                "credentials",
                if server.url.is_none() { server.credentials.keys().collect() } else { Vec::new() },
            ),
        ] {
            for name in names {
                if name.is_empty() || name.contains(['=', '\0']) {
                    self.wrong(&[member], "a variable has a name without `=`");
                }
            }
        }
        let headers = server.headers.keys().map(|name| ("headers", name));
        let credentials =
            server.credentials.keys().filter(|_| server.url.is_some()).map(|name| ("credentials", name));
        for (member, name) in headers.chain(credentials) {
            if !is_header_name(name) {
                self.wrong(&[member, name], "write the name of a header, as in Authorization or X-Api-Key");
            } else if OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
                self.wrong(&[member, name], "the node sets this header itself");
            }
        }
    }

    fn names(&mut self) {
        let server = self.server;
        if let Some(namespace) = server.namespace() {
            let member = if server.namespace.is_some() { "namespace" } else { "name" };
            if let Some(group) = reserved(namespace) {
                self.wrong(
                    &[member],
                    format!("`{group}.*` are the node's own tools: choose another namespace"),
                );
            }
        }
        for (index, capability) in server.capabilities.iter().enumerate() {
            let (pattern, index) = (capability.pattern(), index.to_string());
            let text = pattern.to_string();
            let place = ["capabilities", index.as_str()];
            match pattern {
                ToolPattern::Any => {
                    self.wrong(
                        &place,
                        "a server can't claim every tool: write web.search, web.* or a namespace",
                    );
                }
                _ if reserved(&text).is_some() => {
                    let group = reserved(&text).unwrap_or_default();
                    self.wrong(
                        &place,
                        format!("`{group}.*` are the node's own tools, which no server can serve"),
                    );
                }
                _ => {
                    if let Some(namespace) = &server.namespace
                        && !text.strip_prefix(namespace.as_str()).is_some_and(|rest| rest.starts_with('.'))
                    {
                        let message = format!(
                            "capabilities are names that agents use, and with the namespace `{namespace}` they begin \
                             with `{namespace}.`: write {namespace}.{text}"
                        );
                        self.wrong(&place, message);
                    }
                }
            }
        }
        for (tool, said) in &server.tools {
            if let Some(name) = &said.public_name
                && let Some(group) = reserved(name)
            {
                self.wrong(&["tools", tool, "as"], format!("`{group}.*` are the node's own tools"));
            }
        }
    }

    fn secrets(&mut self) {
        let server = self.server;
        for (name, reference) in &server.credentials {
            self.reference(&["credentials", name], reference, name);
            if server.environment.contains_key(name) {
                self.wrong(
                    &["environment", name],
                    format!("`{name}` is among the credentials too: leave one out"),
                );
            }
        }
        let plain = server.environment.iter().map(|(name, value)| ("environment", name, value));
        for (member, name, value) in
            plain.chain(server.headers.iter().map(|(name, value)| ("headers", name, value)))
        {
            if redact::looks_secret(name, value) {
                self.wrong(
                    &[member, name],
                    format!(
                        "this looks like a secret in plain text: run `aegis secret set {0}`, and write `credentials: \
                         {{{name}: \"secret:{0}\"}}` instead",
                        suggested_name(&server.name, name)
                    ),
                );
            }
        }
        for (index, _) in redact::secret_arguments(&server.args) {
            self.wrong(
                &["args", &index.to_string()],
                "this looks like a secret, and everybody on this machine can read arguments: put it among the \
                 `credentials`, which become variables of the program",
            );
        }
        if server.url.as_deref().is_some_and(redact::url_holds_secret) {
            self.wrong(
                &["url"],
                "the address holds a secret in plain text: send it in a header, by `credentials`",
            );
        }
    }

    fn reference(&mut self, place: &[&str], reference: &SecretRef, name: &str) {
        if let SecretRef::Literal(_) = reference {
            let suggested = suggested_name(&self.server.name, name);
            self.wrong(
                place,
                format!(
                    "secrets don't stand in the file: run `aegis secret set {suggested}` and write \
                     \"secret:{suggested}\", or name a place with env:NAME or file:/path"
                ),
            );
        } else if let Some(mistake) = reference.mistake() {
            self.wrong(place, mistake);
        } else if reference.is_per_principal() && self.server.identity == Identity::Shared {
            self.wrong(place, "{user} and {tenant} need `identity: per_principal`");
        }
    }

    fn sandbox(&mut self) {
        let Some(sandbox) = &self.server.sandbox else { return };
        for (place, message) in sandbox.check() {
            let place: Vec<&str> =
                std::iter::once("sandbox").chain(place.iter().map(String::as_str)).collect();
            self.wrong(&place, message);
        }
    }

    fn bounds(&mut self) {
        let (limits, restart) = (self.server.limits, self.server.restart);
        for (section, member, span) in [
            ("limits", "start_timeout", limits.start_timeout),
            ("limits", "call_timeout", limits.call_timeout),
            ("limits", "idle_timeout", limits.idle_timeout),
            ("restart", "backoff", restart.backoff),
            ("restart", "max_backoff", restart.max_backoff),
            ("restart", "pause", restart.pause),
        ] {
            if span.0.is_zero() || span > Span::seconds(LONGEST_SECONDS) {
                self.wrong(&[section, member], "write a time above 0 and up to 24h");
            }
        }
        for (member, size) in [("max_message", limits.max_message), ("max_definition", limits.max_definition)]
        {
            if !(1024..=LARGEST_MESSAGE).contains(&size.0) {
                self.wrong(
                    &["limits", member],
                    format!("write a size from 1Ki to {}", Size(LARGEST_MESSAGE)),
                );
            }
        }
    }

    fn collisions(&mut self, earlier: &[McpServer]) {
        let server = self.server;
        if earlier.iter().any(|other| other.name == server.name) {
            self.wrong(&["name"], format!("the server `{}` is defined twice", server.name));
            return;
        }
        let own = server.claims();
        for (index, claim) in own.iter().enumerate() {
            if own[..index].contains(claim) {
                self.wrong(&[], format!("`{}` claims `{claim}` twice", server.name));
            }
        }
        if !server.enabled {
            return;
        }
        for other in earlier.iter().filter(|other| other.enabled) {
            for claim in own.iter().filter(|claim| other.claims().contains(claim)) {
                let message = format!(
                    "`{}` and `{}` both claim `{claim}`: take it from one of them, or give one a `namespace`",
                    other.name, server.name
                );
                self.wrong(&[], message);
            }
        }
    }
}

/// What the protocol and the connection need for themselves.
const OWN_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
    "accept-encoding",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
    "te",
    "upgrade",
];

fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn reserved(name: &str) -> Option<&'static str> {
    let group = name.split('.').next().unwrap_or_default();
    RESERVED.into_iter().find(|reserved| *reserved == group)
}

/// Under which name a credential of a server would be stored.
pub fn suggested_name(server: &str, variable: &str) -> String {
    let part = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect()
    };
    format!("{}/{}", part(server), part(variable))
}
