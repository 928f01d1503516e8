//! What the node and its stage say to each other: length-prefixed JSON over Unix sockets, with descriptors beside it.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::launch::{Access, Limits, Network};

/// Descriptors in one message: standard streams, volumes, and some to spare.
const MOST_DESCRIPTORS: usize = 80;
/// Larger than any command line that passes `Launch::check`, escaped.
const LARGEST_FRAME: usize = 16 << 20;

/// How the stage sets itself up, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The user and group to become; `None` keeps the node's own, which is then unprivileged.
    pub(crate) become_user: Option<(u32, u32)>,
    /// Directories of the host that every sandbox sees, read-only.
    pub(crate) system: Vec<PathBuf>,
    /// Entries of the host's /etc that every sandbox sees, read-only.
    pub(crate) etc: Vec<String>,
}

/// What the stage says when it is ready, or why it is not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// Ready. In the descriptors: the user namespace for mapped volumes, where there is one.
    Ready {
        /// Whether the descriptor is there, or why not.
        mapping: Result<bool, String>,
    },
    /// A step failed.
    Failed(Fault),
}

/// A step that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) step: String,
    pub(crate) errno: i32,
}

impl Fault {
    pub(crate) fn new(step: &str, error: &io::Error) -> Self {
        Self { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }

    pub(crate) fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// A volume to open, in the name space of the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
}

/// One sandbox, from the node to its first process. The descriptors beside it: standard input, output, error, then one
/// detached mount for each volume.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    pub(crate) cwd: PathBuf,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) network: Network,
    pub(crate) limits: Limits,
    /// A memory cgroup holds, so that no limit per process has to stand in for it.
    pub(crate) memory_held: bool,
}

/// What the first process starts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Program {
    /// A program of the sandbox, with its arguments (the first is its name) and environment.
    Run { argv: Vec<String>, env: Vec<(String, String)> },
    /// The stage's own look at the layers from inside; it writes [`Sighting`]s to its standard output.
    LookAround,
}

/// A volume in a plan; its mount is among the descriptors.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) inside: PathBuf,
    pub(crate) access: Access,
    /// A file rather than a directory.
    pub(crate) file: bool,
}

/// From a sandbox's first process to the node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The sandbox stands and waits for its plan. Descriptor: its first process. Layers that could not be had, and why.
    Prepared(Vec<(crate::Layer, String)>),
    /// The program runs. Descriptor: the proxy's listener, when asked for.
    Started,
    /// A step failed; nothing ran.
    Failed(Fault),
    /// The program could not be executed.
    NotStarted { errno: i32, found: bool },
    /// The working directory could not be entered.
    NoDirectory { errno: i32 },
    /// The program returned.
    Returned(i32),
    /// A signal ended it.
    Signalled(i32),
    /// Its time was up.
    TimedOut,
}

/// A signal for inside: the number, and the process (0: the program's group).
pub(crate) type SignalOrder = [i32; 2];

/// What a look from inside found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sighting {
    /// Identity of each namespace, by its name in `/proc/self/ns`.
    pub(crate) namespaces: Vec<(String, u64)>,
    /// Interfaces other than loopback.
    pub(crate) interfaces: Vec<String>,
    /// Layers tried and found to hold or not.
    pub(crate) tried: Vec<(crate::Layer, Result<String, String>)>,
}

/// Sends a message with descriptors.
pub(crate) fn send<T: Serialize>(
    socket: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?.to_le_bytes();
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length);
    frame.extend_from_slice(&body);
    send_bytes(socket, &frame, descriptors)
}

fn send_bytes(socket: impl AsFd, mut rest: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    while !rest.is_empty() {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(rest)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(sent) => {
                rest = &rest[sent..];
                ancillary.clear();
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives a message; `None` when the other side is gone.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if !fill(&socket, &mut length, descriptors)? {
        return Ok(None);
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LARGEST_FRAME {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    if !fill(&socket, &mut body, descriptors)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Reads exactly that much; `false` when the other side is gone before the first byte.
fn fill(socket: impl AsFd, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while filled < buffer.len() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut buffer[filled..])];
        let received =
            match rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => received,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(more) = message {
                descriptors.extend(more);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if received.bytes == 0 {
            return if filled == 0 { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        filled += received.bytes;
    }
    Ok(true)
}

/// One end for each side, neither inherited by programs.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (left, right) = pair().unwrap();
        let long = "x".repeat(1 << 20);
        let sender = std::thread::spawn(move || {
            let null = std::fs::File::open("/dev/null").unwrap();
            send(&left, &long, &[null.as_fd(), null.as_fd()]).unwrap();
        });
        let mut descriptors = Vec::new();
        let text: String = receive(&right, &mut descriptors).unwrap().unwrap();
        sender.join().unwrap();
        assert_eq!((text.len(), descriptors.len()), (1 << 20, 2));
        assert!(receive::<String>(&right, &mut descriptors).unwrap().is_none());
    }
}
