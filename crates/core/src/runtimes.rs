//! The language runtimes an agent may declare. A node configuration can add to them.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Runtime {
    pub language: String,
    pub version: String,
    pub image: String,
    pub description: String,
    /// Still runs, with a warning.
    #[serde(default)]
    pub deprecated: bool,
}

/// (language, version, image, description, deprecated)
const STANDARD: [(&str, &str, &str, &str, bool); 11] = [
    ("go", "1.20", "golang:1.20-alpine", "Go 1.20 on Alpine", true),
    ("go", "1.21", "golang:1.21-alpine", "Go 1.21 on Alpine", false),
    ("javascript", "18", "node:18-alpine", "Node.js 18 on Alpine", true),
    ("javascript", "20", "node:20-alpine", "Node.js 20 on Alpine", false),
    ("python", "3.9", "python:3.9-slim", "CPython 3.9 on Debian", true),
    ("python", "3.10", "python:3.10-slim", "CPython 3.10 on Debian", false),
    ("python", "3.11", "python:3.11-slim", "CPython 3.11 on Debian", false),
    ("python", "3.12", "ghcr.io/100monkeys/runtime-python:3.12", "CPython 3.12", false),
    ("rust", "1.74", "rust:1.74-alpine", "Rust 1.74 on Alpine", true),
    ("rust", "1.75", "rust:1.75-alpine", "Rust 1.75 on Alpine", false),
    ("typescript", "5.1", "node:20-alpine", "TypeScript 5.1 on Node.js 20", false),
];

/// The standard registry with `extra` rows laid over it (same language and version replaces), sorted by language
/// and then by version number.
pub fn registry(extra: &[Runtime]) -> Vec<Runtime> {
    let mut rows: Vec<Runtime> = STANDARD
        .into_iter()
        .map(|(language, version, image, description, deprecated)| Runtime {
            language: language.into(),
            version: version.into(),
            image: image.into(),
            description: description.into(),
            deprecated,
        })
        .collect();
    for row in extra {
        rows.retain(|known| (&known.language, &known.version) != (&row.language, &row.version));
        rows.push(row.clone());
    }
    rows.sort_by(|a, b| (&a.language, version_key(&a.version)).cmp(&(&b.language, version_key(&b.version))));
    rows
}

/// Compares 3.9 before 3.10.
fn version_key(version: &str) -> Vec<(u64, &str)> {
    version.split('.').map(|segment| (segment.parse().unwrap_or(u64::MAX), segment)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_by_number_and_overridable() {
        let own = Runtime {
            language: "python".into(),
            version: "3.10".into(),
            image: "registry.example/py:3.10".into(),
            description: "ours".into(),
            deprecated: false,
        };
        let rows = registry(&[own]);
        let python: Vec<_> = rows.iter().filter(|row| row.language == "python").collect();
        assert_eq!(
            python.iter().map(|row| row.version.as_str()).collect::<Vec<_>>(),
            ["3.9", "3.10", "3.11", "3.12"]
        );
        assert_eq!(python[1].image, "registry.example/py:3.10");
    }
}
