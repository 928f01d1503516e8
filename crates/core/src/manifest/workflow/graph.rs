//! How the states of a workflow hang together.

use std::collections::BTreeSet;

use super::{Condition, Transition, WorkflowSpec};
use crate::{
    document::{pointer, shown},
    manifest::Findings,
    nearest::suggestion,
};

pub(super) fn check(spec: &WorkflowSpec, findings: &mut Findings) {
    let names = || spec.states.keys().map(String::as_str);
    if !spec.states.contains_key(&spec.initial_state) {
        findings.error(
            "/spec/initial_state",
            format!(
                "there is no state {}{}",
                shown(&spec.initial_state),
                suggestion(&spec.initial_state, names())
            ),
        );
    }
    for (name, state) in &spec.states {
        let at = pointer::below("/spec/states", [name.as_str(), "transitions"]);
        for (index, transition) in state.transitions.iter().enumerate() {
            if !spec.states.contains_key(&transition.target) {
                findings.error(
                    format!("{at}/{index}/target"),
                    format!(
                        "there is no state {}{}",
                        shown(&transition.target),
                        suggestion(&transition.target, names())
                    ),
                );
            }
        }
        order(&at, &state.transitions, findings);
    }
    if findings.errors.is_empty() {
        reach(spec, findings);
    }
}

/// States that no run gets to, and runs that can't end by themselves.
fn reach(spec: &WorkflowSpec, findings: &mut Findings) {
    let mut seen = BTreeSet::from([spec.initial_state.as_str()]);
    let mut open = vec![spec.initial_state.as_str()];
    while let Some(name) = open.pop() {
        for transition in spec.states.get(name).into_iter().flat_map(|state| &state.transitions) {
            if seen.insert(&transition.target) {
                open.push(&transition.target);
            }
        }
    }
    for name in spec.states.keys().filter(|name| !seen.contains(name.as_str())) {
        findings.warning(pointer::below("/spec/states", [name]), "no transition leads here");
    }
    if !spec.states.iter().any(|(name, state)| state.is_terminal() && seen.contains(name.as_str())) {
        findings.warning(
            "/spec/states",
            "a run can't end by itself: give some state that it gets to `transitions: []`",
        );
    }
}

/// Transitions that are never taken, and scores for which there is none.
fn order(at: &str, transitions: &[Transition], findings: &mut Findings) {
    let certain = transitions.iter().position(|transition| transition.condition == Condition::Always);
    if let Some(certain) = certain {
        if certain + 1 < transitions.len() {
            findings.warning(
                format!("{at}/{}", certain + 1),
                "never taken: the transition before it always holds",
            );
        }
        return;
    }
    for (index, transition) in transitions.iter().enumerate() {
        let Condition::ScoreAbove { threshold: above } = transition.condition else { continue };
        let bounded = transitions.iter().any(|other| {
            matches!(other.condition, Condition::ScoreBelow { threshold } if (threshold - above).abs() < f64::EPSILON)
        });
        let covered = transitions.iter().any(|other| match other.condition {
            Condition::ScoreBetween { min, max } => (min..=max).contains(&above),
            Condition::OnSuccess | Condition::OnFailure => true,
            Condition::ScoreBelow { threshold } => threshold > above,
            _ => false,
        });
        if bounded && !covered {
            findings.warning(
                format!("{at}/{index}/threshold"),
                format!(
                    "a score of exactly {above} matches no transition: neither above nor below holds for it"
                ),
            );
        }
    }
}
