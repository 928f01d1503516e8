use serde_json::json;

use crate::{
    cli::{Explain, Global},
    ending::Mistake,
    explain,
    output::{Ending, json_line, say, say_part},
};

pub(super) fn run(global: &Global, command: &Explain) -> anyhow::Result<Ending> {
    let Some(name) = &command.name else {
        if global.json {
            json_line(&explain::names().collect::<Vec<_>>());
        } else {
            for name in explain::names() {
                say!("{name}");
            }
        }
        return Ok(Ending::Done);
    };
    match explain::page(name) {
        Some((name, text)) if global.json => json_line(&json!({"name": name, "text": text})),
        Some((_, text)) => say_part!("{text}"),
        None => return Err(Mistake::new(explain::unknown(name), "`aegis explain` lists them all").into()),
    }
    Ok(Ending::Done)
}
