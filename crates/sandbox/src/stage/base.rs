//! The root that all sandboxes of a node start from: built once, in the nursery.

use std::{
    ffi::OsStr,
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags},
    mount::MountAttrFlags,
};

use super::{At, INNER_ID, mounts};
use crate::{
    Layer,
    sys::{self, MountChange},
    wire::{Fault, Setup},
};

/// What of the base every sandbox takes over, and what could not be had.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) entries: Vec<Entry>,
    pub(super) gaps: Vec<(Layer, String)>,
}

/// One name in the root.
#[derive(Debug)]
pub(super) enum Entry {
    /// Cloned with all that is mounted below.
    Tree(String),
    /// A symbolic link, as on the host (`/bin` to `usr/bin`).
    Link(String, PathBuf),
}

/// Where a sandbox sets up its own root before it enters it.
pub(super) const NEW_ROOT: &str = "new";
/// An empty file and an empty directory to put over what must not be seen.
pub(super) const EMPTY_FILE: &str = "/empty/file";
pub(super) const EMPTY_DIRECTORY: &str = "/empty/directory";
/// Devices that give nothing away.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Builds the base and enters it. The host is out of reach from here on.
pub(super) fn build(setup: &Setup) -> Result<Base, Fault> {
    let mut gaps = Vec::new();
    let host = rustix::fs::open("/", mounts::PLACE, Mode::empty()).at("host's root")?;
    let change = MountChange { private: true, recursive: true, ..MountChange::default() };
    sys::change_mount(&host, &change).at("private mounts")?;
    drop(host);
    let root = mounts::fresh("tmpfs", &[("mode", "0755"), ("size", "4m")], mounts::PLAIN).at("base root")?;
    // Any directory of the host will do to stand on for a moment.
    let foot =
        ["/tmp", "/mnt", "/run", "/usr"].into_iter().find(|path| Path::new(path).is_dir()).unwrap_or("/proc");
    let mut entries = Vec::new();
    let mut pending = Vec::new();
    for path in &setup.system {
        let Some(name) = top_name(path) else { continue };
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                let target = fs::read_link(path).at("system directories")?;
                entries.push(Entry::Link(name, target));
            }
            Ok(found) if found.is_dir() => {
                let tree = mounts::copy(CWD, path).at("system directories")?;
                pending.push((name.clone(), tree));
                entries.push(Entry::Tree(name));
            }
            Ok(_) | Err(_) => {}
        }
    }
    let etc = etc_entries(setup).at("/etc")?;
    let devices = DEVICES.map(|name| (name, mounts::copy(CWD, &Path::new("/dev").join(name))));
    let proc =
        mounts::fresh("proc", &[], mounts::PLAIN | MountAttrFlags::MOUNT_ATTR_NOEXEC).or_else(|error| {
            gaps.push((Layer::PrivateProc, format!("a new /proc can't be mounted here: {error}")));
            // Only the way to this process's own maps; no sandbox keeps it.
            mounts::copy(CWD, Path::new("/proc"))
        });
    let proc = proc.at("/proc")?;

    mounts::set(&root, CWD, foot).at("base root")?;
    for (name, tree) in &pending {
        let change = MountChange {
            set: sys::MOUNT_READ_ONLY | sys::MOUNT_NO_SUID | sys::MOUNT_NO_DEVICES,
            recursive: true,
            ..MountChange::default()
        };
        sys::change_mount(tree, &change).at("read-only system directories")?;
        directory(&root, name).at("system directories")?;
        mounts::set(tree, &root, name).at("system directories")?;
    }
    build_etc(&root, etc).at("/etc")?;
    build_dev(&root, devices).at("/dev")?;
    entries.extend(["etc", "dev"].map(|name| Entry::Tree(name.to_owned())));
    for name in ["proc", NEW_ROOT, "empty", "empty/directory"] {
        directory(&root, name).at("base root")?;
    }
    file(&root, &EMPTY_FILE[1..], "").at("base root")?;
    mounts::set(&proc, &root, "proc").at("/proc")?;
    mounts::enter(&root).at("enter the base root")?;
    let change = MountChange { set: sys::MOUNT_READ_ONLY, ..MountChange::default() };
    sys::change_mount(&root, &change).at("read-only base root")?;
    Ok(Base { entries, gaps })
}

/// The name of a directory that stands right below the root; others are not taken as system directories.
fn top_name(path: &Path) -> Option<String> {
    let name = path.strip_prefix("/").ok()?.to_str()?;
    (!name.is_empty() && !name.contains('/')).then(|| name.to_owned())
}

fn directory(root: impl AsFd, name: &str) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(root, name, Mode::from_raw_mode(0o755))
}

fn file(root: impl AsFd, name: &str, text: &str) -> std::io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, name, flags, Mode::from_raw_mode(0o644))?;
    std::io::Write::write_all(&mut fs::File::from(file), text.as_bytes())
}

/// An entry of the host's /etc: a link is copied as one, the rest is mounted.
enum EtcEntry {
    Link(String, PathBuf),
    Mount(String, bool, OwnedFd),
}

fn etc_entries(setup: &Setup) -> std::io::Result<Vec<EtcEntry>> {
    let mut entries = Vec::new();
    for name in &setup.etc {
        let path = Path::new("/etc").join(name);
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        if name.contains('/') || OWN_ETC.iter().any(|(own, _)| own == name) {
            continue;
        }
        entries.push(if found.is_symlink() {
            EtcEntry::Link(name.clone(), fs::read_link(&path)?)
        } else {
            let mount = mounts::copy(CWD, &path)?;
            let change = MountChange {
                set: sys::MOUNT_READ_ONLY | sys::MOUNT_NO_SUID | sys::MOUNT_NO_DEVICES,
                recursive: true,
                ..MountChange::default()
            };
            sys::change_mount(&mount, &change)?;
            EtcEntry::Mount(name.clone(), found.is_dir(), mount)
        });
    }
    Ok(entries)
}

/// What programs ask /etc, answered for the sandbox instead of the host.
const OWN_ETC: [(&str, &str); 7] = [
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    ("hostname", "sandbox\n"),
    (
        "resolv.conf",
        "# No name server is reachable; names are resolved by the proxy, where one is granted.\n",
    ),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n",
    ),
    ("host.conf", "multi on\n"),
    ("shells", "/bin/sh\n"),
    ("machine-id", "00000000000000000000000000000000\n"),
];

fn build_etc(root: &OwnedFd, entries: Vec<EtcEntry>) -> std::io::Result<()> {
    directory(root, "etc")?;
    let nobody = 65534;
    let passwd = format!(
        "agent:x:{INNER_ID}:{INNER_ID}:agent:/tmp:/bin/sh\nnobody:x:{nobody}:{nobody}:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    file(root, "etc/passwd", &passwd)?;
    file(root, "etc/group", &format!("agent:x:{INNER_ID}:\nnogroup:x:{nobody}:\n"))?;
    for (name, text) in OWN_ETC {
        file(root, &format!("etc/{name}"), text)?;
    }
    for entry in entries {
        match entry {
            EtcEntry::Link(name, target) => rustix::fs::symlinkat(target, root, format!("etc/{name}"))?,
            EtcEntry::Mount(name, is_directory, mount) => {
                let name = format!("etc/{name}");
                if is_directory {
                    directory(root, &name)?;
                } else {
                    file(root, &name, "")?;
                }
                mounts::set(&mount, root, &name)?;
            }
        }
    }
    Ok(())
}

fn build_dev(
    root: &OwnedFd,
    devices: [(&str, Result<OwnedFd, rustix::io::Errno>); 6],
) -> std::io::Result<()> {
    for name in ["dev", "dev/pts", "dev/shm"] {
        directory(root, name)?;
    }
    for (name, device) in devices {
        // Some containers have no /dev/tty.
        let Ok(device) = device else { continue };
        let change =
            MountChange { set: sys::MOUNT_NO_SUID | sys::MOUNT_NO_PROGRAMS, ..MountChange::default() };
        sys::change_mount(&device, &change)?;
        let name = format!("dev/{name}");
        file(root, &name, "")?;
        mounts::set(&device, root, &name)?;
    }
    for (name, target) in [
        ("dev/fd", "/proc/self/fd"),
        ("dev/stdin", "/proc/self/fd/0"),
        ("dev/stdout", "/proc/self/fd/1"),
        ("dev/stderr", "/proc/self/fd/2"),
        ("dev/ptmx", "pts/ptmx"),
    ] {
        rustix::fs::symlinkat(OsStr::from_bytes(target.as_bytes()), root, name)?;
    }
    Ok(())
}
