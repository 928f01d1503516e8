//! SecurityContexts: what a caller may do. Matching lives here with the types; the order of checks is the policy
//! gate's.

mod doubts;
mod patterns;

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SandboxChoice;
use crate::{
    caller::Tier,
    command::{self, ArgumentPatterns},
    document::{self, Diagnostic},
    domain::DomainPattern,
    id::ContextName,
    path::PathPrefix,
    quantity::Size,
};

pub use doubts::{Doubt, doubts};
pub use patterns::{BadDenyEntry, BadToolPattern, DenyEntry, DenyTarget, ToolPattern};

pub const OPERATOR_CONTEXT: &str = "aegis-system-operator";

/// The name that grants deciding: a capability of exactly this `tool_pattern` makes the holders of a context
/// approvers for their own tenant. A wildcard does not: who may call everything is not thereby an approver.
pub const APPROVER_CAPABILITY: &str = "aegis.approvals";

/// A named set of rights. No capability means nothing is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecurityContext {
    #[schemars(with = "String", regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: ContextName,
    #[serde(default)]
    pub description: String,
    /// A call passes when one capability names its tool and all that capability's limits hold.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Refused whatever the capabilities say: `fs.delete`, `web.*`, or with an argument, `fs.read:/workspace/keys`. What
    /// `*:/workspace/keys` names is closed to every tool, over NFS and to commands.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub deny_list: Vec<DenyEntry>,
}

/// Tools that may be called, and within which limits. A limit that is left out does not limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// `fs.read`, `fs.*` (every tool whose name starts with `fs.`) or `*`.
    #[schemars(with = "String")]
    pub tool_pattern: ToolPattern,
    /// Directories the tool's paths must lie in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub path_allowlist: Option<Vec<PathPrefix>>,
    /// Domains the tool may talk to: `example.org` (with subdomains), `*.example.org` (subdomains only), `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub domain_allowlist: Option<Vec<DomainPattern>>,
    /// Programs that may be run: `make` (with any arguments), `npm test` (with that first argument), `./bin/*`, or `*`
    /// for every program but shells and interpreters. Without this list and the next, no program may be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_allowlist: Option<Vec<String>>,
    /// Programs with the first arguments allowed to each (none listed: any), or a plain list of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subcommand_allowlist: Option<Subcommands>,
    /// What may stand among the arguments of a program (of `*`: of every program), e.g. `git: {deny: ["-c*"]}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument_patterns: Option<ArgumentPatterns>,
    /// What confines the commands, where that is not what the node is set to, e.g. `{image: localhost/python:3}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxChoice>,
    /// MCP servers whose resources, prompts, completion and tasks the tools `mcp.*` may use, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_allowlist: Option<Vec<String>>,
    /// Per caller and tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// The largest answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_response_size: Option<Size>,
    /// Calls in work at once, per caller and tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_concurrent: Option<u32>,
    /// Whether a person must agree to each call. Left out, the tool's own rule decides; `not_required` lifts only
    /// a rule that the tool calls a default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<CapabilityApproval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CapabilityApproval {
    Required,
    NotRequired,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Subcommands {
    Map(BTreeMap<String, Vec<String>>),
    List(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    #[schemars(range(min = 1, max = 100_000))]
    pub calls: u32,
    #[schemars(range(min = 1, max = 86_400))]
    pub per_seconds: u32,
}

impl Capability {
    pub fn of(tool_pattern: &str) -> Result<Self, BadToolPattern> {
        Ok(Self {
            tool_pattern: ToolPattern::parse(tool_pattern)?,
            path_allowlist: None,
            domain_allowlist: None,
            command_allowlist: None,
            subcommand_allowlist: None,
            argument_patterns: None,
            sandbox: None,
            server_allowlist: None,
            rate_limit: None,
            max_response_size: None,
            max_concurrent: None,
            approval: None,
        })
    }
}

/// What is wrong with entries that grant commands, each with its place below the list. An entry that could never fire is
/// an error at load.
pub(super) fn command_mistakes(commands: &Subcommands) -> Vec<(String, &'static str)> {
    match commands {
        Subcommands::Map(map) => map
            .keys()
            .filter_map(|name| {
                let plain = !name.contains(char::is_whitespace);
                let mistake =
                    command::mistake_in(name).or((!plain).then_some("a program is one word here"))?;
                Some((name.replace('~', "~0").replace('/', "~1"), mistake))
            })
            .collect(),
        Subcommands::List(lines) => lines
            .iter()
            .enumerate()
            .filter_map(|(index, line)| Some((index.to_string(), command::mistake_in(line)?)))
            .collect(),
    }
}

impl Capability {
    fn mistakes(&self, above: &str) -> Vec<(String, String)> {
        let programs = self.command_allowlist.clone().map(Subcommands::List);
        let lists = [("command_allowlist", &programs), ("subcommand_allowlist", &self.subcommand_allowlist)];
        let all = lists.into_iter().filter_map(|(member, list)| Some((member, list.as_ref()?)));
        let lists = all.flat_map(|(member, list)| {
            let found = command_mistakes(list).into_iter();
            found.map(move |(place, mistake)| (format!("{above}/{member}/{place}"), mistake.to_owned()))
        });
        let sandbox = self.sandbox.as_ref().and_then(SandboxChoice::mistake);
        let sandbox =
            sandbox.map(|(member, mistake)| (format!("{above}/sandbox/{member}"), mistake.to_owned()));
        lists.chain(sandbox).collect()
    }
}

const SHIPPED_TEXT: &str = include_str!("shipped_contexts.yaml");

/// The contexts every node has, written as in a configuration.
pub fn shipped() -> Vec<SecurityContext> {
    static SHIPPED: LazyLock<Vec<SecurityContext>> =
        LazyLock::new(|| document::read_own(SHIPPED_TEXT).unwrap_or_default());
    SHIPPED.clone()
}

/// Names that begin like this are the node's own. A file may replace a context that ships under such a name, and
/// can't add one: a slip of the pen would otherwise make a context that nobody governs by its name.
const RESERVED: [&str; 2] = ["aegis-system-", "zaru-"];

/// Whether a caller of this tenant and tier may be bound to the context at all, whoever asks for it: `aegis-system-*`
/// is for the platform's own agents and operators, `zaru-*` for people, `tenant-SLUG-*` for that tenant. Any other
/// name is the node's operator's to give.
pub fn is_open_to(context: &str, tenant: &str, tier: Tier) -> Result<(), String> {
    if context.starts_with("aegis-system-") && tier < Tier::System {
        return Err(format!("`{context}` is for the tiers system and operator, not for {tier}"));
    }
    if context.starts_with("zaru-") && tier != Tier::User {
        return Err(format!("`{context}` is for people, whose tier is user, not {tier}"));
    }
    match context.strip_prefix("tenant-") {
        Some(owned) if !owned.strip_prefix(tenant).is_some_and(|rest| rest.starts_with('-')) => {
            Err(format!("`{context}` belongs to another tenant than `{tenant}`"))
        }
        _ => Ok(()),
    }
}

/// Reads contexts from a text of their own, one or a list of them, and checks them as in a node configuration.
pub fn parse(text: &str) -> Result<Vec<SecurityContext>, Vec<Diagnostic>> {
    let listed = document::parse::<Value>(text)?.value.is_array();
    if listed {
        let parsed = document::parse::<Vec<SecurityContext>>(text)?;
        return found(&parsed, parsed.value.clone(), "/spec/security_contexts");
    }
    let parsed = document::parse::<SecurityContext>(text)?;
    found(&parsed, vec![parsed.value.clone()], "/spec/security_contexts/0")
}

fn found<T>(
    parsed: &document::Parsed<T>,
    contexts: Vec<SecurityContext>,
    above: &str,
) -> Result<Vec<SecurityContext>, Vec<Diagnostic>> {
    let place = |pointer: &str| pointer.strip_prefix(above).unwrap_or_default().to_owned();
    let mistakes: Vec<Diagnostic> = check(&contexts)
        .into_iter()
        .map(|(pointer, message)| parsed.diagnostic(&place(&pointer), message))
        .collect();
    if mistakes.is_empty() { Ok(contexts) } else { Err(mistakes) }
}

/// The line on which the text of a node configuration defines a context.
pub fn line_of(text: &str, name: &ContextName) -> Option<usize> {
    let parsed = document::parse::<super::NodeConfig>(text).ok()?;
    let index = parsed.value.spec.security_contexts.iter().position(|context| context.name == *name)?;
    let place = format!("/spec/security_contexts/{index}/name");
    Some(parsed.diagnostic(&place, String::new()).line)
}

pub(super) fn check(contexts: &[SecurityContext]) -> Vec<(String, String)> {
    let mut mistakes = Vec::new();
    for (index, context) in contexts.iter().enumerate() {
        for (place, capability) in context.capabilities.iter().enumerate() {
            let above = format!("/spec/security_contexts/{index}/capabilities/{place}");
            mistakes.extend(capability.mistakes(&above));
        }
        let pointer = format!("/spec/security_contexts/{index}/name");
        let prefix = RESERVED.iter().find(|prefix| context.name.as_str().starts_with(**prefix));
        if context.name.as_str() == OPERATOR_CONTEXT {
            mistakes.push((pointer, format!("`{OPERATOR_CONTEXT}` is the node's own and can't be replaced")));
        } else if let Some(prefix) = prefix
            && let ships = shipped()
            && !ships.iter().any(|shipped| shipped.name == context.name)
        {
            let known = ships.iter().map(|shipped| shipped.name.as_str());
            let close = crate::nearest::suggestion(context.name.as_str(), known);
            let message =
                format!("names that begin with `{prefix}` are the node's own: choose another{close}");
            mistakes.push((pointer, message));
        } else if contexts[..index].iter().any(|earlier| earlier.name == context.name) {
            mistakes.push((pointer, format!("the context `{}` is defined twice", context.name)));
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_their_own_are_checked_as_in_a_configuration() {
        let names = |text: &str| {
            parse(text).map(|all| all.into_iter().map(|context| context.name.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(names("name: one\ncapabilities: [{tool_pattern: fs.read}]").unwrap(), ["one"]);
        assert_eq!(names("- name: one\n- {name: two}\n").unwrap(), ["one", "two"]);
        assert_eq!(names(r#"{"name": "one"}"#).unwrap(), ["one"]);
        let twice = names("- name: one\n- name: one\n").unwrap_err();
        assert_eq!((twice[0].line, twice[0].pointer.as_str()), (2, "/1/name"));
        let own = names("description: x\nname: aegis-system-operator\n").unwrap_err();
        assert_eq!((own[0].line, own[0].pointer.as_str()), (2, "/name"));
        let slip = names("name: one\ncapabilities:\n  - {tool_patern: fs.read}\n").unwrap_err();
        assert!(slip.iter().any(|mistake| mistake.line == 3 && mistake.message.contains("tool_pattern")));
        let several =
            names("name: one\ndeny_list:\n  - fs*\n  - fs.read\n  - web..x\n  - fs.read:keys\n").unwrap_err();
        let places: Vec<(usize, &str)> =
            several.iter().map(|mistake| (mistake.line, mistake.pointer.as_str())).collect();
        assert_eq!(places, [(3, "/deny_list/0"), (5, "/deny_list/2"), (6, "/deny_list/3")]);
    }

    #[test]
    fn a_definition_is_found_again() {
        let text = "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: n}\nspec:\n  \
                    security_contexts:\n    - description: d\n      name: one\n";
        assert_eq!(line_of(text, &"one".into()), Some(7));
        assert_eq!(line_of(text, &"two".into()), None);
    }

    #[test]
    fn shipped_contexts_parse() {
        let judged = document::parse::<Vec<SecurityContext>>(SHIPPED_TEXT).unwrap();
        assert!(judged.warnings.is_empty());
        assert_eq!(judged.value, shipped());
        let names: Vec<String> = shipped().iter().map(|context| context.name.to_string()).collect();
        let zaru = ["zaru-free", "zaru-pro", "zaru-business", "zaru-enterprise"];
        let own = [OPERATOR_CONTEXT, "aegis-system-agent-runtime", "workspace", "read-only"];
        assert_eq!(names, [own, zaru].concat());
    }

    #[test]
    fn reserved_names_are_replaced_but_not_added() {
        let named = |name: &str| SecurityContext {
            name: name.into(),
            description: String::new(),
            capabilities: Vec::new(),
            deny_list: Vec::new(),
        };
        for taken in [OPERATOR_CONTEXT, "aegis-system-mine", "zaru-fre"] {
            assert_eq!(check(&[named(taken)]).len(), 1, "{taken}");
        }
        for free in ["zaru-free", "aegis-system-agent-runtime", "workspace", "zaru", "mine"] {
            assert!(check(&[named(free)]).is_empty(), "{free}");
        }
    }

    #[test]
    fn prefixes_bind_a_context_to_tier_and_tenant() {
        let open = |context, tenant, tier| is_open_to(context, tenant, tier).is_ok();
        assert!(open("workspace", "acme", Tier::User));
        assert!(!open("aegis-system-agent-runtime", "acme", Tier::User));
        assert!(open("aegis-system-agent-runtime", "acme", Tier::System));
        assert!(open("zaru-pro", "acme", Tier::User) && !open("zaru-pro", "acme", Tier::Operator));
        assert!(open("tenant-acme-build", "acme", Tier::User));
        assert!(!open("tenant-acme-build", "acme-build", Tier::User));
        assert!(!open("tenant-acme", "acme", Tier::User) && !open("tenant-ac-me", "acme", Tier::User));
    }
}
