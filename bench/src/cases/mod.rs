//! What is measured, one file per case.

mod audit_durable;
mod audit_verify;
mod filesystem_server;
mod flat;
mod glob;
mod grep;
mod mcp_read;
mod nfs;
mod policies;
mod policy_replay;
mod sandbox;
mod seal_invoke;
mod seal_sessions;
mod seal_verify;
mod search;
mod start;
mod upstream;

use clap::ValueEnum;

use crate::{table::Row, workplace::Workplace};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Every case
    All,
    /// Governed reads over MCP against a bare MCP server
    McpRead,
    /// fs.grep against rg
    Grep,
    /// fs.glob against rg --files
    Glob,
    /// Governed reads against the filesystem server of npm
    FilesystemServer,
    /// Durable audit records against a plain file
    AuditDurable,
    /// Verifying the audit log against sha256sum
    AuditVerify,
    /// A call with a thousand policies about other tools against none
    CedarOthers,
    /// Calls with the rules about labels against without
    LabelRules,
    /// Deciding recorded calls again against a bare Cedar loop
    PolicyReplay,
    /// Start and memory against the bare MCP server
    Start,
    /// Whether many tokens or records make a call dearer
    Flat,
    /// Signed calls against a handler that only verifies a signature
    SealInvoke,
    /// What the SEAL gate does against nothing but a signature check
    SealVerify,
    /// Whether many SEAL sessions make a call dearer
    SealSessions,
    /// A volume over NFS against the file tools
    Nfs,
    /// Programs in sandboxes against bubblewrap and against none
    Sandbox,
    /// An MCP server behind the node against other proxies
    Upstream,
}

impl Case {
    pub(crate) const EACH: [Self; 17] = [
        Self::McpRead,
        Self::Grep,
        Self::Glob,
        Self::FilesystemServer,
        Self::AuditDurable,
        Self::AuditVerify,
        Self::CedarOthers,
        Self::LabelRules,
        Self::PolicyReplay,
        Self::Start,
        Self::Flat,
        Self::SealInvoke,
        Self::SealVerify,
        Self::SealSessions,
        Self::Sandbox,
        Self::Upstream,
        Self::Nfs,
    ];

    /// Those that were asked for, once each and in their own order.
    pub(crate) fn chosen(asked: &[Self]) -> Vec<Self> {
        let all = asked.contains(&Self::All);
        Self::EACH.into_iter().filter(|case| all || asked.contains(case)).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::McpRead => mcp_read::NAME,
            Self::Grep => grep::NAME,
            Self::Glob => glob::NAME,
            Self::FilesystemServer => filesystem_server::NAME,
            Self::AuditDurable => audit_durable::NAME,
            Self::AuditVerify => audit_verify::NAME,
            Self::CedarOthers => policies::OTHERS,
            Self::LabelRules => policies::LABEL_RULES,
            Self::PolicyReplay => policy_replay::NAME,
            Self::Start => start::NAME,
            Self::Flat => flat::NAME,
            Self::SealInvoke => seal_invoke::NAME,
            Self::SealVerify => seal_verify::NAME,
            Self::SealSessions => seal_sessions::NAME,
            Self::Nfs => nfs::NAME,
            Self::Sandbox => sandbox::NAME,
            Self::Upstream => upstream::NAME,
        }
    }

    pub(crate) fn measure(self, place: &Workplace) -> anyhow::Result<Vec<Row>> {
        match self {
            Self::All => Ok(Vec::new()),
            Self::McpRead => mcp_read::measure(place),
            Self::Grep => grep::measure(place),
            Self::Glob => glob::measure(place),
            Self::FilesystemServer => filesystem_server::measure(place),
            Self::AuditDurable => audit_durable::measure(place),
            Self::AuditVerify => audit_verify::measure(place),
            Self::CedarOthers => policies::others(place),
            Self::LabelRules => policies::label_rules(place),
            Self::PolicyReplay => policy_replay::measure(place),
            Self::Start => start::measure(place),
            Self::Flat => flat::measure(place),
            Self::SealInvoke => seal_invoke::measure(place),
            Self::SealVerify => seal_verify::measure(place),
            Self::SealSessions => seal_sessions::measure(place),
            Self::Nfs => nfs::measure(place),
            Self::Sandbox => sandbox::measure(place),
            Self::Upstream => upstream::measure(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_come_once_and_in_order() {
        assert_eq!(Case::chosen(&[Case::All]), Case::EACH);
        assert_eq!(Case::chosen(&[Case::Start, Case::Grep, Case::Start]), [Case::Grep, Case::Start]);
        for case in Case::EACH {
            assert_eq!(case.to_possible_value().unwrap().get_name(), case.name());
        }
    }
}
