//! `cmd.run`: run one command in the caller's own isolation.

use std::sync::Arc;

use aegis_core::{
    Failure, Tier,
    command::CommandLine,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::FROM_A_PROGRAM;
use crate::{
    exec::{Exec, Wanted},
    tool::{Answer, Facts, Run, Tool},
    tools::assistant::exec::unreadable,
};

#[derive(Debug)]
pub struct CommandRun {
    exec: Arc<Exec>,
}

impl CommandRun {
    pub fn new(exec: &Arc<Exec>) -> Self {
        Self { exec: Arc::clone(exec) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Program to run, or a whole command line when args is absent. A line is split into words; no shell reads it.
    #[schemars(length(min = 1))]
    command: String,
    /// Positional arguments; the first one is the subcommand that policy looks at.
    #[serde(default)]
    args: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    stdout: String,
    stderr: String,
    /// As the program returned it. 128 and the signal's number where one ended it; -1 when its time was up.
    exit_code: i32,
    /// There was more output; its end is shown.
    truncated: bool,
    /// What a reader would not expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl Tool for CommandRun {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "cmd.run".into(),
            aliases: Vec::new(),
            title: "Run a command".into(),
            category: "dispatch".into(),
            description: "Run one program in a sandbox that sees the workspace and nothing else of the machine: to build, \
                          test and compute. Any exit code is a normal answer. There is no shell: no pipes, no `&&`, no \
                          `$VARIABLES`. Which programs may run is granted by name. The network is off unless domains are \
                          granted."
                .into(),
            tags: vec!["command".into(), "build".into(), "test".into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::Destructive,
            idempotent: false,
            approval: ApprovalRule::NotRequired,
            route: Route::Exec,
            targets: vec![Target::Command { command: "command".into(), args: "args".into() }],
            label: FROM_A_PROGRAM,
            examples: vec![
                Example { title: "Run the tests".into(), arguments: json!({"command": "make", "args": ["test"]}) },
                Example { title: "A whole line".into(), arguments: json!({"command": "git log --oneline -n 5"}) },
            ],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let line =
            CommandLine::parse(&input.command, &input.args).map_err(|error| unreadable(run, &error))?;
        let program = line.program.clone();
        let done = self.exec.run(run, Wanted::new(line)).await?;
        let output = Output {
            stdout: done.output.stdout,
            stderr: done.output.stderr,
            exit_code: done.exit_code,
            truncated: done.output.truncated,
            notice: done.notice,
        };
        Ok(Answer::from(output, program))
    }
}
