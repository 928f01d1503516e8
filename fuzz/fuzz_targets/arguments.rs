//! Whatever JSON a caller sends: the gate answers, it answers in few words, and what it lets through fits the schema
//! and is let through again unchanged.
#![no_main]

use std::{borrow::Cow, sync::LazyLock};

use aegis_core::{
    Label, Tier, ToolSpec,
    tool::{ApprovalRule, Mutability, Route},
};
use aegis_gates::ArgumentsGate;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

/// More than this is no message for a person or a model, and has no place in the record.
const LONGEST_MESSAGE: usize = 8 << 10;

fn tool(name: &'static str, input_schema: Value) -> ToolSpec {
    ToolSpec {
        name: Cow::Borrowed(name),
        aliases: Vec::new(),
        title: Cow::Borrowed(name),
        category: Cow::Borrowed("fuzz"),
        description: Cow::Borrowed(""),
        tags: Vec::new(),
        tier: Tier::User,
        skip_judge: true,
        mutability: Mutability::ReadOnly,
        idempotent: true,
        approval: ApprovalRule::NotRequired,
        route: Route::Builtin,
        targets: Vec::new(),
        label: Label::node(),
        input_schema,
        output_schema: json!({"type": "object"}),
        structured_schema: json!({"type": "object"}),
        examples: Vec::new(),
        provenance: Cow::Borrowed(""),
    }
}

static TOOLS: LazyLock<Vec<ToolSpec>> = LazyLock::new(|| {
    vec![
        tool(
            "fs.edit",
            json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "target_content": {"type": "string", "minLength": 1},
                    "replacement_content": {"type": "string"},
                },
                "required": ["path", "target_content", "replacement_content"],
                "additionalProperties": false,
            }),
        ),
        tool(
            "fs.multi_edit",
            json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "edits": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "properties": {
                                "target_content": {"type": "string", "minLength": 1},
                                "replacement_content": {"type": "string"},
                            },
                            "required": ["target_content", "replacement_content"],
                            "additionalProperties": false,
                        },
                    },
                },
                "required": ["path", "edits"],
                "additionalProperties": false,
            }),
        ),
        tool(
            "web.fetch",
            json!({
                "type": "object",
                "properties": {
                    "url": {"type": "string", "minLength": 1, "format": "uri"},
                    "to_markdown": {"type": "boolean", "default": true},
                    "timeout_secs": {"type": "integer", "minimum": 1, "maximum": 300, "default": 30, "x-clamp": true},
                },
                "required": ["url"],
                "additionalProperties": false,
            }),
        ),
        tool(
            "aegis.tools.list",
            json!({
                "type": "object",
                "properties": {
                    "limit": {"type": "integer", "minimum": 1, "maximum": 200, "x-clamp": true},
                    "source": {"type": "string", "enum": ["builtin", "upstream"]},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "additionalProperties": true,
            }),
        ),
    ]
});
static GATE: LazyLock<ArgumentsGate> = LazyLock::new(|| ArgumentsGate::new(TOOLS.iter()));

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let tool = &TOOLS[usize::from(*first) % TOOLS.len()];
    let Ok(mut passed) = serde_json::from_slice::<Map<String, Value>>(rest) else { return };
    if let Err(violation) = GATE.check(tool, &mut passed) {
        assert!(!violation.message.is_empty());
        assert!(violation.message.len() < LONGEST_MESSAGE, "{} bytes", violation.message.len());
        return;
    }
    let schema = &tool.input_schema;
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(passed.contains_key(required));
    }
    for (name, value) in &passed {
        let property = &schema["properties"][name];
        assert!(!property.is_null() || schema["additionalProperties"] == true, "{name}");
        if let (Some(number), Some(maximum)) = (value.as_f64(), property["maximum"].as_f64()) {
            assert!(number <= maximum, "{name}");
        }
    }
    let mut again = passed.clone();
    assert!(GATE.check(tool, &mut again).is_ok());
    assert_eq!(again, passed);
});
