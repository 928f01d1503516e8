//! What a running node goes by. Some of it changes while it runs.

use std::{path::PathBuf, sync::Arc};

use aegis_core::config::{LabelRules, McpServer, NodeConfig, SecurityContext};
use arc_swap::{ArcSwap, ArcSwapOption};

/// The configuration in force and the file it came from.
#[derive(Debug)]
pub struct ActiveConfig {
    file: ArcSwapOption<PathBuf>,
    current: ArcSwap<NodeConfig>,
}

impl ActiveConfig {
    pub fn new(file: Option<PathBuf>, config: NodeConfig) -> Self {
        Self { file: ArcSwapOption::from_pointee(file), current: ArcSwap::from_pointee(config) }
    }

    pub fn current(&self) -> Arc<NodeConfig> {
        self.current.load_full()
    }

    /// Puts the contexts of `file` in force. The other sections stay as the node was started with them.
    pub fn replace_contexts(&self, file: PathBuf, contexts: Vec<SecurityContext>) {
        self.file.store(Some(Arc::new(file)));
        let mut config = NodeConfig::clone(&self.current());
        config.spec.security_contexts = contexts;
        self.current.store(Arc::new(config));
    }

    /// The servers of the file as they are now.
    pub fn replace_servers(&self, servers: Vec<McpServer>) {
        let mut config = NodeConfig::clone(&self.current());
        config.spec.mcp_servers = servers;
        self.current.store(Arc::new(config));
    }

    /// Says what the rules about labels do from now on; the policies are then read anew.
    pub fn replace_label_rules(&self, label_rules: LabelRules) {
        let mut config = NodeConfig::clone(&self.current());
        config.spec.policy.label_rules = label_rules;
        self.current.store(Arc::new(config));
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        self.file
            .load()
            .as_ref()
            .map_or_else(|| "(built-in defaults)".to_owned(), |file| file.display().to_string())
    }
}
