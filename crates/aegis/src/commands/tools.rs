use aegis_core::{Door, Violation, ViolationKind, nearest::suggestion, tool::Directory};
use serde_json::{Value, json};

use super::call::{SERVERS_READY, call, embedded, urlencoded};
use crate::{
    cli::{Acting, Global, Tools},
    client::Answer,
    locate,
    output::{self, Ending, json_line, say, table_or},
};

pub(super) async fn run(global: &Global, command: &Tools) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Tools::List { limit, acting } => match specs(global, acting).await? {
            Ok(specs) => {
                list(global, &specs, *limit);
                Ok(Ending::Done)
            }
            Err(ending) => Ok(ending),
        },
        Tools::Show { name, acting } => show(global, acting, name).await,
        Tools::Search { query, limit, acting } => search(global, acting, query, *limit).await,
    }
}

/// The catalog entries that the caller may see.
async fn specs(global: &Global, acting: &Acting) -> anyhow::Result<Result<Vec<Value>, Ending>> {
    let data = locate::data_dir(global)?;
    if let Some(running) = locate::running(&data) {
        return Ok(match locate::client(&data, &running, acting)?.get("/v1/tools").await? {
            Answer::Ok(value) => Ok(value["tools"].as_array().cloned().unwrap_or_default()),
            Answer::ToolFailed(_) => Ok(Vec::new()),
            Answer::Refused(violation) => Err(output::refusal(&violation, global.json)),
        });
    }
    let node = embedded(global, acting).await?;
    if let Err(violation) = node.knows_context(acting.context.as_deref()) {
        node.close().await;
        return Ok(Err(output::refusal(&violation, global.json)));
    }
    node.start_servers().await;
    node.servers_ready(SERVERS_READY, |_| true).await;
    let caller = node.local_caller(Door::Cli, acting.context.as_deref());
    let visible = node.doors.plane.visible(&caller);
    let specs = visible.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    node.close().await;
    Ok(Ok(specs))
}

fn list(global: &Global, specs: &[Value], limit: usize) {
    let shown = &specs[..specs.len().min(limit)];
    if global.json {
        json_line(&json!({"total": specs.len(), "tools": shown}));
        return;
    }
    let cell = |spec: &Value, member: &str| spec[member].as_str().unwrap_or_default().to_owned();
    let rows: Vec<[String; 4]> = shown
        .iter()
        .map(|spec| ["name", "tier", "mutability", "description"].map(|member| cell(spec, member)))
        .collect();
    let nothing = "no tools: this context grants none; `aegis context show NAME` shows what it says";
    table_or(["TOOL", "TIER", "EFFECT", "DESCRIPTION"], &rows, nothing);
    if shown.len() < specs.len() {
        say!("… {} of {}; more with --limit", shown.len(), specs.len());
    }
}

async fn show(global: &Global, acting: &Acting, name: &str) -> anyhow::Result<Ending> {
    let data = locate::data_dir(global)?;
    let spec = match locate::running(&data) {
        Some(running) => {
            let path = format!("/v1/tools/{}", urlencoded(name));
            match locate::client(&data, &running, acting)?.get(&path).await? {
                Answer::Ok(spec) => spec,
                Answer::ToolFailed(_) => return Ok(Ending::Failed),
                Answer::Refused(violation) => return Ok(output::refusal(&violation, global.json)),
            }
        }
        None => match specs(global, acting).await? {
            Ok(specs) => match specs.iter().find(|spec| spec["name"] == name) {
                Some(spec) => spec.clone(),
                None => return Ok(output::refusal(&unknown(name, &specs), global.json)),
            },
            Err(ending) => return Ok(ending),
        },
    };
    if global.json {
        json_line(&spec);
    } else {
        describe(&spec);
    }
    Ok(Ending::Done)
}

/// As a running node says it.
fn unknown(name: &str, known: &[Value]) -> Violation {
    let close = suggestion(name, known.iter().filter_map(|spec| spec["name"].as_str()));
    let message = format!("there is no tool called `{name}` that you may call{close}");
    Violation::new(ViolationKind::ToolNotFound, message)
        .hint("`aegis tools list` or GET /v1/tools shows those there are")
}

fn describe(spec: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    say!("{}  ({})", text(&spec["name"]), text(&spec["title"]));
    say!("{}\n", text(&spec["description"]));
    say!("tier {}, {}, route {}", text(&spec["tier"]), text(&spec["mutability"]), text(&spec["route"]));
    say!("answers are labelled {} ({})\n", text(&spec["label"]["trust"]), text(&spec["label"]["source"]));
    say!("arguments: {:#}\n", spec["input_schema"]);
    say!("answer: {:#}", spec["output_schema"]);
    for example in spec["examples"].as_array().into_iter().flatten() {
        say!(
            "\n# {}\naegis call {} '{}'",
            text(&example["title"]),
            text(&spec["name"]),
            example["arguments"]
        );
    }
}

async fn search(global: &Global, acting: &Acting, query: &str, limit: usize) -> anyhow::Result<Ending> {
    let mut arguments = serde_json::Map::new();
    arguments.insert("query".into(), query.into());
    match call(global, acting, "aegis.tools.search", arguments).await? {
        Answer::Ok(value) => {
            let found = value["result"]["tools"].as_array().cloned().unwrap_or_default();
            if global.json {
                json_line(&json!({"total": found.len(), "tools": &found[..found.len().min(limit)]}));
            } else {
                let cell = |row: &Value, member: &str| row[member].as_str().unwrap_or_default().to_owned();
                let rows: Vec<[String; 2]> = found
                    .iter()
                    .take(limit)
                    .map(|row| ["name", "description"].map(|member| cell(row, member)))
                    .collect();
                table_or(
                    ["TOOL", "DESCRIPTION"],
                    &rows,
                    "no tool speaks of that; `aegis tools list` shows them all",
                );
            }
            Ok(Ending::Done)
        }
        Answer::ToolFailed(value) => {
            eprintln!("failed: {}", value["result"]["error"].as_str().unwrap_or_default());
            Ok(Ending::Failed)
        }
        Answer::Refused(violation) => Ok(output::refusal(&violation, global.json)),
    }
}
