//! What a server says of a tool, held against what can be used. All of it is text from outside.

use std::{borrow::Cow, sync::Arc};

use aegis_core::{
    Label, ToolSpec,
    caller::Tier,
    config::McpServer,
    secret::Redactor,
    tool::{Mutability, Route, Target, UPSTREAM_TAG},
    upstream::Definition,
};
use aegis_mcp_client::http::header_parameters;
use http::HeaderName;
use jsonschema::Validator;
use serde_json::{Map, Value, value::RawValue};
use sha2::{Digest, Sha256};

use super::schema;

const LONGEST_NAME: usize = 128;
const LONGEST_TITLE: usize = 200;
/// Groups of tools that policies speak of.
const POLICY_WORDS: [&str; 4] = ["read_only", "mutating", "destructive", "sending"];

/// A tool of a server that could be called, if its definition is accepted.
#[derive(derive_more::Debug)]
pub(super) struct Sound {
    pub(super) definition: Definition,
    pub(super) spec: Arc<ToolSpec>,
    /// The server's own name.
    pub(super) tool: String,
    #[debug(skip)]
    pub(super) output: Option<Validator>,
    /// Parameters that 2026-07-28 wants in headers as well.
    pub(super) headers: Vec<(Vec<String>, HeaderName)>,
    /// Whether it runs only as a task (2025-11-25).
    pub(super) as_task: bool,
}

/// An entry of a server's list that is not passed on, and why.
#[derive(Debug, Clone)]
pub(super) struct Unsound {
    pub(super) tool: String,
    pub(super) name: Option<String>,
    pub(super) reason: String,
    /// Whether the configuration leaves it out, whatever its definition is.
    pub(super) left_out: bool,
}

/// The node's own tool of a name, if it has one.
pub(super) type BuiltIn<'a> = &'a (dyn Fn(&str) -> Option<Arc<ToolSpec>> + Sync);

/// An entry without the secrets that the server was given, which it may have put into a description.
pub(super) fn cleaned<'a>(redactor: &Redactor, entry: &'a RawValue) -> Cow<'a, RawValue> {
    if !redactor.finds(entry.get().as_bytes()) {
        return Cow::Borrowed(entry);
    }
    let mut value: Value = serde_json::from_str(entry.get()).unwrap_or_default();
    redactor.value(&mut value);
    match RawValue::from_string(value.to_string()) {
        Ok(clean) => Cow::Owned(clean),
        Err(_) => Cow::Owned(RawValue::NULL.to_owned()),
    }
}

pub(super) fn read(server: &McpServer, entry: &RawValue, built_in: BuiltIn<'_>) -> Result<Sound, Unsound> {
    let mut told = Unsound { tool: String::new(), name: None, reason: String::new(), left_out: false };
    let fail = |told: &mut Unsound, reason: String| {
        told.reason = reason;
        told.clone()
    };
    if entry.get().len() as u64 > server.limits.max_definition.0 {
        told.tool = name_in(entry).unwrap_or_default();
        let most = server.limits.max_definition;
        return Err(fail(&mut told, format!("its definition is larger than {most} (limits.max_definition)")));
    }
    let Ok(members) = serde_json::from_str::<Map<String, Value>>(entry.get()) else {
        return Err(fail(&mut told, "its entry in the list is no object, or is nested too deeply".into()));
    };
    let tool = members.get("name").and_then(Value::as_str).unwrap_or_default();
    told.tool = shown(tool, LONGEST_NAME);
    if !usable(tool) {
        let reason = "its name is not 1 to 128 letters, digits, `_`, `-` and `.`".to_owned();
        return Err(fail(&mut told, reason));
    }
    let Some(name) = server.public_name(tool) else {
        told.left_out = true;
        return Err(fail(&mut told, "the configuration does not pass it on".into()));
    };
    if POLICY_WORDS.contains(&name.as_str()) {
        return Err(fail(&mut told, format!("`{name}` means something else in policies")));
    }
    if !usable(&name) {
        return Err(fail(&mut told, format!("`{name}` is too long for a name")));
    }
    told.name = Some(name.clone());
    let definition = Definition::of(&members);
    let made = Shape::of(server, &members, tool, &name, built_in);
    let (mut spec, output, headers) = made.map_err(|reason| fail(&mut told, reason))?;
    spec.provenance = provenance(server, &definition).into();
    let as_task = members.get("execution").is_some_and(|how| how["taskSupport"] == "required");
    Ok(Sound { definition, spec: Arc::new(spec), tool: tool.to_owned(), output, headers, as_task })
}

struct Shape;

type Made = (ToolSpec, Option<Validator>, Vec<(Vec<String>, HeaderName)>);

impl Shape {
    fn of(
        server: &McpServer,
        members: &Map<String, Value>,
        tool: &str,
        name: &str,
        built_in: BuiltIn<'_>,
    ) -> Result<Made, String> {
        let input = members.get("inputSchema").ok_or("it has no inputSchema")?;
        if input.get("type") != Some(&Value::from("object")) {
            return Err("its inputSchema is not of type object".into());
        }
        schema::compile(input).map_err(|reason| format!("its inputSchema can't be used: {reason}"))?;
        let output = match members.get("outputSchema") {
            None | Some(Value::Null) => None,
            Some(output) => {
                let compiled = schema::compile(output);
                Some((
                    output.clone(),
                    compiled.map_err(|reason| format!("its outputSchema can't be used: {reason}"))?,
                ))
            }
        };
        let headers = header_parameters(input).map_err(|mistake| mistake.to_string())?;
        let own = built_in(name);
        let targets = targets(name, input, own.as_deref())?;
        let annotations = members.get("annotations").and_then(Value::as_object);
        let hint = |hint: &str| annotations.and_then(|hints| hints.get(hint)).and_then(Value::as_bool);
        let annotated = annotations.map(|_| match (hint("readOnlyHint"), hint("destructiveHint")) {
            (Some(true), _) => Mutability::ReadOnly,
            (_, Some(false)) => Mutability::Mutating,
            _ => Mutability::Destructive,
        });
        let text = |member: &str| members.get(member).and_then(Value::as_str);
        let title = text("title").or_else(|| annotations?.get("title")?.as_str()).unwrap_or(tool);
        let description = plain(text("description").unwrap_or_default());
        let category = server.namespace().or_else(|| name.split('.').next()).unwrap_or(&server.name);
        let (output_schema, validator) =
            output.map_or((Value::Null, None), |(schema, compiled)| (schema, Some(compiled)));
        let spec = ToolSpec {
            name: name.to_owned().into(),
            aliases: own.as_ref().map(|own| own.aliases.clone()).unwrap_or_default(),
            title: shown(title, LONGEST_TITLE).into(),
            category: category.to_owned().into(),
            // Whoever reads it learns whose words they are.
            description: format!("(In the words of the MCP server `{}`:) {description}", server.name).into(),
            tags: vec![UPSTREAM_TAG.into(), server.name.clone().into()],
            tier: own.as_ref().map_or(Tier::User, |own| own.tier),
            skip_judge: server.skips_judge(tool, name),
            mutability: server.mutability(tool, annotated),
            idempotent: hint("idempotentHint").unwrap_or(false),
            approval: server.approval(tool),
            route: Route::Upstream,
            targets,
            label: label(server, tool),
            provenance: "".into(),
            input_schema: input.clone(),
            structured_schema: output_schema.clone(),
            output_schema,
            examples: Vec::new(),
        };
        Ok((spec, validator, headers))
    }
}

/// Tells a tool from one of the same name that another server, or the same one reached elsewhere, offers.
fn provenance(server: &McpServer, definition: &Definition) -> String {
    let whose = (&server.name, server.reach(), &server.working_directory, &server.environment);
    let digest = Sha256::digest(format!("{whose:?} {} {}", definition.tool, definition.digest));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where answers of the tool come from.
pub(super) fn label(server: &McpServer, tool: &str) -> Label {
    Label { trust: server.trust_class(tool), source: format!("mcp:{}", server.name).into(), origin: None }
}

/// What policies look at. A tool that takes the place of one of the node's own is held to the same rules, so it must
/// have the arguments that those are about.
fn targets(name: &str, input: &Value, own: Option<&ToolSpec>) -> Result<Vec<Target>, String> {
    let has = |argument: &str| input["properties"].get(argument).is_some();
    if let Some(own) = own {
        let mut targets = Vec::new();
        for target in &own.targets {
            match target {
                // Which host the node's own provider talks to is none of the server's affair.
                Target::Host { .. } => {}
                Target::Url { argument } if has(argument) => targets.push(target.clone()),
                Target::Url { argument } => {
                    return Err(format!(
                        "it takes the place of the node's `{name}`, whose rules are about `{argument}`, and has no such \
                         argument"
                    ));
                }
                _ => return Err(format!("it can't take the place of the node's `{name}`")),
            }
        }
        return Ok(targets);
    }
    let reaches_out = name.starts_with("web.") || name.starts_with("email.");
    Ok(if reaches_out && has("url") { vec![Target::Url { argument: "url".into() }] } else { Vec::new() })
}

fn usable(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
        && name.split('.').all(|part| !part.is_empty())
}

fn name_in(entry: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    serde_json::from_str::<Named>(entry.get()).ok().map(|named| shown(&named.name, LONGEST_NAME))
}

/// On one line, cut to size.
pub(super) fn shown(text: &str, longest: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(longest).collect()
}

/// Without what moves a terminal's cursor or hides text from a reader.
pub(super) fn plain(text: &str) -> String {
    let hidden = |character: char| {
        (character.is_control() && character != '\n' && character != '\t')
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
    };
    text.chars().filter(|character| !hidden(*character)).collect()
}
