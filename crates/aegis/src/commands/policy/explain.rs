//! `aegis policy explain`: the way of a call through the gates, in words.

use aegis_core::ViolationKind;
use serde_json::{Map, Value, json};

use crate::{
    backend::Backend,
    cli::{Global, Policy},
    client::Answer,
    commands::call::arguments,
    output::{self, Ending, harmless, json_line, say},
};

pub(super) async fn run(global: &Global, command: &Policy) -> anyhow::Result<Ending> {
    let Policy::Explain { tool, arguments: given, context, tier, tenant, user, having } = command else {
        return Ok(Ending::Usage);
    };
    let arguments = arguments(given)?;
    let mut wanted = Map::from_iter([
        ("tool".to_owned(), json!(tool)),
        ("arguments".to_owned(), Value::Object(arguments)),
    ]);
    for (member, value) in
        [("context", json!(context)), ("tier", json!(tier)), ("tenant", json!(tenant)), ("user", json!(user))]
    {
        if !value.is_null() {
            wanted.insert(member.to_owned(), value);
        }
    }
    if !having.is_empty() {
        wanted.insert("having".into(), json!(having));
    }
    let backend = Backend::open(global).await?;
    let answer = backend.post("/v1/policies/explain", &Value::Object(wanted)).await;
    backend.close().await;
    match answer? {
        Answer::Ok(told) => {
            if global.json {
                json_line(&told);
            } else {
                tell(&told);
            }
            Ok(match told["ends"].as_str() {
                Some("allowed") => Ending::Done,
                Some("asks") => Ending::Waiting,
                // As the call itself would end.
                _ => objection(&told).map_or(Ending::Denied, Ending::of),
            })
        }
        Answer::ToolFailed(_) => Ok(Ending::Failed),
        Answer::Refused(violation) => Ok(output::refusal(&violation, global.json)),
    }
}

fn objection(told: &Value) -> Option<ViolationKind> {
    let name = told["steps"].as_array()?.iter().find_map(|step| step["violation"].as_str())?;
    ViolationKind::ALL.iter().copied().find(|kind| kind.to_string() == name)
}

fn tell(told: &Value) {
    let text = |value: &Value| harmless(value.as_str().unwrap_or_default()).into_owned();
    for step in told["steps"].as_array().into_iter().flatten() {
        let says = match step["says"].as_str().unwrap_or_default() {
            "would-object" => "(objects)",
            "would-ask" => "(asks)",
            says => says,
        };
        say!("{:<10} {says:<9}  {}", text(&step["gate"]), text(&step["text"]));
        for (member, heading) in [("rule", "rule"), ("hint", "next")] {
            if step[member].is_string() {
                say!("{:<22}{heading}: {}", "", text(&step[member]));
            }
        }
    }
    let caller = &told["caller"];
    let who = format!(
        "{} by {} of {} ({} tier, {}{})",
        text(&told["tool"]),
        text(&caller["user"]),
        text(&caller["tenant"]),
        text(&caller["tier"]),
        text(&caller["context"]),
        told["having"].as_array().filter(|having| !having.is_empty()).map_or_else(String::new, |having| {
            let names: Vec<String> = having.iter().map(text).collect();
            format!(", having read {}", names.join(", "))
        }),
    );
    say!(
        "\n{} {who}",
        match told["ends"].as_str() {
            Some("allowed") => "would run:",
            Some("asks") => "would wait for approval:",
            _ => "would be refused:",
        }
    );
}
