use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentSpec, CommandRules};
use crate::{
    config::{
        AccessMode,
        security_context::{Subcommands, ToolPattern},
    },
    document::{pointer, shown},
    domain::DomainPattern,
    manifest::Findings,
    nearest::suggestion,
    path::PathPrefix,
};

/// One or more tools that an agent may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ToolEntry {
    /// A tool (`fs.read`), a group (`web.*`) or every tool of a server (`mcp:web-search`).
    Name(String),
    /// A tool with limits of its own.
    Bound(Box<ToolBinding>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolBinding {
    /// The tool's name; `cmd` or `cmd.run` for commands.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The server it comes from: `mcp:<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^mcp:[A-Za-z0-9_-]+$"), extend("patternErrorMessage" = "write mcp: and the server's name"))]
    pub server: Option<String>,
    /// `builtin:cmd`, for commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<Executor>,
    /// Commands that may be run: `pytest` with any arguments, `npm test` with that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowlist: Option<Vec<String>>,
    /// Limits for this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ToolConfig>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum Executor {
    #[serde(rename = "builtin:cmd")]
    Command,
}

/// Limits of a tool. Which of them count depends on the server; other servers may have others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolConfig {
    /// `builtin:cmd`: commands with the first arguments allowed to each (none listed: any), or a list of commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subcommand_allowlist: Option<Subcommands>,
    /// `builtin:cmd`: environment variables to take away, besides the node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_var_denylist: Option<Vec<String>>,
    /// `builtin:cmd`: the longest a command may run, in seconds; 300 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_ceiling_secs: Option<u64>,
    /// `builtin:cmd`: the most output a command may give; 524288 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_output_bytes: Option<u64>,
    /// `mcp:filesystem`: directories; `/workspace` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_paths: Option<Vec<String>>,
    /// `mcp:filesystem`: `read-only` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// `mcp:filesystem`: the largest file; 10485760 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub max_file_size_bytes: Option<u64>,
    /// `mcp:web-search`: domains; all when left out or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_domains: Option<Vec<String>>,
    /// `mcp:web-search`: 10 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_results_per_query: Option<u32>,
    /// `mcp:gmail`: `read` and `search` when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_operations: Option<Vec<String>>,
    /// `mcp:gmail`: 50 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_messages_per_query: Option<u32>,
    /// `mcp:gmail`: labels; all when left out or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_labels: Option<Vec<String>>,
    /// How often the tool may be called in one execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub max_calls_per_execution: Option<u32>,
    /// Settings of servers this list does not know.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Which settings each known server reads; `max_calls_per_execution` is the plane's and goes with all.
const SERVER_SETTINGS: [(&str, &[&str]); 4] = [
    (
        "builtin:cmd",
        &["subcommand_allowlist", "env_var_denylist", "timeout_ceiling_secs", "max_output_bytes"],
    ),
    ("mcp:filesystem", &["allowed_paths", "access_mode", "max_file_size_bytes"]),
    ("mcp:web-search", &["allowed_domains", "max_results_per_query"]),
    ("mcp:gmail", &["allowed_operations", "max_messages_per_query", "allowed_labels"]),
];
const CALL_LIMIT: &str = "max_calls_per_execution";

impl ToolConfig {
    pub const DEFAULT_TIMEOUT_CEILING_SECS: u64 = 300;
    pub const DEFAULT_MAX_OUTPUT_BYTES: u64 = 524_288;

    pub fn timeout_ceiling_secs(&self) -> u64 {
        self.timeout_ceiling_secs.unwrap_or(Self::DEFAULT_TIMEOUT_CEILING_SECS)
    }

    pub fn max_output_bytes(&self) -> u64 {
        self.max_output_bytes.unwrap_or(Self::DEFAULT_MAX_OUTPUT_BYTES)
    }
}

impl ToolEntry {
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Bound(binding) => &binding.name,
        }
    }

    /// Whether this entry is about `cmd.run`.
    pub fn is_command(&self) -> bool {
        matches!(self.name(), "cmd" | "cmd.run")
    }

    fn commands(&self) -> Option<CommandRules> {
        let Self::Bound(binding) = self else { return None };
        if !self.is_command() {
            return None;
        }
        let subcommands = binding.config.as_ref().and_then(|config| config.subcommand_allowlist.as_ref());
        let written = subcommands.map(CommandRules::of_subcommands);
        let lines = binding.allowlist.as_deref().map(CommandRules::of_lines);
        match (written, lines) {
            (Some(one), Some(other)) => Some(one.and(&other)),
            (one, other) => one.or(other),
        }
    }

    fn check(&self, at: &str, settings: &Value, findings: &mut Findings) {
        match self {
            Self::Name(name) => check_name(name, at, findings),
            Self::Bound(binding) => {
                check_name(&binding.name, &format!("{at}/name"), findings);
                binding.check(at, settings, findings);
            }
        }
    }
}

fn check_name(name: &str, at: &str, findings: &mut Findings) {
    if let Some(server) = name.strip_prefix("mcp:") {
        if server.is_empty() || !server.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            findings.error(at, format!("{}: write mcp: and the server's name", shown(name)));
        }
        return;
    }
    match ToolPattern::parse(name) {
        Ok(ToolPattern::Any) => {
            findings.error(at, "`*` is too wide for an agent: name its tools, or groups such as fs.*");
        }
        Ok(_) => {}
        Err(error) => findings.error(at, error.to_string()),
    }
}

impl ToolBinding {
    fn check(&self, at: &str, settings: &Value, findings: &mut Findings) {
        let command = matches!(self.name.as_str(), "cmd" | "cmd.run");
        if self.server.is_some() && self.executor.is_some() {
            findings.error(at, "`server` and `executor` exclude each other");
        }
        if self.executor.is_some() {
            if !command {
                findings.error(format!("{at}/name"), "`executor: \"builtin:cmd\"` goes with `name: cmd`");
            }
            if self.config.as_ref().is_none_or(|config| config.subcommand_allowlist.is_none()) {
                findings.error(at, "`executor: \"builtin:cmd\"` needs `config.subcommand_allowlist`");
            }
        }
        if let Some(lines) = &self.allowlist {
            if !command {
                findings
                    .warning(format!("{at}/allowlist"), "only `cmd.run` has commands; nothing reads this");
            }
            for (index, line) in lines.iter().enumerate() {
                if !(1..=2).contains(&line.split_whitespace().count()) {
                    findings.error(
                        format!("{at}/allowlist/{index}"),
                        format!("{}: write a command, or a command and its first argument", shown(line)),
                    );
                }
            }
        }
        let Some(config) = &self.config else { return };
        let at = format!("{at}/config");
        if let Some(subcommands) = &config.subcommand_allowlist {
            check_commands(subcommands, &format!("{at}/subcommand_allowlist"), findings);
        }
        for (index, path) in config.allowed_paths.iter().flatten().enumerate() {
            if let Err(error) = PathPrefix::parse(path) {
                findings.error(format!("{at}/allowed_paths/{index}"), error.to_string());
            }
        }
        for (index, domain) in config.allowed_domains.iter().flatten().enumerate() {
            if let Err(error) = DomainPattern::parse(domain) {
                findings.error(format!("{at}/allowed_domains/{index}"), error.to_string());
            }
        }
        let server = if command { Some("builtin:cmd") } else { self.server.as_deref() };
        if let Some((server, known)) = SERVER_SETTINGS.iter().find(|(name, _)| server == Some(*name)) {
            let written = settings.get("config").and_then(Value::as_object);
            for key in written.into_iter().flat_map(|written| written.keys()) {
                if !known.contains(&key.as_str()) && key != CALL_LIMIT {
                    let guess = suggestion(key, known.iter().copied());
                    findings.warning(
                        pointer::below(&at, [key]),
                        format!("`{server}` does not read {}{guess}", shown(key)),
                    );
                }
            }
        }
    }
}

/// A second place to open `cmd.run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuiltinDispatcher {
    /// `cmd`.
    #[schemars(length(min = 1))]
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Turned off, it allows nothing.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What is opened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<DispatcherCapability>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DispatcherCapability {
    /// `cmd.run`.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Commands with the first arguments allowed to each (none listed: any), or a list of commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subcommand_allowlist: Option<Subcommands>,
    /// Only an operator's configuration can set this; here it is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_judge: Option<bool>,
}

impl BuiltinDispatcher {
    fn commands(&self) -> impl Iterator<Item = CommandRules> {
        self.capabilities.iter().filter(|capability| self.name == "cmd" && capability.name == "cmd.run").map(
            |capability| match &capability.subcommand_allowlist {
                Some(subcommands) if self.enabled => CommandRules::of_subcommands(subcommands),
                _ => CommandRules::default(),
            },
        )
    }

    fn check(&self, at: &str, findings: &mut Findings) {
        if self.name != "cmd" {
            findings
                .warning(format!("{at}/name"), "a manifest can open `cmd` only; nothing reads this entry");
        }
        for (index, capability) in self.capabilities.iter().enumerate() {
            let at = format!("{at}/capabilities/{index}");
            if capability.name != "cmd.run" {
                findings.warning(
                    format!("{at}/name"),
                    "a manifest can open `cmd.run` only; nothing reads this entry",
                );
            }
            if capability.skip_judge.is_some() {
                findings.warning(
                    format!("{at}/skip_judge"),
                    "an agent can't choose whether it is judged; the node's configuration does",
                );
            }
            if let Some(subcommands) = &capability.subcommand_allowlist {
                check_commands(subcommands, &format!("{at}/subcommand_allowlist"), findings);
            }
        }
    }
}

fn check_commands(subcommands: &Subcommands, at: &str, findings: &mut Findings) {
    let wrong = |name: &str| name.is_empty() || name.contains(char::is_whitespace);
    match subcommands {
        Subcommands::Map(map) => {
            for name in map.keys().filter(|name| wrong(name)) {
                findings.error(pointer::below(at, [name]), "a command is one word");
            }
        }
        Subcommands::List(names) => {
            for (index, _) in names.iter().enumerate().filter(|(_, name)| wrong(name)) {
                findings.error(
                    format!("{at}/{index}"),
                    "a command is one word; its arguments go into the map form",
                );
            }
        }
    }
}

impl AgentSpec {
    /// What `cmd.run` may run: what all declarations allow together. `None` when there is none, and then nothing
    /// may be run.
    pub fn commands(&self) -> Option<CommandRules> {
        self.tools
            .iter()
            .filter_map(ToolEntry::commands)
            .chain(self.builtin_dispatchers.iter().flat_map(BuiltinDispatcher::commands))
            .reduce(|one, other| one.and(&other))
    }

    pub(super) fn check_tools(&self, written: &Value, findings: &mut Findings) {
        for (index, entry) in self.tools.iter().enumerate() {
            let settings = written.pointer(&format!("/tools/{index}")).unwrap_or(&Value::Null);
            entry.check(&format!("/spec/tools/{index}"), settings, findings);
        }
        for (index, dispatcher) in self.builtin_dispatchers.iter().enumerate() {
            dispatcher.check(&format!("/spec/builtin_dispatchers/{index}"), findings);
        }
        if self.commands().is_none()
            && let Some(index) = self.tools.iter().position(ToolEntry::is_command)
        {
            findings.warning(
                format!("/spec/tools/{index}"),
                "no command is allowed, so every `cmd.run` will be refused: add `config.subcommand_allowlist`",
            );
        }
    }
}

fn yes() -> bool {
    true
}
