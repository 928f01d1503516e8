//! Tools of servers as they were accepted, for whoever looks at a node that does not run.

use std::sync::Arc;

use aegis_core::{
    Outcome, ToolSpec, Violation, ViolationKind,
    config::McpServer,
    upstream::{Definition, Standing},
};
use futures::future::BoxFuture;
use serde_json::{Map, Value, value::RawValue};

use super::{
    definition, operations, published,
    server::{Offered, Server},
};
use crate::{
    catalog::{Catalog, Entry},
    tool::{AnyTool, Intended, Run},
};

/// Puts the tools into a catalog that a node with these servers would have, by what was accepted of each: the name of the
/// server, and the definition. Nothing is started, and none of them can be called. A server of which nothing was accepted
/// has no tools yet.
pub fn remember(catalog: &Catalog, servers: &[McpServer], accepted: &[(String, Definition)]) {
    let enabled = servers.iter().filter(|server| server.enabled);
    let servers: Vec<Arc<Server>> = enabled
        .map(|config| {
            let server = Server::new(config.clone());
            let own = accepted.iter().filter(|(name, _)| *name == config.name);
            // What a server's entry no longer passes on is none of its tools any more.
            let sound = own.filter_map(|(_, definition)| {
                let entry = RawValue::from_string(definition.text.clone()).ok()?;
                definition::read(config, &entry, &|name| catalog.built_in(name)).ok()
            });
            let sound = sound.map(|sound| (Arc::new(sound), Standing::Accepted)).collect();
            server.offer(Offered { sound, unsound: Vec::new() });
            server
        })
        .collect();
    if servers.is_empty() {
        return;
    }
    let entry = |spec| Entry { spec, tool: Arc::new(Remembered) };
    let operations = operations::specs().map(entry).collect();
    catalog.install(Some(published::view(catalog, servers, Vec::new(), operations, &|_, _| {
        Arc::new(Remembered)
    })));
}

/// There to be looked at.
struct Remembered;

impl AnyTool for Remembered {
    fn intended(&self, _: &Map<String, Value>) -> Option<Intended> {
        None
    }

    fn run<'a>(
        &'a self,
        spec: &'a ToolSpec,
        _: Run<'a>,
        _: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Outcome, Violation>> {
        let what = format!("the server of `{}` was not started", spec.name);
        Box::pin(async { Err(Violation::new(ViolationKind::UpstreamUnavailable, what)) })
    }
}
