mod explain;
mod replay;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{Verdict, config::LabelRules, nearest::suggestion, quantity::counted};
use aegis_gates::{
    ArgumentsGate, PolicyGate,
    policy::{
        Circumstances, Example, ExampleVerdict, LabelBook, Problem, Rules, RulesError, SessionLabels, Source,
    },
};
use serde_json::{Value, json};

use crate::{
    backend::Backend,
    cases,
    cli::{Global, Policy},
    client::Answer,
    ending::{Mistake, Obstacle},
    known::Known,
    locate, node,
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

/// What policies are read against, and those policies. It needs no node.
struct Ground {
    known: Known,
    rules: Rules,
}

impl Ground {
    /// With the policies of this directory, or else those that the node goes by. When they can't be used, why has been
    /// told.
    fn lay(global: &Global, policies: Option<&Path>) -> anyhow::Result<Result<Self, Ending>> {
        let known = Known::read(global)?;
        let directory = place(global, &known, policies, "aegis policy replay --policies DIR")?;
        let read = sources(&directory, policies.is_some()).and_then(|sources| {
            Rules::compile(&sources, &known.schema(), known.config.spec.policy.label_rules)
        });
        match read {
            Ok(rules) => Ok(Ok(Self { known, rules })),
            Err(error) => {
                tell_error(global, &directory, &error);
                Ok(Err(Ending::Failed))
            }
        }
    }
}

/// Where the policies are that are meant. One that was named must be there: a slip of the pen would otherwise be a set
/// without rules. `usage` is the command that names one.
fn place(global: &Global, known: &Known, named: Option<&Path>, usage: &str) -> anyhow::Result<PathBuf> {
    match named {
        Some(named) if !named.exists() => Err(nothing_at(named, usage).into()),
        Some(named) => Ok(named.to_owned()),
        None => Ok(node::policies(&known.config, &locate::data_dir(global)?)),
    }
}

/// The files of a place. Those that were named are shown by that name, and not as the node would call them.
fn sources(place: &Path, named: bool) -> Result<Vec<Source>, RulesError> {
    let mut sources = Source::read_all(place)?;
    if named {
        let directory = if place.is_dir() { place } else { place.parent().unwrap_or(Path::new("")) };
        sources = sources.into_iter().map(|source| source.shown_in(directory)).collect();
    }
    Ok(sources)
}

fn nothing_at(path: &Path, usage: &str) -> Mistake {
    let message = format!("there is nothing at {}", path.display());
    Mistake::new(message, format!("name a `*.cedar` file, or a directory of them: {usage}"))
}

fn check(global: &Global, named: Option<&Path>) -> anyhow::Result<Ending> {
    let known = Known::read(global)?;
    let path = place(global, &known, named, "aegis policy check PATH")?;
    // A node need not have policies, unless its configuration says where they are.
    let absent = !path.exists();
    if absent && known.config.spec.policy.directory.is_some() {
        let message =
            format!("spec.policy.directory: {} is not there, and no node starts without it", path.display());
        let next =
            "make the directory and put the policies there, or name another under spec.policy.directory";
        return Err(Obstacle::new(message, next).into());
    }
    let read = sources(&path, named.is_some())
        .and_then(|sources| Rules::compile(&sources, &known.schema(), LabelRules::Off));
    match read {
        Ok(rules) => {
            let (count, examples) = (rules.list().len(), rules.examples().len());
            let doubts = known.doubts();
            let otherwise = contexts_say_otherwise(&known, &rules);
            if global.json {
                let contexts = doubts.iter().map(
                    |doubt| json!({"context": doubt.context, "pointer": doubt.pointer, "message": doubt.message}),
                );
                json_line(&json!({
                    "path": path.display().to_string(),
                    "valid": true,
                    "rules": count,
                    "examples": examples,
                    "warnings": rules.warnings(),
                    "context_warnings": contexts.collect::<Vec<_>>(),
                    "example_warnings": otherwise,
                    "problems": [],
                }));
            } else {
                rules.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
                doubts.iter().for_each(|doubt| eprintln!("warning: {doubt}"));
                otherwise.iter().for_each(|told| eprintln!("warning: {told}"));
                let (count, examples) = (counted(count, "rule"), counted(examples, "example"));
                if absent {
                    say!(
                        "there are no policies: contexts and spec.policy.label_rules decide; put `*.cedar` files into {} to \
                         have some, or check others with `aegis policy check PATH`",
                        path.display()
                    );
                } else {
                    say!("{} is valid: {count}, true to {examples}", path.display());
                }
            }
            Ok(Ending::Done)
        }
        Err(error) => {
            tell_error(global, &path, &error);
            Ok(Ending::Failed)
        }
    }
}

/// Examples that policies alone let through, and that no caller would get through: the context that they name refuses
/// the call, or is not there. What policies say holds all the same, so these are remarks.
fn contexts_say_otherwise(known: &Known, rules: &Rules) -> Vec<String> {
    let contexts = known.contexts();
    let gate = PolicyGate::new(&contexts, Rules::none(), LabelBook::forgetful())
        .under(known.config.spec.exec.ceiling.clone());
    let examples = rules.examples().iter().filter_map(|held| Some((held, Example::parse(&held.text).ok()?)));
    let mut told = Vec::new();
    for (held, example) in examples.filter(|(_, example)| example.names_context) {
        let name = example.caller.context.as_str();
        let place = format!("{}:{}", held.file, held.line);
        if !contexts.iter().any(|context| context.name.as_str() == name) {
            let close = suggestion(name, contexts.iter().map(|context| context.name.as_str()));
            told.push(format!("{place}: there is no security context `{name}`{close}"));
            continue;
        }
        let Some(tool) =
            known.catalog.resolve(&example.tool).filter(|_| held.verdict != ExampleVerdict::Deny)
        else {
            continue;
        };
        let mut arguments = example.arguments.clone();
        let complete = ArgumentsGate::new([tool.as_ref()]).check(&tool, &mut arguments).is_ok();
        let labels = Arc::new(SessionLabels::of(&[]));
        let circumstances = Circumstances { labels: &labels, now: example.at, hidden: &[] };
        let decision = gate.decide_under(&example.caller, &tool, &arguments, &circumstances);
        if let Verdict::Deny(violation) = decision.verdict.verdict
            && complete
        {
            told.push(format!(
                "{place}: the policies say {}, and the context `{name}` refuses the call ({})",
                held.verdict, violation.kind
            ));
        }
    }
    told
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
    let schema = Known::read(global)?.schema();
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
    let schema = ground.known.schema();
    let mut outcomes = Vec::new();
    for path in paths {
        for file in cases::files(path)? {
            outcomes.extend(cases::run(&file, &ground.known.catalog, &schema)?);
        }
    }
    let failed = outcomes.iter().filter(|outcome| !outcome.holds()).count();
    let otherwise = contexts_say_otherwise(&ground.known, &ground.rules);
    if global.json {
        json_line(&json!({
            "examples": ground.rules.examples(),
            "example_warnings": otherwise,
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
        otherwise.iter().for_each(|told| eprintln!("warning: {told}"));
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
    if let Some(error) = found["refused"]["error"].as_str() {
        eprintln!("warning: these rules stay in force, since the policy files can't be used as they are:");
        error.lines().for_each(|line| eprintln!("  {}", harmless(line)));
        eprintln!("  next: correct them; the node reads them again as soon as they change");
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
