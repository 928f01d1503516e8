//! What a replay found.

use std::collections::BTreeMap;

use aegis_core::{Timestamp, id::CallId};
use serde::Serialize;

/// Examples kept per rule, and numbers of unreadable records.
const MOST_EXAMPLES: usize = 5;
/// Rules and callers told apart; what comes beyond is counted under [`OTHERS`].
const MOST_RULES: usize = 4096;
const MOST_CALLERS: usize = 1024;
const OTHERS: &str = "(others)";

#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Calls that were decided again.
    pub calls: u64,
    /// When the first and the last of them were made.
    pub from: Option<Timestamp>,
    pub to: Option<Timestamp>,
    pub unchanged: u64,
    pub newly_denied: Change,
    pub newly_allowed: Change,
    pub newly_asking: Change,
    /// A rule needs an argument that the record does not hold, so nobody can say.
    pub undecidable: Change,
    /// What rules in shadow mode would do; they change nothing.
    pub would_have: Change,
    /// Calls that something else than a rule ended, which no rule can bring back.
    pub not_by_rules: u64,
    /// Calls of tools that this node does not have.
    pub unknown_tools: u64,
    pub unreadable: Unreadable,
}

/// Calls that would now go otherwise, by the rule that makes the difference.
#[derive(Debug, Default, Serialize)]
pub struct Change {
    pub calls: u64,
    pub rules: BTreeMap<String, ByRule>,
}

#[derive(Debug, Default, Serialize)]
pub struct ByRule {
    pub calls: u64,
    pub callers: BTreeMap<String, u64>,
    /// The first few.
    pub examples: Vec<Example>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Example {
    /// The record's number in the audit log.
    pub seq: u64,
    pub time: Timestamp,
    pub call: CallId,
    pub tool: String,
    pub caller: String,
    /// What happened then: `allowed`, `asked`, `denied`.
    pub was: &'static str,
}

/// Records that are no JSON of ours. `aegis audit verify` says whether somebody changed them.
#[derive(Debug, Default, Serialize)]
pub struct Unreadable {
    pub records: u64,
    /// The numbers of the first few.
    pub first: Vec<u64>,
}

impl Report {
    /// Whether any call would now go otherwise.
    pub fn is_unchanged(&self) -> bool {
        [&self.newly_denied, &self.newly_allowed, &self.newly_asking].iter().all(|change| change.calls == 0)
    }

    pub(super) fn saw(&mut self, time: Timestamp) {
        self.calls += 1;
        self.from = Some(self.from.map_or(time, |from| from.min(time)));
        self.to = Some(self.to.map_or(time, |to| to.max(time)));
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.from = self.from.into_iter().chain(other.from).min();
        self.to = self.to.into_iter().chain(other.to).max();
        self.unchanged += other.unchanged;
        self.newly_denied.merge(other.newly_denied);
        self.newly_allowed.merge(other.newly_allowed);
        self.newly_asking.merge(other.newly_asking);
        self.undecidable.merge(other.undecidable);
        self.would_have.merge(other.would_have);
        self.not_by_rules += other.not_by_rules;
        self.unknown_tools += other.unknown_tools;
        self.unreadable.merge(other.unreadable);
    }
}

impl Change {
    pub(super) fn add(&mut self, rule: &str, example: &Example) {
        self.calls += 1;
        let by_rule = entry(&mut self.rules, rule, MOST_RULES);
        by_rule.calls += 1;
        *entry(&mut by_rule.callers, &example.caller, MOST_CALLERS) += 1;
        if by_rule.examples.len() < MOST_EXAMPLES {
            by_rule.examples.push(example.clone());
        }
    }

    fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        for (rule, found) in other.rules {
            let by_rule = entry(&mut self.rules, &rule, MOST_RULES);
            by_rule.calls += found.calls;
            for (caller, calls) in found.callers {
                *entry(&mut by_rule.callers, &caller, MOST_CALLERS) += calls;
            }
            by_rule.examples.extend(found.examples);
            by_rule.examples.sort_by_key(|example| example.seq);
            by_rule.examples.truncate(MOST_EXAMPLES);
        }
    }
}

impl Unreadable {
    pub(super) fn add(&mut self, seq: u64) {
        self.records += 1;
        if self.first.len() < MOST_EXAMPLES {
            self.first.push(seq);
        }
    }

    fn merge(&mut self, other: Self) {
        self.records += other.records;
        self.first.extend(other.first);
        self.first.sort_unstable();
        self.first.truncate(MOST_EXAMPLES);
    }
}

fn entry<'m, T: Default>(map: &'m mut BTreeMap<String, T>, name: &str, most: usize) -> &'m mut T {
    let name = if map.contains_key(name) || map.len() < most { name } else { OTHERS };
    map.entry(name.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_the_first_examples_stay() {
        let example = |seq: u64, caller: &str| Example {
            seq,
            time: Timestamp::from_millis(seq),
            call: CallId::fresh(),
            tool: "fs.read".into(),
            caller: caller.into(),
            was: "allowed",
        };
        let (mut one, mut other) = (Report::default(), Report::default());
        for seq in 0..20_000 {
            let part = if seq % 2 == 0 { &mut one } else { &mut other };
            part.saw(Timestamp::from_millis(seq));
            part.newly_denied.add("no-reads", &example(seq, &format!("user-{seq}")));
        }
        other.unreadable.add(7);
        one.merge(other);
        let by_rule = &one.newly_denied.rules["no-reads"];
        assert_eq!((one.calls, one.newly_denied.calls, by_rule.calls), (20_000, 20_000, 20_000));
        assert_eq!(by_rule.examples.iter().map(|example| example.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(by_rule.callers.len() <= MOST_CALLERS + 1);
        assert_eq!(by_rule.callers.values().sum::<u64>(), 20_000);
        assert_eq!(
            (one.from, one.to),
            (Some(Timestamp::from_millis(0)), Some(Timestamp::from_millis(19_999)))
        );
        assert_eq!(one.unreadable.first, [7]);
        assert!(!one.is_unchanged());
    }
}
