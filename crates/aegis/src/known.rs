//! The tools and names that policies and contexts are held against.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    config::{
        McpServer, NodeConfig, SecurityContext, StorageConfig, ToolPattern,
        security_context::{Doubt, doubts},
    },
    id::CallId,
};
use aegis_doors::Doors;
use aegis_gates::policy::Schema;
use aegis_plane::contexts::Source;
use aegis_routes::Catalog;
use aegis_stores::{
    DataDir,
    data_dir::DataDirError,
    registry::{read_added_servers, read_applied_contexts},
};
use anyhow::Context;

use crate::{
    cli::Global,
    locate,
    node::{ActiveConfig, catalog},
};

/// What a node of this configuration and data directory would have, to be looked at: nothing of the node itself is
/// opened, and nothing is made in its data directory.
#[derive(Debug)]
pub struct Known {
    pub config: NodeConfig,
    pub catalog: Catalog,
    /// Contexts that an operator applied.
    pub applied: Vec<SecurityContext>,
    /// Names of tools that only a running node knows.
    claims: Vec<ToolPattern>,
    /// Of MCP servers, by name.
    servers: Vec<String>,
    _scratch: Scratch,
}

/// An empty directory for the volumes of tools that are only looked at.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Known {
    /// With the configuration that applies. Blocks.
    pub fn read(global: &Global) -> anyhow::Result<Self> {
        let config = locate::read_config(locate::config_file(global)?.as_deref())?;
        Self::of(config, Some(&locate::data_dir(global)?))
    }

    /// Without a data directory nothing was applied or added. Blocks.
    pub fn of(config: NodeConfig, data: Option<&Path>) -> anyhow::Result<Self> {
        let mut elsewhere = config.clone();
        // Its volumes may be on another machine than the one that looks.
        elsewhere.spec.storage = StorageConfig::default();
        let scratch = Scratch(std::env::temp_dir().join(format!("aegis-policy-{}", CallId::fresh())));
        let active = Arc::new(ActiveConfig::new(None, elsewhere));
        let catalog = catalog(&active, &scratch.0, Arc::new(|| true))?;
        let paths = match data.map(DataDir::read_only).transpose() {
            Ok(paths) => paths,
            // A node that was never started. Any other mistake might hide what was applied.
            Err(DataDirError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let (applied, added) = match paths {
            Some(paths) => (applied(&paths.registry_database())?, added(&paths.registry_database())?),
            None => (Vec::new(), Vec::new()),
        };
        let all = || config.spec.mcp_servers.iter().chain(&added);
        let claims = all().flat_map(McpServer::claims).collect();
        let servers = all().map(|server| server.name.clone()).collect();
        Ok(Self { config, catalog, applied, claims, servers, _scratch: scratch })
    }

    pub fn schema(&self) -> Schema {
        Schema::of(&self.catalog.specs()).expecting(self.claims.clone())
    }

    /// The contexts in force: of the node, with the configuration file's laid over what was applied.
    pub fn contexts(&self) -> Vec<SecurityContext> {
        let mut contexts = self.config.contexts();
        for applied in self.applied_in_force() {
            contexts.retain(|below| below.name != applied.name);
            contexts.push(applied.clone());
        }
        contexts
    }

    /// Those that somebody wrote: of the file first, then what was applied and is in force.
    fn own(&self) -> impl Iterator<Item = &SecurityContext> {
        self.config.spec.security_contexts.iter().chain(self.applied_in_force())
    }

    /// What was applied and the file has no other of.
    fn applied_in_force(&self) -> impl Iterator<Item = &SecurityContext> {
        let of_file = &self.config.spec.security_contexts;
        self.applied.iter().filter(|applied| !of_file.iter().any(|own| own.name == applied.name))
    }

    /// What of the contexts that somebody wrote is about nothing.
    pub fn doubts(&self) -> Vec<Doubt> {
        let own: Vec<SecurityContext> = self.own().cloned().collect();
        in_contexts(&own, &self.catalog, self.claims.clone(), &self.servers)
    }
}

fn applied(registry: &Path) -> anyhow::Result<Vec<SecurityContext>> {
    read_applied_contexts(registry)?
        .iter()
        .map(|row| {
            serde_json::from_str(&row.text)
                .with_context(|| format!("the applied context `{}` can't be read", row.name))
        })
        .collect()
}

fn added(registry: &Path) -> anyhow::Result<Vec<McpServer>> {
    read_added_servers(registry)?
        .iter()
        .map(|row| {
            serde_json::from_str(&row.text)
                .with_context(|| format!("the added server `{}` can't be read", row.name))
        })
        .collect()
}

fn in_contexts(
    contexts: &[SecurityContext],
    catalog: &Catalog,
    mut claims: Vec<ToolPattern>,
    servers: &[String],
) -> Vec<Doubt> {
    if !claims.is_empty() {
        // There while any server is configured.
        claims.push(ToolPattern::Prefix("mcp.".into()));
    }
    let specs = catalog.specs();
    let tools: Vec<String> = specs.iter().flat_map(|tool| tool.names()).map(str::to_owned).collect();
    doubts(contexts, &tools, &claims, servers)
}

/// Says in the log what of the contexts in force is about nothing.
pub async fn warn_of_doubts(doors: &Doors) {
    let in_force = doors.contexts.list().await;
    let own = in_force.into_iter().filter(|found| found.source != Source::Shipped);
    let own: Vec<SecurityContext> = own.map(|found| found.context).collect();
    let servers: Vec<String> = doors.servers.statuses().into_iter().map(|status| status.name).collect();
    for doubt in in_contexts(&own, doors.plane.catalog(), doors.servers.patterns(), &servers) {
        tracing::warn!("{doubt}");
    }
}
