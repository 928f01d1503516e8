//! Searching for names.

use std::{ffi::CStr, ffi::OsStr, os::unix::ffi::OsStrExt};

use aegis_core::VolumePath;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::{
    FileHits, Found, Progress,
    queue::Directory,
    walk::{Reach, Searcher, join},
};
use crate::files::{error::FileError, local::is_temporary};

const MAX_PATTERN: usize = 4096;

/// A glob. `*` and `?` stay within one component, `**` crosses them.
#[derive(Debug)]
pub struct NamePattern {
    set: GlobSet,
    text: String,
    /// Without `/`, the pattern is about the file's own name.
    on_name: bool,
}

impl NamePattern {
    /// `start` is where the search begins; a pattern may be written from the root when it starts with that.
    pub fn parse(pattern: &str, start: &VolumePath) -> Result<Self, FileError> {
        let bad = |reason: String| FileError::InvalidPattern(format!("`{pattern}` is no glob: {reason}"));
        if pattern.len() > MAX_PATTERN {
            return Err(FileError::InvalidPattern(format!(
                "the pattern has {} bytes; {MAX_PATTERN} is the limit",
                pattern.len()
            )));
        }
        let text = match pattern.strip_prefix('/') {
            None => pattern.trim_start_matches("./"),
            Some(_) => pattern
                .strip_prefix(start.as_str())
                .and_then(|rest| rest.strip_prefix('/').or((start.as_str() == "/").then_some(rest)))
                .ok_or_else(|| bad(format!("it is absolute; write it relative to `path`, {start}")))?,
        };
        if text.split('/').any(|component| component == "..") {
            return Err(bad("`..` never matches; start the search higher up with `path`".into()));
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| bad(error.kind().to_string()))?;
        let set = GlobSetBuilder::new().add(glob).build().map_err(|error| bad(error.kind().to_string()))?;
        Ok(Self { set, text: text.to_owned(), on_name: !text.contains('/') })
    }

    /// Leading components without wildcards need no walk beside them, and without `**` none goes deeper than the
    /// pattern. Alternatives in braces may hold a `/`, so they end what can be said.
    pub(super) fn reach(&self) -> Reach {
        let special = |text: &str| text.contains(['*', '?', '[', ']', '{', '}', '\\', '!']);
        let (above, _) = self.text.rsplit_once('/').unwrap_or_default();
        let literal: Vec<&str> = above
            .split('/')
            .take_while(|component| !component.is_empty() && *component != "." && !special(component))
            .collect();
        let open_ended = self.on_name || self.text.contains("**") || self.text.contains(['{', '\\', '[']);
        Reach {
            from: literal.join("/").into_bytes(),
            depth: (!open_ended).then(|| self.text.split('/').count() - 1),
        }
    }

    fn matches(&self, path: &[u8]) -> bool {
        self.set.is_match(OsStr::from_bytes(path))
    }
}

pub(super) struct NameSearcher<'a> {
    pattern: &'a NamePattern,
    prefix: &'a str,
    progress: &'a Progress<'a>,
    files: Vec<FileHits>,
    searched: u64,
}

impl<'a> NameSearcher<'a> {
    pub(super) fn new(pattern: &'a NamePattern, prefix: &'a str, progress: &'a Progress<'a>) -> Self {
        Self { pattern, prefix, progress, files: Vec::new(), searched: 0 }
    }

    pub(super) fn report(self, found: &mut Found) {
        found.files.extend(self.files);
        found.searched += self.searched;
    }

    fn hit(&mut self, path: &[u8]) {
        if self.progress.wants_hit() {
            self.files.push(FileHits { path: String::from_utf8_lossy(path).into_owned(), lines: Vec::new() });
        }
    }
}

impl Searcher for NameSearcher<'_> {
    fn wants(&mut self, directory: &Directory, name: &CStr) -> bool {
        self.searched += 1;
        let name = name.to_bytes();
        let matches = if self.pattern.on_name {
            self.pattern.matches(name)
        } else {
            let path = join(&directory.path, name);
            self.pattern.matches(&if self.prefix.is_empty() {
                path
            } else {
                join(self.prefix.as_bytes(), &path)
            })
        };
        if !matches || is_temporary(name) {
            return false;
        }
        // Only ignore files can still speak against it, and the walk asks them next.
        if directory.ignores.is_some() {
            return true;
        }
        self.hit(&join(&directory.path, name));
        false
    }

    fn search(&mut self, directory: &Directory, name: &CStr) {
        self.hit(&join(&directory.path, name.to_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::parse(text, &VolumePath::parse("/workspace/app").unwrap()).unwrap()
    }

    #[test]
    fn a_star_stays_in_its_component_and_two_cross_them() {
        for (text, path, matches) in [
            ("src/*.rs", "src/lib.rs", true),
            ("src/*.rs", "src/bin/tool.rs", false),
            ("src/**/*.rs", "src/lib.rs", true),
            ("src/**/*.rs", "src/bin/tool.rs", true),
            ("**/*.rs", "lib.rs", true),
            ("**/*.rs", "a/b/c.rs", true),
            ("**", "a/b", true),
            ("./src/?.rs", "src/a.rs", true),
            ("/workspace/app/src/*.rs", "src/a.rs", true),
            ("{src,tests}/*.rs", "tests/a.rs", true),
            ("src/[!a].rs", "src/a.rs", false),
        ] {
            assert_eq!(pattern(text).matches(path.as_bytes()), matches, "{text} {path}");
        }
        assert!(pattern("*.rs").on_name);
    }

    #[test]
    fn the_walk_reaches_no_further_than_the_pattern() {
        for (text, from, depth) in [
            ("*.rs", "", None),
            ("src/*.rs", "src", Some(1)),
            ("src/bin/*/main.rs", "src/bin", Some(3)),
            ("src/**/*.rs", "src", None),
            ("{a/b,c}/d", "", None),
            ("a/{b/c,d}.rs", "a", None),
        ] {
            let reach = pattern(text).reach();
            assert_eq!((reach.from.as_slice(), reach.depth), (from.as_bytes(), depth), "{text}");
        }
    }

    #[test]
    fn what_can_never_match_is_refused() {
        let start = VolumePath::parse("/workspace/app").unwrap();
        for text in ["[z-a", "../x", "a/../b", "/etc/*", "/workspace/apple/*", "{a,b", &"a".repeat(5000)] {
            assert!(matches!(NamePattern::parse(text, &start), Err(FileError::InvalidPattern(_))), "{text}");
        }
    }
}
