//! What a context grants of servers: given with `--grant`, taken back when a server is removed.

use aegis_core::{
    Violation, ViolationKind,
    config::{
        McpServer, SecurityContext, ToolPattern,
        security_context::{self, OPERATOR_CONTEXT},
    },
    quantity::enumerated,
};
use serde_json::{Map, Value, json};

use crate::{backend::Backend, cli::Global, client::Answer, commands::call::urlencoded, output::say};

/// Resources, prompts, completion and tasks of servers.
const OPERATIONS: &str = "mcp.*";

/// How often a context is read again that others change at the same time.
const MOST_ATTEMPTS: usize = 5;

/// Lets users of a context use these servers. Without one of that name, makes it.
pub(super) async fn give(node: &Backend, context: &str, servers: &[McpServer]) -> anyhow::Result<Answer> {
    change(node, context, |present| granted(present, context, servers)).await
}

/// Looks, before anything is written, whether the context can be changed at all. Answers with a remark where the grant
/// makes of it something else than it was.
pub(super) async fn prepare(
    node: &Backend,
    context: &str,
) -> anyhow::Result<Result<Option<String>, Violation>> {
    let found = match node.get(&address(context)).await? {
        Answer::Ok(found) => found,
        Answer::Refused(violation) if violation.kind == ViolationKind::UnknownName => {
            // There is none, so one will be made, if it can bear that name.
            let fresh = granted(None, context, &[]).to_string();
            return Ok(match security_context::parse(&fresh) {
                Ok(_) => Ok(None),
                Err(mistakes) => {
                    let told = mistakes.first().map(|mistake| mistake.message.clone()).unwrap_or_default();
                    let what = format!("a context can't be called `{context}`: {told}");
                    Err(Violation::new(ViolationKind::MalformedRequest, what).hint("nothing was changed"))
                }
            });
        }
        Answer::Refused(violation) => return Ok(Err(violation)),
        Answer::ToolFailed(_) => return Ok(Ok(None)),
    };
    let own = context == OPERATOR_CONTEXT;
    if own || found["source"] == "file" {
        let what = if own {
            format!("`{context}` is the node's own context, which may use every server already")
        } else {
            format!(
                "the context `{context}` is defined in the configuration file, so --grant can't change it"
            )
        };
        let next = if own {
            "leave --grant out, or name another context"
        } else {
            "add the capability there, or name another context; nothing was changed"
        };
        return Ok(Err(Violation::new(ViolationKind::Conflict, what).hint(next)));
    }
    Ok(Ok(only_looks(node, context, &found["context"]).await?))
}

/// A remark on a context that lets nothing through but looking.
async fn only_looks(node: &Backend, name: &str, context: &Value) -> anyhow::Result<Option<String>> {
    let Ok(context) = serde_json::from_value::<SecurityContext>(context.clone()) else { return Ok(None) };
    let Answer::Ok(found) = node.get("/v1/tools").await? else { return Ok(None) };
    let open = found["tools"].as_array().into_iter().flatten().filter(|tool| {
        let is_named = |known: &str| context.capabilities.iter().any(|one| one.tool_pattern.matches(known));
        tool["name"].as_str().is_some_and(is_named)
    });
    let mut open = open.peekable();
    let is_any = open.peek().is_some();
    let looks = open.all(|tool| tool["mutability"] == "read_only");
    Ok((is_any && looks).then(|| {
        format!(
            "the context {name} let nothing through but looking; from now on its users can also change what these servers \
             change. Another context keeps {name} as it was: `aegis upstream remove` takes the grant back"
        )
    }))
}

/// Tells what a grant made of its context.
pub(super) fn warn(global: &Global, remark: Option<&str>, told: &mut Value) {
    let Some(remark) = remark else { return };
    if global.json {
        told["warning"] = remark.into();
    } else {
        eprintln!("warning: {remark}");
    }
}

pub(super) fn tell(context: &str, servers: &[McpServer], found: &Value) {
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    let already = if found["changed"] == false { " already" } else { "" };
    say!("the context {context} may use{already} the tools, resources and prompts of {}", names.join(", "));
}

/// Says how agents may use a server that was added, unless some context lets them already.
pub(super) async fn tell_how(node: &Backend, server: &McpServer) -> anyhow::Result<()> {
    let Answer::Ok(found) = node.get("/v1/contexts").await? else { return Ok(()) };
    let all = found["contexts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let opens = |context: &&Value| {
        let known = serde_json::from_value::<SecurityContext>(context["context"].clone());
        let patterns = known.map(|known| known.capabilities).unwrap_or_default();
        let open = |claim: &ToolPattern| patterns.iter().any(|one| one.tool_pattern.meets(claim));
        context["name"] != OPERATOR_CONTEXT && server.claims().iter().any(open)
    };
    let named: Vec<&str> = all.iter().filter(opens).filter_map(|one| one["name"].as_str()).collect();
    if !named.is_empty() {
        say!("agents of {} may call tools of it already", enumerated(&named));
        return Ok(());
    }
    eprintln!(
        "no context lets agents use it yet. To change that, these lines go under `capabilities` of theirs:"
    );
    for capability in
        granted(None, "", std::slice::from_ref(server))["capabilities"].as_array().into_iter().flatten()
    {
        eprintln!("  - {capability}");
    }
    eprintln!(
        "  next: aegis context show CONTEXT > context.yaml, add them, aegis context apply context.yaml"
    );
    Ok(())
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
    let is_named = context["capabilities"].as_array().into_iter().flatten().any(|known| {
        known["server_allowlist"]
            .as_array()
            .is_some_and(|names| names.iter().any(|name| *name == *server.name))
    });
    let ships = security_context::shipped();
    let ships = ships.iter().filter(|shipped| context["name"] == *shipped.name.as_str());
    let has_it = |claim: &str| {
        ships.clone().flat_map(|own| &own.capabilities).any(|own| own.tool_pattern.to_string() == claim)
    };
    // Without the server these are the node's own tools again. A context has them for their own sake when it ships with
    // them or was never granted the server; any other would be left with more than it had.
    let is_own = |claim: &String| {
        (claim.starts_with("web.") || claim.starts_with("email.")) && (!is_named || has_it(claim))
    };
    let claims: Vec<String> =
        server.claims().into_iter().map(|claim| claim.to_string()).filter(|claim| !is_own(claim)).collect();
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
        let web = granted(Some(&before), "d", &[server("web")]);
        assert_eq!(without(&web, &server("web")).unwrap(), before);
        let own = json!({"name": "d", "capabilities": [{"tool_pattern": "web.*"}]});
        assert_eq!(without(&own, &server("web")), None);
        let shipped = json!({"name": "workspace", "capabilities": [{"tool_pattern": "web.*"}]});
        let more = granted(Some(&shipped), "workspace", &[server("web")]);
        assert_eq!(without(&more, &server("web")).unwrap(), shipped);
    }
}
