//! Where things are: the data directory, the configuration file, the running node.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aegis_core::{Secret, config::NodeConfig, quantity::counted};
use aegis_stores::DataDir;
use anyhow::{Context, anyhow};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::{
    cli::{Acting, Global},
    client::Client,
    ending::{Mistake, Obstacle},
};

/// Written by a node when it is ready, removed when it stops.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeFile {
    pub pid: u32,
    pub address: String,
    pub version: String,
    /// The address was chosen on the command line, whatever the file says.
    #[serde(default)]
    pub chosen: bool,
}

pub fn data_dir(global: &Global) -> anyhow::Result<PathBuf> {
    match &global.data {
        Some(path) => Ok(path.clone()),
        None => std::env::home_dir()
            .map(|home| home.join(".aegis"))
            .ok_or_else(|| anyhow!("there is no home directory; say where with --data DIR")),
    }
}

/// The configuration file that applies, if there is any. A file in the current directory is never taken by itself:
/// an agent may have written it.
pub fn config_file(global: &Global) -> anyhow::Result<Option<PathBuf>> {
    if let Some(file) = &global.config {
        if !file.is_file() {
            let message = format!("there is no configuration file at {}", file.display());
            return Err(Mistake::new(message, "check --config and AEGIS_CONFIG_PATH").into());
        }
        return Ok(Some(file.clone()));
    }
    let candidates = [
        data_dir(global)?.join("config.yaml"),
        PathBuf::from("/etc/aegis/config.yaml"),
        PathBuf::from("/etc/aegis/node-config.yaml"),
    ];
    // One that is there and is no file was meant to count; without it a node would do what it forbids.
    let Some(file) = candidates.into_iter().find(|file| file.exists()) else { return Ok(None) };
    if !file.is_file() {
        let message =
            format!("{} is no regular file, so the configuration can't be read from it", file.display());
        return Err(
            Obstacle::new(message, "put the configuration itself there, or take the name away").into()
        );
    }
    Ok(Some(file))
}

/// Reads a configuration, or says everything that is wrong with it.
pub fn read_config(file: Option<&Path>) -> anyhow::Result<NodeConfig> {
    let Some(file) = file else { return Ok(NodeConfig::default()) };
    let text = read_regular(file).with_context(|| format!("can't read {}", file.display()))?;
    NodeConfig::parse(&text).map_err(|mistakes| {
        let name = file.display().to_string();
        let shown: Vec<String> = mistakes.iter().map(|mistake| mistake.render(&text, &name)).collect();
        let message =
            format!("the configuration has {}:\n{}", counted(mistakes.len(), "mistake"), shown.join("\n"));
        Obstacle::new(message, format!("correct it; `aegis config validate {name}` checks it again")).into()
    })
}

/// The text of a file. Whatever else has its name by now is not waited for: a pipe may never have anything to say.
fn read_regular(file: &Path) -> io::Result<String> {
    let no_waiting = OFlags::NONBLOCK.bits().cast_signed();
    let mut opened = OpenOptions::new().read(true).custom_flags(no_waiting).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut text = String::new();
    opened.read_to_string(&mut text)?;
    Ok(text)
}

/// The node that runs on this data directory, if one does.
pub fn running(data: &Path) -> Option<NodeFile> {
    let paths = DataDir::read_only(data).ok()?;
    let text = std::fs::read_to_string(paths.node_file()).ok()?;
    let node: NodeFile = serde_json::from_str(&text).ok()?;
    paths.in_use().then_some(node)
}

/// A client of the node that runs on this data directory; without one, `what` says why there must be.
pub fn client_of_running(global: &Global, acting: &Acting, what: &str) -> anyhow::Result<Client> {
    let data = data_dir(global)?;
    let running = running(&data).ok_or_else(|| {
        let message = format!("no node runs on {}, and {what}", data.display());
        let place =
            global.data.as_ref().map_or_else(String::new, |data| format!(" --data {}", data.display()));
        Obstacle::new(message, format!("start it with `aegis up{place}`"))
    })?;
    client(&data, &running, acting)
}

/// Says that the command has a node of its own, which others neither see nor can decide at. It would look the same
/// otherwise.
pub fn tell_alone(global: &Global, data: &Path) {
    if !global.json {
        let place =
            global.data.as_ref().map_or_else(String::new, |data| format!(" --data {}", data.display()));
        eprintln!(
            "note: no node runs on {}; this command uses one of its own (`aegis up{place}` starts one that stays)",
            data.display()
        );
    }
}

/// A client of the running node, acting as the flags say.
pub fn client(data: &Path, node: &NodeFile, acting: &Acting) -> anyhow::Result<Client> {
    let token = match acting.token.as_deref().map(str::trim) {
        Some("") => {
            let next = "leave --token and AEGIS_TOKEN out to act as the operator, or give a token from `aegis token create`";
            return Err(Mistake::new("the token is empty", next).into());
        }
        Some(token) => Secret::new(token),
        None => operator_token(data)?,
    };
    Ok(Client { address: node.address.clone(), token, context: acting.context.clone() })
}

pub fn operator_token(data: &Path) -> anyhow::Result<Secret> {
    let file = DataDir::read_only(data)?.operator_token();
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("can't read the operator's token in {}", file.display()))?;
    Ok(Secret::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_configuration_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("config.yaml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let error = format!("{:#}", read_config(Some(&pipe)).unwrap_err());
        assert!(error.ends_with("it is no regular file"), "{error}");
    }
}
