//! The Cedar schema of this node, made from its catalog: each tool an action with its arguments' types.
//!
//! | in a policy | is |
//! |---|---|
//! | `principal` | `Caller::"tenant/user"` with `tenant`, `user`, `tier`, `tier_rank` (0 to 2), `context`, `door`, `credential` |
//! | `action` | `Action::"fs.read"`; in the groups `read_only`, `mutating`, `destructive`, `sending` and its category. A command is `sending` where domains are granted to it |
//! | `resource` | `Tool::"fs.read"` with `name`, `category`, `route`, `mutability`, `tier` |
//! | `context.arguments` | the checked arguments; paths and URLs in their one normal spelling |
//! | `context.paths`, `.hosts`, `.programs` | everything the call touches, as sets |
//! | `context.session` | `labels` (trust classes) and `sources` of what the session has read |
//! | `context.time` | `epoch` (seconds), `hour` (0 to 23) and `weekday` (1 is Monday), in UTC |

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

use aegis_core::{
    ToolSpec,
    config::ToolPattern,
    tool::{Mutability, Route},
};
use cedar_policy::{EntityId, EntityTypeName, EntityUid, SchemaFragment};
use serde_json::{Map, Value, json};

use super::types::Members;
use crate::arguments::ArgumentsGate;

pub(super) const CALLER: &str = "Caller";
pub(super) const TOOL: &str = "Tool";
const ACTION: &str = "Action";
/// Groups that exist whatever tools there are.
const GROUPS: [&str; 4] = ["read_only", "mutating", "destructive", SENDING];
const SENDING: &str = "sending";

/// What policies can speak about on this node.
#[derive(Debug)]
pub struct Schema {
    tools: BTreeMap<String, Arc<PolicedTool>>,
    arguments: ArgumentsGate,
    /// Names that tools of MCP servers will have, once those say what they offer.
    expected: Vec<ToolPattern>,
    /// Made when the first policy file is read: a node without any does not need it.
    compiled: OnceLock<Result<cedar_policy::Schema, String>>,
}

/// A tool as policies see it.
#[derive(Debug)]
pub(super) struct PolicedTool {
    pub(super) spec: Arc<ToolSpec>,
    pub(super) groups: Vec<String>,
    pub(super) arguments: Members,
}

#[derive(Debug, thiserror::Error)]
#[error("the schema for policies can't be made from the catalog: {0}")]
pub struct SchemaError(String);

impl SchemaError {
    pub(super) fn of(error: &impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl Schema {
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a Arc<ToolSpec>>) -> Self {
        let tools: BTreeMap<String, Arc<PolicedTool>> =
            tools.into_iter().map(|spec| (spec.name.to_string(), Arc::new(PolicedTool::new(spec)))).collect();
        let arguments = ArgumentsGate::new(tools.values().map(|tool| tool.spec.as_ref()));
        Self { tools, arguments, expected: Vec::new(), compiled: OnceLock::new() }
    }

    /// Rules about tools of these names wait for the tools, where they are not there yet.
    #[must_use]
    pub fn expecting(mut self, names: Vec<ToolPattern>) -> Self {
        self.expected = names;
        self
    }

    /// Whether an action of this id is none yet, and may become one: a tool of a server that is configured, or of a
    /// namespace that none of the tools here has. The rules about a server that was removed must not keep a node from
    /// starting.
    pub(super) fn awaits(&self, id: &str) -> bool {
        let is_foreign = |(namespace, _): (&str, &str)| {
            let of_it = |name: &str| name.split_once('.').is_some_and(|(own, _)| own == namespace);
            !self.tools.keys().any(|name| of_it(name))
        };
        !self.tools.contains_key(id)
            && !GROUPS.contains(&id)
            && !self.tools.values().any(|tool| tool.groups.iter().any(|group| group == id))
            && (id.split_once('.').is_some_and(is_foreign) || self.expected.iter().any(|pattern| {
                // The whole of a server's tools is a group of the namespace's name.
                pattern.matches(id)
                    || matches!(pattern, ToolPattern::Prefix(prefix) if prefix.trim_end_matches('.') == id)
            }))
    }

    /// The schema in Cedar's own notation, for people and their editors.
    pub fn to_cedarschema(&self) -> Result<String, SchemaError> {
        let fragment = SchemaFragment::from_json_value(self.to_json())
            .map_err(|error| SchemaError(error.to_string()))?;
        let text = fragment.to_cedarschema().map_err(|error| SchemaError(error.to_string()))?;
        // Nothing here is called `String` or `Long` but Cedar's own, so the long names say no more.
        Ok(text.replace("__cedar::", ""))
    }

    /// The schema in Cedar's JSON form.
    pub fn to_json(&self) -> Value {
        let text = || json!({"type": "String"});
        let texts = || json!({"type": "Set", "element": {"type": "String"}});
        let record = |members: &[(&str, Value)]| {
            let attributes: Map<String, Value> =
                members.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect();
            json!({"type": "Record", "attributes": attributes})
        };
        let long = || json!({"type": "Long"});
        let session = record(&[("labels", texts()), ("sources", texts())]);
        let time = record(&[("epoch", long()), ("hour", long()), ("weekday", long())]);
        let caller = record(&[
            ("tenant", text()),
            ("user", text()),
            ("tier", text()),
            ("tier_rank", long()),
            ("context", text()),
            ("door", text()),
            ("credential", text()),
        ]);
        let tool = record(&[
            ("name", text()),
            ("category", text()),
            ("route", text()),
            ("mutability", text()),
            ("tier", text()),
        ]);
        let mut actions: Map<String, Value> =
            GROUPS.iter().map(|group| ((*group).to_owned(), json!({}))).collect();
        for policed in self.tools.values() {
            for group in &policed.groups {
                actions.entry(group.clone()).or_insert_with(|| json!({}));
            }
        }
        for (name, policed) in &self.tools {
            let member_of: Vec<Value> = policed.groups.iter().map(|group| json!({"id": group})).collect();
            let context = record(&[
                ("arguments", policed.arguments.to_cedar()),
                ("paths", texts()),
                ("hosts", texts()),
                ("programs", texts()),
                ("session", json!({"type": "EntityOrCommon", "name": "Session"})),
                ("time", json!({"type": "EntityOrCommon", "name": "Time"})),
            ]);
            let applies_to = json!({"principalTypes": [CALLER], "resourceTypes": [TOOL], "context": context});
            actions.insert(name.clone(), json!({"memberOf": member_of, "appliesTo": applies_to}));
        }
        json!({"": {
            "commonTypes": {"Session": session, "Time": time},
            "entityTypes": {CALLER: {"shape": caller}, TOOL: {"shape": tool}},
            "actions": actions,
        }})
    }

    pub(super) fn compiled(&self) -> Result<&cedar_policy::Schema, SchemaError> {
        self.compiled
            .get_or_init(|| {
                cedar_policy::Schema::from_json_value(self.to_json()).map_err(|error| error.to_string())
            })
            .as_ref()
            .map_err(|error| SchemaError(error.clone()))
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &Arc<PolicedTool>> {
        self.tools.values()
    }

    /// A tool by its name or an alias.
    pub(super) fn tool(&self, name: &str) -> Option<&Arc<PolicedTool>> {
        self.tools
            .get(name)
            .or_else(|| self.tools.values().find(|tool| tool.spec.names().any(|known| known == name)))
    }

    pub(super) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    pub(super) fn arguments(&self) -> &ArgumentsGate {
        &self.arguments
    }
}

impl PolicedTool {
    fn new(spec: &Arc<ToolSpec>) -> Self {
        let mutability: &[&str] = match spec.mutability {
            Mutability::ReadOnly | Mutability::SaidReadOnly => &["read_only"],
            Mutability::Mutating => &["mutating"],
            Mutability::Destructive => &["mutating", "destructive"],
        };
        let mut groups: Vec<String> = mutability.iter().map(|group| (*group).to_owned()).collect();
        if spec.route == Route::Upstream || spec.runs_programs() {
            groups.push(SENDING.into());
        }
        if spec.category != spec.name && !groups.iter().any(|group| *group == spec.category) {
            groups.push(spec.category.to_string());
        }
        Self { groups, arguments: Members::of(&spec.input_schema), spec: Arc::clone(spec) }
    }

    /// The same tool in calls that reach nothing; `None` where all of its calls are alike.
    pub(super) fn without_egress(&self) -> Option<Self> {
        if !self.spec.runs_programs() || self.spec.route == Route::Upstream {
            return None;
        }
        let groups = self.groups.iter().filter(|group| *group != SENDING).cloned().collect();
        let arguments = Members::of(&self.spec.input_schema);
        Some(Self { spec: Arc::clone(&self.spec), groups, arguments })
    }

    pub(super) fn action(&self) -> Option<EntityUid> {
        uid(ACTION, &self.spec.name)
    }

    pub(super) fn group_actions(&self) -> Option<Vec<EntityUid>> {
        self.groups.iter().map(|group| uid(ACTION, group)).collect()
    }

    /// Whether an action of this id is the tool itself or a group it is in.
    pub(super) fn is_or_is_in(&self, id: &str) -> bool {
        self.spec.name == id || self.groups.iter().any(|group| group == id)
    }

    pub(super) fn attributes(&self) -> HashMap<String, String> {
        let mutability = match self.spec.mutability {
            Mutability::ReadOnly | Mutability::SaidReadOnly => "read_only",
            Mutability::Mutating => "mutating",
            Mutability::Destructive => "destructive",
        };
        [
            ("name", self.spec.name.as_ref()),
            ("category", self.spec.category.as_ref()),
            ("route", self.spec.route.as_str()),
            ("mutability", mutability),
            ("tier", self.spec.tier.as_str()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }
}

/// `None` never comes: the type names are ours. It spares the hot path a panic.
pub(super) fn uid(kind: &str, id: &str) -> Option<EntityUid> {
    let kind: EntityTypeName = kind.parse().ok()?;
    Some(EntityUid::from_type_name_and_id(kind, EntityId::new(id)))
}
