//! What a program reads and writes, as descriptors.

use std::{io, os::fd::OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags};

/// The standard streams: a sealed copy of the input, and a pipe each for output and error.
pub(crate) struct Streams {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) inner_stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) inner_stderr: OwnedFd,
}

impl Streams {
    pub(crate) fn new(input: Option<&[u8]>, user: Option<u32>) -> io::Result<Self> {
        let (stdout, inner_stdout) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (stderr, inner_stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let stdin = match input {
            None => std::fs::File::open("/dev/null")?.into(),
            Some(bytes) => sealed(bytes)?,
        };
        if let Some(user) = user {
            // So that a program may open its own streams anew, through /dev/stdout.
            let user = Some(rustix::fs::Uid::from_raw(user));
            for pipe in [&inner_stdout, &inner_stderr] {
                rustix::fs::fchown(pipe, user, None)?;
            }
        }
        Ok(Self { stdin, stdout, inner_stdout, stderr, inner_stderr })
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
