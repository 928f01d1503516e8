//! A node in a process of its own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{load::Client, process::Server, wire, workplace::Workplace};

/// Where a node keeps its data, and how it is set up.
#[derive(Debug)]
pub(crate) struct Site {
    root: PathBuf,
}

impl Site {
    /// A new one with defaults everywhere.
    pub(crate) fn new(place: &Workplace, name: &str) -> anyhow::Result<Self> {
        Self::configured(place, name, &json!({}))
    }

    /// A new one with this under `spec`.
    pub(crate) fn configured(place: &Workplace, name: &str, spec: &Value) -> anyhow::Result<Self> {
        let root = place.path().join(name);
        fs::create_dir(&root).with_context(|| format!("can't make {}", root.display()))?;
        let config = json!({
            "apiVersion": "100monkeys.ai/v1",
            "kind": "NodeConfig",
            "metadata": {"name": "bench"},
            "spec": spec,
        });
        // JSON is YAML.
        fs::write(root.join("config.yaml"), config.to_string())?;
        Ok(Self { root })
    }

    /// One whose volume at `/workspace` is this directory, with limits that no search here meets.
    pub(crate) fn on_tree(place: &Workplace, name: &str, tree: &Path) -> anyhow::Result<Self> {
        let volume = json!({
            "name": "tree",
            "host_path": tree,
            "mount_path": "/workspace",
            "access_mode": "read-only",
        });
        let storage = json!({"volumes": [volume], "max_grep_matches": 100_000, "max_glob_paths": 1_000_000});
        Self::configured(place, name, &json!({"storage": storage}))
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// The same again, with a copy of its data.
    pub(crate) fn copy(&self, place: &Workplace, name: &str) -> anyhow::Result<Self> {
        let site = Self::new(place, name)?;
        fs::copy(self.root.join("config.yaml"), site.root.join("config.yaml"))?;
        copy_directory(&self.data(), &site.data())?;
        Ok(site)
    }

    pub(crate) fn remove(self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.root).with_context(|| format!("can't remove {}", self.root.display()))
    }

    pub(crate) fn start(&self, place: &Workplace) -> anyhow::Result<Node> {
        let mut command = place.aegis();
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(self.data());
        command.arg("--config").arg(self.root.join("config.yaml"));
        let server = Server::start(&mut command, &self.root.join("node.log"))?;
        let ready: Value = serde_json::from_str(&server.greeting)
            .with_context(|| format!("the node is not ready: {}", server.greeting))?;
        let url = ready["url"].as_str().unwrap_or_default();
        let address =
            url.trim_start_matches("http://").parse().with_context(|| format!("no address: {ready}"))?;
        Ok(Node { server, address })
    }
}

/// Modes are kept: a node refuses keys and directories that others may change.
pub(crate) fn copy_directory(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl Node {
    /// Puts a file into the workspace, the way a caller would.
    pub(crate) fn write_file(&self, token: &str, path: &str, content: &str) -> anyhow::Result<()> {
        let arguments = json!({"path": path, "content": content});
        Client::open(self.address)?.call(&wire::rest_call(self.address, token, "fs.write", &arguments))?;
        Ok(())
    }
}

/// An `aegis` command on this data directory.
pub(crate) fn command_line(place: &Workplace, data: &Path) -> Command {
    let mut command = place.aegis();
    command.arg("--data").arg(data).arg("--json");
    command
}
