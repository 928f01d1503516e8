//! Tools that run programs: `cmd.run`, which is here, and the five of the assistant.

pub mod run;

use std::sync::Arc;

use aegis_core::{Label, TrustClass};

use crate::{Catalog, exec::Exec};

/// What a program puts out may hold anything that it has read.
pub(crate) const FROM_A_PROGRAM: Label = Label::new(TrustClass::ExternalUntrusted, "process");

/// Everything that runs programs.
pub fn register(catalog: Catalog, exec: &Arc<Exec>) -> Catalog {
    use super::assistant::{
        bash::Bash, code_execution::CodeExecution, exec::SandboxExec, process::Process,
        shell_command::ShellCommand,
    };
    catalog
        .with(run::CommandRun::new(exec))
        .with(ShellCommand::new(exec))
        .with(SandboxExec::new(exec))
        .with(Bash::new(exec))
        .with(CodeExecution::new(exec))
        .with(Process::new(exec))
}
