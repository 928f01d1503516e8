//! `aegis policy replay`: a report for people, or JSON for CI.

use aegis_core::{Timestamp, quantity::counted};
use aegis_gates::{PolicyGate, policy::LabelBook};
use aegis_plane::replay::{Change, Replay, Report};
use aegis_stores::{DataDir, audit::LogReader};

use super::Ground;
use crate::{
    cli::Global,
    locate,
    output::{Ending, harmless, json_line, say},
};

/// Callers named per rule; the rest is counted.
const MOST_CALLERS: usize = 6;

pub(super) async fn run(
    global: &Global,
    policies: Option<&std::path::Path>,
    since: Option<Timestamp>,
) -> anyhow::Result<Ending> {
    let ground = match Ground::lay(global, policies)? {
        Ok(ground) => ground,
        Err(ending) => return Ok(ending),
    };
    let contexts = ground.known.contexts();
    // What a running node has queued belongs to the record: sealing writes it first.
    let _ = crate::commands::audit::sealed_by_node(global).await;
    let log = LogReader::open(&DataDir::read_only(locate::data_dir(global)?)?.audit_database())?;
    let memory = ground.known.config.spec.policy.label_memory.0;
    let ceiling = ground.known.config.spec.exec.ceiling.clone();
    let report = tokio::task::spawn_blocking(move || {
        let gate = PolicyGate::new(&contexts, ground.rules, LabelBook::forgetful()).under(ceiling);
        Replay::new(&ground.known.catalog, &gate, memory).run(&log, since)
    })
    .await??;
    if global.json {
        json_line(&report);
    } else {
        tell(&report);
    }
    Ok(if report.is_unchanged() { Ending::Done } else { Ending::Failed })
}

fn tell(report: &Report) {
    match (report.from, report.to) {
        (Some(from), Some(to)) => say!("{} from {from} to {to} decided again", counted(report.calls, "call")),
        _ => say!("no calls to decide again"),
    }
    let line = |count: u64, what: &str| say!("  {count:>9}  {what}");
    line(report.unchanged, "unchanged");
    line(report.newly_denied.calls, "newly denied");
    line(report.newly_allowed.calls, "newly allowed");
    line(report.newly_asking.calls, "newly waiting for approval");
    for (count, what) in [
        (
            report.undecidable.calls,
            "undecidable: a rule needs an argument that the record holds only in part",
        ),
        (report.would_have.calls, "touched by rules in shadow mode, which change nothing"),
        (report.not_by_rules, "not decided again: something else than a rule ended them"),
        (report.unknown_tools, "not decided again: their tool is not on this node"),
    ] {
        if count > 0 {
            line(count, what);
        }
    }
    if report.unreadable.records > 0 {
        let first: Vec<String> = report.unreadable.first.iter().map(ToString::to_string).collect();
        line(
            report.unreadable.records,
            &format!("unreadable and skipped (record {}); see `aegis audit verify`", first.join(", ")),
        );
    }
    for (change, heading) in [
        (&report.newly_denied, "newly denied"),
        (&report.newly_allowed, "newly allowed"),
        (&report.newly_asking, "newly waiting for approval"),
        (&report.undecidable, "undecidable"),
        (&report.would_have, "in shadow mode"),
    ] {
        if change.calls > 0 {
            say!("\n{heading}, by rule");
            tell_change(change);
        }
    }
}

fn tell_change(change: &Change) {
    let mut rules: Vec<_> = change.rules.iter().collect();
    rules.sort_by(|(one_name, one), (other_name, other)| {
        other.calls.cmp(&one.calls).then_with(|| one_name.cmp(other_name))
    });
    for (rule, found) in rules {
        say!("  {:>9}  {}", found.calls, harmless(rule));
        let mut callers: Vec<_> = found.callers.iter().collect();
        callers.sort_by(|(one_name, one), (other_name, other)| {
            other.cmp(one).then_with(|| one_name.cmp(other_name))
        });
        let mut named: Vec<String> =
            callers.iter().take(MOST_CALLERS).map(|(name, calls)| format!("{calls} by {name}")).collect();
        if callers.len() > MOST_CALLERS {
            named.push(format!("… {} callers", callers.len()));
        }
        say!("             {}", harmless(&named.join(", ")));
        for example in &found.examples {
            say!(
                "             {}  {}  {} by {}, was {}",
                example.time,
                example.call,
                harmless(&example.tool),
                harmless(&example.caller),
                example.was
            );
        }
    }
}
