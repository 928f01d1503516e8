//! Where a run keeps its data, and what several cases share.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use tempfile::TempDir;

use crate::{node::Site, process, records, tree::Tree};

#[derive(Debug)]
pub(crate) struct Workplace {
    directory: TempDir,
    aegis: PathBuf,
    quick: bool,
    large: OnceCell<Tree>,
    repository: OnceCell<Tree>,
    many_records: OnceCell<Site>,
}

impl Workplace {
    pub(crate) fn new(quick: bool) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("aegis-bench").tempdir()?;
        Ok(Self {
            directory,
            aegis: built_aegis()?,
            quick,
            large: OnceCell::new(),
            repository: OnceCell::new(),
            many_records: OnceCell::new(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn aegis_path(&self) -> &Path {
        &self.aegis
    }

    /// The binary, without anything that the person who measures has set for their own node.
    pub(crate) fn aegis(&self) -> Command {
        let mut command = Command::new(&self.aegis);
        for name in ["AEGIS_DATA", "AEGIS_CONFIG_PATH", "AEGIS_TOKEN", "AEGIS_LOG"] {
            command.env_remove(name);
        }
        command
    }

    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 9 }
    }

    /// How long one contender is loaded in one round.
    pub(crate) fn slice(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 1500 })
    }

    pub(crate) fn scaled(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }

    /// More than 500 MB of text.
    pub(crate) fn large_tree(&self) -> anyhow::Result<&Tree> {
        made_once(&self.large, || Tree::large(&self.path().join("large"), self.scaled(520, 40) << 20))
    }

    pub(crate) fn repository(&self) -> anyhow::Result<&Tree> {
        made_once(&self.repository, || Tree::repository(&self.path().join("repository"), 1000))
    }

    pub(crate) fn record_count(&self) -> u64 {
        self.scaled(1_000_000, 100_000)
    }

    /// A node's data with very many audit records. Whoever changes it works on a copy.
    pub(crate) fn many_records(&self) -> anyhow::Result<&Site> {
        made_once(&self.many_records, || {
            let site = Site::new(self, "many-records")?;
            records::fill(&site.data(), self.record_count())?;
            Ok(site)
        })
    }
}

fn made_once<T>(cell: &OnceCell<T>, make: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// The release build of `aegis` beside this program, brought up to date first when cargo started us.
fn built_aegis() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let directory = own.parent().context("this program is nowhere")?;
    if let (Some(cargo), Some(manifest)) = (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"))
    {
        let target = directory.parent().context("this program is not in a target directory")?;
        let status = Command::new(cargo)
            .args(["build", "--release", "--quiet", "-p", "aegis", "--target-dir"])
            .arg(target)
            .current_dir(manifest)
            .status()
            .context("can't run cargo")?;
        if !status.success() {
            bail!("aegis could not be built");
        }
    }
    let aegis = directory.join("aegis");
    process::output(Command::new(&aegis).arg("--version"))
        .context("there is no aegis beside this program: `cargo build --release -p aegis` makes it")?;
    Ok(aegis)
}
