//! Files that a server's command names as they are called here, although the server starts elsewhere, or sees other files.

use std::path::{Component, Path, PathBuf};

use aegis_core::config::{
    McpServer,
    upstream::{MountSource, ServerSandbox},
};
use aegis_routes::upstream;

/// Places that are in every sandbox, though not with all that is there here.
const INSIDE: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc"];
/// Which every sandbox has, the latter as an empty place of its own.
const BARE: [&str; 2] = ["/", "/tmp"];

/// What to say of each, with what to write instead.
pub(super) async fn remarks(server: &McpServer) -> Vec<String> {
    let server = server.clone();
    let looking = move || match &server.sandbox {
        Some(sandbox) => unseen(&server, sandbox),
        None => relative(&server, &std::env::current_dir().unwrap_or_default()),
    };
    tokio::task::spawn_blocking(looking).await.unwrap_or_default()
}

fn relative(server: &McpServer, here: &Path) -> Vec<String> {
    let told = |(word, whole): &(String, PathBuf)| {
        let whole = resolved(whole);
        format!(
            "`{word}` is here, but the server starts in a directory of its own: write {}",
            whole.display()
        )
    };
    upstream::misplaced(server, here).iter().map(told).collect()
}

/// As a person would write it: without the steps back.
fn resolved(whole: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
    }
    // Behind a link, a step back leads elsewhere.
    let is_same = || Some(whole.canonicalize().ok()? == resolved.canonicalize().ok()?);
    if is_same() == Some(true) { resolved } else { whole.to_owned() }
}

/// Whole paths that are there on this machine and that the sandbox does not show.
fn unseen(server: &McpServer, sandbox: &ServerSandbox) -> Vec<String> {
    let words = server.executable.iter().chain(&server.args).map(String::as_str);
    let is_hidden = |word: &&str| {
        let path = Path::new(word);
        let shown = sandbox.mounts.iter().map(|mount| mount.inside()).chain(INSIDE);
        path.is_absolute()
            && !BARE.contains(word)
            && !shown.into_iter().any(|place| path.starts_with(place))
            && path.exists()
    };
    let told = |word: &str| {
        let path = Path::new(word);
        let elsewhere = sandbox.mounts.iter().find_map(|mount| match mount.source() {
            Some(MountSource::Host(host)) => {
                Some(Path::new(mount.inside()).join(path.strip_prefix(host).ok()?))
            }
            _ => None,
        });
        if let Some(inside) = elsewhere {
            return format!("`{word}` is {} in its sandbox: write that", inside.display());
        }
        // A program hardly ever comes alone.
        let place = if path.is_dir() {
            path
        } else {
            path.parent().filter(|it| it.parent().is_some()).unwrap_or(path)
        };
        format!(
            "`{word}` is on this machine, and its sandbox does not show it: --mount {} does",
            place.display()
        )
    };
    words.filter(is_hidden).map(told).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_back_are_taken() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        for directory in ["srv", "other"] {
            std::fs::create_dir(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("srv/notes.py"), "").unwrap();
        let server = |word: &str| {
            let entry = json!({"name": "fix", "executable": "python3", "args": [word]});
            serde_json::from_value::<McpServer>(entry).unwrap()
        };
        for (here, word) in [("srv", "../srv/notes.py"), ("other", "../srv/./notes.py"), ("srv", "notes.py")]
        {
            let told = relative(&server(word), &root.join(here));
            let [told] = &told[..] else { panic!("{word}: {told:?}") };
            assert!(told.ends_with(&format!("write {}", root.join("srv/notes.py").display())), "{told}");
        }
        // A step back from a link is one from where it leads.
        std::os::unix::fs::symlink(root.join("srv"), root.join("other/link")).unwrap();
        let told = relative(&server("link/../srv/notes.py"), &root.join("other"));
        assert!(told[0].ends_with("link/../srv/notes.py"), "{told:?}");
    }

    #[test]
    fn what_a_sandbox_does_not_show_is_told() {
        let place = tempfile::tempdir().unwrap();
        let script = place.path().join("calc.py").display().to_string();
        std::fs::write(&script, "").unwrap();
        let told = |mounts: serde_json::Value| {
            let args = [script.as_str(), "/tmp", "/nowhere/at/all", "relative", "/etc/hostname"];
            let entry = json!({"name": "fix", "executable": "/usr/bin/env", "args": args,
                "sandbox": {"mounts": mounts}});
            let server: McpServer = serde_json::from_value(entry).unwrap();
            unseen(&server, server.sandbox.as_ref().unwrap())
        };
        let directory = place.path().display().to_string();
        let [only] = &told(json!([]))[..] else { panic!("one path") };
        assert!(
            only.starts_with(&format!("`{script}`")) && only.contains(&format!("--mount {directory} ")),
            "{only}"
        );
        assert_eq!(told(json!([{"host": directory}])), [] as [&str; 0]);
        let renamed = told(json!([{"host": directory, "inside": "/srv/calc"}]));
        assert!(renamed[0].contains("is /srv/calc/calc.py in its sandbox"), "{renamed:?}");
    }
}
