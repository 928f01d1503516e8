mod explain;
mod replay;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    config::{LabelRules, McpServer, NodeConfig, SecurityContext, StorageConfig, ToolPattern},
    id::CallId,
    quantity::counted,
};
use aegis_gates::policy::{Problem, Rules, RulesError, Schema};
use aegis_routes::Catalog;
use aegis_stores::{DataDir, registry::read_applied_contexts};
use anyhow::Context;
use serde_json::{Value, json};

use crate::{
    backend::Backend,
    cases,
    cli::{Global, Policy},
    client::Answer,
    ending::Mistake,
    locate,
    node::{self, ActiveConfig, catalog},
    output::{self, Ending, harmless, json_line, say, say_part, table, table_or},
};

pub(super) async fn run(global: &Global, command: &Policy) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Policy::Check { path } => check(global, path.as_deref()),
        Policy::Schema => schema(global),
        Policy::Test { paths, all } => test(global, paths, *all),
        Policy::List { limit } => list(global, *limit).await,
        Policy::Explain { .. } => explain::run(global, command).await,
        Policy::Replay { policies, since } => replay::run(global, policies.as_deref(), *since).await,
    }
}

/// What policies are read against. It needs no node, and makes nothing in the data directory.
struct Ground {
    config: NodeConfig,
    catalog: Catalog,
    rules: Rules,
    _scratch: Scratch,
}

/// An empty directory for the volumes of tools that are only looked at.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Ground {
    /// With the policies of this directory, or else those that the node goes by. When they can't be used, why has been
    /// told.
    fn lay(global: &Global, policies: Option<&Path>) -> anyhow::Result<Result<Self, Ending>> {
        let (config, catalog, scratch) = tools(global)?;
        let directory = match policies {
            // A slip of the pen would otherwise be a set without rules.
            Some(directory) if !directory.exists() => return Err(nothing_at(directory).into()),
            Some(directory) => directory.to_owned(),
            None => node::policies(&config, &locate::data_dir(global)?),
        };
        let schema = Schema::of(&catalog.specs()).expecting(claims(&config));
        match Rules::load(&directory, &schema, config.spec.policy.label_rules) {
            Ok(rules) => Ok(Ok(Self { config, catalog, rules, _scratch: scratch })),
            Err(error) => {
                tell_error(global, &directory, &error);
                Ok(Err(Ending::Failed))
            }
        }
    }

    /// The contexts in force: of the node, with the configuration file's laid over what was applied.
    fn contexts(&self, global: &Global) -> anyhow::Result<Vec<SecurityContext>> {
        let mut contexts = self.config.contexts();
        for applied in applied(global)? {
            if !self.config.spec.security_contexts.iter().any(|own| own.name == applied.name) {
                contexts.retain(|below| below.name != applied.name);
                contexts.push(applied);
            }
        }
        Ok(contexts)
    }
}

/// Contexts that an operator applied to the node of this data directory.
fn applied(global: &Global) -> anyhow::Result<Vec<SecurityContext>> {
    let database = DataDir::read_only(locate::data_dir(global)?)?.registry_database();
    read_applied_contexts(&database)?
        .iter()
        .map(|row| {
            serde_json::from_str(&row.text)
                .with_context(|| format!("the applied context `{}` can't be read", row.name))
        })
        .collect()
}

/// The configuration and the node's tools, to be looked at: nothing of the node itself is opened.
fn tools(global: &Global) -> anyhow::Result<(NodeConfig, Catalog, Scratch)> {
    let file = locate::config_file(global)?;
    let config = locate::read_config(file.as_deref())?;
    let mut elsewhere = config.clone();
    // Its volumes may be on another machine than the one that checks its policies.
    elsewhere.spec.storage = StorageConfig::default();
    let scratch = Scratch(std::env::temp_dir().join(format!("aegis-policy-{}", CallId::fresh())));
    let active = Arc::new(ActiveConfig::new(file, elsewhere));
    let catalog = catalog(&active, &scratch.0, Arc::new(|| true))?;
    Ok((config, catalog, scratch))
}

fn nothing_at(path: &Path) -> Mistake {
    let message = format!("there is nothing at {}", path.display());
    Mistake::new(message, "name a `*.cedar` file, or a directory of them: aegis policy check PATH")
}

/// Names of tools that only a running node knows.
fn claims(config: &NodeConfig) -> Vec<ToolPattern> {
    config.spec.mcp_servers.iter().flat_map(McpServer::claims).collect()
}

fn check(global: &Global, path: Option<&Path>) -> anyhow::Result<Ending> {
    let (config, catalog, _scratch) = tools(global)?;
    let path = match path {
        Some(path) => path.to_owned(),
        None => node::policies(&config, &locate::data_dir(global)?),
    };
    if !path.exists() {
        return Err(nothing_at(&path).into());
    }
    let schema = Schema::of(&catalog.specs()).expecting(claims(&config));
    match Rules::load(&path, &schema, LabelRules::Off) {
        Ok(rules) => {
            let (count, examples) = (rules.list().len(), rules.examples().len());
            if global.json {
                json_line(&json!({
                    "path": path.display().to_string(),
                    "valid": true,
                    "rules": count,
                    "examples": examples,
                    "warnings": rules.warnings(),
                    "problems": [],
                }));
            } else {
                rules.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
                let (count, examples) = (counted(count, "rule"), counted(examples, "example"));
                say!("{} is valid: {count}, true to {examples}", path.display());
            }
            Ok(Ending::Done)
        }
        Err(error) => {
            tell_error(global, &path, &error);
            Ok(Ending::Failed)
        }
    }
}

fn tell_error(global: &Global, path: &Path, error: &RulesError) {
    let problems: &[Problem] = error.problems();
    if global.json {
        json_line(&json!({
            "path": path.display().to_string(),
            "valid": false,
            "error": if problems.is_empty() { json!(error.to_string()) } else { Value::Null },
            "problems": problems,
        }));
        return;
    }
    eprintln!("{error}");
    eprintln!("{} in {}", counted(problems.len().max(1), "mistake"), path.display());
}

fn schema(global: &Global) -> anyhow::Result<Ending> {
    let (config, catalog, _scratch) = tools(global)?;
    let schema = Schema::of(&catalog.specs()).expecting(claims(&config));
    if global.json {
        json_line(&schema.to_json());
    } else {
        say_part!("{}", schema.to_cedarschema()?);
    }
    Ok(Ending::Done)
}

fn test(global: &Global, paths: &[PathBuf], all: bool) -> anyhow::Result<Ending> {
    let ground = match Ground::lay(global, None)? {
        Ok(ground) => ground,
        Err(ending) => return Ok(ending),
    };
    let schema = Schema::of(&ground.catalog.specs()).expecting(claims(&ground.config));
    let mut outcomes = Vec::new();
    for path in paths {
        for file in cases::files(path)? {
            outcomes.extend(cases::run(&file, &ground.catalog, &schema)?);
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.holds()).count();
    if global.json {
        json_line(&json!({
            "examples": ground.rules.examples(),
            "cases": outcomes.len(),
            "failed": failed,
            "outcomes": outcomes.iter().filter(|outcome| all || !outcome.holds()).collect::<Vec<_>>(),
        }));
    } else {
        let held = ground.rules.examples().iter().filter(|_| all).map(|held| {
            let place = format!("{}:{}", held.file, held.line);
            let call = held.text.split_once(':').map_or(held.text.as_str(), |(_, call)| call.trim());
            ["holds".to_owned(), held.verdict.to_string(), harmless(call).into_owned(), place]
        });
        let decided = outcomes.iter().filter(|outcome| all || !outcome.holds()).map(|outcome| {
            let state = if outcome.holds() { "holds" } else { "FAILS" };
            let verdict = match outcome.holds() {
                true => outcome.found.clone(),
                false => format!("{}, expected {}", outcome.found, outcome.expected),
            };
            [state.to_owned(), verdict, harmless(&outcome.case).into_owned(), outcome.file.clone()]
        });
        let rows: Vec<[String; 4]> = held.chain(decided).collect();
        if !rows.is_empty() {
            table(["", "VERDICT", "CALL", "FILE"], &rows);
        }
        say!("hold: {} of the policies in force", counted(ground.rules.examples().len(), "example"));
        if !paths.is_empty() {
            say!("hold: {} of {}", outcomes.len() - failed, counted(outcomes.len(), "case"));
        }
    }
    Ok(if failed == 0 { Ending::Done } else { Ending::Failed })
}

async fn list(global: &Global, limit: usize) -> anyhow::Result<Ending> {
    let backend = Backend::open(global).await?;
    let answer = backend.get("/v1/policies").await;
    backend.close().await;
    let found = match answer? {
        Answer::Ok(found) => found,
        Answer::ToolFailed(_) => return Ok(Ending::Failed),
        Answer::Refused(violation) => return Ok(output::refusal(&violation, global.json)),
    };
    if global.json {
        json_line(&found);
        return Ok(Ending::Done);
    }
    let rules = found["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<[String; 5]> = rules.iter().take(limit).map(row).collect();
    let nothing = "no rules beside the security contexts; `aegis policy check` tries a file of them";
    table_or(["RULE", "EFFECT", "TOOLS", "AT", "ABOUT"], &rows, nothing);
    if limit < rules.len() {
        say!("… {limit} of {}; more with --limit", rules.len());
    }
    Ok(Ending::Done)
}

/// Tools named in a row before the rest is counted.
const MOST_TOOLS: usize = 3;

fn row(rule: &Value) -> [String; 5] {
    let text = |member: &str| harmless(rule[member].as_str().unwrap_or_default()).into_owned();
    let tools: Vec<&str> = rule["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let named = match tools.as_slice() {
        [] if rule["all_tools"] == true => "every tool".to_owned(),
        tools if tools.len() > MOST_TOOLS => {
            format!("{}, … ({})", tools[..MOST_TOOLS].join(", "), tools.len())
        }
        tools => tools.join(", "),
    };
    let effect = match rule["shadow"] == true {
        true => format!("{} (shadow)", text("effect")),
        false => text("effect"),
    };
    let about = [text("description"), text("reason")].into_iter().find(|text| !text.is_empty());
    let place = text("place");
    let at = place.split(" (").next().unwrap_or_default().to_owned();
    [text("id"), effect, named, at, about.unwrap_or_default()]
}
