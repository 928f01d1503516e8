//! The stage as a container's first process: calls the node, takes the plan, looks whether its volumes are the ones that
//! were meant, and goes on as the first process of any sandbox.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::Access as Right,
    process::DumpableBehavior,
};
use serde::{Deserialize, Serialize};

use super::carrier::CONTROL;
use crate::{
    launch::{Network, PROXY_PORT},
    stage::{self, filter, init, mounts},
    sys,
    wire::{self, Fault, Plan, Report},
};

/// The word by which the stage knows that it stands in a container.
pub(crate) const ROLE: &str = "container";
/// The word by which it only makes a user namespace for mapped volumes.
pub(crate) const MAPPING_ROLE: &str = "volume-mapping";

/// What the node sends, with the standard streams beside it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) plan: Plan,
    /// Device and number of each volume, in the plan's order. An engine looks paths up a second time, and an agent may
    /// have put something else there since the node looked.
    pub(super) identities: Vec<(u64, u64)>,
}

/// Serves as a container's first process.
pub(crate) fn main() -> ! {
    let code = i32::from(serve().is_err());
    sys::leave(code)
}

fn serve() -> io::Result<()> {
    // Out of the program's reach, which runs as the same user.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    sys::close_from(3)?;
    let control = OwnedFd::from(UnixStream::connect(CONTROL)?);
    let mut descriptors = Vec::new();
    let Some(orders) = wire::receive::<Orders>(&control, &mut descriptors)? else { return Ok(()) };
    match ready(&orders) {
        Ok(proxy) => init::serve(&orders.plan, &filter::program(), &control, descriptors, proxy),
        Err(fault) => wire::send(&control, &Report::Failed(fault), &[])?,
    }
    // The container's end is the end of its control groups, and the node still wants to read them.
    loop {
        let mut closed = [PollFd::new(&control, PollFlags::RDHUP)];
        match rustix::event::poll(&mut closed, None) {
            Ok(_) if !closed[0].revents().is_empty() => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn ready(orders: &Orders) -> Result<Option<TcpListener>, Fault> {
    let Orders { plan, identities } = orders;
    for (volume, identity) in plan.volumes.iter().zip(identities) {
        let found = look(&volume.inside);
        let found = found.map_err(|error| fault(&format!("volume {}", volume.inside.display()), &error))?;
        if found != *identity {
            let other = io::Error::from_raw_os_error(libc::ESTALE);
            return Err(fault(&format!("volume {}", volume.inside.display()), &other));
        }
    }
    rustix::fs::access("/tmp", Right::WRITE_OK | Right::EXEC_OK).map_err(|error| {
        fault("scratch space in /tmp, which the image must leave to everyone", &error.into())
    })?;
    match plan.network {
        Network::None => Ok(None),
        Network::Proxy => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT));
            listener.map(Some).map_err(|error| fault("the proxy's listener", &error))
        }
    }
}

/// What stands at a place that no link leads to.
fn look(path: &Path) -> io::Result<(u64, u64)> {
    identity(&mounts::place(path)?)
}

/// Device and number of an open place.
pub(super) fn identity(place: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = rustix::fs::fstat(place)?;
    Ok((found.st_dev, found.st_ino))
}

fn fault(step: &str, error: &io::Error) -> Fault {
    Fault::new(step, error)
}

/// Makes a user namespace for mapped volumes, sends it, and ends.
pub(crate) fn map_volumes() -> ! {
    let serve = || -> io::Result<()> {
        let mut ids = std::env::args().skip(2).map(|number| number.parse::<u32>().unwrap_or(u32::MAX));
        let (Some(uid), Some(gid)) = (ids.next(), ids.next()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let door = sys::inherited(0)?;
        match stage::volume_mapping(uid, gid) {
            Ok(namespace) => {
                use std::os::fd::AsFd;
                wire::send(&door, &Ok::<(), i32>(()), &[namespace.as_fd()])
            }
            Err(error) => wire::send(&door, &Err::<(), i32>(error.raw_os_error().unwrap_or(libc::EIO)), &[]),
        }
    };
    sys::leave(i32::from(serve().is_err()))
}
