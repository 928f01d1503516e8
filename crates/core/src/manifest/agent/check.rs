//! Rules of an agent manifest that its shape alone can't hold.

use serde_json::Value;

use super::{AgentManifest, ExecutionMode, Validator, VolumeType, volume};
use crate::{document::Parsed, manifest::Findings, quantity::Span, runtimes::Runtime};

pub(super) fn check(parsed: &Parsed<AgentManifest>, runtimes: Option<&[Runtime]>) -> Findings {
    let mut findings = Findings::default();
    let spec = &parsed.value.spec;
    let written = |pointer: &str| parsed.is_written(pointer);
    let spec_json = parsed.json().get("spec").unwrap_or(&Value::Null);
    spec.runtime.check("/spec/runtime", runtimes, &mut findings);
    spec.security.check("/spec/security", &mut findings);
    spec.check_tools(spec_json, &mut findings);
    volume::check(&spec.volumes, "/spec/volumes", &written, &mut findings);
    for (index, volume) in spec.volumes.iter().enumerate() {
        let at = format!("/volumes/{index}/type");
        if volume.kind == VolumeType::Seal && spec_json.pointer(&at).is_some_and(|kind| kind == "smcp") {
            findings.warning(format!("/spec{at}"), "`smcp` is called `seal` now");
        }
    }
    if let Some(schema) = &spec.input_schema {
        schema.check("/spec/input_schema", &mut findings);
    }
    if spec.delivery.is_some() && spec.execution.delivery.is_some() {
        findings.error("/spec/execution/delivery", "`spec.delivery` is there already; keep that one");
    }
    if spec.advanced.as_ref().is_some_and(|advanced| advanced.bootstrap_path.is_some())
        && spec.runtime.image.is_none()
    {
        findings
            .warning("/spec/advanced/bootstrap_path", "only an `image` of your own can bring its bootstrap");
    }
    execution(parsed, &mut findings);
    findings
}

fn execution(parsed: &Parsed<AgentManifest>, findings: &mut Findings) {
    const AT: &str = "/spec/execution";
    let spec = &parsed.value.spec;
    let execution = &spec.execution;
    if execution.mode == ExecutionMode::OneShot && execution.max_iterations > 1 {
        for key in ["max_iterations", "max_retries"] {
            let at = format!("{AT}/{key}");
            if parsed.is_written(&at) {
                findings.warning(at, "`mode` is one-shot, which tries once; write `mode: iterative`");
            }
        }
    }
    if execution.iteration_timeout.0.is_zero() {
        findings.error(format!("{AT}/iteration_timeout"), "must be more than 0");
    }
    if let Some(validation) = &execution.validation {
        validation.check(&format!("{AT}/validation"), findings);
    }
    for (index, validator) in execution.tool_validation.iter().enumerate() {
        let at = format!("{AT}/tool_validation/{index}");
        if !matches!(validator, Validator::Semantic(_)) {
            findings.warning(
                format!("{at}/type"),
                "only `semantic` entries judge tool calls; nothing reads this one",
            );
        }
        validator.check(&at, findings);
    }
    validator_timeouts(parsed, findings);
}

/// A validator may not be given more time than the whole run. A default that is longer is no mistake of the
/// author's: the run's own end cuts it.
fn validator_timeouts(parsed: &Parsed<AgentManifest>, findings: &mut Findings) {
    let limit = parsed.value.spec.security.resources.wall_clock();
    let execution = parsed.json().pointer("/spec/execution");
    for block in ["validation", "tool_validation"] {
        let members: Vec<(String, &Value)> = match execution.and_then(|execution| execution.get(block)) {
            Some(Value::Array(entries)) => {
                entries.iter().enumerate().map(|(index, entry)| (index.to_string(), entry)).collect()
            }
            Some(Value::Object(entries)) => {
                entries.iter().map(|(name, entry)| (name.clone(), entry)).collect()
            }
            _ => continue,
        };
        for (name, entry) in members {
            if let Some(seconds) = entry.get("timeout_seconds").and_then(Value::as_u64)
                && Span::seconds(seconds) > limit
            {
                findings.error(
                    format!("/spec/execution/{block}/{name}/timeout_seconds"),
                    format!(
                        "{} is longer than the whole run ({limit}, `security.resources.timeout`)",
                        Span::seconds(seconds)
                    ),
                );
            }
        }
    }
}
