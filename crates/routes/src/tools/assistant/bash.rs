//! `tool.bash`: run a bash script in the sandbox.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Failure, Tier,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::exec::{milliseconds, unreadable, with_script};
use crate::{
    exec::{Exec, SandboxMode, Wanted},
    tool::{Answer, Facts, Run, Tool},
    tools::cmd::FROM_A_PROGRAM,
};

#[derive(Debug)]
pub struct Bash {
    exec: Arc<Exec>,
}

impl Bash {
    pub fn new(exec: &Arc<Exec>) -> Self {
        Self { exec: Arc::clone(exec) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Script text.
    #[schemars(length(min = 1))]
    script: String,
    /// Positional arguments: `$1` and so on.
    #[serde(default)]
    args: Vec<String>,
    /// Time limit in milliseconds.
    #[serde(default = "thirty_seconds")]
    #[schemars(range(min = 1, max = 120_000))]
    timeout_ms: u64,
}

fn thirty_seconds() -> u64 {
    30_000
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Of the script; -1 when its time was up.
    exit_code: i32,
    stdout: String,
    stderr: String,
    duration_ms: u64,
    sandbox_mode: SandboxMode,
    timed_out: bool,
    /// There was more output; its end is shown.
    truncated: bool,
    /// What a reader would not expect.
    #[serde(skip_serializing_if = "Option::is_none")]
    notice: Option<String>,
}

impl Tool for Bash {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.bash".into(),
            aliases: Vec::new(),
            title: "Run a bash script".into(),
            category: "runtime".into(),
            description: "Run a bash script in a sandbox on the workspace. A person approves each call. The context must \
                          grant the program `bash`. Line endings of Windows are read as line endings."
                .into(),
            tags: vec!["command".into(), "shell".into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::Destructive,
            idempotent: false,
            approval: ApprovalRule::Required,
            route: Route::Exec,
            targets: vec![Target::Program { program: "bash".into() }],
            label: FROM_A_PROGRAM,
            examples: vec![Example {
                title: "Count lines of code".into(),
                arguments: json!({"script": "cat \"$1\"/*.rs | wc -l", "args": ["src"]}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let script = unix_lines(input.script);
        // The name that the script sees as `$0`, and its arguments after it; from input they follow `-s`.
        let (mut line, stdin) = with_script("bash", &["-c"], script, &["-s", "--"], None)
            .map_err(|error| unreadable(run, &error))?;
        if stdin.is_none() {
            line.arguments.push("bash".into());
        }
        line.arguments.extend(input.args);
        let timeout = Some(Duration::from_millis(input.timeout_ms));
        let done = self.exec.run(run, Wanted { timeout, stdin, ..Wanted::new(line) }).await?;
        let output = Output {
            exit_code: done.exit_code,
            stdout: done.output.stdout,
            stderr: done.output.stderr,
            duration_ms: milliseconds(done.took),
            sandbox_mode: done.mode,
            timed_out: done.timed_out,
            truncated: done.output.truncated,
            notice: done.notice,
        };
        Ok(Answer::from(output, "bash"))
    }
}

/// To bash a carriage return is a part of the last word of each line.
pub(crate) fn unix_lines(script: String) -> String {
    if script.contains("\r\n") { script.replace("\r\n", "\n") } else { script }
}
