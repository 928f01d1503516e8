//! A path, taken apart into what each layer may trust.

use aegis_core::path::{PathPrefix, VolumePath};

use super::error::FileError;

/// A place in a volume: `/workspace/` `src/` `lib/main.rs` = mount point, scope, rest.
///
/// The scope is the directory that the caller's context grants, where that is deeper than the mount point. It is
/// resolved without following any symbolic link; the rest may pass through links as long as they stay below the
/// scope. So a link can lead neither out of the volume nor out of the grant, and the kernel sees to both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    path: VolumePath,
    /// Where the part inside the volume starts.
    inside: usize,
    /// Where the part that may pass through links starts; at least `inside`.
    free: usize,
}

impl Place {
    /// `free_from`: where the part below the grant starts, from `granted_from`.
    pub fn new(path: VolumePath, mount: &VolumePath, free_from: usize) -> Result<Self, FileError> {
        let below = path.below(mount.as_str()).ok_or(FileError::NoVolume)?;
        let inside = path.as_str().len() - below.len();
        Ok(Self { path, inside, free: free_from.max(inside) })
    }

    /// The root of the volume that is mounted at `mount`.
    pub fn root(mount: &VolumePath) -> Self {
        let length = mount.as_str().len();
        Self { path: mount.clone(), inside: length, free: length }
    }

    pub fn path(&self) -> &VolumePath {
        &self.path
    }

    pub fn into_path(self) -> VolumePath {
        self.path
    }

    pub fn scope(&self) -> &str {
        self.path.as_str()[self.inside..self.free].trim_end_matches('/')
    }

    pub fn rest(&self) -> &str {
        &self.path.as_str()[self.free..]
    }

    /// Scope and rest: the path relative to the volume's root, empty for the root itself.
    pub fn within_volume(&self) -> &str {
        &self.path.as_str()[self.inside..]
    }
}

/// Where the part of `path` below the widest prefix that grants it starts. Inside that prefix, links are the
/// caller's own business. `None` grants everything.
pub(super) fn granted_from(path: &VolumePath, grant: Option<&[PathPrefix]>) -> Result<usize, FileError> {
    let Some(prefixes) = grant else { return Ok(0) };
    prefixes
        .iter()
        .filter_map(|prefix| path.below(prefix.as_str()))
        .map(|rest| path.as_str().len() - rest.len())
        .min()
        .ok_or(FileError::NotGranted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str, mount: &str, grant: Option<&[&str]>) -> Result<(String, String), String> {
        let prefixes: Option<Vec<PathPrefix>> =
            grant.map(|grant| grant.iter().map(|text| PathPrefix::parse(text).unwrap()).collect());
        let path = VolumePath::parse(path).unwrap();
        granted_from(&path, prefixes.as_deref())
            .and_then(|free| Place::new(path, &VolumePath::parse(mount).unwrap(), free))
            .map(|place| (place.scope().to_owned(), place.rest().to_owned()))
            .map_err(|error| error.to_string())
    }

    fn is(scope: &str, rest: &str) -> Result<(String, String), String> {
        Ok((scope.to_owned(), rest.to_owned()))
    }

    #[test]
    fn the_scope_is_the_widest_grant_inside_the_volume() {
        assert_eq!(parts("src/a/b", "/workspace", None), is("", "src/a/b"));
        assert_eq!(parts("/workspace", "/workspace", None), is("", ""));
        assert_eq!(parts("src/a/b", "/workspace", Some(&["/workspace"])), is("", "src/a/b"));
        assert_eq!(parts("src/a/b", "/workspace", Some(&["/"])), is("", "src/a/b"));
        assert_eq!(parts("src/a/b", "/workspace", Some(&["/workspace/src"])), is("src", "a/b"));
        assert_eq!(
            parts("src/a/b", "/workspace", Some(&["/workspace/src/a", "/workspace/src"])),
            is("src", "a/b")
        );
        assert_eq!(parts("src/a", "/workspace", Some(&["/workspace/src/a"])), is("src/a", ""));
        assert_eq!(parts("shared/a", "/workspace/shared", Some(&["/workspace"])), is("", "a"));
        assert!(parts("src/a", "/workspace", Some(&["/workspace/other"])).is_err());
        assert!(parts("/etc/passwd", "/workspace", None).is_err());
    }
}
