//! Tools as `tools/list` shows them. A tool's text is made once; a list is those texts put together.

use std::collections::HashMap;

use aegis_core::{
    Label, ToolSpec,
    mode::{Mode, SWITCH_MODE},
};
use aegis_routes::upstream::header_parameters;
use axum::http::HeaderName;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    era::{Era, Revision},
    fault::Fault,
};

/// How tools are called over this connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Names {
    /// As the catalog has them.
    #[default]
    Exact,
    /// With `_` for `.`, for model providers that forbid dots. Exact names are understood as well.
    Plain,
}

/// How one connection sees the tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) names: Names,
    /// What the client's mode leaves of a list. Calls are not its business: a tool that the list left out is called
    /// like any other, if policy lets it.
    pub(crate) mode: Option<Mode>,
}

impl View {
    pub(crate) fn shows(self, tool: &str) -> bool {
        self.mode.map_or_else(|| tool != SWITCH_MODE, |mode| mode.shows(tool))
    }
}

impl From<Names> for View {
    fn from(names: Names) -> Self {
        Self { names, mode: None }
    }
}

/// The texts of every tool in the catalog.
#[derive(Debug)]
pub(crate) struct Definitions {
    by_name: HashMap<String, Definition>,
    exact_by_plain: HashMap<String, String>,
}

#[derive(Debug)]
struct Definition {
    /// As JSON strings.
    name: String,
    plain: String,
    /// The text after the name, in the three shapes that the revisions know.
    bare: String,
    annotated: String,
    full: String,
    /// Parameters that clients repeat in headers.
    headers: Vec<(Vec<String>, HeaderName)>,
}

/// A tool without its name. Nothing may be `null`: clients then refuse the whole list.
#[derive(Serialize)]
struct Shape<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    description: &'a str,
    #[serde(rename = "inputSchema")]
    input_schema: &'a Value,
    #[serde(rename = "outputSchema", skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a Map<String, Value>>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

impl Definitions {
    pub(crate) fn of<'a>(specs: impl Iterator<Item = &'a ToolSpec>) -> Self {
        let mut by_name = HashMap::new();
        let mut exact_by_plain = HashMap::new();
        for spec in specs {
            let plain = plain_name(&spec.name, &exact_by_plain);
            by_name.insert(spec.name.to_string(), Definition::of(spec, &plain));
            exact_by_plain.insert(plain, spec.name.to_string());
        }
        Self { by_name, exact_by_plain }
    }

    /// The parameters of a tool that a client repeats in headers, and in which.
    pub(crate) fn headers(&self, names: Names, asked: &str) -> &[(Vec<String>, HeaderName)] {
        self.by_name.get(self.exact(names, asked)).map_or(&[], |definition| &definition.headers)
    }

    /// The catalog's name for what a caller asks for.
    pub(crate) fn exact<'a>(&'a self, names: Names, asked: &'a str) -> &'a str {
        match names {
            Names::Plain if !self.by_name.contains_key(asked) => {
                self.exact_by_plain.get(asked).map_or(asked, String::as_str)
            }
            _ => asked,
        }
    }

    /// Writes the definitions of one page, joined by commas, and gives the cursor of the next page.
    ///
    /// `tools` is sorted by name, and a cursor is the last name shown: pages stay right when tools come and go between
    /// them.
    pub(crate) fn write_page<'a>(
        &self,
        out: &mut Vec<u8>,
        tools: impl Iterator<Item = &'a str>,
        era: Era,
        names: Names,
        after: Option<&str>,
        size: usize,
    ) -> Option<String> {
        let mut rest = tools.filter(|name| after.is_none_or(|after| *name > after));
        let mut last = None;
        for name in rest.by_ref().take(size) {
            let Some(definition) = self.by_name.get(name) else { continue };
            if last.is_some() {
                out.push(b',');
            }
            definition.write(out, era, names);
            last = Some(name);
        }
        rest.next()?;
        last.map(cursor)
    }
}

impl Definition {
    fn of(spec: &ToolSpec, plain: &str) -> Self {
        let (mut input, mut output) = (spec.input_schema.clone(), spec.structured_schema.clone());
        spell_out_booleans(&mut input);
        spell_out_booleans(&mut output);
        let annotations = spec.annotations();
        let meta = json!({
            "aegis/tier": spec.tier,
            "aegis/mutability": spec.mutability,
            "aegis/label": Label { origin: None, ..spec.label.clone() },
        });
        let bare = Shape {
            title: None,
            description: &spec.description,
            input_schema: &input,
            output_schema: None,
            annotations: None,
            meta: None,
        };
        let annotated = Shape { annotations: Some(&annotations), ..bare };
        let full = Shape {
            title: Some(&spec.title),
            // A list with any other root is refused as a whole by clients of the older revisions.
            output_schema: Some(&output).filter(|schema| schema["type"] == "object"),
            meta: Some(&meta),
            ..annotated
        };
        Self {
            name: json!(spec.name).to_string(),
            plain: json!(plain).to_string(),
            bare: text(&bare),
            annotated: text(&annotated),
            full: text(&full),
            // A server's definitions were held against this before they came into the catalog.
            headers: header_parameters(&spec.input_schema).unwrap_or_default(),
        }
    }

    fn write(&self, out: &mut Vec<u8>, era: Era, names: Names) {
        out.extend_from_slice(b"{\"name\":");
        out.extend_from_slice(match names {
            Names::Exact => self.name.as_bytes(),
            Names::Plain => self.plain.as_bytes(),
        });
        out.extend_from_slice(match era {
            Era::Legacy(Revision::November2024) => self.bare.as_bytes(),
            Era::Legacy(Revision::March2025) => self.annotated.as_bytes(),
            Era::Legacy(Revision::June2025 | Revision::November2025) | Era::Modern => self.full.as_bytes(),
        });
    }
}

/// The shape's members, ready to follow a first one.
fn text(shape: &Shape<'_>) -> String {
    let object = serde_json::to_string(shape).unwrap_or_default();
    format!(",{}", object.strip_prefix('{').unwrap_or("}"))
}

/// `true` and `false` are schemas too, but a widely used client refuses a list with one among `properties`.
fn spell_out_booleans(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    for (keyword, value) in members {
        match (keyword.as_str(), value) {
            ("properties" | "$defs", Value::Object(schemas)) => {
                for schema in schemas.values_mut() {
                    match schema {
                        Value::Bool(true) => *schema = json!({}),
                        Value::Bool(false) => *schema = json!({"not": {}}),
                        other => spell_out_booleans(other),
                    }
                }
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(spell_out_booleans);
            }
            ("items" | "additionalProperties" | "not", schema) => spell_out_booleans(schema),
            _ => {}
        }
    }
}

/// The name without dots. Of two tools that would share one, the later gets a number, the same one at every start.
fn plain_name(name: &str, taken: &HashMap<String, String>) -> String {
    let plain = name.replace('.', "_");
    if !taken.contains_key(&plain) {
        return plain;
    }
    let mut number = 2;
    while taken.contains_key(&format!("{plain}_{number}")) {
        number += 1;
    }
    format!("{plain}_{number}")
}

const CURSOR: &str = "after:";

pub(crate) fn cursor(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR}{last}"))
}

/// The name after which a page begins.
pub(crate) fn read_cursor(cursor: &str) -> Result<String, Fault> {
    URL_SAFE_NO_PAD
        .decode(cursor)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .and_then(|text| text.strip_prefix(CURSOR).map(str::to_owned))
        .ok_or_else(|| Fault::invalid_params("`params.cursor` is none of ours; begin again without one"))
}

#[cfg(test)]
#[path = "definitions_tests.rs"]
mod tests;
