//! What a server's entry names and this machine does not have: found when it is added, not when somebody calls.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use aegis_core::{
    config::{
        McpServer, SecretRef,
        upstream::{Reach, ServerSandbox, suggested_name},
    },
    secret::SecretError,
    upstream::{Lack, Lacks},
};
use url::Url;

use super::{sandboxed::Unmountable, way::Ways};

/// Whether a program can be started by this name: a path, or a name that is looked for in `path`.
fn has_program(executable: &str, path: &OsStr) -> bool {
    let is_program = |place: PathBuf| {
        fs::metadata(place).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if executable.contains('/') {
        return is_program(PathBuf::from(executable));
    }
    std::env::split_paths(path).any(|directory| is_program(directory.join(executable)))
}

impl Ways {
    pub(super) async fn lacks(&self, server: &McpServer) -> Lacks {
        let mut lacks = Lacks::default();
        match (server.reach(), &server.sandbox) {
            (Some(Reach::Address { url, .. }), _) => lacks.wrong.extend(unusable(url)),
            // In a sandbox there are other programs than here.
            (Some(Reach::Program { .. }), Some(sandbox)) => self.unmountable(sandbox, &mut lacks).await,
            (Some(Reach::Program { .. }), None) => {
                let server = server.clone();
                let restart = format!("then `aegis upstream restart {}`", server.name);
                let path = std::env::var_os("PATH").unwrap_or_default();
                let looking = move || absent(&server, &path, "the node's PATH");
                let looked = tokio::task::spawn_blocking(looking).await.ok().flatten();
                let again = |lack: Lack| Lack { next: format!("{}; {restart}", lack.next), ..lack };
                lacks.missing.extend(looked.map(again));
            }
            (None, _) => {}
        }
        for reference in server.references().filter(|reference| !reference.is_per_principal()) {
            if let Err(error) = self.secrets.resolve(reference, None).await {
                lacks.missing.push(unresolved(server, reference, &error));
            }
        }
        lacks
    }

    async fn unmountable(&self, sandbox: &ServerSandbox, lacks: &mut Lacks) {
        for declared in &sandbox.mounts {
            match self.confinement.unmountable(declared, &self.tenant).await {
                None => {}
                Some(Unmountable::Never(what)) => {
                    let next = "name another place or volume".to_owned();
                    lacks.wrong.push(Lack { what, next });
                }
                Some(Unmountable::NotYet(what)) => {
                    let next = "make it, or name the real place".to_owned();
                    lacks.missing.push(Lack { what, next });
                }
            }
        }
    }
}

fn unusable(url: &str) -> Option<Lack> {
    let told = match Url::parse(url) {
        Ok(read) if read.has_host() => return None,
        Ok(_) => "it names no host".to_owned(),
        Err(error) => error.to_string(),
    };
    let next = "write the whole address, as in https://mcp.example.org/mcp".to_owned();
    Some(Lack { what: format!("`{url}` is no address: {told}"), next })
}

/// What of a server that is a program is not on this machine, where `path`, called `whose`, is the PATH of whoever would
/// start it. Blocks.
pub fn absent(server: &McpServer, path: &OsStr, whose: &str) -> Option<Lack> {
    // In a sandbox there are other programs than here.
    let executable = server.executable.as_deref().filter(|_| server.sandbox.is_none())?;
    // What the program is given is where it is looked for.
    let (path, whose) = match server.environment.get("PATH") {
        Some(given) => (OsStr::new(given), "the PATH of its entry"),
        None => (path, whose),
    };
    if !has_program(executable, path) {
        let what = if executable.contains('/') {
            format!("there is no program {executable}")
        } else {
            format!("there is no program `{executable}` on {whose}")
        };
        return Some(Lack { what, next: "install it, or write its whole path".to_owned() });
    }
    let directory = server.working_directory.as_deref()?;
    (!Path::new(directory).is_dir()).then(|| Lack {
        what: format!("it is to start in {directory}, which is no directory"),
        next: "make it".to_owned(),
    })
}

/// Words of a server's command that name something in `here` and something else, or nothing, where the program starts: each
/// with its whole path. Blocks.
pub fn misplaced(server: &McpServer, here: &Path) -> Vec<(String, PathBuf)> {
    let Some(Reach::Program { executable, args }) = server.reach() else { return Vec::new() };
    if server.sandbox.is_some() || server.working_directory.is_some() {
        return Vec::new();
    }
    // A name alone is looked for on the PATH.
    let program = Some(executable).filter(|name| name.contains('/'));
    let is_relative =
        |word: &&str| !word.is_empty() && !word.starts_with(['-', '/']) && !word.contains("://");
    let words = program.into_iter().chain(args.iter().map(String::as_str)).filter(is_relative);
    let there = |word: &str| {
        let whole = here.join(word);
        let is_meant =
            whole.is_file() || (whole.is_dir() && (word.contains('/') || [".", ".."].contains(&word)));
        // As a person would write it.
        is_meant.then(|| {
            (word.to_owned(), whole.components().filter(|part| *part != Component::CurDir).collect())
        })
    };
    words.filter_map(there).collect()
}

/// Endings of programs that are run by another.
const SCRIPTS: [&str; 11] = ["js", "mjs", "cjs", "ts", "mts", "py", "rb", "sh", "pl", "php", "jar"];

/// Whether a word of a command can hardly be anything but a file that is meant relative to some directory.
fn is_relative_script(word: &str) -> bool {
    let is_script =
        || Path::new(word).extension().is_some_and(|kind| SCRIPTS.iter().any(|known| kind == *known));
    let is_plain = !word.starts_with(['-', '/', '@']) && !word.contains("://");
    is_plain && (word.starts_with("./") || word.starts_with("../") || is_script())
}

impl Ways {
    /// What to say of a program that did not come up and was told to run a file that is not where it starts.
    pub(super) async fn lost_script(&self, server: &McpServer) -> Option<String> {
        let Some(Reach::Program { args, .. }) = server.reach() else { return None };
        if server.sandbox.is_some() {
            return None;
        }
        let directory = match &server.working_directory {
            Some(chosen) => PathBuf::from(chosen),
            None => self.directory.join(&server.name),
        };
        for word in args.iter().filter(|word| is_relative_script(word)) {
            if !tokio::fs::try_exists(directory.join(word)).await.unwrap_or(true) {
                let place = directory.display();
                return Some(format!("; `{word}` is not in {place}, where it starts: write its whole path"));
            }
        }
        None
    }
}

/// What to say of a reference that leads to no secret.
pub fn unresolved(server: &McpServer, reference: &SecretRef, error: &SecretError) -> Lack {
    let name = &server.name;
    let is_sign_in = server.oauth.as_ref().is_some_and(|oauth| oauth.sign_in.as_ref() == Some(reference));
    match (reference, error) {
        (_, SecretError::NotStored(_)) if is_sign_in => Lack {
            what: "nobody is signed in to it".to_owned(),
            next: format!("aegis upstream sign-in {name}"),
        },
        (SecretRef::Stored(secret), SecretError::NotStored(_)) => Lack {
            what: format!("the secret `{secret}` is not stored"),
            next: format!("aegis secret set {secret}"),
        },
        (SecretRef::Env(variable), SecretError::NoVariable(_)) => Lack {
            what: format!("the node's environment has no variable {variable}"),
            next: {
                let secret = suggested_name(name, variable);
                format!(
                    "start the node with it; or `aegis secret set {secret}`, and write `secret:{secret}` where the server is \
                     defined"
                )
            },
        },
        (_, error) => {
            Lack { what: error.to_string(), next: format!("mend it, then `aegis upstream restart {name}`") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_where_they_would_be_started() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("tool");
        fs::write(&program, "").unwrap();
        assert!(!has_program("tool", place.path().as_os_str()), "it can't be run");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(has_program("tool", place.path().as_os_str()));
        assert!(has_program(program.to_str().unwrap(), OsStr::new("")));
        assert!(
            !has_program("tool", OsStr::new("/nowhere")) && !has_program("/nowhere/tool", OsStr::new(""))
        );
    }

    #[test]
    fn a_program_is_looked_for_where_its_entry_says() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("tool");
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut server: McpServer =
            serde_json::from_value(serde_json::json!({"name": "fix", "executable": "tool"})).unwrap();
        let told = |server: &McpServer, path: &OsStr| absent(server, path, "this PATH").map(|lack| lack.what);
        assert_eq!(told(&server, place.path().as_os_str()), None);
        let lost = told(&server, OsStr::new("/nowhere")).unwrap();
        assert!(lost.ends_with("on this PATH"), "{lost}");
        server.environment.insert("PATH".into(), place.path().display().to_string());
        assert_eq!(told(&server, OsStr::new("/nowhere")), None);
        server.environment.insert("PATH".into(), "/nowhere".into());
        let lost = told(&server, place.path().as_os_str()).unwrap();
        assert!(lost.ends_with("on the PATH of its entry"), "{lost}");
    }

    #[test]
    fn what_is_named_from_here_is_told_with_its_whole_path() {
        let here = tempfile::tempdir().unwrap();
        fs::write(here.path().join("server.js"), "").unwrap();
        fs::create_dir(here.path().join("docs")).unwrap();
        let mut server: McpServer =
            serde_json::from_value(serde_json::json!({"name": "fix", "executable": "node",
            "args": ["--inspect", "./server.js", "docs", "docs/", "-y", "@a/b", "/etc/passwd", "none.js"]}))
            .unwrap();
        let found = misplaced(&server, here.path());
        let whole = |name: &str| here.path().join(name);
        assert_eq!(found, [("./server.js".into(), whole("server.js")), ("docs/".into(), whole("docs"))]);
        server.working_directory = Some("/srv".into());
        assert_eq!(misplaced(&server, here.path()), []);
        for (word, is) in
            [("server.py", true), ("./run", true), ("@a/b.js", false), ("run", false), ("/a.js", false)]
        {
            assert_eq!(is_relative_script(word), is, "{word}");
        }
    }

    #[test]
    fn an_address_has_a_host() {
        for wrong in ["http://", "https://:80/", "notaurl", "http://[x]/", "http://a b/"] {
            assert!(unusable(wrong).is_some(), "{wrong}");
        }
        assert_eq!(unusable("https://mcp.example.org/mcp"), None);
    }
}
