//! Which languages `tool.code-execution` can run here. A runtime is a program of the host, seen inside the sandbox.

use std::path::{Path, PathBuf};

use aegis_core::config::{ExecConfig, SandboxBackend};
use aegis_sandbox::DEFAULT_PATH;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    Javascript,
    Typescript,
    Shell,
}

impl Language {
    pub const ALL: [Self; 4] = [Self::Python, Self::Javascript, Self::Typescript, Self::Shell];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Typescript => "typescript",
            Self::Shell => "shell",
        }
    }

    /// The program that runs it, which a context must grant by this name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Python => "python3",
            // TypeScript's types are left out by Node itself, from 22.13 on.
            Self::Javascript | Self::Typescript => "node",
            Self::Shell => "bash",
        }
    }
}

/// The runtimes that were found.
#[derive(Debug, Clone)]
pub struct Runtimes {
    found: Vec<(Language, Option<PathBuf>)>,
}

impl Runtimes {
    /// Looks where the sandbox will look. Of an image nothing can be said before it runs, so everything is assumed.
    pub fn look(config: &ExecConfig) -> Self {
        let directories = config.search_path.iter().map(String::as_str).chain(DEFAULT_PATH.split(':'));
        let directories: Vec<&Path> = directories.map(Path::new).collect();
        let place = |language: Language| match config.backend {
            SandboxBackend::Oci => Some(PathBuf::from(language.program())),
            SandboxBackend::Native => directories
                .iter()
                .map(|directory| directory.join(language.program()))
                .find(|file| file.is_file()),
        };
        Self { found: Language::ALL.into_iter().map(|language| (language, place(language))).collect() }
    }

    pub fn has(&self, language: Language) -> bool {
        self.found.iter().any(|(known, place)| *known == language && place.is_some())
    }

    /// Every language with the program that was found for it.
    pub fn iter(&self) -> impl Iterator<Item = (Language, Option<&Path>)> {
        self.found.iter().map(|(language, place)| (*language, place.as_deref()))
    }

    /// `python, shell`, or that there are none.
    pub fn listed(&self) -> String {
        let names: Vec<&str> = self
            .found
            .iter()
            .filter(|(_, place)| place.is_some())
            .map(|(language, _)| language.as_str())
            .collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_claimed() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("node"), "").unwrap();
        let search_path = vec![directory.path().to_str().unwrap().to_owned()];
        let runtimes = Runtimes::look(&ExecConfig { search_path, ..ExecConfig::default() });
        assert!(runtimes.has(Language::Javascript) && runtimes.has(Language::Typescript));
        assert!(runtimes.listed().contains("javascript"));
        for (language, place) in runtimes.iter() {
            assert_eq!(runtimes.has(language), place.is_some());
            assert!(place.is_none_or(Path::is_file));
        }
    }
}
