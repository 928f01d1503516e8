use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NfsConfig;
use crate::{
    id::is_dns_label,
    path::{VolumePath, WORKSPACE},
    quantity::Size,
};

/// What is read is held in memory.
const LARGEST_READ: u64 = 1 << 30;

/// Files that callers can reach. Each tenant has a workspace volume of its own; `volumes` adds more.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageConfig {
    /// How much each tenant's workspace may hold. Each file and directory counts 4 KiB beside its bytes.
    pub workspace_size_limit: Size,
    /// Further directories of this machine, mounted for every tenant or for one.
    pub volumes: Vec<VolumeConfig>,
    /// The largest file that `fs.read` and the edits take into memory.
    pub max_read_bytes: Size,
    /// The most entries one `fs.list` answers with.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_list_entries: u32,
    /// The most matches one `fs.grep` answers with.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_grep_matches: u32,
    /// The most paths one `fs.glob` answers with.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_glob_paths: u32,
    /// Whether searches skip what `.gitignore` and `.ignore` files name.
    pub honour_ignore_files: bool,
    /// Files with more than one name: the other name may be outside the volume.
    pub hard_links: HardLinks,
    pub nfs: NfsConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HardLinks {
    /// Refuse to read them.
    Refuse,
    /// Read them; needed for trees of package managers that link from a store.
    Allow,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// A name for the volume.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: String,
    /// The directory on this machine, absolute.
    pub host_path: String,
    /// Where callers see it, e.g. `/workspace` (replaces the tenant's own) or `/workspace/shared`.
    pub mount_path: String,
    #[serde(default)]
    pub access_mode: AccessMode,
    /// How much it may hold, counted as for workspaces; no limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Size>,
    #[serde(default)]
    pub ttl_class: TtlClass,
    /// The one tenant that sees it; all of them when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AccessMode {
    ReadOnly,
    #[default]
    ReadWrite,
}

/// How long a volume lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TtlClass {
    /// Ends with the execution that made it.
    Ephemeral,
    #[default]
    Persistent,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            workspace_size_limit: Size(10 << 30),
            volumes: Vec::new(),
            max_read_bytes: Size(10 << 20),
            max_list_entries: 10_000,
            max_grep_matches: 1000,
            max_glob_paths: 100_000,
            honour_ignore_files: false,
            hard_links: HardLinks::Refuse,
            nfs: NfsConfig::default(),
        }
    }
}

impl StorageConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = self.nfs.check();
        let mut mounts = Vec::new();
        let mut names = Vec::new();
        if !(1..=LARGEST_READ).contains(&self.max_read_bytes.0) {
            let message = format!("write a size from 1 byte to {}", Size(LARGEST_READ));
            mistakes.push(("/spec/storage/max_read_bytes".to_owned(), message));
        }
        for (index, volume) in self.volumes.iter().enumerate() {
            let mut wrong = |member: &str, message: String| {
                mistakes.push((format!("/spec/storage/volumes/{index}/{member}"), message));
            };
            if !is_dns_label(&volume.name) {
                wrong("name", "use lower-case letters, digits and hyphens, at most 63".into());
            } else if names.contains(&volume.name.as_str()) {
                wrong("name", format!("another volume is called `{}`", volume.name));
            }
            names.push(volume.name.as_str());
            if volume.tenant.as_deref().is_some_and(|tenant| !is_dns_label(tenant)) {
                wrong(
                    "tenant",
                    "a tenant's name has lower-case letters, digits and hyphens, at most 63".into(),
                );
            }
            if volume.ttl_class == TtlClass::Ephemeral {
                wrong("ttl_class", "a directory of this machine is persistent; nothing would end it".into());
            }
            if !volume.host_path.starts_with('/') {
                wrong("host_path", "write an absolute path".into());
            }
            match VolumePath::parse(&volume.mount_path) {
                Ok(path) if path.below(WORKSPACE).is_some() && volume.mount_path.starts_with('/') => {
                    let key = (path, volume.tenant.clone());
                    if mounts.contains(&key) {
                        wrong("mount_path", format!("another volume is mounted at {}", key.0));
                    }
                    mounts.push(key);
                }
                Ok(_) => wrong("mount_path", "mount at /workspace or below it".into()),
                Err(error) => wrong("mount_path", error.to_string()),
            }
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_clash_or_have_no_proper_name_are_found() {
        let volume = |name: &str, mount_path: &str, tenant: Option<&str>| VolumeConfig {
            name: name.into(),
            host_path: "/srv/data".into(),
            mount_path: mount_path.into(),
            access_mode: AccessMode::ReadOnly,
            size_limit: None,
            ttl_class: TtlClass::Persistent,
            tenant: tenant.map(str::to_owned),
        };
        let mistakes = |volumes: Vec<VolumeConfig>| -> Vec<String> {
            let config = StorageConfig { volumes, ..StorageConfig::default() };
            config.check().into_iter().map(|(pointer, _)| pointer).collect()
        };
        let fine = || volume("shared", "/workspace/shared", None);
        assert!(mistakes(vec![fine(), volume("theirs", "/workspace/shared", Some("acme"))]).is_empty());
        for (second, member) in [
            (volume("shared", "/workspace/other", None), "name"),
            (volume("../up", "/workspace/other", None), "name"),
            (volume("other", "/workspace//shared/", None), "mount_path"),
            (volume("other", "/etc", None), "mount_path"),
            (volume("other", "/workspace/../x", None), "mount_path"),
            (volume("other", "/workspace/other", Some("../acme")), "tenant"),
        ] {
            assert_eq!(mistakes(vec![fine(), second]), [format!("/spec/storage/volumes/1/{member}")]);
        }
    }

    #[test]
    fn what_is_read_at_once_has_bounds() {
        for size in [0, 1 << 40] {
            let config = StorageConfig { max_read_bytes: Size(size), ..StorageConfig::default() };
            assert_eq!(config.check()[0].0, "/spec/storage/max_read_bytes");
        }
    }
}
