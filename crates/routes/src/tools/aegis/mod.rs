//! The node speaking about itself: its tools, its schemas, its runtimes, its state.

mod row;
mod runtime_list;
mod schema_get;
mod schema_validate;
mod system_config;
mod system_info;
mod tools_list;
mod tools_search;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use aegis_core::{
    Label,
    caller::Tier,
    runtimes::Runtime,
    tool::{ApprovalRule, Example, Mutability, Route, Text},
};
use serde_json::Value;

pub use self::{
    runtime_list::RuntimeList, schema_get::SchemaGet, schema_validate::SchemaValidate,
    system_config::SystemConfig, system_info::SystemInfo, tools_list::ToolsList, tools_search::ToolsSearch,
};
use crate::{Catalog, Facts};

/// What the node says of itself.
#[derive(Clone, derive_more::Debug)]
pub struct NodeFacts {
    pub version: &'static str,
    /// Names of the subsystems this node has.
    pub capabilities: Vec<&'static str>,
    /// Whether it can do its work at this moment.
    #[debug(skip)]
    pub healthy: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Where the active configuration was read from, and its YAML with literal secrets masked.
    #[debug(skip)]
    pub config: Arc<dyn Fn() -> (String, String) + Send + Sync>,
}

pub fn register(catalog: Catalog, facts: NodeFacts, runtimes: Vec<Runtime>) -> Catalog {
    let facts = Arc::new(facts);
    let runtimes: Arc<[Runtime]> = runtimes.into();
    catalog
        .with(ToolsList)
        .with(ToolsSearch)
        .with(SchemaGet)
        .with(SchemaValidate::new(&runtimes))
        .with(SystemInfo::new(&facts))
        .with(SystemConfig::new(&facts))
        .with(RuntimeList::new(&runtimes))
}

/// What the tools of this group have in common: they look, change nothing, and speak for the node.
fn facts(
    name: &'static str,
    title: &'static str,
    category: &'static str,
    description: &'static str,
) -> Facts {
    Facts {
        name: name.into(),
        aliases: Vec::new(),
        title: title.into(),
        category: category.into(),
        description: description.into(),
        tags: Vec::new(),
        tier: Tier::User,
        skip_judge: true,
        mutability: Mutability::ReadOnly,
        idempotent: true,
        approval: ApprovalRule::NotRequired,
        route: Route::Builtin,
        targets: Vec::new(),
        label: Label::node(),
        examples: Vec::new(),
    }
}

fn tags<const N: usize>(tags: [&'static str; N]) -> Vec<Text> {
    tags.into_iter().map(Text::from).collect()
}

fn example(title: &'static str, arguments: Value) -> Example {
    Example { title: title.into(), arguments }
}
