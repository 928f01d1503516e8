//! The shape of a tool: typed input and output, the facts the catalog shows, and the deed.

use std::{future::Future, sync::Mutex};

use aegis_core::{
    Event, Failure, FailureKind, Label, Outcome, Permit, ToolSpec, Violation, ViolationKind,
    approval::Desk,
    caller::Tier,
    progress::{Listener, Progress},
    tool::{ApprovalRule, Directory, Example, Mutability, Route, Target, Text},
};
use futures::future::BoxFuture;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::files::Revision;

/// One tool. Input has passed the arguments gate: defaults are filled and numbers clamped.
pub trait Tool: Send + Sync + 'static {
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// The answer as an object.
    type Output: Serialize + JsonSchema + Send + 'static;

    fn facts(&self) -> Facts;

    fn run(
        &self,
        run: &Run<'_>,
        input: Self::Input,
    ) -> impl Future<Output = Result<Answer<Self::Output>, Failure>> + Send;

    /// The answer as text, for tools whose contract is a string. Their object form is for MCP only.
    fn text(_output: &Self::Output) -> Option<String> {
        None
    }

    /// Whether [`Tool::text`] gives a text.
    const ANSWERS_TEXT: bool = false;

    /// What a call would do, for whoever is asked to approve it. Nothing happens.
    fn intended(_input: Self::Input) -> Option<Intended> {
        None
    }

    /// The failure object. Most tools name themselves; file tools name the path.
    fn failure(name: &str, _arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        failure_members([("tool", name.into())], failure)
    }
}

/// What a call would do.
#[derive(Debug)]
pub enum Intended {
    /// Change files.
    Revisions(Vec<Revision>),
    /// Give a file or a directory another name.
    Rename { from: String, to: String },
}

/// What follows in a description is true of this machine only, and no part of the reference.
pub const HERE: &str = " On this node: ";

/// `error`, `error_kind` and the tool's own members.
pub fn failure_members<const N: usize>(own: [(&str, Value); N], failure: &Failure) -> Map<String, Value> {
    let mut members = failure.extra.clone();
    members.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
    members.insert("error".into(), failure.message.as_str().into());
    members.insert("error_kind".into(), failure.kind.as_str().into());
    members
}

/// What a tool's file says about it; the schemas are derived from its types.
#[derive(Debug)]
pub struct Facts {
    pub name: Text,
    pub aliases: Vec<Text>,
    pub title: Text,
    pub category: Text,
    pub description: Text,
    pub tags: Vec<Text>,
    pub tier: Tier,
    pub skip_judge: bool,
    pub mutability: Mutability,
    pub idempotent: bool,
    pub approval: ApprovalRule,
    pub route: Route,
    pub targets: Vec<Target>,
    pub label: Label,
    pub examples: Vec<Example>,
}

/// What a running tool has at hand.
#[derive(derive_more::Debug)]
pub struct Run<'a> {
    pub permit: &'a Permit,
    #[debug(skip)]
    pub directory: &'a dyn Directory,
    #[debug(skip)]
    pub desk: &'a dyn Desk,
    /// Cancelled when the caller is gone or the call's time is up; long work looks at it.
    pub cancel: &'a CancellationToken,
    #[debug(skip)]
    listener: &'a dyn Listener,
    events: Mutex<Vec<Event>>,
    refusal: Mutex<Option<Violation>>,
}

impl<'a> Run<'a> {
    pub fn new(
        permit: &'a Permit,
        directory: &'a dyn Directory,
        desk: &'a dyn Desk,
        cancel: &'a CancellationToken,
        listener: &'a dyn Listener,
    ) -> Self {
        let (events, refusal) = (Mutex::new(Vec::new()), Mutex::new(None));
        Self { permit, directory, desk, cancel, listener, events, refusal }
    }

    /// Tells subscribers what happened. Shown whether the tool then succeeds or fails.
    pub fn emit(&self, event: Event) {
        self.events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(event);
    }

    /// Tells subscribers at once what others may not want to wait for.
    pub fn announce(&self, event: Event) {
        self.listener.event(event);
    }

    /// Tells whoever waits for the answer how far the work is.
    pub fn progress(&self, progress: Progress) {
        self.listener.progress(progress);
    }

    /// Who hears of the call while it runs, for work that several parts share.
    pub fn listener(&self) -> &'a dyn Listener {
        self.listener
    }

    /// Refuses the call after all, over something that only the route could see. The caller hears the violation; what
    /// is returned here only ends the tool.
    #[must_use]
    pub fn refuse(&self, violation: Violation) -> Failure {
        let ended = Failure::new(FailureKind::PermissionDenied, violation.message.clone());
        *self.refusal.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(violation);
        ended
    }

    fn into_parts(self) -> (Vec<Event>, Option<Violation>) {
        let events = self.events.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        (events, self.refusal.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// A tool's output, with where its content came from when that is more precise than the catalog's label.
#[derive(Debug)]
pub struct Answer<O> {
    pub output: O,
    pub origin: Option<String>,
}

impl<O> Answer<O> {
    pub fn from(output: O, origin: impl Into<String>) -> Self {
        Self { output, origin: Some(origin.into()) }
    }
}

impl<O> From<O> for Answer<O> {
    fn from(output: O) -> Self {
        Self { output, origin: None }
    }
}

/// A tool behind a pointer, so that the catalog can hold all of them.
pub(crate) trait AnyTool: Send + Sync {
    fn run<'a>(
        &'a self,
        spec: &'a ToolSpec,
        run: Run<'a>,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Outcome, Violation>>;

    fn intended(&self, arguments: &Map<String, Value>) -> Option<Intended>;
}

impl<T: Tool> AnyTool for T {
    fn intended(&self, arguments: &Map<String, Value>) -> Option<Intended> {
        T::Input::deserialize_arguments(arguments).ok().and_then(T::intended)
    }

    fn run<'a>(
        &'a self,
        spec: &'a ToolSpec,
        run: Run<'a>,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Outcome, Violation>> {
        Box::pin(async move {
            let input = T::Input::deserialize_arguments(&arguments).map_err(|error| {
                Violation::new(
                    ViolationKind::InvalidArguments,
                    format!("Invalid tool arguments: {error} for tool '{}'", spec.name),
                )
            })?;
            let answered = Tool::run(self, &run, input).await;
            let (events, refusal) = run.into_parts();
            if let Some(violation) = refusal {
                return Err(violation);
            }
            let mut label = spec.label.clone();
            Ok(match answered {
                Ok(Answer { output, origin }) => {
                    label.origin = origin;
                    let structured = serde_json::to_value(&output).map_err(|error| unserialisable(&error))?;
                    let (value, structured) = match T::text(&output) {
                        Some(text) => (Value::String(text), Some(structured)),
                        None => (structured, None),
                    };
                    Outcome { value, structured, failure: None, label, events, passed: None }
                }
                Err(failure) => Outcome {
                    value: Value::Object(T::failure(&spec.name, &arguments, &failure)),
                    structured: None,
                    failure: Some(failure.kind),
                    // A session is not held to have read what it tried to and could not.
                    label: if failure.kind.shows_nothing_read() { Label::node() } else { label },
                    events,
                    passed: None,
                },
            })
        })
    }
}

fn unserialisable(error: &serde_json::Error) -> Violation {
    Violation::new(
        ViolationKind::InternalError,
        format!("the tool's answer can't be written as JSON: {error}"),
    )
}

/// Reads typed input out of arguments without giving them up: a failure object may name them.
trait FromArguments: Sized {
    fn deserialize_arguments(arguments: &Map<String, Value>) -> Result<Self, serde_json::Error>;
}

impl<T: DeserializeOwned> FromArguments for T {
    fn deserialize_arguments(arguments: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        T::deserialize(serde::de::value::MapDeserializer::new(
            arguments.iter().map(|(name, value)| (name.as_str(), value)),
        ))
    }
}

pub(crate) fn spec_of<T: Tool>(tool: &T) -> ToolSpec {
    let facts = tool.facts();
    let structured_schema = schema_of::<T::Output>();
    ToolSpec {
        name: facts.name,
        aliases: facts.aliases,
        title: facts.title,
        category: facts.category,
        description: facts.description,
        tags: facts.tags,
        tier: facts.tier,
        skip_judge: facts.skip_judge,
        mutability: facts.mutability,
        idempotent: facts.idempotent,
        approval: facts.approval,
        route: facts.route,
        targets: facts.targets,
        label: facts.label,
        provenance: "".into(),
        input_schema: schema_of::<T::Input>(),
        output_schema: if T::ANSWERS_TEXT {
            serde_json::json!({"type": "string"})
        } else {
            structured_schema.clone()
        },
        structured_schema,
        examples: facts.examples,
    }
}

/// The JSON Schema of a type as a model should see it: no `$ref`, no Rust number formats, no `null` alternative
/// (an absent member is the way to say nothing).
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
        root.remove("description");
        root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    }
    plain(&mut schema);
    schema
}

fn plain(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.get("format").and_then(Value::as_str).is_some_and(|format| {
                format.starts_with("uint")
                    || format.starts_with("int")
                    || format == "double"
                    || format == "float"
            }) {
                object.remove("format");
            }
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    object.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if object.get("default") == Some(&Value::Null) {
                object.remove("default");
            }
            object.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}
