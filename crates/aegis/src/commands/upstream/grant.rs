//! What a context grants of servers: given with `--grant`, taken back when a server is removed.

use aegis_core::{ViolationKind, config::McpServer};
use serde_json::{Map, Value, json};

use crate::{backend::Backend, client::Answer, commands::call::urlencoded, output::say};

/// Resources, prompts, completion and tasks of servers.
const OPERATIONS: &str = "mcp.*";

/// How often a context is read again that others change at the same time.
const MOST_ATTEMPTS: usize = 5;

/// Lets users of a context use these servers. Without one of that name, makes it.
pub(super) async fn give(node: &Backend, context: &str, servers: &[McpServer]) -> anyhow::Result<Answer> {
    change(node, context, |present| granted(present, context, servers)).await
}

pub(super) fn tell(context: &str, servers: &[McpServer], found: &Value) {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    let already = if found["changed"] == false { " already" } else { "" };
    say!("the context {context} may use{already} the tools, resources and prompts of {}", names.join(", "));
}

/// Reads a context and puts what `edit` makes of it in its place, unless somebody else did so in between: then from the
/// beginning.
async fn change(
    node: &Backend,
    context: &str,
    edit: impl Fn(Option<&Value>) -> Value,
) -> anyhow::Result<Answer> {
    let path = address(context);
    let mut attempts = 0;
    let mut refused: Option<(String, Answer)> = None;
    loop {
        let (present, version) = match node.get(&path).await? {
            Answer::Ok(found) => {
                (Some(found["context"].clone()), found["version"].as_str().unwrap_or_default().to_owned())
            }
            Answer::Refused(violation) if violation.kind == ViolationKind::UnknownName => {
                (None, String::new())
            }
            // Whatever is there must not be replaced unseen.
            other => return Ok(other),
        };
        match refused {
            // It was not refused because of another version.
            Some((before, answer)) if before == version || attempts == MOST_ATTEMPTS => return Ok(answer),
            _ => {}
        }
        attempts += 1;
        let over = format!("{path}?over={}", urlencoded(&version));
        match node.put(&over, &edit(present.as_ref())).await? {
            Answer::Refused(violation) if violation.kind == ViolationKind::Conflict => {
                refused = Some((version, Answer::Refused(violation)));
            }
            other => return Ok(other),
        }
    }
}

/// The contexts that granted a server.
#[derive(Debug, Default)]
pub(super) struct TakenBack {
    pub(super) from: Vec<String>,
    /// Those that could not be changed: of the configuration file, above all.
    pub(super) kept: Vec<String>,
}

/// Takes a removed server out of every context that names it.
pub(super) async fn take_back(node: &Backend, server: &McpServer) -> anyhow::Result<TakenBack> {
    let mut taken_back = TakenBack::default();
    let Answer::Ok(found) = node.get("/v1/contexts").await? else { return Ok(taken_back) };
    for one in found["contexts"].as_array().into_iter().flatten() {
        let (Some(name), Some(_)) = (one["name"].as_str(), without(&one["context"], server)) else {
            continue;
        };
        let edit = |present: Option<&Value>| {
            let present = present.unwrap_or(&one["context"]);
            without(present, server).unwrap_or_else(|| present.clone())
        };
        let is_changed =
            one["source"] == "applied" && matches!(change(node, name, edit).await?, Answer::Ok(_));
        let list = if is_changed { &mut taken_back.from } else { &mut taken_back.kept };
        list.push(name.to_owned());
    }
    Ok(taken_back)
}

fn address(context: &str) -> String {
    format!("/v1/contexts/{}", urlencoded(context))
}

/// A context that lets its users use these servers, made from the one there is.
fn granted(context: Option<&Value>, name: &str, servers: &[McpServer]) -> Value {
    let mut context = context.cloned().unwrap_or_else(|| {
        let mut fresh = Map::new();
        fresh.insert("name".into(), name.into());
        fresh.insert("description".into(), "MCP servers behind this node".into());
        Value::Object(fresh)
    });
    let mut capabilities = context["capabilities"].as_array().cloned().unwrap_or_default();
    for pattern in servers.iter().flat_map(McpServer::claims).map(|pattern| pattern.to_string()) {
        if !capabilities.iter().any(|known| known["tool_pattern"] == *pattern) {
            capabilities.push(json!({"tool_pattern": pattern}));
        }
    }
    let opens_all = |known: &Value| is_of(known, OPERATIONS) && known.get("server_allowlist").is_none();
    if !capabilities.iter().any(opens_all) {
        let index = capabilities.iter().position(is_plain_list).unwrap_or_else(|| {
            capabilities.push(json!({"tool_pattern": OPERATIONS, "server_allowlist": []}));
            capabilities.len() - 1
        });
        if let Some(names) = capabilities[index]["server_allowlist"].as_array_mut() {
            for server in servers {
                if !names.iter().any(|known| *known == *server.name) {
                    names.push(server.name.as_str().into());
                }
            }
        }
    }
    context["capabilities"] = capabilities.into();
    context
}

fn is_of(capability: &Value, pattern: &str) -> bool {
    capability["tool_pattern"] == pattern
}

/// A capability that says which servers, and nothing else that a further server would share.
fn is_plain_list(capability: &Value) -> bool {
    is_of(capability, OPERATIONS)
        && capability["server_allowlist"].is_array()
        && capability.as_object().is_some_and(|members| members.len() == 2)
}

/// The context without a server; `None` when it does not name it.
fn without(context: &Value, server: &McpServer) -> Option<Value> {
    let claims = server.claims().into_iter().map(|claim| claim.to_string());
    // Without the server these are the node's own tools again, and granted for their own sake.
    let claims: Vec<String> =
        claims.filter(|claim| !claim.starts_with("web.") && !claim.starts_with("email.")).collect();
    let mut context = context.clone();
    let capabilities = context["capabilities"].as_array_mut()?;
    let before = capabilities.clone();
    capabilities.retain(|known| !claims.iter().any(|claim| is_of(known, claim)));
    for capability in capabilities.iter_mut() {
        if let Some(names) = capability.get_mut("server_allowlist").and_then(Value::as_array_mut) {
            names.retain(|known| *known != *server.name);
        }
    }
    capabilities.retain(|known| known["server_allowlist"].as_array().is_none_or(|names| !names.is_empty()));
    (*capabilities != before).then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str) -> McpServer {
        McpServer { executable: Some("x".into()), ..McpServer::named(name) }
    }

    #[test]
    fn a_context_is_extended_once_by_exactly_these_servers() {
        let made = granted(None, "desktop", &[server("a"), server("b")]);
        let capabilities = made["capabilities"].as_array().unwrap();
        assert_eq!(
            capabilities[..],
            [
                json!({"tool_pattern": "a.*"}),
                json!({"tool_pattern": "b.*"}),
                json!({"tool_pattern": "mcp.*", "server_allowlist": ["a", "b"]})
            ]
        );
        assert_eq!(granted(Some(&made), "desktop", &[server("b")]), made);
        let more = granted(Some(&made), "desktop", &[server("c")]);
        assert_eq!(more["capabilities"][2]["server_allowlist"], json!(["a", "b", "c"]));
    }

    #[test]
    fn limits_of_others_are_not_shared_and_what_is_open_stays() {
        let limited = json!({"name": "d", "capabilities": [
            {"tool_pattern": "mcp.*", "server_allowlist": ["a"], "max_concurrent": 1}]});
        let more = granted(Some(&limited), "d", &[server("b")]);
        assert_eq!(more["capabilities"][0], limited["capabilities"][0]);
        assert_eq!(more["capabilities"][2]["server_allowlist"], json!(["b"]));
        let open = json!({"name": "d", "capabilities": [{"tool_pattern": "mcp.*"}]});
        assert_eq!(granted(Some(&open), "d", &[server("b")])["capabilities"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_was_given_is_taken_back() {
        let before = json!({"name": "d", "capabilities": [{"tool_pattern": "fs.read"}]});
        let one = granted(Some(&before), "d", &[server("a")]);
        let both = granted(Some(&one), "d", &[server("b")]);
        assert_eq!(without(&without(&both, &server("b")).unwrap(), &server("a")).unwrap(), before);
        assert_eq!(without(&before, &server("a")), None);
    }
}
