//! One sandbox, from inside its first process: built up to the point where only the plan is missing, then dressed for it.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode},
    mount::MountAttrFlags,
    process::PidfdFlags,
    thread::{CapabilitySet, CapabilitySets},
};

use super::{
    At, INNER_ID,
    base::{Base, EMPTY_DIRECTORY, EMPTY_FILE, Entry, NEW_ROOT},
    init, mounts, scratch_files, write_maps,
};
use crate::{
    Layer,
    launch::{Network, PROXY_PORT},
    sys::{self, MountChange},
    wire::{self, Fault, Plan, Report},
};

/// Parts of /proc that tell of the host's kernel or hardware, or act on it.
const HIDDEN_FILES: [&str; 10] = [
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "kallsyms",
    "modules",
    "sysrq-trigger",
    "timer_list",
    "sched_debug",
    "cmdline",
];
const HIDDEN_DIRECTORIES: [&str; 7] = ["acpi", "asound", "bus", "driver", "fs", "irq", "scsi"];
/// Shared memory beside /tmp; programs that need more of it are few.
const LARGEST_SHARED_MEMORY: u64 = 64 << 20;

/// Builds the sandbox, waits for its plan, carries it out, and ends with it.
pub(super) fn run(base: &Base, filter: &[libc::sock_filter], control: &OwnedFd, groups: Vec<OwnedFd>) -> ! {
    sys::remember_children();
    let prepared = prepare(base, groups).and_then(|gaps| {
        let myself =
            rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).at("own process")?;
        wire::send(control, &Report::Prepared(gaps), &[myself.as_fd()]).at("answer the node")
    });
    if let Err(fault) = prepared {
        fail(control, fault);
    }
    let mut descriptors = Vec::new();
    let plan = match wire::receive::<Plan>(control, &mut descriptors) {
        Ok(Some(plan)) => plan,
        Ok(None) | Err(_) => sys::leave(0),
    };
    match dress(&plan, &descriptors) {
        Ok(proxy) => init::run(&plan, filter, control, descriptors, proxy),
        Err(fault) => fail(control, fault),
    }
}

fn fail(control: &OwnedFd, fault: Fault) -> ! {
    let _ = wire::send(control, &Report::Failed(fault), &[]);
    sys::leave(1)
}

/// Everything that does not depend on what will run.
fn prepare(base: &Base, groups: Vec<OwnedFd>) -> Result<Vec<(Layer, String)>, Fault> {
    let mut gaps = base.gaps.clone();
    for group in groups {
        // Zero is the writer itself: moving oneself costs the kernel a hundredth of being moved.
        rustix::io::write(&group, b"0").at("control group")?;
    }
    write_maps(INNER_ID, INNER_ID, false).at("user namespace's ids")?;
    sys::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWNET).at("mount and network namespace")?;
    for (flag, layer) in
        [(libc::CLONE_NEWIPC, Layer::IpcNamespace), (libc::CLONE_NEWUTS, Layer::UtsNamespace)]
    {
        if let Err(error) = sys::unshare(flag) {
            gaps.push((layer, format!("the kernel refuses one: {error}")));
        }
    }
    let options = [("mode", "0755"), ("size", "1m"), ("nr_inodes", "1024")];
    let root = mounts::fresh("tmpfs", &options, mounts::PLAIN).at("root")?;
    mounts::set(&root, CWD, NEW_ROOT).at("root")?;
    let mode = Mode::from_raw_mode(0o755);
    for entry in &base.entries {
        match entry {
            Entry::Link(name, target) => rustix::fs::symlinkat(target, &root, name).at("root's links")?,
            Entry::Tree(name) => {
                rustix::fs::mkdirat(&root, name, mode).at("root")?;
                let tree = mounts::copy(CWD, &Path::new("/").join(name)).at("system directories")?;
                mounts::set(&tree, &root, name).at("system directories")?;
            }
        }
    }
    for name in ["proc", "tmp"] {
        rustix::fs::mkdirat(&root, name, mode).at("root")?;
    }
    if base.gaps.is_empty() {
        let flags = mounts::PLAIN | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let proc = mounts::fresh("proc", &[("hidepid", "2")], flags).at("/proc")?;
        mounts::set(&proc, &root, "proc").at("/proc")?;
        // A second reason, beside the filter of calls, why no user namespace is made inside.
        if let Ok(limit) = rustix::fs::openat(
            &proc,
            "sys/user/max_user_namespaces",
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            let _ = rustix::io::write(limit, b"0");
        }
        hide(&proc).at("hide parts of /proc")?;
    }
    let terminals = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    // Without terminals most programs go on.
    if let Ok(terminals) = mounts::fresh("devpts", &terminals, flags) {
        mounts::set(&terminals, &root, "dev/pts").at("/dev/pts")?;
    }
    mounts::enter(&root).at("enter the root")?;
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
        .at("loopback")?;
    sys::loopback_up(&socket).at("loopback")?;
    Ok(gaps)
}

/// Covers parts of /proc, and makes the rest of the kernel's settings read-only.
fn hide(proc: &OwnedFd) -> io::Result<()> {
    let cover = |name: &str, with: &str| -> io::Result<()> {
        let target = match rustix::fs::openat(proc, name, mounts::PLACE, Mode::empty()) {
            Ok(target) => target,
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        Ok(mounts::set(&mounts::copy(CWD, Path::new(with))?, &target, "")?)
    };
    HIDDEN_FILES.iter().try_for_each(|name| cover(name, EMPTY_FILE))?;
    HIDDEN_DIRECTORIES.iter().try_for_each(|name| cover(name, EMPTY_DIRECTORY))?;
    let settings = mounts::copy(proc, Path::new("sys"))?;
    let change = MountChange { set: sys::MOUNT_READ_ONLY, ..MountChange::default() };
    sys::change_mount(&settings, &change)?;
    Ok(mounts::set(&settings, proc, "sys")?)
}

/// What the plan asks for: scratch space, volumes, the proxy's listener; then the root is closed and the last
/// capabilities go.
fn dress(plan: &Plan, descriptors: &[OwnedFd]) -> Result<Option<TcpListener>, Fault> {
    let scratch = plan.limits.scratch.max(1 << 16);
    scratch_space("/tmp", scratch, mounts::PLAIN).at("/tmp")?;
    let no_programs = mounts::PLAIN | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    scratch_space("/dev/shm", scratch.min(LARGEST_SHARED_MEMORY), no_programs).at("/dev/shm")?;

    let root = rustix::fs::open("/", mounts::PLACE, Mode::empty()).at("root")?;
    let mut volumes: Vec<_> = plan.volumes.iter().zip(descriptors.iter().skip(3)).collect();
    // A volume inside another goes on top of it, whatever their order was.
    volumes.sort_by_key(|(volume, _)| volume.inside.components().count());
    for (volume, mount) in volumes {
        let step = || format!("volume {}", volume.inside.display());
        let target = mounts::landing(&root, &volume.inside, volume.file).at(&step())?;
        mounts::set(mount, &target, "").at(&step())?;
    }
    let change = MountChange { set: sys::MOUNT_READ_ONLY, ..MountChange::default() };
    // Opened anew: the descriptor above may stand below a volume mounted since.
    let root = rustix::fs::open("/", mounts::PLACE, Mode::empty()).at("root")?;
    sys::change_mount(&root, &change).at("read-only root")?;
    // Taken last, so that the group this process joined is the one seen as the root.
    let _ = sys::unshare(libc::CLONE_NEWCGROUP);

    let proxy = match plan.network {
        Network::None => None,
        Network::Proxy => {
            Some(TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).at("the proxy's listener")?)
        }
    };
    drop_capabilities().at("drop capabilities")?;
    Ok(proxy)
}

fn scratch_space(path: &str, size: u64, flags: MountAttrFlags) -> io::Result<()> {
    let files = scratch_files(size).to_string();
    let options = [("mode", "1777"), ("size", &size.to_string()[..]), ("nr_inodes", &files[..])];
    let mount = mounts::fresh("tmpfs", &options, flags)?;
    Ok(mounts::set(&mount, CWD, path)?)
}

fn drop_capabilities() -> io::Result<()> {
    sys::drop_bounding_set()?;
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?)
}

/// What the standard streams are made of.
pub(super) fn streams(descriptors: &[OwnedFd]) -> Option<[BorrowedFd<'_>; 3]> {
    match descriptors {
        [input, output, error, ..] => Some([input.as_fd(), output.as_fd(), error.as_fd()]),
        _ => None,
    }
}
