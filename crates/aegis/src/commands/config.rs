use std::path::{Path, PathBuf};

use aegis_core::{
    config::{NodeConfig, security_context::OPERATOR_CONTEXT},
    document::{self, Diagnostic, Parsed},
    quantity::counted,
};
use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    cli::{Acting, Config, Global},
    client::Answer,
    ending::Mistake,
    input,
    known::Known,
    locate,
    output::{Ending, in_words, json_line, json_pretty, say, say_part, text},
    reload, volumes,
};

pub(super) async fn run(global: &Global, command: &Config) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Config::Show => show(global).await,
        Config::Schema => {
            json_pretty(&serde_json::to_value(schemars::schema_for!(NodeConfig))?);
            Ok(Ending::Done)
        }
        Config::Validate { file, elsewhere } => {
            let file = match file {
                Some(file) => Some(file.clone()),
                None => locate::config_file(global)?,
            };
            let none =
                || Mistake::new("there is no configuration file", "name one: aegis config validate FILE");
            validate(global, &file.ok_or_else(none)?, *elsewhere)
        }
    }
}

/// What a node goes by: the one that runs, or the one that would be started.
struct InForce {
    place: String,
    config: NodeConfig,
    /// Members that the file of a running node has otherwise, with what it has.
    waiting: Vec<(String, Value)>,
    /// Why the file of a running node is not what it goes by.
    mistaken: Option<String>,
}

async fn show(global: &Global) -> anyhow::Result<Ending> {
    let InForce { place, config, waiting, mistaken } = in_force(global).await?;
    if global.json {
        let mut shown = config.clone();
        shown.spec.security_contexts = config.contexts();
        let waiting: Vec<Value> =
            waiting.iter().map(|(path, value)| json!({"path": path, "next": value})).collect();
        json_line(
            &json!({"file": place, "config": shown, "waits_for_restart": waiting, "file_mistakes": mistaken}),
        );
        return Ok(Ending::Done);
    }
    say!("# {place}");
    if let Some(mistaken) = &mistaken {
        say!(
            "# the file can't be used as it is, so the node goes by what it had before; `aegis config validate` shows why:"
        );
        say!("#   {}", mistaken.lines().nth(1).unwrap_or(mistaken));
    }
    if !waiting.is_empty() {
        say!("# the file says otherwise, and that waits for a restart of the node:");
        for (path, value) in &waiting {
            say!("#   {path}: {value}");
        }
    }
    say_part!("{}", config.to_yaml());
    // As a comment, so that what is printed can be used as a file.
    let contexts = config.contexts();
    if let Some(own) = contexts.iter().find(|context| context.name.as_str() == OPERATOR_CONTEXT) {
        say!("# and the node's own, which can't be changed:");
        for line in document::to_yaml(&json!([own])).lines() {
            say!("#     {line}");
        }
    }
    say!("# `aegis context list` shows the contexts with those that were applied while the node ran");
    Ok(Ending::Done)
}

async fn in_force(global: &Global) -> anyhow::Result<InForce> {
    let data = locate::data_dir(global)?;
    let file = locate::config_file(global)?;
    let Some(running) = locate::running(&data) else {
        let config = locate::read_config(file.as_deref())?;
        let place = file.map_or_else(|| "built-in defaults".to_owned(), |file| file.display().to_string());
        return Ok(InForce { place, config, waiting: Vec::new(), mistaken: None });
    };
    let client = locate::client(&data, &running, &Acting::default())?;
    let found = match client.post("/v1/tools/aegis.system.config", &json!({})).await? {
        Answer::Ok(found) => found["result"].clone(),
        Answer::ToolFailed(failed) => anyhow::bail!("{}", text(&failed["result"]["error"])),
        Answer::Refused(violation) => return Err(violation.into()),
    };
    let config = NodeConfig::parse(found["content_yaml"].as_str().unwrap_or_default())
        .ok()
        .context("the running node's configuration can't be read; is it of another version?")?;
    let place = format!("{}, as the running node has it", text(&found["config_path"]));
    // Its own file, unless another one was asked about.
    let own = found["config_path"]
        .as_str()
        .map(PathBuf::from)
        .filter(|own| global.config.is_none() && own.is_file());
    let (waiting, mistaken) = match locate::read_config(own.or(file).as_deref()) {
        Ok(mut written) => {
            if running.chosen {
                written.spec.network.listen = config.spec.network.listen;
            }
            (reload::waiting(&config, &written), None)
        }
        Err(error) => (Vec::new(), Some(in_words(&error))),
    };
    Ok(InForce { place, config, waiting, mistaken })
}

fn validate(global: &Global, file: &Path, elsewhere: bool) -> anyhow::Result<Ending> {
    let text = input::text(file)?;
    let name = file.display().to_string();
    let (mut mistakes, mut warnings) = (Vec::new(), Vec::new());
    match NodeConfig::read(&text) {
        Err(found) => mistakes = found,
        Ok(parsed) => {
            let data = locate::data_dir(global)?;
            if !elsewhere {
                for (severe, diagnostic) in places(&parsed, &data) {
                    let list = if severe { &mut mistakes } else { &mut warnings };
                    list.push(diagnostic);
                }
            }
            match names(&parsed, (!elsewhere).then_some(data.as_path())) {
                Ok(found) => warnings.extend(found),
                // The file is none the worse for it.
                Err(error) => warnings.push(parsed.diagnostic(
                    "",
                    format!("the names in contexts were not looked at: {error:#}; --elsewhere leaves that directory out"),
                )),
            }
        }
    }
    let valid = mistakes.is_empty();
    if global.json {
        json_line(&json!({"file": name, "valid": valid, "mistakes": mistakes, "warnings": warnings}));
    } else {
        for warning in &warnings {
            eprintln!("warning: {}", warning.render(&text, &name));
        }
        for mistake in &mistakes {
            eprintln!("{}", mistake.render(&text, &name));
        }
        if valid {
            say!("{name} is valid");
        } else {
            eprintln!("{}", counted(mistakes.len(), "mistake"));
        }
    }
    Ok(if valid { Ending::Done } else { Ending::Failed })
}

/// What is wrong with the directories of volumes, each at its place in the text, and whether it can't work like this.
fn places(parsed: &Parsed<NodeConfig>, data: &Path) -> Vec<(bool, Diagnostic)> {
    let troubles = volumes::look(&parsed.value, data).into_iter();
    troubles
        .map(|trouble| {
            let message = format!("{}; {}", trouble.found, trouble.mend);
            (trouble.severe, parsed.diagnostic(&trouble.pointer, message))
        })
        .collect()
}

/// Entries of contexts that name no tool and no volume there is.
fn names(parsed: &Parsed<NodeConfig>, data: Option<&Path>) -> anyhow::Result<Vec<Diagnostic>> {
    let own = &parsed.value.spec.security_contexts;
    let doubts = Known::of(parsed.value.clone(), data)?.doubts();
    let written = doubts.into_iter().filter_map(|doubt| {
        let index = own.iter().position(|context| context.name == doubt.context)?;
        let pointer = format!("/spec/security_contexts/{index}{}", doubt.pointer);
        Some(parsed.diagnostic(&pointer, doubt.message))
    });
    Ok(written.collect())
}
