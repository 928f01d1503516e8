//! Paths as callers write them, parsed once. Confinement is the kernel's work (the files route); what is settled
//! here is spelling: which file a text names, and whether a rule speaks about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a relative path starts.
pub const WORKSPACE: &str = "/workspace";
/// Linux refuses longer paths anyway (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
const MAX_COMPONENT_BYTES: usize = 255;

/// An absolute, normalised path inside the caller's volumes: no `.`, no `..`, no empty component, no NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct VolumePath(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    #[error("the path has a `..` component")]
    Traversal,
    #[error("the path is empty")]
    Empty,
    #[error("the path has a NUL character")]
    Nul,
    #[error("the path is {0} bytes long; {MAX_PATH_BYTES} is the limit")]
    TooLong(usize),
    #[error("a component of the path is {0} bytes long; {MAX_COMPONENT_BYTES} is the limit")]
    ComponentTooLong(usize),
}

impl VolumePath {
    /// Parses what a caller wrote. A relative path starts at `/workspace`.
    ///
    /// Backslashes and percent signs are ordinary characters of a name: nothing after this parse decodes them,
    /// so no other spelling of `..` exists.
    pub fn parse(text: &str) -> Result<Self, BadPath> {
        if text.is_empty() {
            return Err(BadPath::Empty);
        }
        if text.contains('\0') {
            return Err(BadPath::Nul);
        }
        if text.split('/').any(|component| component == "..") {
            return Err(BadPath::Traversal);
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(BadPath::TooLong(text.len()));
        }
        if let Some(long) = text.split('/').find(|component| component.len() > MAX_COMPONENT_BYTES) {
            return Err(BadPath::ComponentTooLong(long.len()));
        }
        let mut normal = String::with_capacity(text.len() + WORKSPACE.len() + 1);
        let start = if text.starts_with('/') { "" } else { WORKSPACE };
        for component in start.split('/').chain(text.split('/')) {
            if !component.is_empty() && component != "." {
                normal.push('/');
                normal.push_str(component);
            }
        }
        if normal.is_empty() {
            normal.push('/');
        }
        Ok(Self(normal))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }

    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// What is left below `prefix`, without a leading slash (empty for the prefix itself); `None` when the path
    /// is not below it.
    pub fn below(&self, prefix: &str) -> Option<&str> {
        let prefix = prefix.trim_end_matches('/');
        let rest = self.0.strip_prefix(prefix)?;
        match rest.strip_prefix('/') {
            Some(rest) => Some(rest),
            None => rest.is_empty().then_some(""),
        }
    }
}

impl fmt::Display for VolumePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entry of a `path_allowlist`: a directory, and everything below it by whole components.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PathPrefix(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no path prefix: {reason}")]
pub struct BadPathPrefix {
    text: String,
    reason: String,
}

impl PathPrefix {
    pub fn parse(text: &str) -> Result<Self, BadPathPrefix> {
        let bad = |reason: String| BadPathPrefix { text: text.to_owned(), reason };
        let trimmed = text.strip_suffix("/**").or_else(|| text.strip_suffix("/*")).unwrap_or(text);
        if !text.starts_with('/') {
            return Err(bad("write an absolute path such as /workspace/src".into()));
        }
        if trimmed.contains(['*', '?', '[', '{']) {
            return Err(bad("only a trailing /* or /** is understood, not a glob".into()));
        }
        let path = if trimmed.is_empty() { "/" } else { trimmed };
        VolumePath::parse(path).map(|path| Self(path.0)).map_err(|error| bad(error.to_string()))
    }

    pub fn covers(&self, path: &VolumePath) -> bool {
        path.below(&self.0).is_some()
    }

    /// Whether this directory is somewhere below `tree`.
    pub fn lies_below(&self, tree: &VolumePath) -> bool {
        Self(tree.0.clone()).covers(&VolumePath(self.0.clone()))
    }

    /// The directory itself, normalised.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for PathPrefix {
    type Error = BadPathPrefix;

    fn try_from(text: String) -> Result<Self, BadPathPrefix> {
        Self::parse(&text)
    }
}

impl From<PathPrefix> for String {
    fn from(prefix: PathPrefix) -> Self {
        prefix.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn spellings_of_one_path_are_one_path() {
        for text in ["a/b", "./a/b", "/workspace/a/b", "/workspace//a/./b/", "//workspace/a//b/."] {
            assert_eq!(VolumePath::parse(text).unwrap().as_str(), "/workspace/a/b", "{text}");
        }
        assert_eq!(VolumePath::parse("/").unwrap().as_str(), "/");
        assert_eq!(VolumePath::parse(".").unwrap().as_str(), "/workspace");
    }

    #[test]
    fn dot_dot_is_refused_wherever_it_stands() {
        for text in ["..", "../x", "/..", "/workspace/..", "a/../b", "/workspace/../../etc/passwd", "a/..//"]
        {
            assert_eq!(VolumePath::parse(text), Err(BadPath::Traversal), "{text}");
        }
        assert!(VolumePath::parse("a..b/...").is_ok());
    }

    #[test]
    fn prefixes_end_at_component_boundaries() {
        let prefix = PathPrefix::parse("/workspace/**").unwrap();
        assert!(prefix.covers(&VolumePath::parse("/workspace").unwrap()));
        assert!(prefix.covers(&VolumePath::parse("x").unwrap()));
        assert!(!prefix.covers(&VolumePath::parse("/workspace2/x").unwrap()));
        assert!(PathPrefix::parse("/").unwrap().covers(&VolumePath::parse("/etc").unwrap()));
        assert!(PathPrefix::parse("/a/*/b").is_err());
        assert!(PathPrefix::parse("a").is_err());
        assert!(PathPrefix::parse("/a/../b").is_err());
    }

    proptest! {
        /// A path that is outside stays outside, however it is spelled.
        #[test]
        fn a_denied_path_stays_denied(components in prop::collection::vec("[a-z.]{1,4}", 1..5),
                                      noise in prop::collection::vec(prop::sample::select(vec!["/", "//", "/./", "/.//"]), 5)) {
            let prefix = PathPrefix::parse("/workspace/open").unwrap();
            let plain = format!("/{}", components.join("/"));
            let noisy: String = components.iter().zip(&noise).map(|(c, n)| format!("{n}{c}")).collect();
            let verdict = |text: &str| VolumePath::parse(text).map(|path| prefix.covers(&path));
            prop_assert_eq!(verdict(&plain), verdict(&noisy));
        }

        #[test]
        fn parse_never_panics_and_keeps_no_dots(text in any::<String>()) {
            if let Ok(path) = VolumePath::parse(&text) {
                prop_assert!(path.components().all(|c| c != ".." && c != "." && !c.contains('\0')));
                prop_assert!(path.as_str().starts_with('/'));
            }
        }
    }
}
