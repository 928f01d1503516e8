//! A server's program in a sandbox: what it sees, reaches and may use up.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{AccessMode, SandboxChoice},
    domain::DomainPattern,
};

/// As many as one sandbox takes.
const MOST_MOUNTS: usize = 64;
const MOST_DOMAINS: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceLimits {
    #[schemars(range(min = 10, max = 1_000_000))]
    pub cpu_millicores: u32,
    #[schemars(range(min = 16, max = 16_777_216))]
    pub memory_mb: u32,
    #[schemars(range(min = 1, max = 100_000))]
    pub processes: u32,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { cpu_millicores: 1000, memory_mb: 512, processes: 256 }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSandbox {
    /// Directories and files of this machine, and volumes, that it sees besides the system's programs and libraries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ServerMount>,
    /// Domains it may reach, through the node's proxy: `api.github.com`, `*.example.org`. Each connection is recorded. With
    /// none, it has no network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub egress: Vec<DomainPattern>,
    /// Runs it in a container of this image, as `sandbox.image` of a capability does for commands. It must be there already.
    /// Left out, it runs in what `spec.exec` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerMount {
    /// A place on this machine, without symbolic links on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// A volume instead, by the place where agents see it: `/workspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The place inside; the same when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// Whether it may write there.
    #[serde(default = "read_only")]
    pub access: AccessMode,
}

/// What is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountSource<'a> {
    Host(&'a str),
    Volume(&'a str),
}

impl ServerMount {
    /// `None` for a mount that names neither, or both, which no checked configuration holds.
    pub fn source(&self) -> Option<MountSource<'_>> {
        match (&self.host, &self.volume) {
            (Some(host), None) => Some(MountSource::Host(host)),
            (None, Some(volume)) => Some(MountSource::Volume(volume)),
            _ => None,
        }
    }

    pub fn inside(&self) -> &str {
        let outside = || self.host.as_deref().or(self.volume.as_deref());
        self.inside.as_deref().or_else(outside).unwrap_or_default()
    }
}

impl ServerSandbox {
    /// Mistakes, each with the member it is about.
    pub(super) fn check(&self) -> Vec<(Vec<String>, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |place: &[&str], message: &str| {
            mistakes.push((place.iter().map(|part| (*part).to_owned()).collect(), message.to_owned()));
        };
        if self.mounts.len() > MOST_MOUNTS {
            wrong(&["mounts"], &format!("at most {MOST_MOUNTS} mounts"));
        }
        if self.egress.len() > MOST_DOMAINS {
            wrong(&["egress"], &format!("at most {MOST_DOMAINS} domains"));
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            let earlier = &self.mounts[..index];
            let index = index.to_string();
            if mount.source().is_none() {
                wrong(
                    &["mounts", &index],
                    "write what is mounted: `host` with a place, or `volume` with one",
                );
            }
            let outside = [("host", mount.host.as_deref()), ("volume", mount.volume.as_deref())];
            for (member, path) in outside.into_iter().chain([("inside", mount.inside.as_deref())]) {
                if path.is_some_and(|path| !is_plain(path)) {
                    wrong(
                        &["mounts", &index, member],
                        "write the whole path, from the root, without . and .., and not the root itself",
                    );
                }
            }
            // A slash at its end makes no other place.
            let place = |mount: &ServerMount| mount.inside().trim_end_matches('/').to_owned();
            if earlier.iter().any(|other| place(other) == place(mount)) {
                wrong(&["mounts", &index], "two mounts have the same place inside");
            }
        }
        let choice = SandboxChoice { image: self.image.clone(), ..SandboxChoice::default() };
        if let Some((member, message)) = choice.mistake() {
            wrong(&[member], message);
        }
        mistakes
    }
}

fn is_plain(path: &str) -> bool {
    let mut parts = path.strip_prefix('/').unwrap_or_default().trim_end_matches('/').split('/');
    path.starts_with('/') && !path.contains('\0') && parts.all(|part| !matches!(part, "" | "." | ".."))
}

fn read_only() -> AccessMode {
    AccessMode::ReadOnly
}
