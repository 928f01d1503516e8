//! `tool.process`: list, inspect or signal the processes of the caller's own sandboxes.

use std::sync::Arc;

use aegis_core::{
    Failure, FailureKind, Tier, Violation, ViolationKind,
    id::CallId,
    tool::{ApprovalRule, Example, Mutability, Route},
};
use aegis_sandbox::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    exec::{Exec, OwnProcess},
    tool::{Answer, Facts, Run, Tool},
    tools::cmd::FROM_A_PROGRAM,
};

/// Rows of one answer.
const MOST_ROWS: usize = 1000;

#[derive(Debug)]
pub struct Process {
    exec: Arc<Exec>,
}

impl Process {
    pub fn new(exec: &Arc<Exec>) -> Self {
        Self { exec: Arc::clone(exec) }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// What to do.
    #[serde(default)]
    operation: Operation,
    /// Process id for inspect and kill.
    #[schemars(range(min = 1))]
    pid: Option<u32>,
    /// Signal for kill.
    #[serde(default)]
    signal: SignalName,
    /// Name filter for list.
    filter: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Operation {
    #[default]
    List,
    Inspect,
    Kill,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
enum SignalName {
    #[default]
    Sigterm,
    Sigkill,
    Sigint,
}

impl SignalName {
    fn signal(self) -> Signal {
        match self {
            Self::Sigterm => Signal::Terminate,
            Self::Sigkill => Signal::Kill,
            Self::Sigint => Signal::Interrupt,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    operation: Operation,
    processes: Vec<Row>,
    /// How many there are, shown or not.
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal_sent: Option<SignalName>,
    success: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Row {
    pid: u32,
    command: String,
    args: Vec<String>,
    status: &'static str,
    /// Of one core, since the command began.
    cpu_percent: f64,
    memory_mb: f64,
    /// The call that runs it.
    #[schemars(with = "String")]
    handle: CallId,
    /// Its number inside the sandbox.
    inside_pid: u32,
    /// Its parent's number inside the sandbox.
    parent_pid: u32,
    seconds: u64,
}

impl Row {
    fn of(process: &OwnProcess) -> Self {
        let info = &process.info;
        let (command, args) = match info.command.split_first() {
            Some((command, args)) => (command.clone(), args.to_vec()),
            None => (info.name.clone(), Vec::new()),
        };
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        Self {
            pid: process.number(),
            command,
            args,
            status: match info.state {
                'R' => "running",
                'S' | 'I' => "sleeping",
                'D' => "waiting",
                'T' | 't' => "stopped",
                'Z' | 'X' => "ended",
                _ => "unknown",
            },
            cpu_percent: rounded(100.0 * info.cpu.as_secs_f64() / process.age.as_secs_f64().max(0.001)),
            memory_mb: rounded(info.memory as f64 / f64::from(1 << 20)),
            handle: process.call,
            inside_pid: info.pid,
            parent_pid: info.parent,
            seconds: process.age.as_secs(),
        }
    }
}

impl Tool for Process {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.process".into(),
            aliases: Vec::new(),
            title: "Look after sandbox processes".into(),
            category: "runtime".into(),
            description: "List, inspect or signal the processes of commands that the caller has running, by pid; each names \
                          the call that started it. Processes of the machine and of other callers are out of reach. A \
                          person approves each call."
                .into(),
            tags: vec!["command".into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::Destructive,
            idempotent: false,
            approval: ApprovalRule::Required,
            route: Route::Exec,
            targets: Vec::new(),
            label: FROM_A_PROGRAM,
            examples: vec![
                Example { title: "What runs".into(), arguments: json!({"operation": "list"}) },
                Example {
                    title: "Stop one".into(),
                    arguments: json!({"operation": "kill", "pid": 4711, "signal": "SIGKILL"}),
                },
            ],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let mut processes = self.exec.processes(run.permit.caller()).await;
        let operation = input.operation;
        if operation == Operation::List {
            if let Some(filter) = &input.filter {
                processes.retain(|process| {
                    process.info.name.contains(filter.as_str())
                        || process.info.command.iter().any(|word| word.contains(filter.as_str()))
                });
            }
            let total = processes.len();
            let processes = processes.iter().take(MOST_ROWS).map(Row::of).collect();
            let output = Output { operation, processes, total, pid: None, signal_sent: None, success: true };
            return Ok(output.into());
        }
        let Some(pid) = input.pid else {
            return Err(run.refuse(Violation::new(
                ViolationKind::InvalidArguments,
                format!("Invalid tool arguments: missing field 'pid' for tool '{}'", run.permit.tool()),
            )));
        };
        let gone = || {
            let message = format!("no command of yours has a process {pid}; `list` shows those there are");
            Failure::new(FailureKind::NotFound, message)
        };
        let process = processes.iter().find(|process| process.number() == pid).ok_or_else(gone)?;
        let signal_sent = match operation {
            Operation::Kill => {
                self.exec.signal(process, input.signal.signal()).await.map_err(|_| gone())?;
                Some(input.signal)
            }
            Operation::List | Operation::Inspect => None,
        };
        let processes = vec![Row::of(process)];
        Ok(Output { operation, processes, total: 1, pid: Some(pid), signal_sent, success: true }.into())
    }
}
