//! Can the policies be used, and is what contexts name really there.

use std::path::Path;

use aegis_core::config::NodeConfig;
use aegis_gates::policy::{Rules, RulesError, list_sources};

use super::Finding;
use crate::{known::Known, node};

const POLICIES: &str = "policies";
const CONTEXTS: &str = "contexts";
const MEND: &str = "correct it; `aegis policy check` reads them again";
/// Findings of one kind before the rest is counted.
const MOST: usize = 8;

/// `refused` is why the running node does not go by its policy files, if it does not.
pub(super) async fn look(data: &Path, config: &NodeConfig, refused: Option<&str>) -> Vec<Finding> {
    let directory = node::policies(config, data);
    let (config, data) = (config.clone(), data.to_owned());
    let looked = {
        let directory = directory.clone();
        tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
            let known = Known::of(config, Some(&data))?;
            let label_rules = known.config.spec.policy.label_rules;
            let count = list_sources(&directory).map(|files| files.len());
            let rules =
                count.and_then(|count| Rules::load(&directory, &known.schema(), label_rules).map(|_| count));
            Ok((rules, known.doubts()))
        })
        .await
    };
    let (rules, doubts) = match looked {
        Ok(Ok(looked)) => looked,
        Ok(Err(error)) => return vec![Finding::bad(POLICIES, format!("{error:#}"), MEND)],
        Err(error) => return vec![Finding::bad(POLICIES, error.to_string(), MEND)],
    };
    let mut findings = match (rules, refused) {
        (Err(error), refused) => mistaken(&error, refused.is_some()),
        // It knows tools of MCP servers that are not known here.
        (Ok(_), Some(refused)) => {
            let found = format!("the running node goes on with the rules it had: {refused}");
            vec![Finding::bad(POLICIES, found, MEND)]
        }
        (Ok(0), None) => vec![Finding::good(POLICIES, format!("none in {}", directory.display()))],
        (Ok(count), None) => {
            vec![Finding::good(POLICIES, format!("{count} in {}, all in order", directory.display()))]
        }
    };
    let mend = "correct the name; where its MCP server has yet to be added, nothing";
    findings
        .extend(doubts.iter().take(MOST).map(|doubt| Finding::warning(CONTEXTS, doubt.to_string(), mend)));
    if doubts.len() > MOST {
        let more = format!("and {} more entries that are about nothing", doubts.len() - MOST);
        findings.push(Finding::warning(CONTEXTS, more, "`aegis policy check` shows all"));
    }
    findings
}

fn mistaken(error: &RulesError, kept: bool) -> Vec<Finding> {
    let kept = match kept {
        true => "; the running node goes on with the rules it had",
        false => "; no node starts with them",
    };
    let problems = error.problems();
    if problems.is_empty() {
        return vec![Finding::bad(POLICIES, format!("{error}{kept}"), MEND)];
    }
    let mut findings: Vec<Finding> = problems
        .iter()
        .take(MOST)
        .map(|problem| {
            let found =
                format!("{}:{}:{}: {}{kept}", problem.file, problem.line, problem.column, problem.message);
            Finding::bad(POLICIES, found, MEND)
        })
        .collect();
    if problems.len() > MOST {
        let more = format!("and {} more mistakes{kept}", problems.len() - MOST);
        findings.push(Finding::bad(POLICIES, more, "`aegis policy check` shows all"));
    }
    findings
}
