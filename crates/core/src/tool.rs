//! What the catalog knows of a tool. Each tool's own file states it once; everything else reads it from here.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{caller::Tier, label::Label};

pub type Text = Cow<'static, str>;

/// Which of the four routes carries the tool out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Route {
    Files,
    /// Leaves the node: web providers and, later, other MCP servers.
    Upstream,
    Builtin,
}

impl Route {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Upstream => "upstream",
            Self::Builtin => "builtin",
        }
    }
}

/// What a call can change. Decides whether an intent must be durable first, and the MCP annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mutability {
    ReadOnly,
    /// Adds or changes; what was there is kept or can be had back by the same tool.
    Mutating,
    /// Removes or overwrites.
    Destructive,
}

impl Mutability {
    pub fn mutates(self) -> bool {
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
    /// Required unless the capability that grants the tool says `approval: not_required`.
    RequiredByDefault,
    /// Not asked for by the tool itself; stated so that people know a policy may.
    MayRequire,
    /// Required when the argument has one of the values, e.g. `operation` `create` or `delete`.
    RequiredFor {
        argument: Text,
        values: Vec<Text>,
    },
}

/// What a policy has to look at before the call: which argument names a path, which a URL, which a program.
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
    pub input_schema: Value,
    /// Of the answer as the contract has it.
    pub output_schema: Value,
    /// Of the answer as an object, for MCP.
    pub structured_schema: Value,
    pub examples: Vec<Example>,
}

impl ToolSpec {
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
