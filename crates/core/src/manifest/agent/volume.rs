use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    config::AccessMode,
    document::shown,
    manifest::{Findings, straight::value_alias},
    path::{VolumePath, WORKSPACE},
    quantity::Size,
};

/// Storage mounted for an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Unique in the manifest.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    #[serde(default, rename = "type")]
    pub kind: VolumeType,
    /// The storage service of an `opendal` volume: `s3`, `gcs`, `azblob`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Options of the backend, needed by all but `seaweedfs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    pub storage_class: StorageClass,
    /// `/workspace` or below it.
    pub mount_path: String,
    /// What the agent may do with it. `read-write` on a persistent volume is exclusive.
    pub access_mode: AccessMode,
    /// How long an ephemeral volume is kept; the node's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8760))]
    pub ttl_hours: Option<u32>,
    /// How much it may hold; the node's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Size>,
    /// Which persistent volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<VolumeSource>,
}

/// Where the data lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = value_alias("smcp", "seal"))]
pub enum VolumeType {
    #[default]
    #[serde(rename = "seaweedfs")]
    SeaweedFs,
    #[serde(rename = "opendal")]
    OpenDal,
    HostPath,
    #[serde(alias = "smcp")]
    Seal,
}

/// How long storage lives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageClass {
    #[default]
    Ephemeral,
    Persistent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeSource {
    /// The volume's id, or a template such as `{{input.volume}}`.
    pub volume_id: String,
}

pub(super) fn check(volumes: &[Volume], at: &str, written: &dyn Fn(&str) -> bool, findings: &mut Findings) {
    let mut mounts: Vec<VolumePath> = Vec::new();
    for (index, volume) in volumes.iter().enumerate() {
        let here = format!("{at}/{index}");
        if volumes[..index].iter().any(|earlier| earlier.name == volume.name) {
            findings.error(
                format!("{here}/name"),
                format!("another volume is called {} already", shown(&volume.name)),
            );
        }
        match mount_path(&volume.mount_path) {
            Ok(path) if mounts.contains(&path) => {
                findings.error(
                    format!("{here}/mount_path"),
                    format!("another volume is mounted at {path} already"),
                );
            }
            Ok(path) => mounts.push(path),
            Err(reason) => findings.error(format!("{here}/mount_path"), reason),
        }
        volume.check_backend(&here, written, findings);
        volume.check_class(&here, findings);
    }
}

/// Where a volume may be mounted: an absolute path at or below the workspace.
pub(in crate::manifest) fn mount_path(text: &str) -> Result<VolumePath, String> {
    match VolumePath::parse(text) {
        Ok(path) if path.below(WORKSPACE).is_some() && text.starts_with('/') => Ok(path),
        Ok(_) => Err(format!("mount at {WORKSPACE} or below it")),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether `text` can name a stored volume: a UUID, or a template that will give one.
pub(in crate::manifest) fn is_volume_id(text: &str) -> bool {
    text.contains("{{") || uuid::Uuid::try_parse(text).is_ok()
}

impl Volume {
    fn check_backend(&self, here: &str, written: &dyn Fn(&str) -> bool, findings: &mut Findings) {
        if self.kind == VolumeType::OpenDal && self.provider.is_none() {
            findings.error(here, "an `opendal` volume needs `provider`, e.g. s3");
        }
        if self.kind != VolumeType::OpenDal && self.provider.is_some() {
            findings.warning(format!("{here}/provider"), "only `opendal` volumes have a provider");
        }
        if self.kind == VolumeType::SeaweedFs {
            if self.config.is_some() {
                findings.warning(format!("{here}/config"), "`seaweedfs` volumes take no config");
            }
        } else if !written(&format!("{here}/config")) {
            findings.error(here, "a volume of this type needs `config`");
        }
    }

    fn check_class(&self, here: &str, findings: &mut Findings) {
        if self.size_limit == Some(Size(0)) {
            findings.error(format!("{here}/size_limit"), "must be more than 0");
        }
        match (self.storage_class, &self.source) {
            (StorageClass::Ephemeral, Some(_)) => {
                findings.warning(
                    format!("{here}/source"),
                    "an ephemeral volume is always new: nothing reads `source`",
                );
            }
            (StorageClass::Persistent, None) => {
                findings.error(here, "a persistent volume needs `source: {volume_id: …}`");
            }
            (StorageClass::Persistent, Some(source)) if !is_volume_id(&source.volume_id) => {
                findings.error(
                    format!("{here}/source/volume_id"),
                    format!("{} is neither a UUID nor a template", shown(&source.volume_id)),
                );
            }
            _ => {}
        }
        if self.storage_class == StorageClass::Persistent && self.ttl_hours.is_some() {
            findings.warning(
                format!("{here}/ttl_hours"),
                "a persistent volume has no end: nothing reads `ttl_hours`",
            );
        }
    }
}
