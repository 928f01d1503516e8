//! What the servers offer, as the catalog shows it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use aegis_core::{
    config::{McpServer, ToolPattern, upstream::specificity},
    upstream::Standing,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{World, absentees, definition::Sound, operations, server::Server, tool::UpstreamTool};
use crate::{
    catalog::{Catalog, Entry, View},
    tool::AnyTool,
};

/// Changes that come together are published together.
const TOGETHER: Duration = Duration::from_millis(5);

/// What carries out a tool that a server offers.
pub(super) type Maker<'a> = &'a dyn Fn(&Arc<Server>, &Arc<Sound>) -> Arc<dyn AnyTool>;

/// The catalog with what these servers offer, and `operations` besides. Those of `off` are switched off.
pub(super) fn view(
    catalog: &Catalog,
    servers: Vec<Arc<Server>>,
    off: Vec<Arc<Server>>,
    operations: Vec<Entry>,
    tool: Maker<'_>,
) -> View {
    let claims: Vec<ToolPattern> = servers.iter().flat_map(|server| server.config.claims()).collect();
    let mut entries = operations;
    let mut withheld = HashMap::new();
    let mut owners: HashMap<String, String> = HashMap::new();
    for server in &servers {
        let mut ceded = BTreeMap::new();
        for (sound, standing) in &server.offered().sound {
            let name = sound.spec.name.to_string();
            if *standing != Standing::Accepted {
                let why = standing.withheld(&server.config.name, &sound.tool);
                withheld.insert(name, why.unwrap_or_default());
                continue;
            }
            // The most exact claim has it: `web.search` before `web.*`.
            if let Some(owner) = closer(&servers, server, &name) {
                ceded.insert(name, format!("belongs to the server `{owner}`, which names it more exactly"));
                continue;
            }
            // Equal claims are refused with the configuration; what slips through keeps its first owner.
            if let Some(owner) = owners.get(&name) {
                ceded.insert(name, format!("is offered by the server `{owner}` already"));
                continue;
            }
            owners.insert(name, server.config.name.clone());
            entries.push(Entry { spec: Arc::clone(&sound.spec), tool: tool(server, sound) });
        }
        server.cedes(ceded);
    }
    let claimed = |name: &str| claims.iter().any(|claim| claim.matches(name));
    catalog.with_others(entries, withheld, Arc::new(absentees::Claimants { on: servers, off }), &claimed)
}

impl World {
    /// The catalog as it should be now.
    fn view(self: &Arc<Self>) -> Option<View> {
        let all: Vec<Arc<Server>> = self.table().values().cloned().collect();
        if all.is_empty() {
            return None;
        }
        let (on, off): (Vec<_>, Vec<_>) = all.into_iter().partition(|server| server.config.enabled);
        let operations = if on.is_empty() { Vec::new() } else { operations::entries(self) };
        Some(view(&self.catalog, on, off, operations, &|server, sound| {
            Arc::new(UpstreamTool {
                server: Arc::clone(server),
                sound: Arc::clone(sound),
                world: Arc::clone(self),
            })
        }))
    }

    /// The node's own tools that this server claims, and no other more exactly. Whether it offers them all, nobody knows
    /// before it has run.
    pub(super) fn replaced_by(&self, server: &McpServer) -> Vec<String> {
        let others = self.servers();
        let is_first = |name: &&str| {
            let mine = exactness(server, name);
            let rivals = others.iter().filter(|other| other.config.name != server.name);
            mine.is_some() && rivals.map(|other| exactness(&other.config, name)).all(|other| other <= mine)
        };
        let names = self.catalog.built_ins().filter(is_first).map(str::to_owned);
        if server.enabled { names.collect() } else { Vec::new() }
    }

    /// Puts what the servers offer into the catalog, if that is something else than what is there.
    pub(super) fn publish(self: &Arc<Self>) {
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        // What is put in force after the end would never leave.
        if !self.stopping.is_cancelled() {
            self.catalog.install(self.view());
        }
    }

    /// At the end: the catalog holds tools that hold all this.
    pub(super) fn unpublish(&self) {
        let _turn = self.publishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.catalog.install(None);
    }
}

/// Another server that claims this name more exactly.
fn closer<'a>(servers: &'a [Arc<Server>], own: &Server, name: &str) -> Option<&'a str> {
    let mine = exactness(&own.config, name);
    let other = servers.iter().find(|server| exactness(&server.config, name) > mine)?;
    Some(&other.config.name)
}

/// How exactly a server claims a name, if it does.
pub(super) fn exactness(server: &McpServer, name: &str) -> Option<usize> {
    server.claims().iter().filter(|claim| claim.matches(name)).map(specificity).max()
}

/// Publishes after every change, until the end.
pub(super) async fn keep(world: Weak<World>, changed: Arc<Notify>, stopping: CancellationToken) {
    loop {
        tokio::select! {
            () = changed.notified() => {}
            () = stopping.cancelled() => return,
        }
        tokio::time::sleep(TOGETHER).await;
        let Some(here) = world.upgrade() else { return };
        here.publish();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_ceded_is_noted_when_it_changes() {
        let server = Server::new(serde_json::from_value(json!({"name": "fix", "executable": "x"})).unwrap());
        let lines = |server: &Server| -> Vec<String> {
            server.logs.last(10).into_iter().map(|line| line.text).collect()
        };
        for ceded in [&["a"][..], &["a"], &["a", "b"], &[], &["a"]] {
            server.cedes(ceded.iter().map(|&name| (name.to_owned(), "is theirs".to_owned())).collect());
        }
        assert_eq!(lines(&server), ["[`a` is theirs]", "[`b` is theirs]", "[`a` is theirs]"]);
    }
}
