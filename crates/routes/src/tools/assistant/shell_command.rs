//! `tool.shell-command`: run one program that an operator has granted.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Failure, Tier,
    command::CommandLine,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::exec::{milliseconds, unreadable};
use crate::{
    exec::{Exec, Wanted},
    tool::{Answer, Facts, Run, Tool},
    tools::cmd::FROM_A_PROGRAM,
};

#[derive(Debug)]
pub struct ShellCommand {
    exec: Arc<Exec>,
}

impl ShellCommand {
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
    /// Has no effect: which programs may run is for the operator to say, never for the call.
    #[serde(default = "four_programs")]
    #[allow(
        dead_code,
        reason = "part of the contract; a caller can't widen or narrow what the operator grants"
    )]
    allowed_commands: Vec<String>,
    /// Time limit in milliseconds.
    #[serde(default = "five_seconds")]
    #[schemars(range(min = 1, max = 120_000))]
    timeout_ms: u64,
}

fn four_programs() -> Vec<String> {
    ["echo", "pwd", "ls", "node"].map(str::to_owned).to_vec()
}

fn five_seconds() -> u64 {
    5000
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
    timed_out: bool,
    /// There was more output; its end is shown.
    truncated: bool,
    /// What a reader would not expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl Tool for ShellCommand {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.shell-command".into(),
            aliases: Vec::new(),
            title: "Run an allowed program".into(),
            category: "runtime".into(),
            description: "Run one program that an operator has granted, in a sandbox on the workspace. A person approves \
                          each call. Despite its name there is no shell: no pipes, no `&&`, no `$VARIABLES`."
                .into(),
            tags: vec!["command".into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::Destructive,
            idempotent: false,
            approval: ApprovalRule::Required,
            route: Route::Exec,
            targets: vec![Target::Command { command: "command".into(), args: "args".into() }],
            label: FROM_A_PROGRAM,
            examples: vec![Example {
                title: "List files".into(),
                arguments: json!({"command": "ls", "args": ["-l"]}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let line =
            CommandLine::parse(&input.command, &input.args).map_err(|error| unreadable(run, &error))?;
        let timeout = Some(Duration::from_millis(input.timeout_ms));
        let done = self.exec.run(run, Wanted { timeout, ..Wanted::new(line.clone()) }).await?;
        let output = Output {
            exit_code: done.exit_code,
            stdout: done.output.stdout,
            stderr: done.output.stderr,
            duration_ms: milliseconds(done.took),
            command: line.program.clone(),
            args: line.arguments,
            timed_out: done.timed_out,
            truncated: done.output.truncated,
            notice: done.notice,
        };
        Ok(Answer::from(output, line.program))
    }
}
