//! Entries of contexts that are valid and about nothing that is there: a slip of the pen, most often. They are no
//! mistakes, since the tools of MCP servers come and go.

use std::{collections::BTreeSet, fmt};

use super::{APPROVER_CAPABILITY, DenyTarget, SecurityContext, ToolPattern};
use crate::{id::ContextName, nearest::suggestion, path::PathPrefix, path::VolumePath, path::WORKSPACE};

/// An entry that is probably not what its writer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    pub context: ContextName,
    /// Where in the context: `/deny_list/0`.
    pub pointer: String,
    /// What is odd about it, what comes of it, and what may be meant.
    pub message: String,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "security_contexts[{}]", self.context)?;
        for segment in self.pointer.split('/').skip(1) {
            match segment.parse::<usize>() {
                Ok(index) => write!(f, "[{index}]")?,
                Err(_) => write!(f, ".{segment}")?,
            }
        }
        write!(f, ": {}", self.message)
    }
}

/// What of `contexts` names no tool, no volume and no MCP server. `tools` are the names there are, aliases too; `claims`
/// those that `servers` may yet fill.
pub fn doubts(
    contexts: &[SecurityContext],
    tools: &[String],
    claims: &[ToolPattern],
    servers: &[String],
) -> Vec<Doubt> {
    let known = Known { tools, claims, servers };
    contexts.iter().flat_map(|context| known.doubts(context)).collect()
}

struct Known<'a> {
    tools: &'a [String],
    claims: &'a [ToolPattern],
    servers: &'a [String],
}

impl Known<'_> {
    fn doubts(&self, context: &SecurityContext) -> Vec<Doubt> {
        let mut found = Vec::new();
        let mut doubt = |pointer: String, message: Option<String>| {
            found.extend(message.map(|message| Doubt { context: context.name.clone(), pointer, message }));
        };
        for (index, capability) in context.capabilities.iter().enumerate() {
            let above = format!("/capabilities/{index}");
            doubt(format!("{above}/tool_pattern"), self.of_tool(&capability.tool_pattern, "grants"));
            for (place, prefix) in capability.path_allowlist.iter().flatten().enumerate() {
                let message = self.of_path(&capability.tool_pattern, prefix, "grants");
                doubt(format!("{above}/path_allowlist/{place}"), message);
            }
            for (place, server) in capability.server_allowlist.iter().flatten().enumerate() {
                doubt(format!("{above}/server_allowlist/{place}"), self.of_server(server));
            }
        }
        for (index, entry) in context.deny_list.iter().enumerate() {
            let of_path = || match &entry.target {
                Some(DenyTarget::Path(path)) => self.of_path(&entry.tool, path, "closes"),
                _ => None,
            };
            let message = self.of_tool(&entry.tool, "closes").or_else(of_path);
            doubt(format!("/deny_list/{index}"), message);
        }
        found
    }

    fn of_tool(&self, pattern: &ToolPattern, does: &str) -> Option<String> {
        // No tool, and yet it grants: the right to decide what others ask.
        let is_approver = *pattern == ToolPattern::Exact(APPROVER_CAPABILITY.into());
        if is_approver || self.names_own(pattern) || self.claims.iter().any(|claim| claim.meets(pattern)) {
            return None;
        }
        let shown = pattern.to_string();
        let group = format!("{shown}.");
        let close = match self.tools.iter().any(|tool| tool.starts_with(&group)) {
            true => format!("; did you mean `{shown}.*`?"),
            false => suggestion(&shown, self.patterns().iter().map(String::as_str)),
        };
        Some(format!("there is no tool `{shown}`, so this {does} nothing{close}"))
    }

    /// Every volume is mounted at `/workspace` or below it.
    fn of_path(&self, tool: &ToolPattern, path: &PathPrefix, does: &str) -> Option<String> {
        let workspace = VolumePath::parse(WORKSPACE).ok()?;
        // What paths mean to a server of which nothing is known yet, nobody can say.
        if !self.names_own(tool) || path.lies_below(&workspace) || path.covers(&workspace) {
            return None;
        }
        let given = path.as_str();
        let (first, rest) = given[1..].split_once('/').unwrap_or((&given[1..], ""));
        let close = match suggestion(first, [&WORKSPACE[1..]]).as_str() {
            "" => String::new(),
            _ if rest.is_empty() => format!("; did you mean `{WORKSPACE}`?"),
            _ => format!("; did you mean `{WORKSPACE}/{rest}`?"),
        };
        Some(format!(
            "`{given}` is in no volume, since all of them are mounted at {WORKSPACE}, so this {does} nothing{close}"
        ))
    }

    fn of_server(&self, name: &str) -> Option<String> {
        if self.servers.iter().any(|server| server == name) {
            return None;
        }
        let close = suggestion(name, self.servers.iter().map(String::as_str));
        Some(format!("there is no MCP server `{name}`, so this grants nothing{close}"))
    }

    fn names_own(&self, pattern: &ToolPattern) -> bool {
        self.tools.iter().any(|tool| pattern.matches(tool))
    }

    /// Every name that could be written, and every group.
    fn patterns(&self) -> BTreeSet<String> {
        let groups = self.tools.iter().filter_map(|tool| Some(format!("{}.*", tool.rsplit_once('.')?.0)));
        let claims = self.claims.iter().map(ToString::to_string);
        self.tools.iter().cloned().chain(groups).chain(claims).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_nothing_is_told_with_what_may_be_meant() {
        let context = |text: &str| super::super::parse(text).unwrap();
        let tools = ["fs.read", "fs.write", "web.fetch", "aegis.tools.list"].map(str::to_owned);
        let claims = [ToolPattern::Prefix("github.".into()), ToolPattern::Exact("web.search".into())];
        let servers = ["github".to_owned()];
        let told = |text: &str| -> Vec<String> {
            doubts(&context(text), &tools, &claims, &servers).iter().map(ToString::to_string).collect()
        };
        let odd = told(
            "name: mine\n\
             capabilities:\n  - tool_pattern: fs.reed\n  - {tool_pattern: fs.read, path_allowlist: [/, /workspace/a, /srv]}\n  \
             - {tool_pattern: web.fetch, server_allowlist: [github, githbu]}\n\
             deny_list: [fss.*, fs, \"fs.read:/worksapce/keys\", \"fs.write:/etc\", \"*:/worspace\"]\n",
        );
        assert_eq!(
            odd,
            [
                "security_contexts[mine].capabilities[0].tool_pattern: there is no tool `fs.reed`, so this grants nothing; \
                 did you mean `fs.read`?",
                "security_contexts[mine].capabilities[1].path_allowlist[2]: `/srv` is in no volume, since all of them are \
                 mounted at /workspace, so this grants nothing",
                "security_contexts[mine].capabilities[2].server_allowlist[1]: there is no MCP server `githbu`, so this \
                 grants nothing; did you mean `github`?",
                "security_contexts[mine].deny_list[0]: there is no tool `fss.*`, so this closes nothing; did you mean `fs.*`?",
                "security_contexts[mine].deny_list[1]: there is no tool `fs`, so this closes nothing; did you mean `fs.*`?",
                "security_contexts[mine].deny_list[2]: `/worksapce/keys` is in no volume, since all of them are mounted at \
                 /workspace, so this closes nothing; did you mean `/workspace/keys`?",
                "security_contexts[mine].deny_list[3]: `/etc` is in no volume, since all of them are mounted at /workspace, \
                 so this closes nothing",
                "security_contexts[mine].deny_list[4]: `/worspace` is in no volume, since all of them are mounted at \
                 /workspace, so this closes nothing; did you mean `/workspace`?",
            ]
        );
        assert!(
            told(
                "name: mine\ncapabilities: [{tool_pattern: \"*\"}, {tool_pattern: github.issues.list, path_allowlist: [/srv]},\n\
                 {tool_pattern: aegis.approvals}]\n\
                 deny_list: [\"web.*:example.org\", github.*, web.search, \"*:/workspace\", \"fs.*:/workspace/x\"]\n"
            )
            .is_empty()
        );
    }
}
