//! Whether the directories of volumes can be used on this machine, found out before a node is started with them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use aegis_core::config::{AccessMode, NodeConfig, VolumeConfig};
use rustix::fs::{Access, access};

/// Something about a volume that a person should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which member of the configuration it is about, as a JSON pointer.
    pub pointer: String,
    pub found: String,
    pub mend: String,
    /// It can't work like this; otherwise it works, and perhaps not as it was meant.
    pub severe: bool,
}

/// Looks at every configured volume. `data` is the node's data directory, which need not exist yet. Blocks.
pub fn look(config: &NodeConfig, data: &Path) -> Vec<Trouble> {
    let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let mut troubles = Vec::new();
    let mut seen: Vec<(&VolumeConfig, PathBuf)> = Vec::new();
    for (index, volume) in config.spec.storage.volumes.iter().enumerate() {
        let mut tell = |severe: bool, found: String, mend: String| {
            let pointer = format!("/spec/storage/volumes/{index}/host_path");
            troubles.push(Trouble {
                pointer,
                found: format!("volume `{}`: {found}", volume.name),
                mend,
                severe,
            });
        };
        let host = match directory(volume) {
            Ok(host) => host,
            Err((found, mend)) => {
                tell(true, found, mend);
                continue;
            }
        };
        if holds_the_node(&host, &data) {
            let found =
                format!("{} and the data directory {} are one in the other", host.display(), data.display());
            let mend = "agents would reach the node's keys, records or rules: choose a directory elsewhere";
            tell(true, found, mend.into());
        }
        for (other, others) in &seen {
            if let Some(found) = overlap(volume, &host, other, others) {
                let mend = "what one of them forbids or counts, the other does not: choose directories apart";
                tell(false, found, mend.into());
            }
        }
        seen.push((volume, host));
    }
    troubles
}

/// The directory without symbolic links, or what is wrong with it and what to do.
fn directory(volume: &VolumeConfig) -> Result<PathBuf, (String, String)> {
    let path = Path::new(&volume.host_path);
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => (
            format!("there is no directory {shown}"),
            format!("make it with `mkdir -p {shown}`, or correct host_path"),
        ),
        _ => (format!("{shown} can't be looked at: {error}"), "let this user reach it".into()),
    })?;
    if !metadata.is_dir() {
        return Err((format!("{shown} is no directory"), "name the directory that holds the files".into()));
    }
    if access(path, Access::READ_OK | Access::EXEC_OK).is_err() {
        return Err((format!("{shown} can't be read by this user"), "let the node's user read it".into()));
    }
    if volume.access_mode == AccessMode::ReadWrite && access(path, Access::WRITE_OK).is_err() {
        let mend = "let the node's user write there, or say `access_mode: read-only`";
        return Err((format!("{shown} can't be written by this user"), mend.into()));
    }
    path.canonicalize().map_err(|error| {
        (format!("{shown} can't be followed to its end: {error}"), "let this user reach it".into())
    })
}

/// A volume through which agents would reach the node's own files, if there is one. Blocks.
pub fn exposing<'c>(config: &'c NodeConfig, data: &Path) -> Option<&'c VolumeConfig> {
    let data = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let mut volumes = config.spec.storage.volumes.iter();
    volumes.find(|volume| {
        Path::new(&volume.host_path).canonicalize().is_ok_and(|host| holds_the_node(&host, &data))
    })
}

/// Tenants' workspaces are in the data directory too, and theirs.
fn holds_the_node(host: &Path, data: &Path) -> bool {
    let workspaces = data.join("volumes");
    data.starts_with(host)
        || (host.starts_with(data) && !(host.starts_with(&workspaces) && host != workspaces))
}

fn overlap(volume: &VolumeConfig, host: &Path, other: &VolumeConfig, others: &Path) -> Option<String> {
    let (host_shown, others_shown) = (host.display(), others.display());
    if host == others {
        return Some(format!("{host_shown} is the directory of `{}` too", other.name));
    }
    if host.starts_with(others) {
        return Some(format!("{host_shown} lies in {others_shown}, the directory of `{}`", other.name));
    }
    others.starts_with(host).then(|| {
        format!("{others_shown}, the directory of `{}`, lies in `{}`'s {host_shown}", other.name, volume.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dir: &Path, volumes: &[(&str, &Path, &str)]) -> Vec<(String, bool)> {
        let volumes: Vec<String> = volumes
            .iter()
            .map(|(name, host, mode)| {
                format!(
                    "{{name: {name}, host_path: {}, mount_path: /workspace/{name}, access_mode: {mode}}}",
                    host.display()
                )
            })
            .collect();
        let text = format!(
            "{{apiVersion: 100monkeys.ai/v1, kind: NodeConfig, metadata: {{name: n}}, spec: {{storage: {{volumes: [{}]}}}}}}",
            volumes.join(", ")
        );
        let config = NodeConfig::parse(&text).unwrap();
        look(&config, &dir.join("data")).into_iter().map(|trouble| (trouble.found, trouble.severe)).collect()
    }

    #[test]
    fn what_can_be_used_is_told_from_what_can_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let place = |name: &str| root.join(name);
        for name in ["data/volumes/t/workspace", "data/policies", "a/inside", "b"] {
            fs::create_dir_all(place(name)).unwrap();
        }
        fs::write(place("file"), "").unwrap();
        std::os::unix::fs::symlink(place("a"), place("link")).unwrap();
        let (a, b) = (place("a"), place("b"));
        assert_eq!(found(&root, &[("a", &a, "read-write"), ("b", &b, "read-only")]), []);
        let one = |host: &Path| found(&root, &[("a", host, "read-write")]);
        for (host, words) in [
            (place("gone"), "there is no directory"),
            (place("file"), "is no directory"),
            (place("data"), "one in the other"),
            (place("data/policies"), "one in the other"),
            (root.clone(), "one in the other"),
        ] {
            let [(told, severe)] = one(&host).try_into().unwrap();
            assert!(told.starts_with("volume `a`: ") && told.contains(words) && severe, "{told}");
        }
        assert_eq!(one(&place("data/volumes/t/workspace")), []);
        for (first, second, words) in [
            (&a, &place("link"), "is the directory of `a` too"),
            (&a, &place("a/inside"), "lies in"),
            (&place("a/inside"), &a, "lies in `b`'s"),
        ] {
            let [(told, severe)] =
                found(&root, &[("a", first, "read-write"), ("b", second, "read-only")]).try_into().unwrap();
            assert!(told.contains(words) && !severe, "{told}");
        }
    }
}
