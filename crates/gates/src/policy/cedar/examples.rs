//! Examples that policy files carry, checked whenever the files are read.
//!
//! In a `.cedar` file each is a comment line of its own, in a `.examples` file a plain line:
//!
//! ```text
//! // deny: fs.delete {"path": "/workspace/ledger"} as workspace
//! // ask: fs.write {"path": "a.txt", "content": ""} as workspace/user having EXTERNAL_UNTRUSTED
//! // allow: fs.read {"path": "a.txt"} as read-only by ann in acme through seal at 2026-01-05T12:00:00Z
//! ```
//!
//! `as` names the context and perhaps the tier, `by` the user, `in` the tenant, `through` the door, `having` a trust
//! class that the session has read (or several, with commas), `reaching` a domain that a command is granted, `at` the time.
//! They may be left out.

use std::{borrow::Cow, fmt, sync::Arc};

use aegis_core::{
    Caller, Door, Tier, Timestamp,
    domain::DomainPattern,
    label::{Label, TrustClass},
    nearest::suggestion,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    Rules, Schema,
    facts::Facts,
    problem::{Problem, RulesError},
    source::Source,
};
use crate::policy::{labels::SessionLabels, targets::Targets};

/// Examples in all.
const MOST_EXAMPLES: usize = 10_000;
/// A Monday at noon, so that a rule about time says the same whenever the files are read.
const WHEN: u64 = 1_767_614_400_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExampleVerdict {
    Allow,
    Deny,
    Ask,
}

impl fmt::Display for ExampleVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Ask => "ask",
        })
    }
}

/// A call, and what the policies must say to it.
#[derive(Debug, Clone)]
pub struct Example {
    pub expected: ExampleVerdict,
    pub tool: String,
    pub arguments: Map<String, Value>,
    pub caller: Caller,
    /// Whether the context was named, and is not the one that is taken otherwise.
    pub names_context: bool,
    /// What the session has read.
    pub labels: Vec<TrustClass>,
    /// Whether a command is granted any domain.
    pub egress: bool,
    pub at: Timestamp,
}

impl Example {
    /// Reads one, without the comment's slashes.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (verdict, rest) =
            text.split_once(':').ok_or("an example begins with `allow:`, `deny:` or `ask:`")?;
        let expected = verdict_of(verdict).ok_or_else(|| {
            format!("`{verdict}` is no verdict{}: write allow, deny or ask", suggestion(verdict, VERDICTS))
        })?;
        let rest = rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == '{').unwrap_or(rest.len());
        let (tool, rest) = rest.split_at(end);
        if tool.is_empty() {
            return Err("name a tool after the verdict, e.g. `deny: fs.delete {\"path\": \"x\"}`".into());
        }
        let (arguments, rest) = arguments(rest.trim_start())?;
        let mut example = Self {
            expected,
            tool: tool.to_owned(),
            arguments,
            caller: Caller {
                tenant: "local".into(),
                user: "someone".into(),
                tier: Tier::User,
                context: "workspace".into(),
                credential: "example".into(),
                door: Door::Rest,
                session: None,
                pinned: None,
            },
            names_context: false,
            labels: Vec::new(),
            egress: false,
            at: Timestamp::from_millis(WHEN),
        };
        let mut words = rest.split_whitespace();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("something must follow `{word}`"))?;
            example.clause(word, value)?;
        }
        Ok(example)
    }

    fn clause(&mut self, word: &str, value: &str) -> Result<(), String> {
        match word {
            "as" => {
                let (context, tier) = match value.split_once('/') {
                    Some((context, tier)) => (context, tier.parse()?),
                    None => (value, Tier::User),
                };
                self.caller.context = context.into();
                self.names_context = true;
                self.caller.tier = tier;
            }
            "by" => self.caller.user = value.into(),
            "in" => self.caller.tenant = value.into(),
            "through" => {
                self.caller.door = serde_json::from_value(Value::from(value)).map_err(|_| {
                    format!("`{value}` is no door: write mcp-http, mcp-stdio, rest, seal or cli")
                })?;
            }
            "having" => {
                for name in value.split(',') {
                    let class = TrustClass::ALL.into_iter().find(|class| class.as_str() == name);
                    let names = TrustClass::ALL.map(TrustClass::as_str);
                    self.labels.push(
                        class.ok_or_else(|| {
                            format!("`{name}` is no trust class{}", suggestion(name, names))
                        })?,
                    );
                }
            }
            "reaching" => {
                DomainPattern::parse(value).map_err(|error| error.to_string())?;
                self.egress = true;
            }
            "at" => {
                self.at = Timestamp::parse(value)
                    .ok_or_else(|| format!("`{value}` is no time: write it as 2026-01-05T12:00:00Z"))?;
            }
            _ => {
                return Err(format!(
                    "`{word}` means nothing here{}",
                    suggestion(word, ["as", "by", "in", "through", "having", "reaching", "at"])
                ));
            }
        }
        Ok(())
    }

    /// What the policies say to it, and by which rule.
    fn verdict(&self, rules: &Rules, schema: &Schema) -> Result<(ExampleVerdict, String), String> {
        let Some(tool) = schema.tool(&self.tool) else {
            return Err(format!(
                "there is no tool called `{}`{}",
                self.tool,
                suggestion(&self.tool, schema.tool_names())
            ));
        };
        let mut arguments = self.arguments.clone();
        schema.arguments().check(&tool.spec, &mut arguments).map_err(|violation| violation.message)?;
        let targets = Targets::of(&tool.spec, &arguments).map_err(|violation| violation.message)?;
        let source: Cow<'static, str> = "example".into();
        let read: Vec<Label> = self
            .labels
            .iter()
            .map(|trust| Label { trust: *trust, source: source.clone(), origin: None })
            .collect();
        let labels = Arc::new(SessionLabels::of(&read));
        let facts = Facts {
            caller: &self.caller,
            labels: &labels,
            arguments: &arguments,
            targets: &targets,
            egress: self.egress,
            now: self.at,
            hidden: &[],
        };
        let Some(ruling) = rules.judge(&tool.spec, &facts) else {
            return Ok((ExampleVerdict::Allow, format!("no policy speaks of `{}`", tool.spec.name)));
        };
        Ok(match (&ruling.forbidden, ruling.asks.first()) {
            (Some(violation), _) => {
                (ExampleVerdict::Deny, violation.rule.clone().unwrap_or_else(|| violation.message.clone()))
            }
            (None, Some(ask)) => (ExampleVerdict::Ask, ask.rule.clone()),
            (None, None) => (ExampleVerdict::Allow, "nothing forbids it".to_owned()),
        })
    }
}

const VERDICTS: [&str; 3] = ["allow", "deny", "ask"];

fn verdict_of(word: &str) -> Option<ExampleVerdict> {
    [ExampleVerdict::Allow, ExampleVerdict::Deny, ExampleVerdict::Ask]
        .into_iter()
        .find(|verdict| verdict.to_string() == word)
}

/// The JSON object at the start of the text (none is an empty one), and what follows it.
fn arguments(text: &str) -> Result<(Map<String, Value>, &str), String> {
    if !text.starts_with('{') {
        return Ok((Map::new(), text));
    }
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    match stream.next() {
        Some(Ok(arguments)) => Ok((arguments, &text[stream.byte_offset()..])),
        Some(Err(error)) => Err(format!("the arguments are no JSON object: {error}")),
        None => Ok((Map::new(), text)),
    }
}

/// An example that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Held {
    pub file: String,
    pub line: usize,
    pub text: String,
    pub verdict: ExampleVerdict,
    /// Which rule decided, in words.
    pub by: String,
}

/// What came of the examples of some files.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) held: Vec<Held>,
    /// Those that can't be told yet.
    pub(super) warnings: Vec<Problem>,
}

/// Holds every example of the files against the rules. One about a tool that no server offers yet waits as the rules about
/// it do: a node that starts must not refuse what it went by when it stopped.
pub(super) fn check(sources: &[Source], rules: &Rules, schema: &Schema) -> Result<Checked, RulesError> {
    let Checked { mut held, mut warnings } = Checked::default();
    let mut problems = Vec::new();
    for source in sources {
        let mut offset = 0;
        for (index, line) in source.text.split_inclusive('\n').enumerate() {
            let start = offset + (line.len() - line.trim_start().len());
            offset += line.len();
            let Some(text) = written(source, line) else { continue };
            let example = Example::parse(text);
            if let Ok(example) = &example
                && schema.awaits(&example.tool)
            {
                let message =
                    format!("the example waits for `{}`, which no MCP server offers yet", example.tool);
                warnings.push(Problem::at(&source.place(), &source.text, start, message));
                continue;
            }
            let verdict = example.and_then(|example| {
                example.verdict(rules, schema).map(|(verdict, by)| (example.expected, verdict, by))
            });
            let wrong = match verdict {
                Ok((expected, verdict, by)) if expected == verdict => {
                    let (file, text) = (source.place(), text.to_owned());
                    held.push(Held { file, line: index + 1, text, verdict, by });
                    continue;
                }
                Ok((expected, verdict, by)) => {
                    format!(
                        "the example does not hold: expected {expected}, and the policies say {verdict} ({by})"
                    )
                }
                Err(message) => format!("the example can't be checked: {message}"),
            };
            problems.push(Problem::at(&source.place(), &source.text, start, wrong));
        }
        if held.len() + warnings.len() + problems.len() > MOST_EXAMPLES {
            problems.push(Problem::of_file(
                &source.place(),
                format!("there are more than {MOST_EXAMPLES} examples"),
            ));
            break;
        }
    }
    if problems.is_empty() { Ok(Checked { held, warnings }) } else { Err(RulesError::Rejected(problems)) }
}

/// The example in a line, if it is one. In a file of examples every line is, but for empty ones and remarks after `#`.
fn written<'l>(source: &Source, line: &'l str) -> Option<&'l str> {
    let line = line.trim();
    let text = line.strip_prefix("//").map(str::trim_start);
    if source.has_policies() {
        return text
            .filter(|text| text.split_once(':').is_some_and(|(verdict, _)| verdict_of(verdict).is_some()));
    }
    let text = text.unwrap_or(line);
    (!text.is_empty() && !text.starts_with('#')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clause_is_read() {
        let example = Example::parse(
            "ask: fs.write {\"path\": \"a b\", \"content\": \"as } x\"} as deploy/system by ann in acme \
             through seal having EXTERNAL_UNTRUSTED,USER_OWNED reaching example.org at 2026-02-01T09:00:00Z",
        )
        .unwrap();
        assert_eq!(example.expected, ExampleVerdict::Ask);
        assert_eq!(example.tool, "fs.write");
        assert_eq!(example.arguments["content"], "as } x");
        assert_eq!((example.caller.context.as_str(), example.caller.tier), ("deploy", Tier::System));
        assert_eq!((example.caller.user.as_str(), example.caller.tenant.as_str()), ("ann", "acme"));
        assert_eq!(example.caller.door, Door::Seal);
        assert_eq!(example.labels, [TrustClass::ExternalUntrusted, TrustClass::UserOwned]);
        assert!(example.egress);
        assert_eq!(example.at.to_string(), "2026-02-01T09:00:00.000Z");
        assert!(Example::parse("allow: aegis.tools.list").unwrap().arguments.is_empty());
    }

    #[test]
    fn what_is_not_understood_is_said() {
        for (text, said) in [
            ("deny fs.read", "begins with"),
            ("denied: fs.read", "no verdict"),
            ("deny:", "name a tool"),
            ("deny: fs.read {\"path\"", "no JSON object"),
            ("deny: fs.read [1]", "something must follow `[1]`"),
            ("deny: fs.read {} like this", "means nothing here"),
            ("deny: fs.read {} as", "something must follow `as`"),
            ("deny: fs.read {} as x/root", "no tier"),
            ("deny: fs.read {} having UNTRUSTED", "no trust class"),
            ("deny: fs.read {} through window", "no door"),
            ("deny: fs.read {} at noon", "no time"),
            ("deny: cmd.run {} reaching a/b", "a/b"),
        ] {
            let error = Example::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn prose_in_comments_is_no_example() {
        let policies = Source::new("x.cedar", "");
        assert_eq!(written(&policies, "// deny: fs.read {}\n"), Some("deny: fs.read {}"));
        assert_eq!(written(&policies, "// note: this is prose\n"), None);
        assert_eq!(written(&policies, "permit (principal, action, resource); // deny: x\n"), None);
        let examples = Source::new("x.examples", "");
        assert_eq!(written(&examples, "deny: fs.read {}"), Some("deny: fs.read {}"));
        assert_eq!(written(&examples, "nonsense"), Some("nonsense"));
        assert_eq!(written(&examples, "# remark"), None);
        assert_eq!(written(&examples, "  \n"), None);
    }
}
