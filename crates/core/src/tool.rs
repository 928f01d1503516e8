//! What the catalog knows of a tool. Each tool's own file states it once; everything else reads it from here.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{caller::Tier, label::Label};

/// The argument of tools that can say what they would do without doing it.
const DRY_RUN: &str = "dryRun";

pub type Text = Cow<'static, str>;

/// The first tag of a tool that an MCP server offers: its definition is text from outside, and may change.
pub const UPSTREAM_TAG: &str = "mcp-server";

/// Which of the four routes carries the tool out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    Files,
    /// Leaves the node: web providers and, later, other MCP servers.
    Upstream,
    /// Runs programs in a sandbox.
    Exec,
    Builtin,
}

impl Route {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Upstream => "upstream",
            Self::Exec => "exec",
            Self::Builtin => "builtin",
        }
    }
}

/// What a call can change. Decides whether an intent must be durable first, and the MCP annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mutability {
    ReadOnly,
    /// So says whoever offers it, and nobody here vouches for that: a read to policies and people, and recorded as a
    /// change is.
    SaidReadOnly,
    /// Adds or changes; what was there is kept or can be had back by the same tool.
    Mutating,
    /// Removes or overwrites.
    Destructive,
}

impl Mutability {
    pub fn mutates(self) -> bool {
        !matches!(self, Self::ReadOnly | Self::SaidReadOnly)
    }

    /// Whether a call must be on disk before it is made.
    pub fn wants_intent(self) -> bool {
        self != Self::ReadOnly
    }
}

/// Whether a person must agree before the tool runs. Contexts, policies and labels may ask for more; only an
/// operator's standing approval, or for [`ApprovalRule::RequiredByDefault`] a capability, asks for less.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalRule {
    NotRequired,
    Required,
    /// Required unless the capability that grants the tool says `approval: not_required`. A rehearsal (`dryRun`)
    /// changes nothing, and nobody is asked about it.
    RequiredByDefault,
    /// Not asked for by the tool itself; stated so that people know a policy may.
    MayRequire,
    /// Required when the argument has one of the values, e.g. `operation` `create` or `delete`.
    RequiredFor {
        argument: Text,
        values: Vec<Text>,
    },
}

/// What a policy has to look at before the call: which argument names a path, which a URL, which a program,
/// which a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "target", rename_all = "lowercase")]
pub enum Target {
    Path {
        argument: Text,
    },
    /// A path whose whole tree the tool walks: a denial of anything below it is a denial of the call.
    Tree {
        argument: Text,
    },
    /// The paths that a unified diff names, unless the argument `instead` names the one file.
    Patch {
        argument: Text,
        instead: Text,
    },
    Url {
        argument: Text,
    },
    /// A fixed host that the tool talks to whatever its arguments are, e.g. a search engine.
    Host {
        host: String,
    },
    /// A program, with the argument that holds its own arguments.
    Command {
        command: Text,
        args: Text,
    },
    /// A fixed program that the tool runs whatever its arguments are, e.g. a shell.
    Program {
        program: Text,
    },
    /// A program that an argument chooses by a word of its own, e.g. a language.
    Choice {
        argument: Text,
        programs: Vec<(Text, Text)>,
    },
    /// An MCP server behind the node, by its name; all of them when the argument is left out.
    Server {
        argument: Text,
    },
}

#[derive(Debug, Clone, Serialize)]
pub struct Example {
    pub title: Text,
    pub arguments: Value,
}

#[derive(Debug, Clone, Serialize)]
pub struct ToolSpec {
    pub name: Text,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Text>,
    /// The name as a heading.
    pub title: Text,
    /// The group in the catalog: `fs`, `web`, `tools`, …
    pub category: Text,
    pub description: Text,
    pub tags: Vec<Text>,
    pub tier: Tier,
    pub skip_judge: bool,
    pub mutability: Mutability,
    /// Calling twice with the same arguments changes nothing more than calling once.
    pub idempotent: bool,
    pub approval: ApprovalRule,
    pub route: Route,
    pub targets: Vec<Target>,
    pub label: Label,
    /// Of a tool that an MCP server offers: a digest of how the server is reached and of the tool's definition. Empty for
    /// the node's own.
    #[serde(skip)]
    pub provenance: Text,
    pub input_schema: Value,
    /// Of the answer as the contract has it.
    pub output_schema: Value,
    /// Of the answer as an object, for MCP.
    pub structured_schema: Value,
    pub examples: Vec<Example>,
}

impl ToolSpec {
    /// Whether a decision about one is a decision about the other.
    pub fn decided_alike(&self, other: &Self) -> bool {
        let rules = |spec: &Self| (spec.tier, spec.skip_judge, spec.mutability, spec.route);
        self.name == other.name
            && rules(self) == rules(other)
            && self.approval == other.approval
            && self.targets == other.targets
            && self.label == other.label
            && self.provenance == other.provenance
            && self.input_schema == other.input_schema
    }

    /// All four MCP annotations.
    pub fn annotations(&self) -> Map<String, Value> {
        [
            ("title", Value::from(self.title.as_ref())),
            ("readOnlyHint", (!self.mutability.mutates()).into()),
            ("destructiveHint", (self.mutability == Mutability::Destructive).into()),
            ("idempotentHint", self.idempotent.into()),
            ("openWorldHint", (self.route == Route::Upstream).into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// Whether the call only says what it would do: the tool has a `dryRun`, and it is set.
    pub fn rehearses(&self, arguments: &Map<String, Value>) -> bool {
        !self.is_upstream()
            && self.input_schema["properties"].get(DRY_RUN).is_some()
            && arguments.get(DRY_RUN) == Some(&Value::Bool(true))
    }

    /// Whether a call of it runs a program, which goes where the caller's domains let it.
    pub fn runs_programs(&self) -> bool {
        let runs = |target: &Target| {
            matches!(target, Target::Command { .. } | Target::Program { .. } | Target::Choice { .. })
        };
        self.targets.iter().any(runs)
    }

    /// Whether an MCP server behind the node offers it.
    pub fn is_upstream(&self) -> bool {
        self.tags.first().is_some_and(|tag| tag == UPSTREAM_TAG)
    }

    /// The name and every alias.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_ref()).chain(self.aliases.iter().map(AsRef::as_ref))
    }
}

/// Which tools a caller can see. What a caller may not call it does not see, so the plane answers this with the
/// same decision function as a call.
pub trait Directory: Send + Sync {
    fn visible(&self, caller: &crate::caller::Caller) -> Vec<std::sync::Arc<ToolSpec>>;
}
