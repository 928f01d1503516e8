use clap::CommandFactory;

use crate::{cli::Cli, output::Ending};

pub(super) fn run(shell: clap_complete::Shell) -> Ending {
    clap_complete::generate(shell, &mut Cli::command(), "aegis", &mut std::io::stdout());
    Ending::Done
}
