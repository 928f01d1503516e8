//! What a call touches, read out of its arguments once by what the tool's catalog entry declares.

use aegis_core::{
    ToolSpec, Violation, ViolationKind, VolumePath,
    command::CommandLine,
    config::{Capability, security_context::DenyTarget},
    domain::{mapped_address, normal_host},
    patch::{FilePatch, Patch},
    path::{BadPath, PathPrefix},
    tool::Target,
};
use serde_json::{Map, Value};
use url::Url;

use super::commands::{self, Bounds};

#[derive(Debug, Default)]
pub(super) struct Targets {
    paths: Vec<VolumePath>,
    /// Those of the paths whose whole tree is touched.
    trees: Vec<VolumePath>,
    /// Those that are somewhere else, or nowhere, afterwards.
    moved: Vec<VolumePath>,
    hosts: Vec<String>,
    commands: Vec<CommandLine>,
    /// MCP servers behind the node.
    servers: Vec<String>,
}

impl Targets {
    /// A target that can't be read is refused here: an argument that names a path must name one.
    pub(super) fn of(tool: &ToolSpec, arguments: &Map<String, Value>) -> Result<Self, Violation> {
        let mut targets = Self::default();
        let text = |argument: &str| arguments.get(argument).and_then(Value::as_str);
        for target in &tool.targets {
            match target {
                Target::Path { argument } | Target::Tree { argument } => {
                    if let Some(text) = text(argument) {
                        let path =
                            VolumePath::parse(text).map_err(|error| bad_path(tool, argument, &error))?;
                        if matches!(target, Target::Tree { .. }) {
                            targets.trees.push(path.clone());
                            if tool.mutability.mutates() {
                                targets.moved.push(path.clone());
                            }
                        }
                        targets.paths.push(path);
                    }
                }
                Target::Patch { argument, instead } if text(instead).is_none() => {
                    if let Some(text) = text(argument) {
                        let patch = Patch::parse(text)
                            .map_err(|error| unreadable(tool, argument, &error.to_string()))?;
                        for file in &patch.files {
                            for named in file.paths() {
                                let path = VolumePath::parse(named)
                                    .map_err(|error| bad_path(tool, argument, &error))?;
                                if file.moves() {
                                    targets.moved.push(path.clone());
                                }
                                targets.paths.push(path);
                            }
                        }
                    }
                }
                Target::Patch { argument, instead } => {
                    // One that can't be read does nothing, which the tool will say.
                    let patch = text(argument).and_then(|text| Patch::parse(text).ok());
                    let moves = patch.is_some_and(|patch| patch.files.iter().any(FilePatch::moves));
                    let named = text(instead).filter(|_| moves);
                    targets.moved.extend(named.and_then(|path| VolumePath::parse(path).ok()));
                }
                Target::Url { argument } => {
                    if let Some(text) = text(argument) {
                        targets
                            .hosts
                            .push(host_of(text).map_err(|reason| unreadable(tool, argument, &reason))?);
                    }
                }
                Target::Host { host } => targets.hosts.push(host.clone()),
                Target::Command { command, args } => {
                    if let Some(line) = text(command) {
                        let args =
                            arguments.get(args.as_ref()).and_then(Value::as_array).into_iter().flatten();
                        let args: Vec<String> = args.filter_map(Value::as_str).map(str::to_owned).collect();
                        let line = CommandLine::parse(line, &args)
                            .map_err(|error| unreadable(tool, command, &error.to_string()))?;
                        targets.commands.push(line);
                    }
                }
                Target::Program { program } => targets.commands.push(alone(program)),
                Target::Choice { argument, programs } => {
                    let chosen =
                        text(argument).and_then(|word| programs.iter().find(|(known, _)| known == word));
                    targets.commands.extend(chosen.map(|(_, program)| alone(program)));
                }
                Target::Server { argument } => targets.servers.extend(text(argument).map(str::to_owned)),
            }
        }
        Ok(targets)
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(VolumePath::as_str)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(String::as_str)
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = &str> {
        self.commands.iter().map(|command| command.program.as_str())
    }

    /// Whether any of the targets is what a deny entry is about.
    pub(super) fn touch(&self, denied: &DenyTarget) -> bool {
        match denied {
            DenyTarget::Path(prefix) => {
                self.paths.iter().any(|path| prefix.covers(path))
                    || self.trees.iter().any(|tree| prefix.lies_below(tree))
            }
            DenyTarget::Name(pattern) => {
                self.hosts.iter().chain(&self.servers).any(|name| pattern.matches(name))
                    || self.commands.iter().any(|command| {
                        pattern.matches(&command.program) || pattern.matches(command.program_name())
                    })
            }
        }
    }

    /// Whether the call takes something at or below the path, or a directory above it, away from where it is.
    pub(super) fn would_move(&self, closed: &PathPrefix) -> bool {
        self.moved.iter().any(|moved| closed.covers(moved) || closed.lies_below(moved))
    }

    /// Whether every target lies within the capability's allowlists.
    pub(super) fn within(
        &self,
        capability: &Capability,
        tool: &ToolSpec,
        place: &str,
        bounds: Bounds<'_>,
    ) -> Result<(), Violation> {
        if let Some(prefixes) = &capability.path_allowlist
            && let Some(path) =
                self.paths.iter().find(|path| !prefixes.iter().any(|prefix| prefix.covers(path)))
        {
            return Err(Violation::new(
                ViolationKind::PathOutsideBoundary,
                format!("`{path}` is under no directory that `{}` may touch", tool.name),
            )
            .rule(format!("{place}.path_allowlist"))
            .hint("use a path under the allowed directories; relative paths start at /workspace"));
        }
        if let Some(patterns) = &capability.domain_allowlist
            && let Some(host) =
                self.hosts.iter().find(|host| !patterns.iter().any(|pattern| pattern.matches(host)))
        {
            return Err(Violation::new(
                ViolationKind::DomainNotAllowed,
                format!("`{host}` is no domain that `{}` may talk to", tool.name),
            )
            .rule(format!("{place}.domain_allowlist"))
            .hint("an operator can add the domain to the allowlist"));
        }
        if let Some(names) = &capability.server_allowlist
            && let Some(server) = self.servers.iter().find(|server| !names.contains(server))
        {
            return Err(Violation::new(
                ViolationKind::ToolNotAllowed,
                format!("`{}` may not be used with the MCP server `{server}`", tool.name),
            )
            .rule(format!("{place}.server_allowlist"))
            .hint("an operator can add the server to the allowlist"));
        }
        self.commands.iter().try_for_each(|command| commands::within(capability, command, place, bounds))
    }
}

fn alone(program: &str) -> CommandLine {
    CommandLine { program: program.to_owned(), arguments: Vec::new() }
}

fn host_of(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme must be http or https, not {}", url.scheme()));
    }
    match url.host_str() {
        Some(host) if !host.is_empty() => Ok(mapped_address(host).unwrap_or_else(|| normal_host(host))),
        _ => Err("it names no host".into()),
    }
}

fn bad_path(tool: &ToolSpec, argument: &str, error: &BadPath) -> Violation {
    if *error == BadPath::Traversal {
        return Violation::new(
            ViolationKind::PathTraversalAttempt,
            format!("`{argument}` of `{}` has a `..` component", tool.name),
        )
        .rule("`..` is refused in every path, by every context")
        .hint("name the file by its path from /workspace");
    }
    unreadable(tool, argument, &error.to_string())
}

fn unreadable(tool: &ToolSpec, argument: &str, reason: &str) -> Violation {
    Violation::new(
        ViolationKind::InvalidArguments,
        format!(
            "Invalid tool arguments: field '{argument}' can't be used for tool '{}': {reason}",
            tool.name
        ),
    )
}
