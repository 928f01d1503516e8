//! Rules of a workflow manifest that its shape alone can't hold.

use super::{
    Condition, HumanState, Mount, State, SubworkflowMode, SubworkflowState, Work, WorkflowManifest,
    WorkflowSpec, graph, storage,
};
use crate::{
    document::{Parsed, pointer, shown},
    manifest::{Findings, agent::mount_path},
    nearest::suggestion,
};

pub(super) fn check(parsed: &Parsed<WorkflowManifest>) -> Findings {
    let mut findings = Findings::default();
    let WorkflowManifest { metadata, spec, .. } = &parsed.value;
    for (member, schema) in
        [("input_schema", &metadata.input_schema), ("output_schema", &metadata.output_schema)]
    {
        if let Some(schema) = schema {
            schema.check(&format!("/metadata/{member}"), &mut findings);
        }
    }
    storage::check(&spec.storage, &spec.volumes, &mut findings);
    for (name, state) in &spec.states {
        check_state(spec, state, &pointer::below("/spec/states", [name]), &mut findings);
    }
    graph::check(spec, &mut findings);
    findings
}

fn check_state(spec: &WorkflowSpec, state: &State, at: &str, findings: &mut Findings) {
    if state.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
        findings.error(format!("{at}/timeout"), "must be more than 0");
    }
    for (index, transition) in state.transitions.iter().enumerate() {
        if let Condition::ScoreBetween { min, max } = transition.condition
            && min > max
        {
            findings.error(
                format!("{at}/transitions/{index}/min"),
                format!("`min` ({min}) is more than `max` ({max})"),
            );
        }
    }
    match &state.work {
        Work::Agent(agent) => check_mounts(spec, &agent.volumes, &format!("{at}/volumes"), findings),
        Work::Human(human) => check_human(state, human, at, findings),
        Work::ParallelAgents(parallel) => {
            parallel.consensus.check(&format!("{at}/consensus"), parallel.agents.len(), findings);
        }
        Work::ContainerRun(run) => {
            run.check(at, findings);
            check_mounts(spec, &run.volumes, &format!("{at}/volumes"), findings);
        }
        Work::ParallelContainerRun(run) => {
            run.check(at, findings);
            for (index, step) in run.steps.iter().enumerate() {
                check_mounts(spec, &step.volumes, &format!("{at}/steps/{index}/volumes"), findings);
            }
        }
        Work::Subworkflow(child) => check_subworkflow(child, at, findings),
        Work::System(_) => {}
    }
}

fn check_human(state: &State, human: &HumanState, at: &str, findings: &mut Findings) {
    if state.timeout.is_some() && human.timeout_seconds.is_some() {
        findings.error(format!("{at}/timeout_seconds"), "`timeout` is there already; keep that one");
    }
    if human.default_response.is_some() && human.reject_on_timeout == Some(true) {
        findings
            .error(format!("{at}/reject_on_timeout"), "`default_response` is there already; keep that one");
    }
    if human.default_response().is_some() && state.timeout().is_none() {
        findings.warning(at, "without a `timeout` the default response is never used");
    }
}

fn check_subworkflow(child: &SubworkflowState, at: &str, findings: &mut Findings) {
    match (child.mode, &child.result_key) {
        (SubworkflowMode::Blocking, None) => findings.error(at, "`mode: blocking` needs `result_key`"),
        (SubworkflowMode::FireAndForget, Some(_)) => findings.error(
            format!("{at}/result_key"),
            "`mode: fire_and_forget` has no result: take `result_key` out, or write `mode: blocking`",
        ),
        _ => {}
    }
}

/// Where volumes are declared, a mount must name one of them; where none is, the node looks the name up.
fn check_mounts(spec: &WorkflowSpec, mounts: &[Mount], at: &str, findings: &mut Findings) {
    let declared: Vec<&str> =
        spec.storage.shared_volumes.iter().chain(&spec.volumes).map(|volume| volume.name.as_str()).collect();
    let mut taken = Vec::new();
    for (index, mount) in mounts.iter().enumerate() {
        let at = format!("{at}/{index}");
        let name = mount.name.as_str();
        if !declared.is_empty() && name != storage::WORKSPACE_VOLUME && !declared.contains(&name) {
            let known = declared.iter().copied().chain([storage::WORKSPACE_VOLUME]);
            findings.error(&at, format!("no volume is called {}{}", shown(name), suggestion(name, known)));
        }
        match mount_path(&mount.mount_path) {
            Ok(path) if taken.contains(&path) => {
                findings.error(
                    format!("{at}/mount_path"),
                    format!("another volume is mounted at {path} already"),
                );
            }
            Ok(path) => taken.push(path),
            Err(reason) => findings.error(format!("{at}/mount_path"), reason),
        }
    }
}
