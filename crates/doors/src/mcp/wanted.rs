//! What a request wants of the plane. Tools are called by name; what servers offer besides tools is reached by tools of
//! the node's own, so that reading a resource passes the same gates as everything else.

use aegis_core::{Call, Caller, call, trace::TraceContext};
use aegis_routes::upstream::{Owner, Sought};
use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    conversation::Conversation,
    definitions::{self, Names},
    era::Era,
    fault::{Fault, INVALID_PARAMS},
    message::{Request, string},
    watches,
};
use crate::strict;

/// The code for a resource that is not there, in the revisions with sessions.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;

/// What the answer looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Tool,
    Resource,
    Prompt,
    Completion,
    List(Kind),
    /// How a task stands.
    Task,
    /// Nothing but that it was done.
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Resources,
    Templates,
    Prompts,
}

impl Shape {
    /// Whether such a request may be answered with questions (`input_required`).
    pub(crate) fn can_ask(self) -> bool {
        matches!(self, Self::Tool | Self::Resource | Self::Prompt)
    }
}

impl Kind {
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }

    fn tool(self) -> &'static str {
        match self {
            Self::Resources => "mcp.resources.list",
            Self::Templates => "mcp.resources.templates",
            Self::Prompts => "mcp.prompts.list",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) shape: Shape,
    /// Of the exact request, so that an answer does not come to another one.
    pub(crate) digest: String,
    /// Where a list goes on.
    pub(crate) after: Option<String>,
    target: Target,
    /// The trace that the client is in.
    trace: Option<TraceContext>,
}

#[derive(Debug)]
enum Target {
    Call(Call),
    Resource { uri: String, tool: &'static str },
    Prompt { name: String, arguments: Option<Value> },
    Completion { template: Option<String>, arguments: Map<String, Value> },
}

/// The tool behind a method, by which it is decided whether the method is there at all.
pub(crate) fn tool_behind(method: &str) -> Option<&'static str> {
    Some(match method {
        "resources/list" => Kind::Resources.tool(),
        "resources/templates/list" => Kind::Templates.tool(),
        "resources/read" => READ,
        "resources/subscribe" | "resources/unsubscribe" => watches::SUBSCRIBE,
        "prompts/list" => Kind::Prompts.tool(),
        "prompts/get" => PROMPT,
        "completion/complete" => COMPLETE,
        _ => return None,
    })
}

const READ: &str = "mcp.resources.read";
const PROMPT: &str = "mcp.prompts.get";
const COMPLETE: &str = "mcp.completion.complete";

impl Wanted {
    pub(crate) fn read(
        conversation: &Conversation,
        request: &Request<'_>,
        names: Names,
    ) -> Result<Self, Fault> {
        let (shape, target) = match request.method.as_ref() {
            "resources/list" => list(Kind::Resources),
            "resources/templates/list" => list(Kind::Templates),
            "prompts/list" => list(Kind::Prompts),
            "resources/read" => (Shape::Resource, Target::Resource { uri: uri(request)?, tool: READ }),
            "resources/subscribe" => {
                (Shape::Done, Target::Resource { uri: uri(request)?, tool: watches::SUBSCRIBE })
            }
            "prompts/get" => (Shape::Prompt, prompt(request)?),
            "completion/complete" => (Shape::Completion, completion(request)?),
            _ => (Shape::Tool, tool(conversation, request, names)?),
        };
        let after = match request.params.cursor {
            Some(cursor) if matches!(shape, Shape::List(_)) => Some(
                string(cursor)
                    .ok_or_else(|| Fault::invalid_params("`params.cursor` must be a string"))
                    .and_then(|cursor| definitions::read_cursor(&cursor))?,
            ),
            _ => None,
        };
        Ok(Self { digest: target.digest(request), shape, after, target, trace: request.params.meta.trace() })
    }

    /// The call itself. Whose a resource or a prompt is may have to be asked first.
    pub(crate) async fn call(
        &self,
        conversation: &Conversation,
        caller: &Caller,
        era: Era,
    ) -> Result<Call, Fault> {
        let offers = &conversation.doors.offers;
        let call = match &self.target {
            Target::Call(call) => call.clone(),
            Target::Resource { uri, tool } => {
                resource(conversation, caller, uri, tool).await?.ok_or_else(|| no_resource(uri, era))?
            }
            Target::Prompt { name, arguments } => {
                let owners = offers.owners(Sought::Prompt(name)).await;
                let claims = owners.into_iter().map(|Owner { server, name }| {
                    let mut members = json!({"server": server, "name": name});
                    if let Some(arguments) = arguments {
                        members["arguments"] = arguments.clone();
                    }
                    Call::new(PROMPT, members.as_object().cloned().unwrap_or_default())
                });
                the_one(conversation, caller, name, claims.collect())?.ok_or_else(|| no_prompt(name))?
            }
            Target::Completion { template, arguments } => {
                let name = arguments["ref"]["name"].as_str().unwrap_or_default();
                let sought = template.as_deref().map_or(Sought::Prompt(name), Sought::Template);
                let owners = offers.owners(sought).await;
                let claims = owners.into_iter().map(|owner| {
                    let mut arguments = arguments.clone();
                    if template.is_none() {
                        arguments["ref"]["name"] = owner.name.into();
                    }
                    arguments.insert("server".into(), owner.server.into());
                    Call::new(COMPLETE, arguments)
                });
                let name = template.as_deref().unwrap_or(name);
                the_one(conversation, caller, name, claims.collect())?.ok_or_else(|| no_prompt(name))?
            }
        };
        Ok(call.traced(self.trace.clone()))
    }

    /// Of a resource that is watched from now on, whose it is.
    pub(crate) fn watched(call: &Call) -> Option<(&str, &str)> {
        (call.tool == watches::SUBSCRIBE)
            .then(|| Some((call.arguments.get("server")?.as_str()?, call.arguments.get("uri")?.as_str()?)))?
    }
}

impl Target {
    fn digest(&self, request: &Request<'_>) -> String {
        let mut whole = Map::new();
        let (name, arguments) = match self {
            Self::Call(call) => (call.tool.clone(), Value::Object(call.arguments.clone())),
            Self::Resource { uri, .. } => (uri.clone(), Value::Null),
            Self::Prompt { name, arguments } => (name.clone(), arguments.clone().unwrap_or_default()),
            Self::Completion { arguments, .. } => (String::new(), Value::Object(arguments.clone())),
        };
        whole.insert("method".into(), request.method.as_ref().into());
        whole.insert("name".into(), name.into());
        whole.insert("arguments".into(), arguments);
        call::digest(&whole)
    }
}

/// The call of a tool about a resource, if any server has it.
pub(crate) async fn resource(
    conversation: &Conversation,
    caller: &Caller,
    uri: &str,
    tool: &'static str,
) -> Result<Option<Call>, Fault> {
    let owners = conversation.doors.offers.owners(Sought::Resource(uri)).await;
    let claims = owners.iter().map(|owner| Call::new(tool, watches::arguments(&owner.server, uri)));
    the_one(conversation, caller, uri, claims.collect())
}

/// Of the same thing at several servers, the one that the caller may have. Where that leaves a choice, a server that claims
/// what is another's must not be the one to make it.
fn the_one(
    conversation: &Conversation,
    caller: &Caller,
    what: &str,
    mut claims: Vec<Call>,
) -> Result<Option<Call>, Fault> {
    if claims.len() > 1 {
        let plane = &conversation.doors.plane;
        let may = |call: &Call| {
            let tool = plane.catalog().resolve(&call.tool);
            tool.is_some_and(|tool| plane.policy().decide(caller, &tool, &call.arguments).granted.is_some())
        };
        match claims.iter().filter(|call| may(call)).count() {
            // Refused and recorded as any other call.
            0 => claims.truncate(1),
            _ => claims.retain(may),
        }
    }
    if claims.len() > 1 {
        let named = |call: &Call| Some(format!("`{}`", call.arguments.get("server")?.as_str()?));
        let servers: Vec<String> = claims.iter().filter_map(named).collect();
        let shown: String = what.chars().take(200).collect();
        let tool = &claims[0].tool;
        return Err(Fault::invalid_params(format!(
            "`{shown}` is claimed by the MCP servers {}, and which of them is meant can't be known; call the tool `{tool}`, \
             which takes the server's name",
            servers.join(" and ")
        )));
    }
    Ok(claims.pop())
}

fn list(kind: Kind) -> (Shape, Target) {
    (Shape::List(kind), Target::Call(Call::new(kind.tool(), Map::new())))
}

fn tool(conversation: &Conversation, request: &Request<'_>, names: Names) -> Result<Target, Fault> {
    let name = request
        .params
        .name
        .and_then(string)
        .ok_or_else(|| Fault::invalid_params("`params.name` must be the name of a tool"))?;
    let arguments = match request.params.arguments {
        Some(raw) if raw.get() != "null" => strict::object(raw.get())
            .map_err(|error| Fault::invalid_params(format!("`params.arguments`: {error}")))?,
        _ => Map::new(),
    };
    Ok(Target::Call(Call::new(conversation.definitions().1.exact(names, &name), arguments)))
}

fn uri(request: &Request<'_>) -> Result<String, Fault> {
    let uri = request.params.uri.and_then(string).filter(|uri| !uri.is_empty());
    uri.map(std::borrow::Cow::into_owned)
        .ok_or_else(|| Fault::invalid_params("`params.uri` must be the address of a resource"))
}

fn prompt(request: &Request<'_>) -> Result<Target, Fault> {
    let name = request
        .params
        .name
        .and_then(string)
        .ok_or_else(|| Fault::invalid_params("`params.name` must be the name of a prompt"))?;
    let arguments = match request.params.arguments {
        Some(raw) if raw.get() != "null" => Some(Value::Object(
            strict::object(raw.get())
                .map_err(|error| Fault::invalid_params(format!("`params.arguments`: {error}")))?,
        )),
        _ => None,
    };
    Ok(Target::Prompt { name: name.into_owned(), arguments })
}

fn completion(request: &Request<'_>) -> Result<Target, Fault> {
    let mut arguments = Map::new();
    let params = &request.params;
    for (name, raw, required) in [
        ("ref", params.reference, true),
        ("argument", params.argument, true),
        ("context", params.context, false),
    ] {
        match raw {
            Some(raw) => {
                let value = strict::object(raw.get())
                    .map_err(|error| Fault::invalid_params(format!("`params.{name}`: {error}")))?;
                arguments.insert(name.into(), Value::Object(value));
            }
            None if required => return Err(Fault::invalid_params(format!("`params.{name}` is missing"))),
            None => {}
        }
    }
    let reference = &arguments["ref"];
    let template = match (reference["type"].as_str(), reference["name"].as_str(), reference["uri"].as_str()) {
        (Some("ref/prompt"), Some(_), _) => None,
        (Some("ref/resource"), _, Some(uri)) => Some(uri.to_owned()),
        _ => {
            return Err(Fault::invalid_params(
                "`params.ref` must be a `ref/prompt` with a name or a `ref/resource` with a uri",
            ));
        }
    };
    Ok(Target::Completion { template, arguments })
}

pub(crate) fn no_resource(uri: &str, era: Era) -> Fault {
    let code = if era.is_modern() { INVALID_PARAMS } else { RESOURCE_NOT_FOUND };
    Fault::new(StatusCode::OK, code, "Resource not found").with_data(json!({"uri": uri}))
}

fn no_prompt(name: &str) -> Fault {
    let shown: String = name.chars().take(200).collect();
    Fault::invalid_params(format!("there is no prompt or template `{shown}`"))
}

/// Whether this caller is offered a method at all.
pub(crate) fn offered(conversation: &Conversation, caller: &Caller, method: &str) -> bool {
    let offers = &conversation.doors.offers;
    let can = match method {
        "resources/subscribe" | "resources/unsubscribe" => offers.can("resources", None),
        "completion/complete" => offers.can("completions", None),
        _ if method.starts_with("prompts/") => offers.can("prompts", None),
        _ => offers.can("resources", None),
    };
    let plane = &conversation.doors.plane;
    let tool = tool_behind(method).and_then(|tool| plane.catalog().resolve(tool));
    can && tool.is_some_and(|tool| plane.policy().sees(caller, &tool))
}
