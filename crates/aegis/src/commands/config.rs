use aegis_core::config::NodeConfig;
use anyhow::Context;
use serde_json::json;

use crate::{
    cli::{Config, Global},
    locate,
    output::{Ending, json_line, json_pretty, say, say_part},
};

pub(super) fn run(global: &Global, command: &Config) -> anyhow::Result<Ending> {
    match command {
        Config::Show => show(global),
        Config::Schema => {
            json_pretty(&serde_json::to_value(schemars::schema_for!(NodeConfig))?);
            Ok(Ending::Done)
        }
        Config::Validate { file } => {
            let file = match file {
                Some(file) => Some(file.clone()),
                None => locate::config_file(global)?,
            };
            validate(global, file.context("there is no configuration file; name one")?.as_path())
        }
    }
}

fn show(global: &Global) -> anyhow::Result<Ending> {
    let file = locate::config_file(global)?;
    let config = locate::read_config(file.as_deref())?;
    let place = file.map_or_else(|| "built-in defaults".to_owned(), |file| file.display().to_string());
    if global.json {
        json_line(&json!({"file": place, "config": config}));
    } else {
        say!("# {place}");
        say_part!("{}", config.to_yaml());
    }
    Ok(Ending::Done)
}

fn validate(global: &Global, file: &std::path::Path) -> anyhow::Result<Ending> {
    let text = std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    let name = file.display().to_string();
    let mistakes = NodeConfig::parse(&text).err().unwrap_or_default();
    if global.json {
        let rows: Vec<_> = mistakes
            .iter()
            .map(|m| json!({"line": m.line, "column": m.column, "pointer": m.pointer, "message": m.message}))
            .collect();
        json_line(&json!({"file": name, "valid": mistakes.is_empty(), "mistakes": rows}));
    } else if mistakes.is_empty() {
        say!("{name} is valid");
    } else {
        for mistake in &mistakes {
            eprintln!("{}", mistake.render(&text, &name));
        }
        eprintln!("{} mistake(s)", mistakes.len());
    }
    Ok(if mistakes.is_empty() { Ending::Done } else { Ending::Failed })
}
