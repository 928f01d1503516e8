//! The configuration of clients, JSON or TOML, read as servers of this node.

use std::collections::BTreeMap;

use aegis_core::{
    Secret,
    config::{
        McpServer, SecretRef,
        upstream::{HttpTransport, check_added, suggested_name},
    },
    redact,
};
use serde::Deserialize;
use serde_json::Value;

use super::filled_in::{Variables, filled_in, is_name, is_secret, with_default};

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientFileError {
    #[error("{0}")]
    Unreadable(String),
    #[error("it has no server `{name}`{close}")]
    NoServer { name: String, close: String },
}

/// What a client's file would become.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) servers: Vec<McpServer>,
    /// Values that stood in the file in plain text, by the name they are to be stored under.
    pub(super) secrets: BTreeMap<String, Secret>,
    /// Entries that are this program: a client that speaks to the node already.
    pub(super) itself: Vec<String>,
    /// Servers that can't be taken over, and why.
    pub(super) left_out: Vec<(String, String)>,
    /// What a person has to know or do.
    pub(super) remarks: Vec<String>,
}

/// An entry as clients write it. Members that only concern the client are left alone.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, Value>,
    env_file: Option<String>,
    cwd: Option<String>,
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    url: Option<String>,
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    #[serde(alias = "http_headers")]
    headers: BTreeMap<String, String>,
    disabled: bool,
    /// As Codex writes it.
    enabled: Option<bool>,
    #[serde(alias = "env_vars")]
    env_vars: Vec<Value>,
    #[serde(alias = "bearer_token_env_var")]
    bearer_token_env_var: Option<String>,
    #[serde(alias = "env_http_headers")]
    env_http_headers: BTreeMap<String, String>,
}

/// Where clients keep their servers: at the top, or below the settings of an editor.
const PLACES: [&str; 5] = ["/mcpServers", "/servers", "/mcp/servers", "/mcp/mcpServers", "/mcp_servers"];

/// `variables` are those that the client would have: of the shell that the command was typed in.
pub(super) fn read(
    text: &str,
    only: &[String],
    variables: Variables<'_>,
) -> Result<Imported, ClientFileError> {
    let whole = whole(text).map_err(ClientFileError::Unreadable)?;
    let found = PLACES.iter().find_map(|place| whole.pointer(place).and_then(Value::as_object));
    let no_servers = "it has no `mcpServers` (no `servers`, as VS Code writes it, and no `[mcp_servers.NAME]`, as Codex \
                      does); for other files, use `aegis upstream add`";
    let entries = found.ok_or_else(|| ClientFileError::Unreadable(no_servers.to_owned()))?;
    if let Some(name) = only.iter().find(|name| !entries.contains_key(*name)) {
        let close = aegis_core::nearest::suggestion(name, entries.keys().map(String::as_str));
        return Err(ClientFileError::NoServer { name: name.clone(), close });
    }
    let mut imported = Imported::default();
    for (name, entry) in entries.iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        if let Err(reason) = imported.take(name, entry, variables) {
            imported.left_out.push((name.clone(), reason));
        }
    }
    Ok(imported)
}

/// Codex writes TOML; all others JSON, some with comments.
fn whole(text: &str) -> Result<Value, String> {
    let json = match serde_json::from_str(&without_comments(text)) {
        Ok(whole) => return Ok(whole),
        Err(error) => error,
    };
    match toml::from_str::<Value>(text) {
        Ok(whole) => Ok(whole),
        // What begins like JSON was meant to be that.
        Err(_) if text.trim_start().starts_with(['{', '[', '/']) && !text.contains("[mcp_servers") => {
            Err(format!("it is no JSON: {json}"))
        }
        Err(error) => {
            let place = error.span().map_or_else(String::new, |span| {
                let before = text.get(..span.start).unwrap_or(text);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                format!(" at line {line} column {column}")
            });
            Err(format!("it is neither JSON nor TOML: {}{place}; as JSON: {json}", error.message()))
        }
    }
}

impl Imported {
    fn take(&mut self, given: &str, entry: &Value, variables: Variables<'_>) -> Result<(), String> {
        let mut entry: Entry = serde_json::from_value(entry.clone())
            .map_err(|error| format!("its entry can't be read: {error}"))?;
        if is_this_node(&entry) {
            self.itself.push(given.to_owned());
            return Ok(());
        }
        let name = usable_name(given);
        let mut server = McpServer::named(&name);
        let mut settings = Settings { remarks: entry.fill_in(variables), ..Settings::default() };
        server.enabled = !entry.disabled && entry.enabled != Some(false);
        match (&entry.command, &entry.url) {
            (Some(command), _) => {
                server.executable = Some(command.clone());
                server.args.clone_from(&entry.args);
                server.working_directory.clone_from(&entry.cwd);
                for (variable, value) in &entry.env {
                    let value = as_text(value);
                    let settled = settled(&name, variable, &value, variables);
                    settings.take(variable, variable, value, settled);
                }
                server.environment = std::mem::take(&mut settings.plain);
                server.inherit_environment.extend(entry.env_vars.iter().filter_map(inherited));
                if let Some(file) = &entry.env_file {
                    let left = format!("the variables of {file} are not taken over: set them for the server");
                    settings.remarks.push(left);
                }
            }
            (None, Some(url)) => {
                server.url = Some(url.clone());
                if entry.kind.as_deref().is_some_and(|kind| kind.eq_ignore_ascii_case("sse")) {
                    server.transport = HttpTransport::Sse;
                }
                let from_environment = entry.env_http_headers.iter();
                for (header, variable) in from_environment
                    .map(|(header, variable)| (header.as_str(), variable))
                    .chain(entry.bearer_token_env_var.as_ref().map(|variable| ("Authorization", variable)))
                {
                    server.credentials.insert(header.to_owned(), SecretRef::Env(variable.clone()));
                }
                for (header, value) in &entry.headers {
                    let settled = settled(&name, header, value, variables);
                    settings.take(header, &format!("the header {header}"), value.clone(), settled);
                }
                server.headers = std::mem::take(&mut settings.plain);
            }
            (None, None) => return Err("it has neither a `command` nor a `url`".to_owned()),
        }
        let Settings { credentials, secrets, mut remarks, .. } = settings;
        server.credentials.extend(credentials);
        if !redact::secret_arguments(&server.args).is_empty() {
            return Err("an argument looks like a secret, and everybody on this machine can read arguments: if the server \
                        takes it as a variable too, use `aegis upstream add` with --credential"
                .to_owned());
        }
        check_added(&self.servers, &server)?;
        if name != given {
            remarks.push(format!("`{given}` is called `{name}` here"));
        }
        self.remarks.extend(remarks.into_iter().map(|remark| format!("{name}: {remark}")));
        self.secrets.extend(secrets);
        self.servers.push(server);
        Ok(())
    }
}

impl Entry {
    /// Fills in what the client would, where it is no secret, and says what became of each place.
    fn fill_in(&mut self, variables: Variables<'_>) -> Vec<String> {
        let mut remarks = Vec::new();
        let Some(command) = &mut self.command else {
            remarks.extend(self.url.as_mut().and_then(|url| fill(url, filled_in(url, variables))));
            return remarks;
        };
        remarks.extend(fill(command, filled_in(command, variables)));
        let or_given = |given: &String| filled_in(given, variables).unwrap_or_else(|| given.clone());
        let arguments: Vec<String> = self.args.iter().map(or_given).collect();
        // The argument before it may say that a value is a secret: `--password ${MINE}`.
        let kept = redact::arguments_of(command, &arguments);
        for (given, (filled, kept)) in self.args.iter_mut().zip(arguments.iter().zip(kept)) {
            let is_filled = filled != given && *filled == kept;
            remarks.extend(fill(given, is_filled.then(|| filled.clone())));
        }
        remarks.extend(self.cwd.as_mut().and_then(|cwd| fill(cwd, filled_in(cwd, variables))));
        remarks
    }
}

/// Takes what a place is filled in with, if it is, and says so; or that somebody has to.
fn fill(place: &mut String, filled: Option<String>) -> Option<String> {
    if let Some(filled) = filled {
        let remark = format!("`{place}` is filled in from this shell's environment");
        *place = filled;
        return Some(remark);
    }
    let left = "is filled in by the client; here it stays as it stands: write what is meant";
    place.contains("${").then(|| format!("`{place}` {left}"))
}

/// A variable that a client passes on: its name, or a table with it.
fn inherited(given: &Value) -> Option<String> {
    given.as_str().or_else(|| given["name"].as_str()).map(str::to_owned)
}

const FROM_SHELL: &str = "its value was filled in as a client would: from this shell's environment, as it is now, or with the file's default";

fn by_reference(reference: &SecretRef) -> String {
    match reference {
        SecretRef::Stored(_) => format!("is the stored {reference}"),
        _ => format!("is read from the environment that the node was started in, as {reference}"),
    }
}

fn by_client(stored: &str) -> String {
    format!(
        "is asked for or put together by the client: run `aegis secret set {stored}` with its whole value"
    )
}

enum Settled {
    Plain,
    /// No secret, and this is what the client would have made of it.
    FilledIn(String),
    Reference(SecretRef),
    /// To be stored under this name.
    Secret(String),
    /// Only a person knows the value.
    Asked(String),
}

/// Variables or headers of one server, on their way to where they belong.
#[derive(Default)]
struct Settings {
    plain: BTreeMap<String, String>,
    credentials: BTreeMap<String, SecretRef>,
    secrets: BTreeMap<String, Secret>,
    remarks: Vec<String>,
}

impl Settings {
    /// `shown` is what a person reads of it.
    fn take(&mut self, name: &str, shown: &str, value: String, settled: Settled) {
        let reference = match settled {
            Settled::Plain => return drop(self.plain.insert(name.to_owned(), value)),
            Settled::FilledIn(filled) => {
                self.remarks.push(format!("{shown} is no secret: {FROM_SHELL}"));
                return drop(self.plain.insert(name.to_owned(), filled));
            }
            Settled::Reference(reference) => {
                self.remarks.push(format!("{shown} {}", by_reference(&reference)));
                reference
            }
            Settled::Secret(stored) => {
                self.secrets.insert(stored.clone(), Secret::new(value));
                SecretRef::Stored(stored)
            }
            Settled::Asked(stored) => {
                self.remarks.push(format!("{shown} {}", by_client(&stored)));
                SecretRef::Stored(stored)
            }
        };
        self.credentials.insert(name.to_owned(), reference);
    }
}

fn settled(server: &str, name: &str, value: &str, variables: Variables<'_>) -> Settled {
    if let Some(filled) = filled_in(value, variables)
        && !redact::may_be_secret(name)
        && !is_secret(name, &filled)
    {
        return Settled::FilledIn(filled);
    }
    // No client knows such references: somebody wrote it for this node. `file:` and `env:` may be meant otherwise.
    let reference = SecretRef::parse(value);
    if matches!(reference, SecretRef::Stored(_)) && reference.mistake().is_none() {
        return Settled::Reference(reference);
    }
    let whole = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if let Some(inside) = whole.filter(|inside| !inside.contains("${")) {
        let variable = inside.strip_prefix("env:").unwrap_or(inside);
        if let Some(input) = inside.strip_prefix("input:") {
            return Settled::Asked(suggested_name(server, with_default(input).0));
        }
        if is_name(variable) {
            return Settled::Reference(SecretRef::Env(variable.to_owned()));
        }
    }
    if value.contains("${") {
        return Settled::Asked(suggested_name(server, name));
    }
    if is_secret(name, value) { Settled::Secret(suggested_name(server, name)) } else { Settled::Plain }
}

/// A client that already speaks to aegis would have it speak to itself.
fn is_this_node(entry: &Entry) -> bool {
    let program = entry.command.as_deref().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    program == "aegis" && entry.args.first().is_some_and(|first| first == "mcp")
}

fn usable_name(given: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
    let name: String = given.chars().map(plain).take(63).collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    if name.is_empty() { "server".to_owned() } else { name }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// As many bytes: what a parser then says of lines and columns is true of the file.
fn blank(character: char) -> &'static str {
    if character == '\n' { "\n" } else { &"    "[..character.len_utf8()] }
}

/// Editors take comments and commas before a closing bracket in their JSON.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = rest.next() {
        match c {
            '\\' if in_string => {
                kept.push(c);
                kept.extend(rest.next());
            }
            '"' => {
                in_string = !in_string;
                kept.push(c);
            }
            '/' if !in_string && rest.peek() == Some(&'/') => {
                kept.push(' ');
                while let Some(c) = rest.next_if(|c| *c != '\n') {
                    kept.push_str(blank(c));
                }
            }
            '/' if !in_string && rest.peek() == Some(&'*') => {
                rest.next();
                kept.push_str("  ");
                let mut last = ' ';
                for c in rest.by_ref() {
                    kept.push_str(blank(c));
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            ']' | '}' if !in_string => {
                let end = kept.trim_end().len();
                if kept[..end].ends_with(',') {
                    kept.replace_range(end - 1..end, " ");
                }
                kept.push(c);
            }
            _ => kept.push(c),
        }
    }
    kept
}

#[cfg(test)]
#[path = "client_file_tests.rs"]
mod tests;
