//! The reference pages under `docs/reference/`, made from the code. A test keeps them true.

use std::fmt::Write as _;

use aegis_core::{ToolSpec, config::NodeConfig, tool::Target};
use aegis_routes::tool::HERE;
use clap::CommandFactory;
use serde_json::Value;

use crate::cli::Cli;

const NOTICE: &str = "<!-- Made from the code: UPDATE_DOCS=1 cargo test -p aegis --test reference -->\n\n";

/// Every tool, from its catalog entry.
pub fn tools<'a>(specs: impl Iterator<Item = &'a ToolSpec>) -> String {
    let mut page = format!("{NOTICE}# Tools\n");
    for spec in specs {
        let _ = tool(&mut page, spec);
    }
    page
}

fn tool(page: &mut String, spec: &ToolSpec) -> std::fmt::Result {
    let description = spec.description.split(HERE).next().unwrap_or_default();
    writeln!(page, "\n## `{}`\n\n{description}\n", spec.name)?;
    let judge = if spec.skip_judge { "no" } else { "yes" };
    writeln!(
        page,
        "Tier {} · {} · route {} · judged in an agent's loop: {judge} · answers labelled {} (`{}`){}",
        spec.tier,
        if spec.mutability.mutates() { "changes things" } else { "read-only" },
        spec.route.as_str(),
        spec.label.trust.as_str(),
        spec.label.source,
        if spec.aliases.is_empty() {
            String::new()
        } else {
            format!(" · alias `{}`", spec.aliases.join("`, `"))
        },
    )?;
    let checked: Vec<String> = spec
        .targets
        .iter()
        .map(|target| match target {
            Target::Path { argument } => format!("`{argument}` against `path_allowlist`"),
            Target::Tree { argument } => {
                format!("`{argument}`, with all that is below it, against `path_allowlist`")
            }
            Target::Patch { argument, .. } => {
                format!("the files that `{argument}` names against `path_allowlist`")
            }
            Target::Url { argument } => format!("the host of `{argument}` against `domain_allowlist`"),
            Target::Host { host } => format!("`{host}` against `domain_allowlist`"),
            Target::Command { command, .. } => format!("`{command}` against the command allowlists"),
            Target::Program { program } => format!("the program `{program}` against the command allowlists"),
            Target::Choice { argument, .. } => {
                format!("the program that `{argument}` stands for against the command allowlists")
            }
            Target::Server { argument } => format!("`{argument}` against `server_allowlist`"),
        })
        .collect();
    if !checked.is_empty() {
        writeln!(page, "\nPolicy checks {}.", checked.join(", "))?;
    }
    properties(page, &spec.input_schema)?;
    for example in &spec.examples {
        writeln!(
            page,
            "\n{}:\n\n```console\n$ aegis call {} '{}'\n```",
            example.title, spec.name, example.arguments
        )?;
    }
    Ok(())
}

fn properties(page: &mut String, schema: &Value) -> std::fmt::Result {
    let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty())
    else {
        return writeln!(page, "\nTakes no arguments.");
    };
    writeln!(page, "\n| argument | type | | |\n|---|---|---|---|")?;
    for (name, property) in properties {
        let required =
            schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name));
        let default = property.get("default").map_or_else(String::new, |value| format!("default `{value}`"));
        let need = if required { "required".to_owned() } else { default };
        writeln!(page, "| `{name}` | {} | {need} | {} |", type_of(property), description(property))?;
    }
    Ok(())
}

/// Every field of the node configuration, from the documentation at its definition.
pub fn config() -> String {
    let mut page = format!(
        "{NOTICE}# Node configuration\n\nYAML, `kind: NodeConfig`. Every field under `spec` has a default.\n"
    );
    let schema = serde_json::to_value(schemars::schema_for!(NodeConfig)).unwrap_or_default();
    let spec = resolve(&schema, &schema["properties"]["spec"]);
    let _ = section(&mut page, &schema, "spec", spec);
    page
}

fn section(page: &mut String, root: &Value, path: &str, schema: &Value) -> std::fmt::Result {
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    writeln!(
        page,
        "\n## `{path}`\n\n{}\n\n| field | type | default | |\n|---|---|---|---|",
        description(schema)
    )?;
    let mut deeper = Vec::new();
    for (name, property) in properties {
        let target = resolve(root, property);
        let items = resolve(root, &target["items"]);
        let default = match property.get("default") {
            Some(Value::Object(_)) | None => String::new(),
            Some(value) => format!("`{value}`"),
        };
        let about = [description(property), description(target)].into_iter().find(|text| !text.is_empty());
        writeln!(page, "| `{name}` | {} | {default} | {} |", type_of(target), about.unwrap_or_default())?;
        if target["properties"].is_object() {
            deeper.push((format!("{path}.{name}"), target));
        } else if items["properties"].is_object() {
            deeper.push((format!("{path}.{name}[]"), items));
        }
    }
    deeper.into_iter().try_for_each(|(path, schema)| section(page, root, &path, schema))
}

/// Follows a `$ref`, and the one non-null branch of an optional field.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(target) = schema["$ref"].as_str() {
        return root.pointer(target.trim_start_matches('#')).unwrap_or(&Value::Null);
    }
    match schema["anyOf"].as_array().map(Vec::as_slice) {
        Some([one, null]) if null["type"] == "null" => resolve(root, one),
        _ => schema,
    }
}

fn type_of(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(values) = schema["oneOf"].as_array() {
        let one = |value: &Value| match value["enum"].as_array() {
            Some(values) => values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", "),
            None => format!("`{}`", value["const"]),
        };
        return values.iter().map(one).collect::<Vec<_>>().join(", ");
    }
    match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds
            .iter()
            .filter_map(Value::as_str)
            .filter(|kind| *kind != "null")
            .collect::<Vec<_>>()
            .join(" or "),
        _ if schema["anyOf"].is_array() => "number or string".to_owned(),
        _ => String::new(),
    }
}

fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

/// Every command, as `--help` shows it.
pub fn cli() -> String {
    let mut page = format!("{NOTICE}# Command line\n");
    let mut root = Cli::command();
    root.build();
    command(&mut page, &mut root, "aegis");
    page
}

fn command(page: &mut String, command: &mut clap::Command, path: &str) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = writeln!(page, "\n## `{path}`\n\n```text\n{}\n```", help.join("\n").trim_end());
    for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
        let path = format!("{path} {}", inner.get_name());
        self::command(page, inner, &path);
    }
}
