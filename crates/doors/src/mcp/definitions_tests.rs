use aegis_core::{
    Tier,
    tool::{ApprovalRule, Mutability, Route},
};

use super::*;

fn spec(name: &'static str) -> ToolSpec {
    ToolSpec {
        name: name.into(),
        aliases: Vec::new(),
        title: "A title".into(),
        category: "test".into(),
        description: "Does \"something\"".into(),
        tags: Vec::new(),
        tier: Tier::User,
        skip_judge: true,
        mutability: Mutability::ReadOnly,
        idempotent: true,
        approval: ApprovalRule::NotRequired,
        route: Route::Files,
        targets: Vec::new(),
        label: Label::node(),
        provenance: "".into(),
        input_schema: json!({"type": "object", "properties": {"any": true, "properties": {"uniqueItems": true}}}),
        output_schema: json!({"type": "string"}),
        structured_schema: json!({"type": "object", "properties": {"none": false}}),
        examples: Vec::new(),
    }
}

fn page(
    definitions: &Definitions,
    tools: &[&str],
    era: Era,
    names: Names,
    after: Option<&str>,
) -> (Vec<Value>, Option<String>) {
    let mut out = vec![b'['];
    let next = definitions.write_page(&mut out, tools.iter().copied(), era, names, after, 2);
    out.push(b']');
    (serde_json::from_slice(&out).unwrap(), next)
}

const NEWEST: Era = Era::Legacy(Revision::NEWEST);

#[test]
fn a_tool_has_everything_that_its_revision_knows_and_nothing_else() {
    let specs = [spec("fs.read")];
    let definitions = Definitions::of(specs.iter());
    let members = |era| {
        let (tools, _) = page(&definitions, &["fs.read"], era, Names::Exact, None);
        let mut members: Vec<_> = tools[0].as_object().unwrap().keys().cloned().collect();
        members.sort();
        members
    };
    assert_eq!(members(Era::Legacy(Revision::November2024)), ["description", "inputSchema", "name"]);
    assert_eq!(
        members(Era::Legacy(Revision::March2025)),
        ["annotations", "description", "inputSchema", "name"]
    );
    let all = ["_meta", "annotations", "description", "inputSchema", "name", "outputSchema", "title"];
    assert_eq!(members(Era::Legacy(Revision::June2025)), all);
    assert_eq!(members(Era::Modern), all);
}

#[test]
fn the_full_text_is_exact() {
    let specs = [spec("fs.read")];
    let definitions = Definitions::of(specs.iter());
    let (tools, next) = page(&definitions, &["fs.read"], Era::Modern, Names::Exact, None);
    assert_eq!(next, None);
    assert_eq!(
        tools[0],
        json!({
            "name": "fs.read",
            "title": "A title",
            "description": "Does \"something\"",
            "inputSchema": {"type": "object", "properties": {"any": {}, "properties": {"uniqueItems": true}}},
            "outputSchema": {"type": "object", "properties": {"none": {"not": {}}}},
            "annotations": {
                "title": "A title",
                "readOnlyHint": true,
                "destructiveHint": false,
                "idempotentHint": true,
                "openWorldHint": false,
            },
            "_meta": {
                "aegis/tier": "user",
                "aegis/mutability": "read_only",
                "aegis/label": {"trust": "CONTROL_TRUSTED", "source": "node"},
            },
        })
    );
}

#[test]
fn an_output_schema_with_another_root_is_left_out() {
    let mut odd = spec("odd");
    odd.structured_schema = json!({"anyOf": []});
    let definitions = Definitions::of([&odd].into_iter());
    let (tools, _) = page(&definitions, &["odd"], NEWEST, Names::Exact, None);
    assert!(tools[0].get("outputSchema").is_none());
}

#[test]
fn pages_follow_each_other_and_survive_tools_that_vanish() {
    let specs: Vec<_> = ["a", "b", "c", "d", "e"].map(spec).into();
    let definitions = Definitions::of(specs.iter());
    let all = ["a", "b", "c", "d", "e"];
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let (tools, next) = page(&definitions, &all, NEWEST, Names::Exact, after.as_deref());
        seen.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        let Some(next) = next else { break };
        after = Some(read_cursor(&next).unwrap());
    }
    assert_eq!(seen, all);
    let (rest, next) = page(&definitions, &["a", "d", "e"], NEWEST, Names::Exact, Some("b"));
    assert_eq!(rest.len(), 2);
    assert_eq!(next, None);
    let (none, next) = page(&definitions, &[], NEWEST, Names::Exact, None);
    assert!(none.is_empty() && next.is_none());
}

#[test]
fn foreign_cursors_are_refused() {
    for cursor in ["", "x", "YWJj", "!!!", &URL_SAFE_NO_PAD.encode([0xff, 0xfe]), "YWZ0ZXI6YQ=="] {
        assert_eq!(read_cursor(cursor).unwrap_err().code, super::super::fault::INVALID_PARAMS, "{cursor}");
    }
}

#[test]
fn plain_names_lead_back_to_one_tool_each() {
    let specs = [spec("a.b_c"), spec("a_b.c"), spec("fs.read")];
    let definitions = Definitions::of(specs.iter());
    assert_eq!(definitions.exact(Names::Plain, "a_b_c"), "a.b_c");
    assert_eq!(definitions.exact(Names::Plain, "a_b_c_2"), "a_b.c");
    assert_eq!(definitions.exact(Names::Plain, "fs_read"), "fs.read");
    assert_eq!(definitions.exact(Names::Plain, "fs.read"), "fs.read");
    assert_eq!(definitions.exact(Names::Plain, "nosuch"), "nosuch");
    assert_eq!(definitions.exact(Names::Exact, "fs_read"), "fs_read");
    let (tools, _) = page(&definitions, &["fs.read"], NEWEST, Names::Plain, None);
    assert_eq!(tools[0]["name"], "fs_read");
}
