//! What confines commands, where a capability chooses for itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::exec::{ExecConfig, SandboxBackend};
use crate::manifest::agent::Isolation;

/// What confines the commands of a capability, in the words of manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxChoice {
    /// `process` is the kernel's namespaces, `docker` a container of `podman` or `docker`, and `inherit` what the node is
    /// set to, unless an image is named.
    pub isolation: Isolation,
    /// The image of a container. It must be there already: nothing is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl SandboxChoice {
    /// What is wrong with it on any node, with its place below.
    pub(super) fn mistake(&self) -> Option<(&'static str, &'static str)> {
        let is_name = |image: &str| {
            image.starts_with(|first: char| first.is_ascii_alphanumeric())
                && !image.contains(char::is_whitespace)
        };
        match (self.isolation, &self.image) {
            (Isolation::Firecracker, _) => Some((
                "isolation",
                "this node has no virtual machines: write `process`, `docker` or `inherit`",
            )),
            (Isolation::Process, Some(_)) => {
                Some(("image", "`isolation: process` has no images: leave one of them out"))
            }
            (_, Some(image)) if !is_name(image) => Some(("image", "write an image as in registry/name:tag")),
            _ => None,
        }
    }
}

/// What a choice comes to on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChosenSandbox {
    Native,
    /// A container of this image.
    Oci(String),
}

impl ExecConfig {
    /// What a choice comes to on this node; `None` when it wants a container and nobody names an image.
    pub fn sandbox(&self, choice: &SandboxChoice) -> Option<ChosenSandbox> {
        let contained = match choice.isolation {
            Isolation::Inherit => choice.image.is_some() || self.backend == SandboxBackend::Oci,
            Isolation::Docker => true,
            // Refused when it is read, so it never stands for something weaker.
            Isolation::Firecracker => return None,
            Isolation::Process => false,
        };
        if !contained {
            return Some(ChosenSandbox::Native);
        }
        choice.image.clone().or_else(|| self.image.clone()).map(ChosenSandbox::Oci)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_comes_to_a_backend_and_an_image() {
        let native = ExecConfig::default();
        let contained = ExecConfig {
            backend: SandboxBackend::Oci,
            image: Some("localhost/usual".into()),
            ..ExecConfig::default()
        };
        let choice = |text: &str| serde_json::from_str::<SandboxChoice>(text).unwrap();
        let of = |config: &ExecConfig, text: &str| config.sandbox(&choice(text));
        let process = Some(ChosenSandbox::Native);
        let container = |image: &str| Some(ChosenSandbox::Oci(image.to_owned()));
        assert_eq!(of(&native, "{}"), process);
        assert_eq!(of(&native, r#"{"image": "a/b"}"#), container("a/b"));
        assert_eq!(of(&native, r#"{"isolation": "docker"}"#), None);
        assert_eq!(of(&native, r#"{"isolation": "docker", "image": "a/b"}"#), container("a/b"));
        assert_eq!(of(&contained, "{}"), container("localhost/usual"));
        assert_eq!(of(&contained, r#"{"isolation": "docker"}"#), container("localhost/usual"));
        assert_eq!(of(&contained, r#"{"image": "a/b"}"#), container("a/b"));
        assert_eq!(of(&contained, r#"{"isolation": "process"}"#), process);
        for wrong in [
            r#"{"isolation": "firecracker"}"#,
            r#"{"isolation": "process", "image": "a/b"}"#,
            r#"{"image": "--privileged"}"#,
            r#"{"image": "a b"}"#,
        ] {
            assert!(choice(wrong).mistake().is_some(), "{wrong}");
        }
        assert!(serde_json::from_str::<SandboxChoice>(r#"{"isolation": "none"}"#).is_err());
    }
}
