//! Lists of what servers offer, as one list of the node's.

use serde_json::{Map, Value};

use super::{
    answer::{self, Answer},
    conversation::Conversation,
    definitions,
    fault::Fault,
    parked::Asked,
    told::CallMeta,
    wanted::Kind,
};

/// More than most servers have: many clients ask for one page only.
const PAGE: usize = 500;
/// Where an entry says whose it is.
const SERVER: &str = "aegis/server";

/// Writes one page of a list. `members` is what the tool answered, where each entry names its server.
pub(crate) fn render(
    conversation: &Conversation,
    asked: &Asked,
    kind: Kind,
    after: Option<&str>,
    members: &str,
    meta: &CallMeta<'_>,
) -> Result<Answer, Fault> {
    let mut members: Map<String, Value> = serde_json::from_str(members).unwrap_or_default();
    let entries = match members.remove(kind.member()) {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    };
    let start = match after {
        None => 0,
        Some(after) => after.parse().map_err(|_| {
            Fault::invalid_params("`params.cursor` is none of this list; begin again without one")
        })?,
    };
    let mut out = answer::begin(&asked.id, asked.era, 4096);
    out.extend_from_slice(format!("\"{}\":", kind.member()).as_bytes());
    let all = entries.len();
    let page: Vec<Value> =
        entries.into_iter().skip(start).take(PAGE).map(|entry| public(conversation, kind, entry)).collect();
    answer::write_json(&mut out, &page);
    if start + PAGE < all {
        out.extend_from_slice(b",\"nextCursor\":");
        answer::write_json(&mut out, &definitions::cursor(&(start + PAGE).to_string()));
    }
    if asked.era.is_modern() {
        conversation.write_cache_hints(&mut out);
    } else {
        out.push(b',');
    }
    conversation.write_meta(&mut out, asked.era, Some(meta));
    Ok(answer::end(out).into())
}

/// An entry as clients see it.
fn public(conversation: &Conversation, kind: Kind, entry: Value) -> Value {
    let Value::Object(mut entry) = entry else { return entry };
    // Clients refuse a list in which something that may be left out is null.
    entry.retain(|_, value| !value.is_null());
    let Some(Value::String(server)) = entry.remove("server") else { return Value::Object(entry) };
    if kind == Kind::Prompts
        && let Some(name) = entry.get("name").and_then(Value::as_str)
    {
        let name = conversation.doors.offers.public_prompt(&server, name);
        entry.insert("name".into(), name.into());
    }
    let meta = entry.entry("_meta").or_insert_with(|| Value::Object(Map::new()));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(SERVER.into(), server.into());
    }
    Value::Object(entry)
}
