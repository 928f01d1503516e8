//! Does a person have to agree? The reasons to ask, less those that a standing approval has answered.

use std::{fmt, sync::Arc};

use aegis_core::{
    Ask, Asker, Caller, Timestamp, ToolSpec, VolumePath,
    approval::Standing,
    config::security_context::CapabilityApproval,
    nearest::suggestion,
    path::PathPrefix,
    tool::{ApprovalRule, Target},
};
use arc_swap::ArcSwap;
use serde_json::{Map, Value};

/// Arguments that one pattern may name, and the longest text in it.
const MOST_ARGUMENTS: usize = 32;
const LONGEST_TEXT: usize = 1024;
/// A longer argument is like no glob: the requester chooses it, and comparing costs its length times the pattern's.
const LONGEST_COMPARED: usize = 4096;

/// Where relative paths begin, in patterns as in calls.
const BASE: &str = "/workspace/";

/// Holds the standing approvals in memory; the registry holds the rows.
#[derive(Debug, Default)]
pub struct ApprovalGate {
    standing: ArcSwap<Vec<Settled>>,
}

/// What the gate says of one call.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nobody asks.
    NotAsked,
    /// An approver has settled the question: which row says so.
    Settled(String),
    /// A person must agree, for these reasons.
    Ask(Vec<Ask>),
}

#[derive(Debug)]
struct Settled {
    row: Standing,
    pattern: ArgumentPattern,
}

impl ApprovalGate {
    /// Puts these rows in force. A row that can't be understood answers nothing.
    pub fn replace(&self, rows: Vec<Standing>) {
        let settled = rows.into_iter().filter(|row| row.revoked.is_none()).filter_map(|row| {
            match ArgumentPattern::parse(&row.arguments) {
                Ok(pattern) => Some(Settled { row, pattern }),
                Err(error) => {
                    tracing::error!(id = row.id, %error, "a standing approval can't be read and is not in force");
                    None
                }
            }
        });
        self.standing.store(Arc::new(settled.collect()));
    }

    pub fn decide(
        &self,
        caller: &Caller,
        tool: &ToolSpec,
        arguments: &Map<String, Value>,
        asks: Vec<Ask>,
        now: Timestamp,
    ) -> Answer {
        if asks.is_empty() {
            return Answer::NotAsked;
        }
        let about_labels = asks.iter().any(|ask| ask.by == Asker::Labels);
        let standing = self.standing.load();
        let settled = standing.iter().find(|Settled { row, pattern }| {
            row.tool == tool.name
                && row.tenant == caller.tenant
                && row.user == caller.user
                && now < row.until
                && (row.covers_labels || !about_labels)
                && (!row.only_named || arguments.keys().all(|name| row.arguments.contains_key(name)))
                && pattern.matches(tool, arguments)
        });
        match settled {
            Some(Settled { row, .. }) => Answer::Settled(row.id.clone()),
            None => Answer::Ask(asks),
        }
    }
}

/// Every reason to ask a person about a call that policy allows. `asked` are those of Cedar rules and of labels.
pub fn reasons(
    tool: &ToolSpec,
    arguments: &Map<String, Value>,
    capability: Option<CapabilityApproval>,
    place: &str,
    asked: Vec<Ask>,
) -> Vec<Ask> {
    let own = |what: &str| Ask {
        by: Asker::Tool,
        rule: format!("`{}` asks for approval {what}", tool.name),
        reason: None,
    };
    let by_tool = match &tool.approval {
        ApprovalRule::NotRequired | ApprovalRule::MayRequire => None,
        ApprovalRule::Required => Some(own("of every call")),
        ApprovalRule::RequiredByDefault if tool.rehearses(arguments) => None,
        ApprovalRule::RequiredByDefault => (capability != Some(CapabilityApproval::NotRequired))
            .then(|| own("unless the capability says `approval: not_required`")),
        ApprovalRule::RequiredFor { argument, values } => arguments
            .get(argument.as_ref())
            .and_then(Value::as_str)
            .filter(|value| values.iter().any(|asked| asked == value))
            .map(|value| own(&format!("when `{argument}` is `{value}`"))),
    };
    let by_context = (capability == Some(CapabilityApproval::Required)).then(|| Ask {
        by: Asker::Context,
        rule: format!("{place}.approval"),
        reason: None,
    });
    by_tool.into_iter().chain(by_context).chain(asked).collect()
}

/// Which arguments a standing approval is for. A value stands for itself; an object says how to compare:
/// `{"equals": …}`, `{"prefix": "text"}` or `{"glob": "text"}`, where `*` and `?` stop at a `/` and `**` does not.
/// Arguments that are not named may have any value. Paths are
/// compared in their normal spelling from the root (`/workspace/…`), other texts as the caller wrote them.
#[derive(Debug, Clone)]
pub struct ArgumentPattern {
    arguments: Vec<(String, Wanted)>,
}

#[derive(Debug, Clone)]
enum Wanted {
    Equals(Value),
    Prefix(String),
    Glob(Vec<char>),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    #[error("a pattern names at most {MOST_ARGUMENTS} arguments")]
    TooMany,
    #[error("the pattern of `{0}` is longer than {LONGEST_TEXT} bytes")]
    TooLong(String),
    #[error(
        "the pattern of `{0}` is an object that says neither equals, prefix nor glob: write {{\"equals\": …}}, \
         {{\"prefix\": \"text\"}} or {{\"glob\": \"text\"}}"
    )]
    Unclear(String),
    #[error("an empty prefix of `{0}` would match any text: leave the argument out to say so")]
    EmptyPrefix(String),
    #[error("`{tool}` has no argument `{argument}`{close}")]
    UnknownArgument { tool: String, argument: String, close: String },
}

impl ArgumentPattern {
    pub fn parse(written: &Map<String, Value>) -> Result<Self, BadPattern> {
        if written.len() > MOST_ARGUMENTS {
            return Err(BadPattern::TooMany);
        }
        let arguments = written.iter().map(|(name, value)| Ok((name.clone(), Wanted::parse(name, value)?)));
        Ok(Self { arguments: arguments.collect::<Result<_, _>>()? })
    }

    /// Whether the tool takes what the pattern names.
    pub fn check(&self, tool: &ToolSpec) -> Result<(), BadPattern> {
        let empty = Map::new();
        let known = tool.input_schema["properties"].as_object().unwrap_or(&empty);
        match self.arguments.iter().find(|(name, _)| !known.contains_key(name)) {
            None => Ok(()),
            Some((name, _)) => Err(BadPattern::UnknownArgument {
                tool: tool.name.to_string(),
                argument: name.clone(),
                close: suggestion(name, known.keys().map(String::as_str)),
            }),
        }
    }

    pub fn matches(&self, tool: &ToolSpec, arguments: &Map<String, Value>) -> bool {
        self.arguments.iter().all(|(name, wanted)| {
            arguments.get(name).is_some_and(|value| wanted.matches(value, is_path(tool, name)))
        })
    }
}

impl Wanted {
    fn parse(name: &str, value: &Value) -> Result<Self, BadPattern> {
        let length = value.as_str().map_or_else(|| value.to_string().len(), str::len);
        if length > LONGEST_TEXT {
            return Err(BadPattern::TooLong(name.to_owned()));
        }
        let Value::Object(object) = value else { return Ok(Self::Equals(value.clone())) };
        let unclear = || BadPattern::Unclear(name.to_owned());
        let mut members = object.iter();
        match (members.next(), members.next()) {
            (Some((how, value)), None) => match (how.as_str(), value) {
                ("equals", value) => Ok(Self::Equals(value.clone())),
                ("prefix", Value::String(text)) if text.is_empty() => {
                    Err(BadPattern::EmptyPrefix(name.to_owned()))
                }
                ("prefix", Value::String(text)) => Ok(Self::Prefix(text.clone())),
                ("glob", Value::String(text)) => Ok(Self::Glob(text.chars().collect())),
                _ => Err(unclear()),
            },
            _ => Err(unclear()),
        }
    }

    fn matches(&self, value: &Value, is_path: bool) -> bool {
        match self {
            Self::Equals(wanted) => wanted == value,
            Self::Prefix(prefix) if is_path => value.as_str().is_some_and(|text| under(prefix, text)),
            Self::Prefix(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix.as_str())),
            Self::Glob(glob) => {
                let like = |text: &str| glob_matches(glob, &text.chars().collect::<Vec<char>>());
                match value.as_str() {
                    Some(text) if text.len() > LONGEST_COMPARED => false,
                    // In its one normal spelling: what the pattern names is a place, not a way of writing it.
                    Some(text) if is_path => VolumePath::parse(text).is_ok_and(|path| {
                        let (rooted, path) = (matches!(glob.first(), Some('/' | '*')), path.to_string());
                        like(if rooted { &path } else { path.strip_prefix(BASE).unwrap_or(&path) })
                    }),
                    Some(text) => like(text),
                    None => false,
                }
            }
        }
    }
}

impl fmt::Display for ArgumentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, wanted)) in self.arguments.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { " and " })?;
            match wanted {
                Wanted::Equals(value) => write!(f, "{name} is {value}")?,
                Wanted::Prefix(prefix) => write!(f, "{name} begins with {prefix:?}")?,
                Wanted::Glob(glob) => write!(f, "{name} is like {:?}", glob.iter().collect::<String>())?,
            }
        }
        if self.arguments.is_empty() { f.write_str("any arguments") } else { Ok(()) }
    }
}

/// By whole components: a directory's name is not the beginning of its neighbour's.
fn under(prefix: &str, text: &str) -> bool {
    let rooted = if prefix.starts_with('/') { prefix.to_owned() } else { format!("{BASE}{prefix}") };
    match (PathPrefix::parse(&rooted), VolumePath::parse(text)) {
        (Ok(prefix), Ok(path)) => prefix.covers(&path),
        _ => false,
    }
}

fn is_path(tool: &ToolSpec, name: &str) -> bool {
    tool.targets.iter().any(
        |target| matches!(target, Target::Path { argument } | Target::Tree { argument } if argument == name),
    )
}

/// Row by row over the pattern, so that no pattern takes longer than its length times the text's.
fn glob_matches(glob: &[char], text: &[char]) -> bool {
    // reached[n]: the pattern so far matches the first n characters.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut rest = glob;
    while let [first, after @ ..] = rest {
        let mut next = vec![false; text.len() + 1];
        match (first, after) {
            ('*', ['*', after @ ..]) => {
                let mut any = false;
                for (to, from) in next.iter_mut().zip(&reached) {
                    any |= from;
                    *to = any;
                }
                rest = after;
            }
            ('*', after) => {
                let mut any = false;
                for index in 0..=text.len() {
                    any = reached[index] || (any && text[index - 1] != '/');
                    next[index] = any;
                }
                rest = after;
            }
            (wanted, after) => {
                for index in 0..text.len() {
                    let fits = if *wanted == '?' { text[index] != '/' } else { *wanted == text[index] };
                    next[index + 1] = reached[index] && fits;
                }
                rest = after;
            }
        }
        reached = next;
    }
    reached[text.len()]
}

#[cfg(test)]
#[path = "approval_tests.rs"]
mod tests;
