//! What a program reads and writes, as descriptors.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    pipe::{PipeFlags, pipe_with},
};

use crate::launch::Input;

/// The standard streams: a sealed copy of the input or a pipe for it, and a pipe each for output and error.
pub(crate) struct Streams {
    /// The writing end, where the input is a pipe.
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) inner_stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) inner_stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) inner_stderr: OwnedFd,
}

impl Streams {
    pub(crate) fn new(input: &Input, user: Option<u32>) -> io::Result<Self> {
        let (stdout, inner_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, inner_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let (inner_stdin, stdin) = match input {
            Input::Nothing => (std::fs::File::open("/dev/null")?.into(), None),
            Input::Bytes(bytes) => (sealed(bytes)?, None),
            Input::Pipe => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                (reader, Some(writer))
            }
        };
        if let Some(user) = user {
            // So that a program may open its own streams anew, through /dev/stdout.
            let user = Some(rustix::fs::Uid::from_raw(user));
            let pipes = [&inner_stdout, &inner_stderr].into_iter();
            for pipe in pipes.chain(stdin.as_ref().map(|_| &inner_stdin)) {
                rustix::fs::fchown(pipe, user, None)?;
            }
        }
        Ok(Self { stdin, inner_stdin, stdout, inner_stdout, stderr, inner_stderr })
    }
}

/// Bytes that are read like a file and changed by nobody.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("stdin", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(memory);
    io::Write::write_all(&mut file, bytes)?;
    io::Seek::rewind(&mut file)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}
