//! `aegis upstream add`.

use std::path::Path;

use aegis_core::{
    config::{
        AccessMode, McpServer, SecretRef, ToolPattern,
        upstream::{self, DefinitionTrust, ServerCapability, ServerMount, ServerSandbox},
    },
    document,
    domain::DomainPattern,
    quantity::counted,
};
use anyhow::bail;
use serde_json::json;

use super::{ask, grant, misplaced, settled, step};
use crate::{
    backend::Backend,
    cli::{Add, Global},
    ending::Mistake,
    input,
    output::{Ending, json_line, refusal, say, text},
};

pub(super) async fn run(global: &Global, wanted: &Add) -> anyhow::Result<Ending> {
    let server = match &wanted.file {
        Some(file) => match from_file(global, file)? {
            Some(server) => server,
            None => return Ok(Ending::Failed),
        },
        None => from_flags(wanted)?,
    };
    ask(global, async |node| add(global, node, &server, wanted.grant.as_deref()).await).await
}

async fn add(
    global: &Global,
    node: &Backend,
    server: &McpServer,
    context: Option<&str>,
) -> anyhow::Result<Ending> {
    let servers = std::slice::from_ref(server);
    // Half of what was asked for is worse than none of it.
    let remark = match context {
        Some(context) => match grant::prepare(node, context).await? {
            Ok(remark) => remark,
            Err(violation) => return Ok(refusal(&violation, global.json)),
        },
        None => None,
    };
    let answer = node.patient_post("/v1/upstreams", &serde_json::to_value(server)?).await?;
    let (mut ended, mut told) = step(global, answer, |found| {
        say!("{} is added", text(&found["name"]));
        settled::remarks(&server.name, found);
    });
    if ended == Ending::Done {
        for remark in misplaced::remarks(server).await {
            settled::warn(global, &server.name, &remark, &mut told);
        }
        if let Some(context) = context {
            let answer = grant::give(node, context, servers).await?;
            (ended, told["granted"]) = step(global, answer, |found| grant::tell(context, servers, found));
            grant::warn(global, remark.as_deref(), &mut told);
        }
        let found = settled::settle(global, node, &[&server.name]).await?;
        settled::note(&mut told, &found);
        if settled::is_broken(&told) {
            ended = Ending::Failed;
            if !global.json {
                let name = &server.name;
                eprintln!(
                    "{name} stays added, and is tried again: mend what is wrong, or `aegis upstream remove {name}`"
                );
            }
        } else if context.is_none() && !global.json {
            grant::tell_how(node, server).await?;
        }
    }
    if global.json {
        json_line(&told);
    }
    Ok(ended)
}

fn from_file(global: &Global, file: &Path) -> anyhow::Result<Option<McpServer>> {
    let (name, written) = (file.display().to_string(), input::text(file)?);
    match upstream::parse(&written) {
        Ok(mut servers) if servers.len() == 1 => Ok(servers.pop()),
        Ok(servers) => bail!("{name} holds {} servers; give one at a time", servers.len()),
        Err(mistakes) => {
            if global.json {
                json_line(&json!({"file": name, "valid": false, "mistakes": mistakes}));
            } else {
                eprintln!("{}", document::render(&mistakes, &written, &name));
                eprintln!("{}; nothing was added", counted(mistakes.len(), "mistake"));
            }
            Ok(None)
        }
    }
}

fn from_flags(wanted: &Add) -> anyhow::Result<McpServer> {
    let name = wanted.name.as_deref().unwrap_or_default();
    if !wanted.stray.is_empty() {
        let program = wanted.stray.join(" ");
        return Err(Mistake::new(
            format!("`{program}` stands where no program is expected"),
            format!("put `--` before the program: aegis upstream add {name} -- {program}"),
        )
        .into());
    }
    let mut server = McpServer::named(name);
    match (wanted.command.split_first(), &wanted.url) {
        (Some((program, args)), None) => {
            server.executable = Some(program.clone());
            server.args = args.to_vec();
        }
        (None, Some(url)) => server.url = Some(url.clone()),
        _ => {
            return Err(Mistake::new(
                "it is not said how the server is reached",
                format!("aegis upstream add {name} --url URL, or aegis upstream add {name} -- PROGRAM ARGS…"),
            )
            .into());
        }
    }
    let pair = |given: &str, flag: &str| -> anyhow::Result<(String, String)> {
        let wrong =
            || Mistake::new(format!("--{flag} {given} gives no value"), format!("write --{flag} NAME=…"));
        let (name, value) = given.split_once('=').ok_or_else(wrong)?;
        Ok((name.to_owned(), value.to_owned()))
    };
    for given in &wanted.environment {
        server.environment.extend([pair(given, "env")?]);
    }
    for given in &wanted.credentials {
        let (name, reference) = pair(given, "credential")?;
        server.credentials.insert(name, SecretRef::parse(&reference));
    }
    for given in &wanted.capabilities {
        let pattern = ToolPattern::parse(given).map_err(|error| {
            let message = format!("--capability {given}: {error}");
            Mistake::new(message, "name a tool as agents call it, as in web.search, or a prefix, as in web.*")
        })?;
        server.capabilities.push(ServerCapability::Name(pattern));
    }
    server.namespace.clone_from(&wanted.namespace);
    if wanted.approve_definitions {
        server.trust = DefinitionTrust::Approve;
    }
    if wanted.sandbox {
        server.sandbox = Some(sandbox(wanted)?);
    }
    if let Some(memory) = wanted.memory_mb {
        server.resource_limits.memory_mb = memory;
    }
    upstream::check_added(&[], &server).map_err(|reason| {
        Mistake::new(format!("`{name}` can't be added: {reason}"), "aegis upstream add --help shows examples")
    })?;
    Ok(server)
}

fn sandbox(wanted: &Add) -> anyhow::Result<ServerSandbox> {
    let host = |place: String| ServerMount { host: Some(place), ..nothing() };
    let volume = |place: String| ServerMount { volume: Some(place), ..nothing() };
    let mounts = wanted.mounts.iter().map(|given| mount("mount", given, host));
    let volumes = wanted.volumes.iter().map(|given| mount("volume", given, volume));
    let egress = wanted.egress.iter().map(|given| {
        DomainPattern::parse(given).map_err(|error| {
            let next = "write a domain without scheme and path, as in --egress api.example.org";
            Mistake::new(format!("--egress {given}: {error}"), next)
        })
    });
    Ok(ServerSandbox {
        mounts: mounts.chain(volumes).collect::<Result<_, _>>()?,
        egress: egress.collect::<Result<_, _>>()?,
        image: wanted.image.clone(),
    })
}

fn nothing() -> ServerMount {
    ServerMount { host: None, volume: None, inside: None, access: AccessMode::ReadOnly }
}

/// `PLACE`, `PLACE:INSIDE`, and either with `:rw` or `:ro` at its end.
fn mount(flag: &str, given: &str, at: impl Fn(String) -> ServerMount) -> Result<ServerMount, Mistake> {
    let (places, access) = match given.rsplit_once(':') {
        Some((places, "rw")) => (places, AccessMode::ReadWrite),
        Some((places, "ro")) => (places, AccessMode::ReadOnly),
        _ => (given, AccessMode::ReadOnly),
    };
    let (outside, inside) = match places.split_once(':') {
        Some((outside, inside)) => (outside, Some(inside.to_owned())),
        None => (places, None),
    };
    let whole = |path: &str| path.starts_with('/') && !path.contains(':');
    if !whole(outside) || inside.as_deref().is_some_and(|inside| !whole(inside)) {
        let example = if flag == "volume" { "/workspace" } else { "/srv/docs" };
        return Err(Mistake::new(
            format!("--{flag} {given} is no place to show"),
            format!(
                "write whole paths, as in --{flag} {example}, --{flag} {example}:/docs or --{flag} {example}:/docs:rw"
            ),
        ));
    }
    Ok(ServerMount { inside, access, ..at(outside.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_unless_said() {
        let host = |place: String| ServerMount { host: Some(place), ..nothing() };
        let read = |given: &str| {
            mount("mount", given, host).map(|mount| (mount.host.clone(), mount.inside.clone(), mount.access))
        };
        let path = |text: &str| Some(text.to_owned());
        assert_eq!(read("/srv").unwrap(), (path("/srv"), None, AccessMode::ReadOnly));
        assert_eq!(read("/srv:rw").unwrap(), (path("/srv"), None, AccessMode::ReadWrite));
        assert_eq!(read("/srv:/docs").unwrap(), (path("/srv"), path("/docs"), AccessMode::ReadOnly));
        assert_eq!(read("/srv:/docs:rw").unwrap(), (path("/srv"), path("/docs"), AccessMode::ReadWrite));
        assert_eq!(read("/srv:ro").unwrap(), (path("/srv"), None, AccessMode::ReadOnly));
        for wrong in ["srv", "/srv:docs", "/srv:/a:/b", ":rw", "/srv:/docs:x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let volume = mount("volume", "workspace", host).unwrap_err();
        assert!(volume.next.unwrap().contains("--volume /workspace"));
    }
}
