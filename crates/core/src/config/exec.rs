use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::security_context::{Subcommands, command_mistakes};
use crate::{
    command::ArgumentPatterns,
    quantity::{Size, Span},
    redact,
};

const LONGEST_TIMEOUT_SECONDS: u64 = 3600;
const LARGEST_OUTPUT: u64 = 16 << 20;
const SMALLEST_MEMORY: u64 = 16 << 20;
const MOST_VARIABLES: usize = 256;

/// Variables that make programs load or run code. A pattern never covers them: an operator who wants one names it.
const CODE_VARIABLES: &[&str] = &[
    "BASH_ENV",
    "BASH_FUNC_",
    "BROWSER",
    "CLASSPATH",
    "CMAKE_TOOLCHAIN_FILE",
    "DOTNET_STARTUP_HOOKS",
    "DYLD_",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "GEM_PATH",
    "GIT_",
    "HOSTALIASES",
    "IFS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_",
    "LESSOPEN",
    "LOCPATH",
    "LUA_PATH",
    "LUA_CPATH",
    "MAKEFLAGS",
    "MALLOC_",
    "MANPAGER",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PAGER",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHON",
    "RUBYLIB",
    "RUBYOPT",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "SHELL",
    "SHELLOPTS",
    "BASHOPTS",
    "SSH_ASKPASS",
    "VISUAL",
    "_JAVA_OPTIONS",
];

/// Whether a variable of this name makes programs load or run code.
pub fn is_code_variable(name: &str) -> bool {
    const HARMLESS: [&str; 3] = ["PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"];
    !HARMLESS.contains(&name) && CODE_VARIABLES.iter().any(|start| name.starts_with(start))
}

/// Commands: how they are confined, how much they may use, and what is the most that anybody may run.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecConfig {
    /// Whether commands are run at all.
    pub enabled: bool,
    /// What confines them.
    pub backend: SandboxBackend,
    /// The image that commands run in, for the backend `oci`. It must be there already: nothing is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// `podman` or `docker` by path, for the backend `oci`; looked for when left out, in this order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Options of the engine itself, before its command, e.g. where it stores images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engine_options: Vec<String>,
    /// The runtime below the engine, by name or path; the engine's own when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_runtime: Option<String>,
    /// Layers of the sandbox without which nothing is run. `aegis doctor` shows which this machine has.
    pub floor: SandboxFloor,
    /// Layers besides those of the floor, by the names that `aegis doctor` shows.
    pub required_layers: Vec<String>,
    /// How long a command may run when its call does not say.
    pub default_timeout: Span,
    /// How long any command may run.
    pub max_timeout: Span,
    /// How much of a command's output is kept, both streams together: the last so many bytes.
    pub max_output: Size,
    /// Commands of one caller at once.
    #[schemars(range(min = 1, max = 1024))]
    pub max_concurrent_per_caller: u32,
    /// Commands on this node at once.
    #[schemars(range(min = 1, max = 4096))]
    pub max_concurrent: u32,
    pub limits: SandboxLimits,
    pub environment: EnvironmentConfig,
    /// Further directories of this machine that commands can read, at the same place: toolchains, caches.
    pub read_only_directories: Vec<String>,
    /// Directories that programs are looked for in, before those of the system.
    pub search_path: Vec<String>,
    /// The most that any context can grant.
    pub ceiling: CommandCeiling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxBackend {
    /// The kernel's namespaces, Landlock and seccomp, used directly.
    Native,
    /// A container of `podman` or `docker`.
    Oci,
}

/// Sets of layers without which nothing is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxFloor {
    /// What makes it a sandbox at all: namespaces, an unprivileged user without capabilities, a filter of system calls.
    Least,
    /// And every further layer that keeps programs in.
    Standard,
    /// And the control groups that limit what they use.
    Strict,
}

/// What one command, with all processes it starts, may use.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxLimits {
    pub memory: Size,
    #[schemars(range(min = 1, max = 65536))]
    pub processes: u32,
    /// Cores.
    #[schemars(range(min = 0.01, max = 1024.0))]
    pub cpu: f64,
    /// The largest file it may write.
    pub file_size: Size,
    /// How much its private `/tmp` holds.
    pub scratch: Size,
    /// Files that one process may have open.
    #[schemars(range(min = 16, max = 1_048_576))]
    pub open_files: u64,
}

/// The environment of commands. Nothing of the node's own gets there unless it is named here.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EnvironmentConfig {
    /// Set for every command.
    pub set: BTreeMap<String, String>,
    /// Taken over from the node's own environment. Names that speak of secrets are refused.
    pub pass: Vec<String>,
    /// What a call may set itself: names, or beginnings such as `MYAPP_*`. Variables that make programs load or run code
    /// (`LD_PRELOAD`, `BASH_ENV`, `GIT_SSH_COMMAND`, `PYTHONPATH`, `NODE_OPTIONS` …) must be named in full.
    pub allow: Vec<String>,
}

/// What nobody may go beyond, whatever their context grants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CommandCeiling {
    /// As `subcommand_allowlist` of a capability; no ceiling when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Subcommands>,
    /// As `argument_patterns` of a capability.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub argument_patterns: ArgumentPatterns,
}

impl Default for ExecConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            backend: SandboxBackend::Native,
            image: None,
            engine: None,
            engine_options: Vec::new(),
            engine_runtime: None,
            floor: SandboxFloor::Standard,
            required_layers: Vec::new(),
            default_timeout: Span::seconds(60),
            max_timeout: Span::seconds(300),
            max_output: Size(512 << 10),
            max_concurrent_per_caller: 4,
            max_concurrent: 64,
            limits: SandboxLimits::default(),
            environment: EnvironmentConfig::default(),
            read_only_directories: Vec::new(),
            search_path: Vec::new(),
            ceiling: CommandCeiling::default(),
        }
    }
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            memory: Size(2 << 30),
            processes: 512,
            cpu: 2.0,
            file_size: Size(4 << 30),
            scratch: Size(1 << 30),
            open_files: 4096,
        }
    }
}

impl Default for EnvironmentConfig {
    fn default() -> Self {
        let allow = [
            "CARGO_TERM_COLOR",
            "CI",
            "COLUMNS",
            "DEBUG",
            "FORCE_COLOR",
            "LANG",
            "LC_ALL",
            "LINES",
            "NODE_ENV",
            "NO_COLOR",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONHASHSEED",
            "PYTHONUNBUFFERED",
            "RUST_BACKTRACE",
            "RUST_LOG",
            "TERM",
            "TZ",
            "VERBOSE",
        ];
        Self { set: BTreeMap::new(), pass: Vec::new(), allow: allow.into_iter().map(str::to_owned).collect() }
    }
}

impl ExecConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: String| {
            mistakes.push((format!("/spec/exec/{member}"), message));
        };
        if self.max_timeout.0.is_zero() || self.max_timeout > Span::seconds(LONGEST_TIMEOUT_SECONDS) {
            wrong("max_timeout", format!("write a time above 0 and up to {LONGEST_TIMEOUT_SECONDS}s"));
        }
        if self.default_timeout.0.is_zero() || self.default_timeout > self.max_timeout {
            wrong("default_timeout", "write a time above 0 and up to `max_timeout`".into());
        }
        if !(1 << 10..=LARGEST_OUTPUT).contains(&self.max_output.0) {
            wrong("max_output", format!("write a size from 1Ki to {}", Size(LARGEST_OUTPUT)));
        }
        if self.backend == SandboxBackend::Oci
            && self.image.as_deref().is_none_or(|image| image.trim().is_empty())
        {
            wrong("image", "the backend `oci` runs commands in an image: name one".into());
        }
        if self.limits.memory.0 < SMALLEST_MEMORY {
            wrong("limits/memory", format!("write a size of {} or more", Size(SMALLEST_MEMORY)));
        }
        for (member, directories) in
            [("read_only_directories", &self.read_only_directories), ("search_path", &self.search_path)]
        {
            for (index, directory) in directories.iter().enumerate() {
                let plain = directory.starts_with('/')
                    && directory.len() > 1
                    && !directory.split('/').any(|component| component == "..");
                if !plain || directory.contains(':') {
                    wrong(&format!("{member}/{index}"), "write an absolute directory without `..`".into());
                }
            }
        }
        self.environment.check(&mut wrong);
        if let Some(commands) = &self.ceiling.commands {
            for (place, mistake) in command_mistakes(commands) {
                wrong(&format!("ceiling/commands/{place}"), mistake.to_owned());
            }
        }
        mistakes
    }
}

impl EnvironmentConfig {
    fn check(&self, wrong: &mut impl FnMut(&str, String)) {
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if self.set.len() + self.pass.len() > MOST_VARIABLES {
            wrong("environment", format!("more than {MOST_VARIABLES} variables"));
        }
        for (name, value) in &self.set {
            if !is_name(name) || value.contains('\0') {
                wrong(&format!("environment/set/{name}"), "this is no variable that could be set".into());
            }
        }
        for (index, name) in self.pass.iter().enumerate() {
            if !is_name(name) {
                wrong(&format!("environment/pass/{index}"), format!("`{name}` is no name of a variable"));
            } else if redact::is_secret_name(name) {
                let message = format!("`{name}` speaks of a secret, and secrets never go into a sandbox");
                wrong(&format!("environment/pass/{index}"), message);
            }
        }
        for (index, name) in self.allow.iter().enumerate() {
            if !is_name(name.strip_suffix('*').unwrap_or(name)) {
                let message = format!("write a name, or a beginning such as `MYAPP_*`, not `{name}`");
                wrong(&format!("environment/allow/{index}"), message);
            }
        }
    }

    /// Whether a call may set the variable.
    pub fn lets_set(&self, name: &str) -> bool {
        self.allow.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(start) => {
                name.starts_with(start) && !is_code_variable(name) && !redact::is_secret_name(name)
            }
            None => allowed == name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_bounds() {
        assert!(ExecConfig::default().check().is_empty());
        let wild = ExecConfig {
            backend: SandboxBackend::Oci,
            max_timeout: Span::seconds(0),
            max_output: Size(1 << 40),
            limits: SandboxLimits { memory: Size(1), ..SandboxLimits::default() },
            read_only_directories: vec!["relative".into(), "/a/../b".into(), "/".into()],
            ..ExecConfig::default()
        };
        let places: Vec<String> = wild.check().into_iter().map(|(place, _)| place).collect();
        assert_eq!(places.len(), 8, "{places:?}");
    }

    #[test]
    fn secrets_and_code_stay_out_of_the_environment() {
        let environment = EnvironmentConfig {
            pass: vec!["HTTP_TOKEN".into(), "AWS_SECRET_ACCESS_KEY".into(), "LANG".into(), "A=B".into()],
            allow: vec!["MYAPP_*".into(), "*".into(), "GIT_SSH_COMMAND".into()],
            ..EnvironmentConfig::default()
        };
        let config = ExecConfig { environment: environment.clone(), ..ExecConfig::default() };
        assert_eq!(config.check().len(), 4, "{:?}", config.check());
        for name in ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "NODE_OPTIONS", "GIT_DIR", "PATH", "ENV"] {
            assert!(is_code_variable(name) && !environment.lets_set(name), "{name}");
        }
        assert!(environment.lets_set("MYAPP_MODE") && environment.lets_set("GIT_SSH_COMMAND"));
        assert!(!EnvironmentConfig::default().lets_set("MYAPP_MODE"));
        let own = EnvironmentConfig::default();
        assert!(own.allow.iter().all(|name| own.lets_set(name) && !is_code_variable(name)), "{own:?}");
    }

    #[test]
    fn survives_a_round_trip() {
        let text = r#"{"floor": "least", "required_layers": ["landlock"], "limits": {"memory": "1Gi", "cpu": 0.5},
            "ceiling": {"commands": {"git": ["status"]}, "argument_patterns": {"git": {"deny": ["-c*"]}}}}"#;
        let config: ExecConfig = serde_json::from_str(text).unwrap();
        let again: ExecConfig = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
        assert_eq!(again.ceiling, config.ceiling);
        assert_eq!((again.floor, again.required_layers), (SandboxFloor::Least, vec!["landlock".to_owned()]));
        assert_eq!(again.limits.memory, Size(1 << 30));
    }
}
