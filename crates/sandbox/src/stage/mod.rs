//! The stage: the node's own binary, started again under another name, clean of everything the node knows.
//!
//! ```text
//! node ── stage            opens volumes in the host's name space, as the unprivileged user
//!           └─ nursery     pid 1 of its own pid namespace, stands in a minimal root; forks one child per sandbox
//!                ├─ init   pid 1 of one sandbox: sets it up, reaps, limits the time, ends with the program
//!                │    └─ program and what it starts
//!                └─ init …
//! ```
//!
//! None of them is told a secret, and each is a single thread. When the node dies, however it dies, its sockets close:
//! stage, nursery and every init end, and the kernel ends whatever stood in their pid namespaces.

mod base;
pub(crate) mod filter;
pub(crate) mod init;
pub(crate) mod look;
pub(crate) mod mounts;
mod program;
mod rights;
mod sandbox;

use std::{
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags},
    process::{DumpableBehavior, Gid, PidfdFlags, Signal, Uid},
};

use crate::{
    native::open_volume,
    oci,
    sys::{self, Fork},
    wire::{self, Fault, Hello, Open, Setup},
};

/// The name under which the binary is a stage and nothing else.
pub const STAGE_NAME: &str = "aegis-sandbox-stage";
/// The user and group inside, whoever they are outside.
pub(crate) const INNER_ID: u32 = 1000;
/// How many files scratch space of that size holds: one for every page, so that empty ones have a limit too.
pub(crate) fn scratch_files(size: u64) -> u64 {
    (size / 4096).clamp(1024, 1 << 20)
}

/// The host name inside.
const HOST_NAME: &[u8] = b"sandbox";

/// Whether this process was started as a stage. To be asked first thing in `main`, before any thread or runtime.
pub fn is_stage() -> bool {
    std::env::args_os().next().is_some_and(|name| name == STAGE_NAME)
}

/// Serves as a stage until the node is gone.
pub fn stage_main() -> ! {
    match std::env::args().nth(1).as_deref() {
        Some(oci::ROLE) => oci::container_main(),
        Some(oci::MAPPING_ROLE) => oci::map_volumes(),
        _ => {}
    }
    let code = i32::from(serve().is_err());
    sys::leave(code)
}

/// Names the step at which a call failed.
trait At<T> {
    fn at(self, step: &str) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: &str) -> Result<T, Fault> {
        self.map_err(|error| Fault::new(step, &error.into()))
    }
}

fn serve() -> io::Result<()> {
    // Whatever the node left open by mistake ends here.
    sys::close_from(3)?;
    let door = sys::inherited(0)?;
    let mut descriptors = Vec::new();
    let Some(setup) = wire::receive::<Setup>(&door, &mut descriptors)? else { return Ok(()) };
    let Some(nursery) = descriptors.pop() else { return Err(io::ErrorKind::InvalidInput.into()) };
    match establish(&setup) {
        Ok((mapping, known)) => {
            let descriptors: Vec<_> = mapping.iter().map(AsFd::as_fd).collect();
            wire::send(&door, &Hello::Ready { mapping: known }, &descriptors)?;
        }
        Err(fault) => return wire::send(&door, &Hello::Failed(fault), &[]),
    }
    match sys::fork_into(libc::CLONE_NEWPID | libc::CLONE_NEWNS)? {
        Fork::Child => {
            drop(door);
            // Takes the number that the door had, so that nothing that matters ever stands below 3.
            let null = fs::File::open("/dev/null")?;
            let _ = std::os::fd::IntoRawFd::into_raw_fd(null);
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            raise(&setup, nursery)
        }
        Fork::Parent(child) => {
            drop(nursery);
            let child = rustix::process::Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?;
            let child = rustix::process::pidfd_open(child, PidfdFlags::empty())?;
            open_volumes(&door, &child)
        }
    }
}

/// The user namespace for mapped volumes, where one is wanted, and whether it could be had.
type Mapping = (Option<OwnedFd>, Result<bool, String>);

/// Becomes the unprivileged user, in a user and mount namespace of its own.
fn establish(setup: &Setup) -> Result<Mapping, Fault> {
    let mut mapping = (None, Ok(false));
    if let Some((uid, gid)) = setup.become_user {
        mapping = match volume_mapping(uid, gid) {
            Ok(namespace) => (Some(namespace), Ok(true)),
            Err(error) => (None, Err(error.to_string())),
        };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        rustix::thread::set_thread_groups(&[]).at("leave the node's groups")?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).at("become the unprivileged group")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).at("become the unprivileged user")?;
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 {
        return Err(Fault { step: "be a user other than root".into(), errno: libc::EPERM });
    }
    rustix::thread::set_no_new_privs(true).at("no new privileges")?;
    sys::unshare(libc::CLONE_NEWUSER).at("user namespace")?;
    write_maps(uid, gid, true).at("user namespace's ids")?;
    sys::unshare(libc::CLONE_NEWNS).at("mount namespace")?;
    // Without these two the sandboxes' own are tried, and told, later.
    let _ = sys::unshare(libc::CLONE_NEWIPC);
    if sys::unshare(libc::CLONE_NEWUTS).is_ok() {
        rustix::system::sethostname(HOST_NAME).at("host name")?;
    }
    Ok(mapping)
}

/// Maps one id inside to the one id that this process has outside. Only a process that may be looked at may write its
/// own maps; nothing hostile exists yet that could look.
fn write_maps(uid: u32, gid: u32, first: bool) -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    if first {
        fs::write("/proc/self/setgroups", "deny")?;
    }
    fs::write("/proc/self/uid_map", format!("{INNER_ID} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{INNER_ID} {gid} 1"))?;
    if !first {
        // When memory runs short on the host, a sandbox goes before anything else does.
        let _ = fs::write("/proc/self/oom_score_adj", "300");
    }
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// A user namespace in which root's files belong to the unprivileged user: mounts that carry it let the program work on
/// volumes that the node owns, as if they were its own.
pub(crate) fn volume_mapping(uid: u32, gid: u32) -> io::Result<OwnedFd> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::fork_into(libc::CLONE_NEWUSER)? {
        Fork::Child => {
            drop(writer);
            let _ = rustix::io::read(&reader, &mut [0; 1]);
            sys::leave(0)
        }
        Fork::Parent(child) => {
            let made = (|| {
                fs::write(format!("/proc/{child}/uid_map"), format!("0 {uid} 1"))?;
                fs::write(format!("/proc/{child}/gid_map"), format!("0 {gid} 1"))?;
                Ok(fs::File::open(format!("/proc/{child}/ns/user"))?.into())
            })();
            drop(writer);
            rustix::process::waitpid(
                rustix::process::Pid::from_raw(child),
                rustix::process::WaitOptions::empty(),
            )?;
            made
        }
    }
}

/// Opens volumes for a node that can't make detached mounts itself, until the node or the nursery is gone.
fn open_volumes(door: &OwnedFd, nursery: &OwnedFd) -> io::Result<()> {
    loop {
        let mut ready = [PollFd::new(door, PollFlags::IN), PollFd::new(nursery, PollFlags::IN)];
        match rustix::event::poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !ready[1].revents().is_empty() {
            return Ok(());
        }
        if ready[0].revents().is_empty() {
            continue;
        }
        let Some(open) = wire::receive::<Open>(door, &mut Vec::new())? else { return Ok(()) };
        match open_volume(&open.path, open.access, None) {
            Ok(mount) => wire::send(door, &Ok::<(), i32>(()), &[mount.as_fd()])?,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                wire::send(door, &Err::<(), i32>(errno), &[])?;
            }
        }
    }
}

/// An order to the nursery. Descriptors: the new sandbox's socket, then the control groups to join.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Prepare;

/// Builds the root that all sandboxes start from, then forks one child for each order.
fn raise(setup: &Setup, nursery: OwnedFd) -> ! {
    let base = match base::build(setup) {
        Ok(base) => base,
        Err(fault) => {
            let _ = wire::send(&nursery, &Hello::Failed(fault), &[]);
            sys::leave(1)
        }
    };
    if wire::send(&nursery, &Hello::Ready { mapping: Ok(false) }, &[]).is_err() {
        sys::leave(0);
    }
    let filter = filter::program();
    sys::forget_children();
    loop {
        let mut descriptors = Vec::new();
        match wire::receive::<Prepare>(&nursery, &mut descriptors) {
            Ok(Some(Prepare)) if !descriptors.is_empty() => {}
            Ok(Some(Prepare)) => continue,
            Ok(None) | Err(_) => sys::leave(0),
        }
        let control = descriptors.remove(0);
        match sys::fork_into(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) {
            Ok(Fork::Child) => {
                drop(nursery);
                sandbox::run(&base, &filter, &control, descriptors)
            }
            Ok(Fork::Parent(_)) => {}
            Err(error) => {
                let fault = Fault::new("user and pid namespace", &error);
                let _ = wire::send(&control, &wire::Report::Failed(fault), &[]);
            }
        }
    }
}
