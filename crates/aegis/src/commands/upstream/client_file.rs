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

/// What a client's file would become.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) servers: Vec<McpServer>,
    /// Values that stood in the file in plain text, by the name they are to be stored under.
    pub(super) secrets: BTreeMap<String, Secret>,
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

pub(super) fn read(text: &str, only: &[String]) -> Result<Imported, String> {
    let whole = whole(text)?;
    let found = PLACES.iter().find_map(|place| whole.pointer(place).and_then(Value::as_object));
    let entries = found.ok_or(
        "it has no `mcpServers` (no `servers`, as VS Code writes it, and no `[mcp_servers.NAME]`, as Codex does); for other \
         files, use `aegis upstream add`",
    )?;
    if let Some(name) = only.iter().find(|name| !entries.contains_key(*name)) {
        let known = entries.keys().map(String::as_str);
        return Err(format!("it has no server `{name}`{}", aegis_core::nearest::suggestion(name, known)));
    }
    let mut imported = Imported::default();
    for (name, entry) in entries.iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        if let Err(reason) = imported.take(name, entry) {
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
        Err(error) => Err(format!("it is neither JSON nor TOML: {}", error.message())),
    }
}

impl Imported {
    fn take(&mut self, given: &str, entry: &Value) -> Result<(), String> {
        let entry: Entry = serde_json::from_value(entry.clone())
            .map_err(|error| format!("its entry can't be read: {error}"))?;
        if is_this_node(&entry) {
            return Err("it is aegis itself".to_owned());
        }
        let name = usable_name(given);
        let mut server = McpServer::named(&name);
        let mut secrets = BTreeMap::new();
        let mut remarks = Vec::new();
        server.enabled = !entry.disabled && entry.enabled != Some(false);
        match (&entry.command, &entry.url) {
            (Some(command), _) => {
                server.executable = Some(command.clone());
                server.args.clone_from(&entry.args);
                server.working_directory.clone_from(&entry.cwd);
                for (variable, value) in &entry.env {
                    let value = as_text(value);
                    match settled(&name, variable, &value) {
                        Settled::Plain => drop(server.environment.insert(variable.clone(), value)),
                        Settled::Reference(reference) => {
                            drop(server.credentials.insert(variable.clone(), reference));
                        }
                        Settled::Secret(stored) => {
                            server.credentials.insert(variable.clone(), SecretRef::Stored(stored.clone()));
                            secrets.insert(stored, Secret::new(value));
                        }
                        Settled::Asked(stored) => {
                            remarks.push(format!(
                                "the client asks for {variable}: run `aegis secret set {stored}`"
                            ));
                            server.credentials.insert(variable.clone(), SecretRef::Stored(stored));
                        }
                    }
                }
                if let Some(argument) = entry.args.iter().find(|argument| argument.contains("${")) {
                    remarks.push(format!(
                        "`{argument}` is filled in by the client; here it is passed on as it stands: write what is meant"
                    ));
                }
                server.inherit_environment.extend(entry.env_vars.iter().filter_map(inherited));
                if let Some(file) = &entry.env_file {
                    remarks
                        .push(format!("the variables of {file} are not taken over: set them for the server"));
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
                    match settled(&name, header, value) {
                        Settled::Plain => drop(server.headers.insert(header.clone(), value.clone())),
                        Settled::Reference(reference) => {
                            drop(server.credentials.insert(header.clone(), reference));
                        }
                        Settled::Secret(stored) => {
                            server.credentials.insert(header.clone(), SecretRef::Stored(stored.clone()));
                            secrets.insert(stored, Secret::new(value.as_str()));
                        }
                        Settled::Asked(stored) => {
                            remarks.push(format!(
                                "the header {header} is put together by the client: run `aegis secret set {stored}` with \
                                 its whole value"
                            ));
                            server.credentials.insert(header.clone(), SecretRef::Stored(stored));
                        }
                    }
                }
            }
            (None, None) => return Err("it has neither a `command` nor a `url`".to_owned()),
        }
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

/// A variable that a client passes on: its name, or a table with it.
fn inherited(given: &Value) -> Option<String> {
    given.as_str().or_else(|| given["name"].as_str()).map(str::to_owned)
}

enum Settled {
    Plain,
    Reference(SecretRef),
    /// To be stored under this name.
    Secret(String),
    /// Only a person knows the value.
    Asked(String),
}

fn settled(server: &str, name: &str, value: &str) -> Settled {
    let whole = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    if let Some(inside) = whole.filter(|inside| !inside.contains("${")) {
        let variable = inside.strip_prefix("env:").unwrap_or(inside);
        if let Some(input) = inside.strip_prefix("input:") {
            return Settled::Asked(suggested_name(server, input));
        }
        let is_name =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if is_name(variable) {
            return Settled::Reference(SecretRef::Env(variable.to_owned()));
        }
    }
    if value.contains("${") {
        return Settled::Asked(suggested_name(server, name));
    }
    if redact::looks_secret(name, value) {
        Settled::Secret(suggested_name(server, name))
    } else {
        Settled::Plain
    }
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
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
            }
            '/' if !in_string && rest.peek() == Some(&'*') => {
                rest.next();
                let mut last = ' ';
                for c in rest.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            ']' | '}' if !in_string => {
                let end = kept.trim_end().len();
                if kept[..end].ends_with(',') {
                    kept.truncate(end - 1);
                }
                kept.push(c);
            }
            _ => kept.push(c),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str) -> Imported {
        read(text, &[]).unwrap()
    }

    #[test]
    fn both_kinds_of_servers_are_taken_over_without_their_secrets() {
        let found = imported(
            r#"{
                // as editors let people write it
                "mcpServers": {
                    "github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"],
                        "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghij", "LOG": "https://x//y", "PORT": 80}},
                    "My search!": {"type": "http", "url": "https://mcp.example.org/mcp",
                        "headers": {"Authorization": "Bearer 0123456789abcdef", "X-Region": "eu"}},
                    "old": {"type": "sse", "url": "http://127.0.0.1:9/sse", "disabled": true},
                    "from-env": {"command": "x", "env": {"A_TOKEN": "${A_TOKEN}", "B": "${env:HOME_B}"}},
                    "asked": {"command": "x", "env": {"KEY": "${input:api-key}"}}, /* VS Code */
                },
            }"#,
        );
        let server = |name: &str| found.servers.iter().find(|server| server.name == name).unwrap();
        assert_eq!(found.left_out, []);
        let github = server("github");
        assert_eq!(
            github.credentials["GITHUB_PERSONAL_ACCESS_TOKEN"].to_string(),
            "secret:github/github-personal-access-token"
        );
        assert_eq!(github.environment["LOG"], "https://x//y");
        assert_eq!(github.environment["PORT"], "80");
        let search = server("My-search");
        assert_eq!(search.credentials["Authorization"].to_string(), "secret:my-search/authorization");
        assert_eq!(search.headers["X-Region"], "eu");
        assert_eq!((server("old").transport, server("old").enabled), (HttpTransport::Sse, false));
        assert_eq!(server("from-env").credentials["A_TOKEN"].to_string(), "env:A_TOKEN");
        assert_eq!(server("from-env").credentials["B"].to_string(), "env:HOME_B");
        assert_eq!(server("asked").credentials["KEY"].to_string(), "secret:asked/api-key");
        assert_eq!(found.secrets.len(), 2);
        assert_eq!(found.secrets["my-search/authorization"].expose(), "Bearer 0123456789abcdef");
        assert!(found.remarks.iter().any(|remark| remark.contains("aegis secret set asked/api-key")));
        let shown = format!("{found:?}");
        assert!(!shown.contains("ghp_0123456789") && !shown.contains("0123456789abcdef"), "{shown}");
    }

    #[test]
    fn what_cannot_be_taken_over_is_told() {
        let found = imported(
            r#"{"servers": {
                "aegis": {"command": "/usr/local/bin/aegis", "args": ["mcp", "--context", "workspace"]},
                "nothing": {},
                "fs": {"command": "x"},
                "secretive": {"command": "x", "args": ["--api-key", "0123456789abcdef"]},
                "good": {"command": "x"},
                "good!": {"command": "y"}}}"#,
        );
        let reasons: Vec<&str> = found.left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(reasons, ["aegis", "nothing", "fs", "secretive", "good!"]);
        assert!(!format!("{found:?}").contains("0123456789abcdef"));
        assert_eq!(found.servers.len(), 1);
        for bad in ["", "[]", "{}", r#"{"mcpServers": 1}"#] {
            assert!(read(bad, &[]).is_err(), "{bad}");
        }
        assert!(read(r#"{"mcpServers": {"one": {"command": "x"}}}"#, &["two".into()]).is_err());
    }

    #[test]
    fn tables_of_codex_are_taken_over() {
        let found = imported(
            r#"model = "x"
                [mcp_servers.github]
                command = "npx"
                args = ["-y", "@modelcontextprotocol/server-github"]
                env_vars = ["LOCAL_REGION", {name = "OTHER", source = "local"}]
                startup_timeout_sec = 20
                [mcp_servers.github.env]
                GITHUB_PERSONAL_ACCESS_TOKEN = "ghp_0123456789abcdefghij"
                LOG = "info"
                [mcp_servers.docs]
                url = "https://mcp.example.org/mcp"
                bearer_token_env_var = "DOCS_TOKEN"
                http_headers = { X-Region = "eu" }
                [mcp_servers.off]
                command = "x"
                enabled = false"#,
        );
        let server = |name: &str| found.servers.iter().find(|server| server.name == name).unwrap();
        assert_eq!(found.left_out, []);
        assert_eq!(server("github").args, ["-y", "@modelcontextprotocol/server-github"]);
        assert_eq!(server("github").inherit_environment, ["LOCAL_REGION", "OTHER"]);
        assert_eq!(server("github").environment["LOG"], "info");
        assert_eq!(found.secrets["github/github-personal-access-token"].expose(), "ghp_0123456789abcdefghij");
        assert_eq!(server("docs").credentials["Authorization"].to_string(), "env:DOCS_TOKEN");
        assert_eq!(server("docs").headers["X-Region"], "eu");
        assert!(!server("off").enabled);
        assert!(read("[mcp_servers.a\n", &[]).unwrap_err().contains("neither JSON nor TOML"));
    }
}
