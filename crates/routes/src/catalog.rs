//! The one table of tools.

use std::{collections::HashMap, sync::Arc};

use aegis_core::{
    Outcome, Permit, ToolSpec, Violation, ViolationKind, approval::Desk, nearest::nearest, tool::Directory,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::tool::{AnyTool, Run, Tool, spec_of};

/// Every tool this node can run, by name and alias.
#[derive(Default, derive_more::Debug)]
pub struct Catalog {
    #[debug("{}", tools.len())]
    tools: Vec<Entry>,
    by_name: HashMap<String, usize>,
}

struct Entry {
    spec: Arc<ToolSpec>,
    tool: Box<dyn AnyTool>,
}

impl Catalog {
    /// Adds a tool. A name that is taken already keeps its first owner, which a test holds to never happen.
    #[must_use]
    pub fn with<T: Tool>(mut self, tool: T) -> Self {
        let spec = Arc::new(spec_of(&tool));
        let index = self.tools.len();
        for name in spec.names() {
            self.by_name.entry(name.to_owned()).or_insert(index);
        }
        self.tools.push(Entry { spec, tool: Box::new(tool) });
        self
    }

    pub fn specs(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.tools.iter().map(|entry| &entry.spec)
    }

    /// The tool that `name` (or an alias) stands for.
    pub fn resolve(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.by_name.get(name).map(|index| &self.tools[*index].spec)
    }

    /// The name closest to a mistyped one.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.by_name.keys().map(String::as_str))
    }

    /// Carries a permitted call out. This is the only way to a tool's code, and it consumes the permit.
    pub async fn carry_out(
        &self,
        permit: Permit,
        tool: &ToolSpec,
        arguments: Map<String, Value>,
        directory: &dyn Directory,
        desk: &dyn Desk,
        cancel: &CancellationToken,
    ) -> Result<Outcome, Violation> {
        let Some(entry) = self.by_name.get(tool.name.as_ref()).map(|index| &self.tools[*index]) else {
            return Err(Violation::new(
                ViolationKind::InternalError,
                format!("the catalog lost `{}`", tool.name),
            ));
        };
        if permit.tool() != entry.spec.name {
            return Err(Violation::new(
                ViolationKind::InternalError,
                format!("a permit for `{}` was used for `{}`", permit.tool(), entry.spec.name),
            ));
        }
        entry.tool.run(&entry.spec, Run::new(&permit, directory, desk, cancel), arguments).await
    }
}
