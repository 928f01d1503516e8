//! Why a sandbox did not start. What the program itself did is an [`Exit`](crate::Exit), never an error.

use std::{io, path::PathBuf};

use crate::layers::Refusal;

/// Why a launch failed. Nothing of the program ran in any of these cases.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This host holds fewer layers than the floor asks for.
    #[error(transparent)]
    BelowFloor(#[from] Refusal),
    /// No file of that name stands in the sandbox's PATH, or at that path.
    #[error(
        "`{program}` was not found inside the sandbox (PATH {path}); name a program that is installed there"
    )]
    NotFound {
        /// What was asked for.
        program: String,
        /// Where it was looked for.
        path: String,
    },
    /// The file is there, and the kernel won't execute it.
    #[error("`{program}` can't be executed: {reason}")]
    NotExecutable {
        /// What was asked for.
        program: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The working directory is not there, or is none.
    #[error("the working directory `{}` can't be entered: {source}", path.display())]
    WorkingDirectory {
        /// The directory, as seen inside.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program, its arguments or its environment can't be handed to a program.
    #[error("{0}")]
    Argument(String),
    /// A volume can't be mounted.
    #[error("`{}` can't be mounted at `{}`: {reason}", host.display(), inside.display())]
    Mount {
        /// The directory of the host.
        host: PathBuf,
        /// Where it should have stood.
        inside: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An image was asked for, and this backend has none.
    #[error("the {backend} backend has no images, but `{image}` was asked for; choose the oci backend")]
    NoImages {
        /// The backend that was asked.
        backend: &'static str,
        /// The image it was asked for.
        image: String,
    },
    /// The image is not in the engine's storage, and nothing is pulled behind an operator's back.
    #[error(
        "{engine} has no image `{image}` here, and none is fetched for a command; an operator can load it: {engine} pull {image}"
    )]
    NoSuchImage {
        /// The engine that was asked.
        engine: &'static str,
        /// The image it was asked for.
        image: String,
    },
    /// A step of the set-up failed.
    #[error("the sandbox could not be set up at step `{step}`: {reason}")]
    Setup {
        /// Which step.
        step: String,
        /// What went wrong.
        reason: String,
    },
    /// The stage process is gone or does not answer.
    #[error("the sandbox stage did not answer: {0}")]
    Stage(#[source] io::Error),
}

impl SandboxError {
    pub(crate) fn setup(step: &str, reason: impl std::fmt::Display) -> Self {
        Self::Setup { step: step.to_owned(), reason: reason.to_string() }
    }
}
