//! Tools that a server offers and nobody can call, in words.

use aegis_core::quantity::{counted, enumerated};
use serde_json::Value;

use crate::output::text;

/// How many are told by name.
const MOST_NAMED: usize = 5;

/// Tools of one server that are withheld for the same reason.
pub(in crate::commands) struct Withheld {
    pub(in crate::commands) why: Why,
    /// What there is to say of the server.
    pub(in crate::commands) found: String,
    pub(in crate::commands) next: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Why {
    Waiting,
    Rejected,
    /// Nothing can be made of their definitions.
    Unusable,
    /// Another server has them.
    Ceded,
}

impl Why {
    fn of(tool: &Value) -> Self {
        match tool["standing"].as_str() {
            Some("new" | "changed") => Self::Waiting,
            Some("rejected") => Self::Rejected,
            Some(_) => Self::Ceded,
            None => Self::Unusable,
        }
    }
}

/// What is withheld of a server, as `/v1/upstreams` tells of it.
pub(in crate::commands) fn of(server: &Value) -> Vec<Withheld> {
    let (name, status) = (text(&server["name"]), &server["status"]);
    let tools = server["withheld"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |why: Why| tools.iter().filter(move |tool| Why::of(tool) == why);
    let count = |member: &str| usize::try_from(status[member].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
    let all = [
        (Why::Waiting, count("quarantined")),
        (Why::Rejected, count("rejected")),
        (Why::Unusable, count("unusable")),
        (Why::Ceded, count("ceded")),
    ];
    let told = all.into_iter().filter(|(_, count)| *count > 0).map(|(why, count)| {
        let named: Vec<String> = of(why).take(MOST_NAMED).map(shown).collect();
        let more = count.saturating_sub(named.len());
        let names = match (named.is_empty(), more) {
            (true, _) => String::new(),
            (false, 0) => format!(": {}", enumerated(&named)),
            (false, more) => format!(": {} and {more} more", named.join(", ")),
        };
        let tools = counted(count, "tool");
        let (found, next) = match why {
            Why::Waiting => (
                format!("waits for a decision on {tools}{names}"),
                format!("aegis upstream diff {name}, then accept or reject"),
            ),
            Why::Rejected => (
                format!("had {tools} rejected{names}"),
                format!(
                    "aegis upstream diff {name}; aegis upstream accept {name} TOOL accepts one after all"
                ),
            ),
            Why::Unusable => (
                format!("offers {tools} of which nothing can be made{names}"),
                format!("aegis upstream show {name}, which says why"),
            ),
            Why::Ceded => (
                format!("offers {tools} that another server has{names}"),
                format!("aegis upstream show {name}, which says whose"),
            ),
        };
        Withheld { why, found, next }
    });
    told.collect()
}

fn shown(tool: &Value) -> String {
    match text(&tool["tool"]) {
        name if name.is_empty() => "(without a name)".to_owned(),
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_are_those_of_the_server_and_names_those_that_were_told() {
        let tools: Vec<Value> =
            (0..20).map(|number| json!({"tool": format!("t{number}"), "standing": "accepted"})).collect();
        let status = json!({"quarantined": 0, "rejected": 0, "unusable": 0, "ceded": 25});
        let told = of(&json!({"name": "fix", "status": status, "withheld": tools}));
        let [told] = &told[..] else { panic!("{} kinds", told.len()) };
        assert_eq!(told.why, Why::Ceded);
        assert_eq!(told.found, "offers 25 tools that another server has: t0, t1, t2, t3, t4 and 20 more");
    }
}
