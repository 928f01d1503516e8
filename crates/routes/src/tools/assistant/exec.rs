//! `tool.exec`: run a program in the sandbox.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use aegis_core::{
    Failure, Tier, Violation, ViolationKind, VolumePath,
    command::{BadCommand, CommandLine},
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    exec::{Exec, SandboxMode, Wanted},
    tool::{Answer, Facts, Run, Tool},
    tools::cmd::FROM_A_PROGRAM,
};

#[derive(Debug)]
pub struct SandboxExec {
    exec: Arc<Exec>,
}

impl SandboxExec {
    pub fn new(exec: &Arc<Exec>) -> Self {
        Self { exec: Arc::clone(exec) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Program, or a whole command line when args is absent. No shell reads it.
    #[schemars(length(min = 1))]
    command: String,
    /// Arguments.
    #[serde(default)]
    args: Vec<String>,
    /// Extra environment; no inline secrets. Only variables that an operator lets calls set.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Directory in the sandbox; /workspace when left out.
    working_dir: Option<String>,
    /// Time limit in milliseconds.
    #[serde(default = "thirty_seconds")]
    #[schemars(range(min = 1, max = 300_000))]
    timeout_ms: u64,
    /// Keep stdout.
    #[serde(default = "yes")]
    capture_stdout: bool,
    /// Keep stderr.
    #[serde(default = "yes")]
    capture_stderr: bool,
}

fn thirty_seconds() -> u64 {
    30_000
}

fn yes() -> bool {
    true
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// As the program returned it; -1 when its time was up.
    exit_code: i32,
    stdout: String,
    stderr: String,
    duration_ms: u64,
    command: String,
    args: Vec<String>,
    sandbox_mode: SandboxMode,
    timed_out: bool,
    /// There was more output; its end is shown.
    truncated: bool,
    /// What a reader would not expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl Tool for SandboxExec {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.exec".into(),
            aliases: Vec::new(),
            title: "Run a program in the sandbox".into(),
            category: "runtime".into(),
            description: "Run one program in a sandbox on the workspace, with environment, directory and time limit. A \
                          person approves each call. Any exit code is a normal answer."
                .into(),
            tags: vec!["command".into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::Destructive,
            idempotent: false,
            approval: ApprovalRule::Required,
            route: Route::Exec,
            targets: vec![
                Target::Command { command: "command".into(), args: "args".into() },
                Target::Path { argument: "workingDir".into() },
            ],
            label: FROM_A_PROGRAM,
            examples: vec![Example {
                title: "In a directory, with a time limit".into(),
                arguments: json!({"command": "make", "args": ["test"], "workingDir": "lib", "timeoutMs": 120_000}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let line =
            CommandLine::parse(&input.command, &input.args).map_err(|error| unreadable(run, &error))?;
        let directory = input
            .working_dir
            .map(|directory| VolumePath::parse(&directory))
            .transpose()
            .map_err(|error| unreadable(run, &error))?;
        let wanted = Wanted {
            environment: input.env,
            directory,
            timeout: Some(Duration::from_millis(input.timeout_ms)),
            ..Wanted::new(line.clone())
        };
        let done = self.exec.run(run, wanted).await?;
        let kept = |text: String, wanted: bool| if wanted { text } else { String::new() };
        let output = Output {
            exit_code: done.exit_code,
            stdout: kept(done.output.stdout, input.capture_stdout),
            stderr: kept(done.output.stderr, input.capture_stderr),
            duration_ms: milliseconds(done.took),
            command: line.program.clone(),
            args: line.arguments,
            sandbox_mode: done.mode,
            timed_out: done.timed_out,
            truncated: done.output.truncated,
            notice: done.notice,
        };
        Ok(Answer::from(output, line.program))
    }
}

pub(crate) fn milliseconds(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// The policy gate has refused it before; what it let through reads the same here.
pub(crate) fn unreadable(run: &Run<'_>, error: &dyn std::fmt::Display) -> Failure {
    run.refuse(Violation::new(
        ViolationKind::InvalidArguments,
        format!("Invalid tool arguments: they can't be used for tool '{}': {error}", run.permit.tool()),
    ))
}

/// A script as the only argument of an option. The kernel takes it up to some length; a longer one goes in as input.
pub(crate) fn with_script(
    program: &str,
    option: &[&str],
    script: String,
    from_input: &[&str],
    stdin: Option<Vec<u8>>,
) -> Result<(CommandLine, Option<Vec<u8>>), BadCommand> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let length = script.len();
    if script.contains('\0') {
        return Err(BadCommand::Nul);
    }
    if length < aegis_core::command::LONGEST_ARGUMENT - 16 {
        let arguments = [words(option), vec![script]].concat();
        return Ok((CommandLine { program: program.to_owned(), arguments }, stdin));
    }
    match stdin {
        None => {
            let line = CommandLine { program: program.to_owned(), arguments: words(from_input) };
            Ok((line, Some(script.into_bytes())))
        }
        Some(_) => Err(BadCommand::ArgumentTooLong(length)),
    }
}
