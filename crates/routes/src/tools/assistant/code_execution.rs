//! `tool.code-execution`: run source text in a language runtime.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Failure, FailureKind, Tier, Violation, ViolationKind,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    bash::unix_lines,
    exec::{milliseconds, unreadable, with_script},
};
use crate::{
    exec::{Exec, Language, Runtimes, SandboxMode, Wanted},
    tool::{Answer, Facts, Run, Tool},
    tools::cmd::FROM_A_PROGRAM,
};

#[derive(Debug)]
pub struct CodeExecution {
    exec: Arc<Exec>,
    runtimes: Runtimes,
}

impl CodeExecution {
    pub fn new(exec: &Arc<Exec>) -> Self {
        Self { runtimes: Runtimes::look(exec.config()), exec: Arc::clone(exec) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Language.
    language: Language,
    /// Source text.
    #[schemars(length(min = 1))]
    code: String,
    /// Standard input.
    #[serde(default)]
    stdin: String,
    /// Time limit in milliseconds.
    #[serde(default = "thirty_seconds")]
    #[schemars(range(min = 1, max = 120_000))]
    timeout_ms: u64,
    /// Must be empty: nothing is installed, what the runtime has is what there is.
    #[serde(default)]
    packages: Vec<String>,
}

fn thirty_seconds() -> u64 {
    30_000
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Of the runtime; -1 when its time was up.
    exit_code: i32,
    stdout: String,
    stderr: String,
    duration_ms: u64,
    language: Language,
    sandbox_mode: SandboxMode,
    timed_out: bool,
    /// There was more output; its end is shown.
    truncated: bool,
    /// What a reader would not expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl Tool for CodeExecution {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        let programs = Language::ALL.map(|language| (language.as_str().into(), language.program().into()));
        Facts {
            name: "tool.code-execution".into(),
            aliases: Vec::new(),
            title: "Run code".into(),
            category: "runtime".into(),
            description: format!(
                "Run source text in a language runtime, in a sandbox on the workspace. A person approves each call. The \
                 context must grant the runtime's program: python3, node (JavaScript; TypeScript from Node 22.13 on) or \
                 bash.{}{}.",
                crate::tool::HERE,
                self.runtimes.listed()
            )
            .into(),
            tags: vec!["command".into(), "code".into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::Destructive,
            idempotent: false,
            approval: ApprovalRule::Required,
            route: Route::Exec,
            targets: vec![Target::Choice { argument: "language".into(), programs: programs.to_vec() }],
            label: FROM_A_PROGRAM,
            examples: vec![Example {
                title: "Compute something".into(),
                arguments: json!({"language": "python", "code": "print(sum(range(101)))"}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let language = input.language;
        if !input.packages.is_empty() {
            return Err(run.refuse(
                Violation::new(
                    ViolationKind::InvalidArguments,
                    format!(
                        "Invalid tool arguments: field 'packages' can't be used for tool '{}': nothing can be installed",
                        run.permit.tool()
                    ),
                )
                .rule("packages are the operator's to provide, in the host or in the image")
                .hint("leave it out and use what the runtime has"),
            ));
        }
        if !self.runtimes.has(language) {
            return Err(Failure::new(
                FailureKind::NotFound,
                format!(
                    "there is no {} on this node, so no {} can be run; it has: {}",
                    language.program(),
                    language.as_str(),
                    self.runtimes.listed()
                ),
            ));
        }
        let stdin = (!input.stdin.is_empty()).then(|| input.stdin.into_bytes());
        let (program, code) = (language.program(), input.code);
        let composed = match language {
            Language::Python => with_script(program, &["-c"], code, &["-"], stdin),
            Language::Javascript => with_script(program, &["-e"], code, &["-"], stdin),
            Language::Typescript => {
                let types = ["--experimental-strip-types", "--no-warnings", "--input-type=module-typescript"];
                with_script(program, &[types[0], types[1], types[2], "-e"], code, &types, stdin)
            }
            Language::Shell => with_script(program, &["-c"], unix_lines(code), &["-s"], stdin),
        };
        let (line, stdin) = composed.map_err(|error| unreadable(run, &error))?;
        let timeout = Some(Duration::from_millis(input.timeout_ms));
        let done = self.exec.run(run, Wanted { timeout, stdin, ..Wanted::new(line) }).await?;
        let output = Output {
            exit_code: done.exit_code,
            stdout: done.output.stdout,
            stderr: done.output.stderr,
            duration_ms: milliseconds(done.took),
            language,
            sandbox_mode: done.mode,
            timed_out: done.timed_out,
            truncated: done.output.truncated,
            notice: done.notice,
        };
        Ok(Answer::from(output, program))
    }
}
