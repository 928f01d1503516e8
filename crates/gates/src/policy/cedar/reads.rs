//! What a policy looks at. One that looks only at the caller, the tool and the session's labels says the same for
//! every call of a session, so its answer can be kept.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reads {
    pub(super) principal: bool,
    pub(super) session: bool,
    /// Anything of the call itself: arguments, targets, time.
    pub(super) call: bool,
    /// The arguments it names.
    pub(super) arguments: BTreeSet<String>,
    /// The arguments as a whole, or in a way that can't be told.
    pub(super) all_arguments: bool,
    /// Paths, hosts or programs, whichever arguments they are in.
    pub(super) targets: bool,
}

impl Reads {
    /// From a policy in Cedar's JSON form.
    pub(super) fn of(policy: &Value) -> Self {
        let mut reads = Self { principal: policy["principal"]["op"] != "All", ..Self::default() };
        reads.walk(&policy["conditions"]);
        reads
    }

    fn walk(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match (name.as_str(), member) {
                        ("Var", Value::String(variable)) if variable == "principal" => self.principal = true,
                        ("Var", Value::String(variable)) if variable == "context" => {
                            self.call = true;
                            self.all_arguments = true;
                        }
                        ("." | "has", Value::Object(access)) => self.access(access),
                        _ => self.walk(member),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.walk(item)),
            _ => {}
        }
    }

    /// `left.attr` or `left has attr`.
    fn access(&mut self, access: &Map<String, Value>) {
        let left = access.get("left").unwrap_or(&Value::Null);
        let attribute = access.get("attr").and_then(Value::as_str).unwrap_or_default();
        if is_context(left) {
            match attribute {
                "session" => self.session = true,
                _ => {
                    self.call = true;
                    self.all_arguments |= !matches!(attribute, "time" | "paths" | "hosts" | "programs");
                    self.targets |= matches!(attribute, "paths" | "hosts" | "programs");
                }
            }
        } else if let Some(inner) = left["."].as_object()
            && is_context(&inner["left"])
            && inner["attr"] == "arguments"
        {
            self.call = true;
            self.arguments.insert(attribute.to_owned());
        } else {
            self.walk(left);
        }
    }
}

fn is_context(value: &Value) -> bool {
    value["Var"] == "context"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(condition: &str) -> Reads {
        let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
        let policy: cedar_policy::Policy = text.parse().unwrap();
        Reads::of(&policy.to_json().unwrap())
    }

    #[test]
    fn only_the_session_part_of_the_context_keeps_an_answer() {
        let session = Reads { session: true, ..Reads::default() };
        assert_eq!(reads("context.session.labels.contains(\"X\")"), session);
        assert_eq!(reads("context has session && context.session.sources.isEmpty()"), session);
        assert_eq!(reads("resource.category == \"fs\""), Reads::default());
        assert!(reads("principal.tier == \"user\"").principal);
        assert!(!reads("principal.tier == \"user\"").call);
        for of_the_call in [
            "context.time.hour < 9",
            "context.arguments.path like \"*\"",
            "context == {}",
            "[context].contains(context)",
            "{\"session\": context}.session.time.hour == 1",
            "context[\"arguments\"] has path",
            "context.session.labels.contains(\"X\") && context.time.hour < 9",
        ] {
            assert!(reads(of_the_call).call, "{of_the_call}");
        }
    }

    #[test]
    fn arguments_are_known_by_name_where_they_can_be() {
        let named = |condition: &str| {
            let reads = reads(condition);
            (!reads.all_arguments).then(|| reads.arguments.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(
            named(
                "context.arguments has path && context.arguments.path like \"/a*\" && context.time.hour < 9"
            ),
            Some(vec!["path".to_owned()])
        );
        assert_eq!(named("context.arguments.options.depth > 3"), Some(vec!["options".to_owned()]));
        assert_eq!(named("context.hosts.contains(\"example.org\")"), Some(Vec::new()));
        assert!(reads("context.hosts.contains(\"example.org\")").targets);
        assert_eq!(named("context.arguments == context.arguments"), None);
        assert_eq!(named("context has arguments"), None);
        assert_eq!(named("(if true then context.arguments else context.arguments).path == \"x\""), None);
    }

    #[test]
    fn a_scope_that_names_somebody_reads_the_principal() {
        let policy: cedar_policy::Policy =
            "permit (principal == Caller::\"local/ann\", action, resource);".parse().unwrap();
        assert!(Reads::of(&policy.to_json().unwrap()).principal);
    }
}
