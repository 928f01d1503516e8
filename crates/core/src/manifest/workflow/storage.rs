use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::AccessMode,
    document::shown,
    manifest::{
        Findings,
        agent::{StorageClass, is_volume_id},
    },
    quantity::Size,
};

/// The name of a run's own volume in mounts.
pub(super) const WORKSPACE_VOLUME: &str = "workspace";

/// Storage that the states of a run share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Storage {
    /// The run's own volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Further volumes, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_volumes: Vec<SharedVolume>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Workspace {
    pub storage_class: StorageClass,
    /// How long an ephemeral volume is kept.
    #[schemars(range(min = 1, max = 8760))]
    pub ttl_hours: u32,
    /// How much it may hold, in MiB.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub size_limit_mb: u64,
    /// Which volume, for a persistent one: its id, or a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// The blackboard key under which the volume's id stands.
    #[schemars(length(min = 1))]
    pub blackboard_key: String,
}

impl Default for Workspace {
    fn default() -> Self {
        Self {
            storage_class: StorageClass::Ephemeral,
            ttl_hours: 1,
            size_limit_mb: 256,
            volume_id: None,
            blackboard_key: "workspace_volume_id".to_owned(),
        }
    }
}

/// A volume that containers can mount by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedVolume {
    /// What mounts call it.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    #[serde(default)]
    pub storage_class: StorageClass,
    /// How long an ephemeral volume is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8760))]
    pub ttl_hours: Option<u32>,
    /// How much it may hold, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub size_limit_mb: Option<u64>,
    /// How much it may hold, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub size_limit_bytes: Option<u64>,
    /// Which volume, for a persistent one: its id, or a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
}

impl SharedVolume {
    /// The limit, in whichever unit it was written.
    pub fn size_limit(&self) -> Option<Size> {
        self.size_limit_bytes.or(self.size_limit_mb.map(|mebibytes| mebibytes << 20)).map(Size)
    }

    fn check(&self, at: &str, findings: &mut Findings) {
        check_volume_id(self.storage_class, self.volume_id.as_deref(), at, findings);
        if self.name == WORKSPACE_VOLUME {
            findings
                .error(format!("{at}/name"), "`workspace` is the run's own volume: use `storage.workspace`");
        }
        if self.size_limit_bytes.is_some() && self.size_limit_mb.is_some() {
            findings.error(at, "`size_limit_mb` and `size_limit_bytes` say the same: keep one");
        }
    }
}

/// A mount of a volume in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "MountShape")]
pub struct Mount {
    pub name: String,
    pub mount_path: String,
    pub read_only: bool,
}

/// The two ways a mount is written.
#[derive(Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["name"]}, {"required": ["volume"]}]))]
struct MountShape {
    /// The volume's name: `workspace`, or one of `storage.shared_volumes`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    name: Option<String>,
    /// Another name for `name`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    volume: Option<String>,
    /// `/workspace` or below it.
    mount_path: String,
    /// Whether the state can't write to it.
    #[serde(default)]
    read_only: Option<bool>,
    /// Another way to say `read_only`.
    #[serde(default)]
    access_mode: Option<AccessMode>,
}

impl From<MountShape> for Mount {
    fn from(shape: MountShape) -> Self {
        Self {
            name: shape.name.or(shape.volume).unwrap_or_default(),
            mount_path: shape.mount_path,
            // Where both are written, the narrower holds.
            read_only: shape.read_only.unwrap_or(false) || shape.access_mode == Some(AccessMode::ReadOnly),
        }
    }
}

pub(super) fn check(storage: &Storage, other: &[SharedVolume], findings: &mut Findings) {
    if let Some(workspace) = &storage.workspace {
        let at = "/spec/storage/workspace";
        check_volume_id(workspace.storage_class, workspace.volume_id.as_deref(), at, findings);
    }
    let mut names: Vec<&str> = Vec::new();
    for (list, volumes) in
        [("/spec/storage/shared_volumes", storage.shared_volumes.as_slice()), ("/spec/volumes", other)]
    {
        for (index, volume) in volumes.iter().enumerate() {
            let at = format!("{list}/{index}");
            if names.contains(&volume.name.as_str()) {
                findings.error(
                    format!("{at}/name"),
                    format!("another volume is called {} already", shown(&volume.name)),
                );
            }
            names.push(&volume.name);
            volume.check(&at, findings);
        }
    }
}

fn check_volume_id(class: StorageClass, id: Option<&str>, at: &str, findings: &mut Findings) {
    match (class, id) {
        (StorageClass::Persistent, None) => findings.error(at, "a persistent volume needs `volume_id`"),
        (StorageClass::Ephemeral, Some(_)) => {
            findings.warning(
                format!("{at}/volume_id"),
                "an ephemeral volume is always new: nothing reads `volume_id`",
            );
        }
        (StorageClass::Persistent, Some(id)) if !is_volume_id(id) => {
            findings
                .error(format!("{at}/volume_id"), format!("{} is neither a UUID nor a template", shown(id)));
        }
        _ => {}
    }
}
