//! A node's files in a temporary directory, and calls on them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    Event, FailureKind, Grant, Label, Outcome,
    config::{AccessMode, StorageConfig, TtlClass, VolumeConfig},
    path::PathPrefix,
    progress::Silence,
};
use aegis_routes::{
    Catalog,
    files::Files,
    tools::{
        assistant::{self, local_file_read::LocalFileRead},
        fs,
    },
};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::common::{EmptyDirectory, permit};

pub(crate) struct Node {
    pub(crate) directory: TempDir,
    pub(crate) files: Arc<Files>,
    catalog: Catalog,
}

/// The answer of a tool, ready to be asked about.
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) structured: Value,
    pub(crate) failure: Option<FailureKind>,
    pub(crate) label: Label,
    pub(crate) events: Vec<Event>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// `configure` also gets a directory outside every volume.
    pub(crate) fn with(configure: impl FnOnce(&mut StorageConfig, &Path)) -> Self {
        let directory = scratch();
        let mut config = StorageConfig::default();
        configure(&mut config, directory.path());
        Self::start(directory, &config)
    }

    pub(crate) fn start(directory: TempDir, config: &StorageConfig) -> Self {
        let files = Arc::new(Files::new(directory.path().join("volumes"), config).unwrap());
        let catalog = fs::register(Catalog::default(), &files).with(LocalFileRead::new(&files));
        let catalog = assistant::register_writers(catalog, &files);
        Self { directory, files, catalog }
    }

    /// Ends the node as a stop does, and keeps its data.
    pub(crate) fn stop(self) -> TempDir {
        self.directory
    }

    /// Ends the node as a kill does.
    pub(crate) fn kill(self) -> TempDir {
        std::mem::forget((self.files, self.catalog));
        self.directory
    }

    /// Where the workspace of the tenant `local` is; made by the first call.
    pub(crate) fn workspace(&self) -> PathBuf {
        let path = self.directory.path().join("volumes/local/workspace");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.workspace().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.call_as("local", &[], tool, arguments, &CancellationToken::new()).await
    }

    /// Under a context that grants only these prefixes (none: everything).
    pub(crate) async fn call_within(&self, granted: &[&str], tool: &str, arguments: Value) -> Answer {
        self.call_as("local", granted, tool, arguments, &CancellationToken::new()).await
    }

    /// Under a context whose deny list closes these paths to the tool.
    pub(crate) async fn call_without(&self, closed: &[&str], tool: &str, arguments: Value) -> Answer {
        let denied_paths = closed.iter().map(|prefix| PathPrefix::parse(prefix).unwrap()).collect();
        let grant = Grant { denied_paths, ..Grant::default() };
        self.call_under("local", grant, tool, arguments, &CancellationToken::new()).await
    }

    /// Of a tool that changes something, under a context whose deny list closes these paths to another.
    pub(crate) async fn call_guarding(&self, closed: &[&str], tool: &str, arguments: Value) -> Answer {
        let guarded_paths = closed.iter().map(|prefix| PathPrefix::parse(prefix).unwrap()).collect();
        let grant = Grant { guarded_paths, ..Grant::default() };
        self.call_under("local", grant, tool, arguments, &CancellationToken::new()).await
    }

    /// As what a person has settled beforehand runs.
    pub(crate) async fn call_without_links(&self, tool: &str, arguments: Value) -> Answer {
        let grant = Grant { no_links: true, ..Grant::default() };
        self.call_under("local", grant, tool, arguments, &CancellationToken::new()).await
    }

    pub(crate) async fn call_as(
        &self,
        tenant: &str,
        granted: &[&str],
        tool: &str,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Answer {
        let paths = (!granted.is_empty())
            .then(|| granted.iter().map(|prefix| PathPrefix::parse(prefix).unwrap()).collect());
        self.call_under(tenant, Grant { paths, ..Grant::default() }, tool, arguments, cancel).await
    }

    async fn call_under(
        &self,
        tenant: &str,
        grant: Grant,
        tool: &str,
        arguments: Value,
        cancel: &CancellationToken,
    ) -> Answer {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let spec = self.catalog.resolve(tool).unwrap().clone();
        let permit = permit(tenant, &spec.name, grant);
        let arguments: Map<String, Value> = arguments;
        let outcome: Outcome = self
            .catalog
            .carry_out(permit, &spec, arguments, &EmptyDirectory, &EmptyDirectory, cancel, &Silence)
            .await
            .unwrap();
        Answer {
            structured: outcome.structured().clone(),
            value: outcome.value,
            failure: outcome.failure,
            label: outcome.label,
            events: outcome.events,
        }
    }
}

impl Answer {
    /// The answer of a tool that did what it was asked.
    #[track_caller]
    pub(crate) fn done(self) -> Value {
        assert!(self.failure.is_none(), "{}", self.value);
        self.value
    }

    /// The failure's kind and text.
    #[track_caller]
    pub(crate) fn failed(self) -> (FailureKind, String) {
        let kind = self.failure.unwrap_or_else(|| panic!("it worked: {}", self.value));
        assert_eq!(self.value["error_kind"], kind.as_str());
        (kind, self.value["error"].as_str().unwrap().to_owned())
    }

    #[track_caller]
    pub(crate) fn text(self) -> String {
        self.done().as_str().unwrap().to_owned()
    }

    pub(crate) fn event_names(&self) -> Vec<&'static str> {
        self.events.iter().map(|event| event.name.as_str()).collect()
    }
}

pub(crate) fn volume(
    name: &str,
    host_path: &Path,
    mount_path: &str,
    access_mode: AccessMode,
) -> VolumeConfig {
    VolumeConfig {
        name: name.into(),
        host_path: host_path.to_str().unwrap().into(),
        mount_path: mount_path.into(),
        access_mode,
        size_limit: None,
        ttl_class: TtlClass::Persistent,
        tenant: None,
    }
}

/// A directory in memory where there is one: some of these trees are large, and disks differ by a factor of 50 in
/// how fast they make files.
pub(crate) fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// Whether device nodes, other owners and mounts can be had here.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Names that are no regular content of a directory: what a writer left.
pub(crate) fn leftovers(directory: &Path) -> Vec<String> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".aegis-"))
        .collect()
}
