//! What a server's entry names and this machine does not have: found when it is added, not when somebody calls.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use aegis_core::{
    config::{
        McpServer, SecretRef,
        upstream::{Reach, ServerSandbox},
    },
    secret::SecretError,
    upstream::{Lack, Lacks},
};
use url::Url;

use super::{sandboxed::Unmountable, way::Ways};

/// Whether a program can be started by this name: a path, or a name that is looked for in `path`.
pub fn has_program(executable: &str, path: &OsStr) -> bool {
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
                let looked = tokio::task::spawn_blocking(move || absent(&server)).await;
                lacks.missing.extend(looked.ok().flatten());
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

fn absent(server: &McpServer) -> Option<Lack> {
    let executable = server.executable.as_deref()?;
    let own = std::env::var_os("PATH").unwrap_or_default();
    // What the program is given is where it is looked for.
    let path = server.environment.get("PATH").map_or(own.as_os_str(), OsStr::new);
    let restart = format!("then `aegis upstream restart {}`", server.name);
    if !has_program(executable, path) {
        let what = if executable.contains('/') {
            format!("there is no program {executable}")
        } else {
            format!("there is no program `{executable}` on the node's PATH")
        };
        let next = format!("install it, or write its whole path; {restart}");
        return Some(Lack { what, next });
    }
    let directory = server.working_directory.as_deref()?;
    (!Path::new(directory).is_dir()).then(|| Lack {
        what: format!("it is to start in {directory}, which is no directory"),
        next: format!("make it; {restart}"),
    })
}

fn unresolved(server: &McpServer, reference: &SecretRef, error: &SecretError) -> Lack {
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
            next: format!("start the node with it, or store a secret and write secret:{name}/NAME instead"),
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
    fn an_address_has_a_host() {
        for wrong in ["http://", "https://:80/", "notaurl", "http://[x]/", "http://a b/"] {
            assert!(unusable(wrong).is_some(), "{wrong}");
        }
        assert_eq!(unusable("https://mcp.example.org/mcp"), None);
    }
}
