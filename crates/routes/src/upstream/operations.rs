//! Resources, prompts and completion of servers, each a tool like any other: what reads or acts passes the gates.
//!
//! | tool | is |
//! |---|---|
//! | `mcp.resources.list`, `mcp.resources.templates`, `mcp.prompts.list` | of one server, or of all that run |
//! | `mcp.resources.read` | `resources/read` of a server |
//! | `mcp.resources.subscribe`, `mcp.resources.unsubscribe` | notices about a resource, until the connection ends |
//! | `mcp.prompts.get` | `prompts/get` |
//! | `mcp.completion.complete` | `completion/complete` |
//! | `mcp.tasks.get`, `mcp.tasks.update`, `mcp.tasks.cancel` | work that a server does as a task |
//!
//! Contexts grant them by name, for all servers or those of a `server_allowlist`; policies see `context.arguments.server` and `.uri` or `.name`.

use std::sync::{Arc, Weak};

use aegis_core::{
    Failure, FailureKind, Label, Outcome, ToolSpec, Violation, ViolationKind,
    caller::Tier,
    label::TrustClass,
    secret::Principal,
    tool::{ApprovalRule, Mutability, Route, Target},
};
use aegis_mcp_client::Listed;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{
    World, answer,
    ask::{Asked, ask, unavailable},
    definition, reason,
    server::Server,
    tasks::LONGEST_ID,
};
use crate::{
    catalog::Entry,
    tool::{AnyTool, Intended, Run},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    List(Listed),
    Read,
    Subscribe(bool),
    Prompt,
    Complete,
    Task(Step),
}

/// What is wanted of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Get,
    Update,
    Cancel,
}

const ALL: [Operation; 11] = [
    Operation::List(Listed::Resources),
    Operation::List(Listed::ResourceTemplates),
    Operation::Read,
    Operation::Subscribe(true),
    Operation::Subscribe(false),
    Operation::List(Listed::Prompts),
    Operation::Prompt,
    Operation::Complete,
    Operation::Task(Step::Get),
    Operation::Task(Step::Update),
    Operation::Task(Step::Cancel),
];

/// The entries of the catalog.
pub(super) fn entries(world: &Arc<World>) -> Vec<Entry> {
    ALL.into_iter()
        .map(|operation| Entry {
            spec: Arc::new(operation.spec()),
            tool: Arc::new(Governed { operation, world: Arc::downgrade(world) }),
        })
        .collect()
}

/// What the catalog says of them.
pub(super) fn specs() -> impl Iterator<Item = Arc<ToolSpec>> {
    ALL.into_iter().map(|operation| Arc::new(operation.spec()))
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::List(Listed::Resources) => "mcp.resources.list",
            Self::List(Listed::ResourceTemplates) => "mcp.resources.templates",
            Self::List(Listed::Prompts) => "mcp.prompts.list",
            Self::List(Listed::Tools) => "mcp.tools.list",
            Self::Read => "mcp.resources.read",
            Self::Subscribe(true) => "mcp.resources.subscribe",
            Self::Subscribe(false) => "mcp.resources.unsubscribe",
            Self::Prompt => "mcp.prompts.get",
            Self::Complete => "mcp.completion.complete",
            Self::Task(Step::Get) => "mcp.tasks.get",
            Self::Task(Step::Update) => "mcp.tasks.update",
            Self::Task(Step::Cancel) => "mcp.tasks.cancel",
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::List(Listed::Resources) => (
                "List MCP resources",
                "Lists the resources of an MCP server behind the node, or of all of them.",
            ),
            Self::List(Listed::ResourceTemplates) => (
                "List MCP resource templates",
                "Lists the templates for addresses of resources of an MCP server, or of all of them.",
            ),
            Self::List(Listed::Prompts) => {
                ("List MCP prompts", "Lists the prompts of an MCP server behind the node, or of all of them.")
            }
            Self::List(Listed::Tools) => ("List MCP tools", "Lists the tools of an MCP server."),
            Self::Read => ("Read an MCP resource", "Reads a resource of an MCP server behind the node."),
            Self::Subscribe(true) => (
                "Watch an MCP resource",
                "Asks an MCP server to tell when a resource changes, for as long as it is connected.",
            ),
            Self::Subscribe(false) => (
                "Stop watching an MCP resource",
                "Asks an MCP server no longer to tell when a resource changes.",
            ),
            Self::Prompt => {
                ("Get an MCP prompt", "Gets a prompt of an MCP server, filled in with arguments.")
            }
            Self::Complete => (
                "Complete an argument",
                "Asks an MCP server for values of an argument of a prompt or of a resource template.",
            ),
            Self::Task(Step::Get) => ("Look at an MCP task", "Tells how far an MCP server is with a task."),
            Self::Task(Step::Update) => {
                ("Answer an MCP task", "Gives an MCP server the answers that a task of its waits for.")
            }
            Self::Task(Step::Cancel) => ("Cancel an MCP task", "Asks an MCP server to give a task up."),
        }
    }

    fn input(self) -> Value {
        let server =
            json!({"type": "string", "minLength": 1, "maxLength": 64, "description": "The server's name."});
        let text = |most: usize, what: &str| json!({"type": "string", "minLength": 1, "maxLength": most, "description": what});
        let (properties, required) = match self {
            Self::List(_) => (json!({"server": server}), json!([])),
            Self::Read | Self::Subscribe(_) => (
                json!({"server": server, "uri": text(8192, "The resource's address.")}),
                json!(["server", "uri"]),
            ),
            Self::Prompt => (
                json!({"server": server, "name": text(256, "The prompt's name."),
                    "arguments": {"type": "object", "additionalProperties": {"type": "string"},
                        "description": "What the prompt is filled in with."}}),
                json!(["server", "name"]),
            ),
            Self::Complete => (
                json!({"server": server,
                    "ref": {"type": "object", "description":
                        "{\"type\": \"ref/prompt\", \"name\": …} or {\"type\": \"ref/resource\", \"uri\": …}."},
                    "argument": {"type": "object", "description": "{\"name\": …, \"value\": what was typed so far}."},
                    "context": {"type": "object", "description": "Arguments that are settled."}}),
                json!(["server", "ref", "argument"]),
            ),
            Self::Task(step) => {
                let mut properties = json!({"server": server, "taskId": text(LONGEST_ID, "The task's id.")});
                if step == Step::Update {
                    properties["inputResponses"] = json!({"type": "object", "description": "The answers, by the keys of the questions."});
                }
                let required = if step == Step::Update {
                    json!(["server", "taskId", "inputResponses"])
                } else {
                    json!(["server", "taskId"])
                };
                (properties, required)
            }
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    fn spec(self) -> ToolSpec {
        let (title, description) = self.words();
        ToolSpec {
            name: self.name().into(),
            aliases: Vec::new(),
            title: title.into(),
            category: "mcp".into(),
            description: description.into(),
            tags: vec!["mcp".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: match self {
                Self::Task(Step::Update | Step::Cancel) => Mutability::Mutating,
                _ => Mutability::ReadOnly,
            },
            idempotent: true,
            approval: ApprovalRule::MayRequire,
            route: Route::Upstream,
            targets: vec![Target::Server { argument: "server".into() }],
            label: Label::new(TrustClass::ExternalUntrusted, "mcp"),
            provenance: "".into(),
            input_schema: self.input(),
            output_schema: json!({"type": "object"}),
            structured_schema: json!({"type": "object"}),
            examples: Vec::new(),
        }
    }
}

struct Governed {
    operation: Operation,
    world: Weak<World>,
}

impl AnyTool for Governed {
    fn intended(&self, _: &Map<String, Value>) -> Option<Intended> {
        None
    }

    fn run<'a>(
        &'a self,
        spec: &'a ToolSpec,
        run: Run<'a>,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Outcome, Violation>> {
        Box::pin(async move {
            let Some(world) = self.world.upgrade() else {
                return Err(Violation::new(ViolationKind::ShuttingDown, "the node is stopping"));
            };
            let named = arguments.get("server").and_then(Value::as_str);
            let server = match named {
                Some(name) => match world.server(name) {
                    Some(server) => Some(server),
                    None => {
                        let missing =
                            Failure::new(FailureKind::NotFound, format!("there is no MCP server `{name}`"));
                        return Ok(answer::failure(&spec.name, &Label::node(), &missing));
                    }
                },
                None => None,
            };
            if let Operation::List(what) = self.operation {
                return Ok(list(&world, &run, what, server).await);
            }
            let Some(server) = server else {
                return Err(Violation::new(ViolationKind::InvalidArguments, "`server` is missing"));
            };
            self.ask(&world, &server, spec, &run, arguments).await
        })
    }
}

impl Governed {
    async fn ask(
        &self,
        world: &Arc<World>,
        server: &Arc<Server>,
        spec: &ToolSpec,
        run: &Run<'_>,
        mut arguments: Map<String, Value>,
    ) -> Result<Outcome, Violation> {
        arguments.remove("server");
        let about = ["uri", "name", "taskId"]
            .iter()
            .find_map(|name| arguments.get(*name)?.as_str())
            .map(str::to_owned);
        let (method, wanted) = match self.operation {
            Operation::Read => ("resources/read", "resources"),
            Operation::Subscribe(true) => ("resources/subscribe", "resources"),
            Operation::Subscribe(false) => ("resources/unsubscribe", "resources"),
            Operation::Prompt => ("prompts/get", "prompts"),
            Operation::Complete | Operation::List(_) => ("completion/complete", "completions"),
            Operation::Task(Step::Get) => ("tasks/get", "extensions"),
            Operation::Task(Step::Update) => ("tasks/update", "extensions"),
            Operation::Task(Step::Cancel) => ("tasks/cancel", "extensions"),
        };
        let label = Label { origin: about.clone(), ..definition::label(&server.config, "") };
        let fail = |failure: &Failure| Ok(answer::failure(&spec.name, &label, failure));
        let principal = Principal::from(run.permit.caller());
        if let (Operation::Task(_), Some(task)) = (self.operation, &about)
            && !world.owned.has(&server.config.name, task, &principal)
        {
            let foreign = format!("you have no task of this id at the MCP server `{}`", server.config.name);
            return fail(&Failure::new(FailureKind::NotFound, foreign));
        }
        let client = match server.connection(world, &principal).await {
            Ok(client) => client,
            Err(reason) => return fail(&unavailable(reason)),
        };
        if client.facts().is_some_and(|facts| !facts.can(wanted, None)) {
            let lacks = format!("the MCP server `{}` has no {wanted}", server.config.name);
            return fail(&Failure::new(FailureKind::NotFound, lacks));
        }
        if let (Operation::Subscribe(on), Some(uri)) = (self.operation, &about) {
            return match server.watch(&client, &principal, uri, on).await {
                Ok(()) => Ok(answer::plain(&label, Map::new())),
                Err(error) => fail(&unavailable(world.redacted(&reason::told(&error)))),
            };
        }
        let params = Value::Object(arguments).to_string();
        // The header is for what is read or got; a completion is about an argument.
        let about = about.as_deref().filter(|_| self.operation != Operation::Complete);
        let asked = Asked { method, params, about, headers: Vec::new(), as_task: false };
        match ask(server, world, run, asked).await {
            Ok(result) => match answer::read(&result, &world.redactor()) {
                Ok(members) if matches!(self.operation, Operation::Task(_)) => {
                    Ok(answer::task(&label, members))
                }
                Ok(members) => Ok(answer::plain(&label, members)),
                Err(failure) => fail(&failure),
            },
            Err(unasked) => unasked.outcome(&spec.name, &label),
        }
    }
}

/// One list out of those of all servers, each entry with the server's name.
async fn list(world: &Arc<World>, run: &Run<'_>, what: Listed, only: Option<Arc<Server>>) -> Outcome {
    let (capability, member) = match what {
        Listed::Resources => ("resources", "resources"),
        Listed::ResourceTemplates => ("resources", "resourceTemplates"),
        Listed::Prompts => ("prompts", "prompts"),
        Listed::Tools => ("tools", "tools"),
    };
    let asked_for_one = only.is_some();
    // Whoever may use some servers sees what these have, and does not hear of others.
    let granted = &run.permit.limits().servers;
    let may = |server: &Arc<Server>| granted.as_ref().is_none_or(|names| names.contains(&server.config.name));
    let servers = only.map_or_else(|| world.servers().into_iter().filter(may).collect(), |one| vec![one]);
    let principal = Principal::from(run.permit.caller());
    let redactor = world.redactor();
    let lists = servers.into_iter().map(|server| {
        let (world, principal) = (Arc::clone(world), principal.clone());
        async move {
            let client = server.connection(&world, &principal).await;
            let entries = match client {
                Ok(client) if client.facts().is_some_and(|facts| !facts.can(capability, None)) => {
                    Ok(Vec::new())
                }
                Ok(client) => {
                    let patience = server.config.limits.call_timeout.0;
                    match tokio::time::timeout(patience, client.list(what)).await {
                        Ok(listed) => listed.map_err(|error| world.redacted(&reason::told(&error))),
                        Err(_) => Err("it gave no answer in time".to_owned()),
                    }
                }
                Err(reason) => Err(reason),
            };
            (server, entries)
        }
    });
    let listing = futures::future::join_all(lists);
    let all = tokio::select! {
        all = listing => all,
        () = run.cancel.cancelled() => Vec::new(),
    };
    let mut entries = Vec::new();
    let mut silent = Map::new();
    let mut label =
        Label { trust: TrustClass::ExternalUntrusted, ..Label::new(TrustClass::ExternalUntrusted, "mcp") };
    for (server, listed) in all {
        match listed {
            Ok(listed) => {
                if asked_for_one {
                    label = definition::label(&server.config, "");
                }
                for entry in listed {
                    let Ok(mut entry) = serde_json::from_str::<Map<String, Value>>(entry.get()) else {
                        continue;
                    };
                    entry.insert("server".into(), server.config.name.as_str().into());
                    let mut entry = Value::Object(entry);
                    redactor.value(&mut entry);
                    entries.push(entry);
                }
            }
            Err(reason) if asked_for_one => {
                let name = format!("mcp.{capability}.list");
                return answer::failure(&name, &label, &unavailable(reason));
            }
            Err(reason) => {
                silent.insert(server.config.name.clone(), reason.into());
            }
        }
    }
    let mut members = Map::new();
    members.insert(member.into(), entries.into());
    if !silent.is_empty() {
        members.insert("unavailable".into(), silent.into());
    }
    answer::plain(&label, members)
}
