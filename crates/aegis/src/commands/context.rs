use std::path::Path;

use aegis_core::{config::security_context, document, quantity::counted};
use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    backend::Backend,
    cli::{Context, Global},
    client::Answer,
    ending::Mistake,
    input,
    output::{Ending, finish, harmless, json_line, say, say_part, table, text},
};

pub(super) async fn run(global: &Global, command: &Context) -> anyhow::Result<Ending> {
    super::log("error");
    if let Context::Apply { file, drop } = command {
        return apply(global, file, *drop).await;
    }
    let backend = Backend::open(global).await?;
    let ended = match command {
        Context::List { limit } => list(global, &backend, *limit).await,
        Context::Show { name, version } => show(global, &backend, name, version.as_deref()).await,
        Context::Diff { name, from, to } => {
            diff(global, &backend, name, from.as_deref(), to.as_deref()).await
        }
        Context::Delete { name } => {
            let answer = backend.delete(&address(name)).await;
            answer.map(|answer| finish(global, answer, tell_change))
        }
        Context::DropSessions { name } => {
            let answer = backend.post(&format!("{}/drop-sessions", address(name)), &json!({})).await;
            answer.map(|answer| finish(global, answer, tell_dropped))
        }
        Context::Apply { .. } => Ok(Ending::Usage),
    };
    backend.close().await;
    ended
}

fn address(name: &str) -> String {
    format!("/v1/contexts/{}", urlencoded(name))
}

async fn list(global: &Global, backend: &Backend, limit: usize) -> anyhow::Result<Ending> {
    let answer = backend.get("/v1/contexts").await?;
    Ok(finish(global, answer, |found| {
        let contexts = found["contexts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rows: Vec<[String; 5]> = contexts.iter().take(limit).map(row).collect();
        table(["CONTEXT", "VERSION", "FROM", "CAPABILITIES", "DESCRIPTION"], &rows);
        if limit < contexts.len() {
            say!("… {limit} of {}; more with --limit", contexts.len());
        }
    }))
}

fn row(found: &Value) -> [String; 5] {
    let context = &found["context"];
    let count = |member: &str| context[member].as_array().map_or(0, Vec::len);
    let denied = match count("deny_list") {
        0 => String::new(),
        denied => format!(", {denied} denied"),
    };
    let source = match (text(&found["source"]).as_str(), found["applied_by"].as_str()) {
        (source, Some(by)) => format!("{source} by {by}"),
        (source, None) => source.to_owned(),
    };
    [
        text(&found["name"]),
        short(&text(&found["version"])).to_owned(),
        source,
        format!("{}{denied}", count("capabilities")),
        first_sentence(&text(&context["description"])).to_owned(),
    ]
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

/// Without the name, which stands beside it.
fn short(version: &str) -> &str {
    version.rsplit_once('@').map_or(version, |(_, digest)| digest)
}

async fn show(
    global: &Global,
    backend: &Backend,
    name: &str,
    version: Option<&str>,
) -> anyhow::Result<Ending> {
    let path = match version {
        Some(version) => format!("{}?version={}", address(name), urlencoded(&whole(name, version))),
        None => address(name),
    };
    let answer = backend.get(&path).await?;
    Ok(finish(global, answer, |found| {
        let from = match (found["source"].as_str(), found["first_seen"].as_str()) {
            (Some("applied"), _) => {
                format!("applied by {}, {}", text(&found["applied_by"]), text(&found["applied"]))
            }
            (Some("file"), _) => "defined in the configuration file".to_owned(),
            (Some(_), _) => "ships with the node".to_owned(),
            (None, seen) => format!("first in force {}", seen.unwrap_or_default()),
        };
        say!("# {}, {from}", text(&found["version"]));
        say_part!("{}", document::to_yaml(&found["context"]));
    }))
}

/// A version may be given with or without the name before it.
fn whole(name: &str, version: &str) -> String {
    if version.contains('@') { version.to_owned() } else { format!("{name}@{version}") }
}

async fn diff(
    global: &Global,
    backend: &Backend,
    name: &str,
    from: Option<&str>,
    to: Option<&str>,
) -> anyhow::Result<Ending> {
    let versions = match backend.get(&format!("{}/versions", address(name))).await? {
        Answer::Ok(found) => found["versions"].as_array().cloned().unwrap_or_default(),
        other => return Ok(finish(global, other, |_| {})),
    };
    let in_force = versions.iter().find(|row| row["in_force"] == true).map(|row| text(&row["version"]));
    let to = to.map(|to| whole(name, to)).or(in_force);
    let Some(to) = to else {
        let known: Vec<String> = versions.iter().map(|row| text(&row["version"])).collect();
        let message = format!("`{name}` is not in force any more");
        return Err(Mistake::new(message, format!("name two versions of {}", known.join(", "))).into());
    };
    let before = || versions.iter().map(|row| text(&row["version"])).find(|version| *version != to);
    let Some(from) = from.map(|from| whole(name, from)).or_else(before) else {
        if global.json {
            json_line(&json!({"name": name, "from": null, "to": to, "versions": versions, "diff": []}));
        } else {
            say!("{to} is the only version there was");
        }
        return Ok(Ending::Done);
    };
    let mut texts = Vec::new();
    for version in [&from, &to] {
        match backend.get(&format!("{}?version={}", address(name), urlencoded(version))).await? {
            Answer::Ok(found) => texts.push(document::to_yaml(&found["context"])),
            other => return Ok(finish(global, other, |_| {})),
        }
    }
    let patch = diffy::create_patch(&texts[0], &texts[1]).to_string();
    // The first two lines name the texts, which have better names.
    let changes: Vec<&str> = patch.lines().skip(2).collect();
    if global.json {
        json_line(&json!({"name": name, "from": from, "to": to, "versions": versions, "diff": changes}));
    } else {
        say!("--- {from}\n+++ {to}");
        changes.iter().for_each(|line| say!("{}", harmless(line)));
        tell_versions(&versions);
    }
    Ok(Ending::Done)
}

fn tell_versions(versions: &[Value]) {
    say!("\nversions, the one that came into force last first:");
    for row in versions {
        let state = match (row["in_force"] == true, row["retired"].as_str()) {
            (true, _) => "in force",
            (false, Some(_)) => "sessions were told to drop it",
            (false, None) => "kept by sessions that attested under it",
        };
        say!("  {}  first in force {}  {state}", text(&row["version"]), text(&row["first_seen"]));
    }
}

/// Checked here first: a mistake is shown in the file, and nothing of it takes effect.
async fn apply(global: &Global, file: &Path, drop: bool) -> anyhow::Result<Ending> {
    let name = file.display().to_string();
    let written = input::text(file)?;
    if is_configuration(&written) {
        let message = format!("{name} is a node's configuration, and no security context");
        return Err(Mistake::new(message, "put what stands under spec.security_contexts into a file of its own, or start the node with this one: aegis up --config FILE").into());
    }
    let contexts = match security_context::parse(&written) {
        Ok(contexts) => contexts,
        Err(mistakes) => {
            if global.json {
                json_line(&json!({"file": name, "valid": false, "mistakes": mistakes}));
            } else {
                eprintln!("{}", document::render(&mistakes, &written, &name));
                eprintln!("{}; nothing was applied", counted(mistakes.len(), "mistake"));
            }
            return Ok(Ending::Failed);
        }
    };
    let backend = Backend::open(global).await?;
    let mut ended = Ending::Done;
    for context in contexts {
        let path = format!("{}{}", address(context.name.as_str()), if drop { "?drop=true" } else { "" });
        let answer = backend.put(&path, &serde_json::to_value(&context)?).await?;
        ended = finish(global, answer, tell_change);
        if ended != Ending::Done {
            break;
        }
    }
    backend.close().await;
    Ok(ended)
}

/// A whole configuration would be told as a context in which every word is wrong.
fn is_configuration(text: &str) -> bool {
    document::parse::<Value>(text).is_ok_and(|parsed| parsed.value["kind"] == "NodeConfig")
}

fn tell_change(changed: &Value) {
    let name = text(&changed["name"]);
    match (changed["old"].as_str(), changed["new"].as_str()) {
        (Some(old), Some(new)) if old == new => say!("{name} is already like that ({new})"),
        (Some(old), Some(new)) => say!("{name} is in force as {new}; it was {old}"),
        (None, Some(new)) => say!("{name} is in force as {new}"),
        (_, None) => say!("{name} is no longer in force"),
    }
    if changed["dropped"] == true {
        tell_dropped(changed);
    }
    for warning in changed["warnings"].as_array().into_iter().flatten() {
        eprintln!("warning: {name}, {}: {}", text(&warning["pointer"]), text(&warning["message"]));
    }
}

fn tell_dropped(changed: &Value) {
    say!("sessions that were opened under an older version of {} must attest again", text(&changed["name"]));
}
