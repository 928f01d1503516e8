//! Tokens, made with the registry itself before a node starts.

use std::{fs, path::Path};

use aegis_core::{Tier, id::UserId};
use aegis_stores::{DataDir, Registry, registry::NewToken};
use anyhow::Context;

use crate::{load::runtime, node::copy_directory};

/// What an agent would get: files under /workspace.
pub(crate) const CONTEXT: &str = "workspace";

/// The registry commits each token by itself, and a hundred thousand commits to a disk take minutes. In memory they
/// take seconds; the directory is then copied.
const MEMORY: &str = "/dev/shm";

/// Makes a data directory whose registry knows `count` tokens, and returns them.
pub(crate) fn make(data: &Path, count: usize) -> anyhow::Result<Vec<String>> {
    let memory = Path::new(MEMORY);
    if count < 100 || !memory.is_dir() {
        return create(data, count);
    }
    let fast = tempfile::Builder::new().prefix("aegis-bench").tempdir_in(memory)?;
    let there = fast.path().join("data");
    let tokens = create(&there, count)?;
    fs::create_dir_all(data.parent().context("the data directory has no parent")?)?;
    copy_directory(&there, data)?;
    Ok(tokens)
}

fn create(data: &Path, count: usize) -> anyhow::Result<Vec<String>> {
    let registry = Registry::open(&DataDir::open(data)?)?;
    runtime()?.block_on(async {
        let mut tokens = Vec::with_capacity(count);
        for number in 0..count {
            let new = NewToken {
                tenant: "local".into(),
                user: UserId::new(format!("agent-{number}")),
                tier: Tier::User,
                context: CONTEXT.into(),
                expires: None,
                note: None,
            };
            let (_, secret) = registry.create(new).await?;
            tokens.push(secret.expose().to_owned());
        }
        Ok(tokens)
    })
}
