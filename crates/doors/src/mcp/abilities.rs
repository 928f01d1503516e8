//! What a client said it can do, as far as it matters when a call has to wait for a person.

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::era::Revision;

pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Abilities {
    /// It can show its user a question with a form.
    pub(crate) form: bool,
    /// It can send its user to a page.
    pub(crate) page: bool,
    /// It can hold a task and ask for its result later.
    pub(crate) tasks: bool,
}

#[derive(Deserialize)]
struct Declared<'a> {
    #[serde(borrow)]
    elicitation: Option<&'a RawValue>,
    #[serde(borrow)]
    extensions: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Elicitation<'a> {
    #[serde(borrow)]
    form: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Extensions<'a> {
    #[serde(borrow, rename = "io.modelcontextprotocol/tasks")]
    tasks: Option<&'a RawValue>,
}

impl Abilities {
    /// As a stateless request declares them. What can't be read is not declared.
    pub(crate) fn of_request(declared: Option<&RawValue>) -> Self {
        let Some(text) = declared.map(RawValue::get) else { return Self::default() };
        // Most clients declare neither, on every request.
        if !text.contains("elicitation") && !text.contains(TASKS_EXTENSION) {
            return Self::default();
        }
        let Some(declared) = object::<Declared<'_>>(text) else { return Self::default() };
        let asked = declared.elicitation.and_then(|raw| object::<Elicitation<'_>>(raw.get()));
        let extensions = declared.extensions.and_then(|raw| object::<Extensions<'_>>(raw.get()));
        Self {
            // Forms came first, and a client that says no more means those.
            form: asked.as_ref().is_some_and(|asked| asked.form.is_some() || asked.url.is_none()),
            page: asked.is_some_and(|asked| asked.url.is_some()),
            tasks: extensions.is_some_and(|extensions| extensions.tasks.is_some()),
        }
    }

    /// As `initialize` declares them for a whole session.
    pub(crate) fn of_session(declared: Option<&RawValue>, revision: Revision) -> Self {
        let said = Self::of_request(declared);
        Self {
            form: said.form && revision >= Revision::June2025,
            page: said.page && revision >= Revision::November2025,
            // What was called a task then is something else.
            tasks: false,
        }
    }
}

/// What servers may ask a client, in its own words.
pub(crate) fn takes(declared: Option<&RawValue>) -> Map<String, Value> {
    const QUESTIONS: [&str; 3] = ["elicitation", "sampling", "roots"];
    let Some(text) = declared.map(RawValue::get) else { return Map::new() };
    // Most clients declare none, on every request.
    if !QUESTIONS.iter().any(|question| text.contains(question)) {
        return Map::new();
    }
    let Some(mut declared) = object::<Map<String, Value>>(text) else { return Map::new() };
    declared.retain(|name, value| QUESTIONS.contains(&name.as_str()) && value.is_object());
    declared
}

/// As [`takes`], for a whole session of that revision.
pub(crate) fn takes_in(declared: Option<&RawValue>, revision: Revision) -> Map<String, Value> {
    let mut takes = takes(declared);
    if revision < Revision::June2025 {
        takes.remove("elicitation");
    }
    takes
}

/// Derived structs would also read an array, by position.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    text.starts_with('{').then(|| serde_json::from_str(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(text: &str) -> (bool, bool, bool) {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let Abilities { form, page, tasks } = Abilities::of_request(Some(raw));
        (form, page, tasks)
    }

    #[test]
    fn what_is_declared_counts() {
        assert_eq!(declared("{}"), (false, false, false));
        assert_eq!(declared(r#"{"elicitation":{}}"#), (true, false, false));
        assert_eq!(declared(r#"{"elicitation":{"form":{}}}"#), (true, false, false));
        assert_eq!(declared(r#"{"elicitation":{"url":{}}}"#), (false, true, false));
        assert_eq!(declared(r#"{"elicitation":{"form":{},"url":{}},"roots":{}}"#), (true, true, false));
        assert_eq!(
            declared(r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}"#),
            (false, false, true)
        );
    }

    #[test]
    fn what_makes_no_sense_does_not() {
        for text in [
            r#"{"elicitation":[]}"#,
            r#"{"elicitation":null}"#,
            r#"{"elicitation":true}"#,
            r#"{"extensions":["io.modelcontextprotocol/tasks"]}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":null}}"#,
            r#"["elicitation"]"#,
            r#"{"elicitation":{},"elicitation":{}}"#,
        ] {
            assert_eq!(declared(text), (false, false, false), "{text}");
        }
    }

    #[test]
    fn sessions_have_what_their_revision_has() {
        let raw: &RawValue = serde_json::from_str(
            r#"{"elicitation":{"form":{},"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        )
        .unwrap();
        let of = |revision| {
            let Abilities { form, page, tasks } = Abilities::of_session(Some(raw), revision);
            (form, page, tasks)
        };
        assert_eq!(of(Revision::March2025), (false, false, false));
        assert_eq!(of(Revision::June2025), (true, false, false));
        assert_eq!(of(Revision::November2025), (true, true, false));
    }
}
