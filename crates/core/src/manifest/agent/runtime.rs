use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{document::shown, manifest::Findings, nearest::suggestion, runtimes::Runtime};

/// Where an agent runs: either `language` with `version`, or an `image`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeSpec {
    /// A standard runtime, with `version`; `aegis.runtime.list` has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub language: Option<String>,
    /// The language's version, in quotes: "3.12".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub version: Option<String>,
    /// An image of your own instead, with its registry or owner: `ghcr.io/owner/name:tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub image: Option<String>,
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    #[serde(default)]
    pub isolation: Isolation,
    /// Which model: `default`, `fast`, `smart`, `cheap`, `local`, or an alias of the node's own.
    #[serde(default = "default_model")]
    #[schemars(length(min = 1))]
    pub model: String,
    /// How freely the model writes; the provider's own value when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// Taken for the sake of older manifests; nothing reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<String>,
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    Always,
    #[default]
    IfNotPresent,
    Never,
}

/// What separates an agent from the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// What the node is set to.
    #[default]
    Inherit,
    Docker,
    Firecracker,
    Process,
}

/// The one of the two ways that a manifest declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeSource<'a> {
    Standard { language: &'a str, version: &'a str },
    Image(&'a str),
}

impl RuntimeSpec {
    /// `None` for combinations that a checked manifest does not have.
    pub fn source(&self) -> Option<RuntimeSource<'_>> {
        match (self.image.as_deref(), self.language.as_deref(), self.version.as_deref()) {
            (None, Some(language), Some(version)) => Some(RuntimeSource::Standard { language, version }),
            (Some(image), None, None) => Some(RuntimeSource::Image(image)),
            _ => None,
        }
    }

    pub(super) fn check(&self, at: &str, registry: Option<&[Runtime]>, findings: &mut Findings) {
        match (self.image.as_deref(), self.language.as_deref(), self.version.as_deref()) {
            (None, Some(language), Some(version)) => {
                if let Some(registry) = registry {
                    known_pair(at, language, version, registry, findings);
                }
            }
            (Some(image), None, None) => {
                if !image.contains('/') {
                    findings.error(
                        format!("{at}/image"),
                        format!(
                            "{} names no registry or owner: write docker.io/library/{image}",
                            shown(image)
                        ),
                    );
                }
            }
            (None, None, None) => {
                findings.error(at, "write `language` and `version`, or `image`");
            }
            (None, Some(_), None) => findings.error(at, "`language` needs `version`"),
            (None, None, Some(_)) => findings.error(at, "`version` needs `language`"),
            (Some(_), _, _) => {
                findings.error(at, "`image` excludes `language` and `version`: keep one of the two ways");
            }
        }
        if self.entrypoint.is_some() {
            findings.warning(format!("{at}/entrypoint"), "nothing reads `entrypoint`; leave it out");
        }
    }
}

fn known_pair(at: &str, language: &str, version: &str, registry: &[Runtime], findings: &mut Findings) {
    let versions: Vec<&str> =
        registry.iter().filter(|row| row.language == language).map(|row| row.version.as_str()).collect();
    if versions.is_empty() {
        let mut languages: Vec<&str> = registry.iter().map(|row| row.language.as_str()).collect();
        languages.dedup();
        let guess = suggestion(language, languages.iter().copied());
        let message =
            format!("{} is no runtime of this node; it has {}{guess}", shown(language), languages.join(", "));
        findings.error(format!("{at}/language"), message);
        return;
    }
    match registry.iter().find(|row| row.language == language && row.version == version) {
        None => findings.error(
            format!("{at}/version"),
            format!(
                "{language} {} is no runtime of this node; it has {}",
                shown(version),
                versions.join(", ")
            ),
        ),
        Some(row) if row.deprecated => {
            findings.warning(format!("{at}/version"), format!("{language} {version} is deprecated"));
        }
        Some(_) => {}
    }
}

fn default_model() -> String {
    "default".to_owned()
}
