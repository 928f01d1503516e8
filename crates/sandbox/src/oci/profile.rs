//! The command line of a container: the same profile as the native backend's, in the words that engines know.

use std::path::{Path, PathBuf};

use rustix::process::Resource;

use super::{
    carrier::{CONTROL, Carrier, PLACE},
    engine::{Engine, Kind},
    home::{Home, OWNER, STATE},
    inside::ROLE,
};
use crate::{
    SandboxError,
    launch::{Access, Limits, Mount},
    stage::{INNER_ID, scratch_files},
};

/// Ids of the host that stand for those of a container when the node is root: the last of the range that is commonly left
/// to containers, and nobody's on this host.
const FIRST_ID: u32 = 0x6fff_0000;
const IDS: u32 = 0x1_0000;
/// Shared memory beside /tmp; programs that need more of it are few.
const LARGEST_SHARED_MEMORY: u64 = 64 << 20;
/// Parts of /proc and /sys that tell of the host's kernel or hardware. Engines cover some of them by themselves.
const COVERED: &str = "/sys:/proc/cmdline:/proc/kallsyms:/proc/modules:/proc/kmsg:/proc/key-users:/proc/asound:\
                       /proc/driver:/proc/sysrq-trigger:/proc/fs:/proc/irq:/proc/bus";
/// What an image may set that would change how the stage itself is loaded.
const NEUTRAL: [&str; 5] = ["LD_PRELOAD=", "LD_LIBRARY_PATH=", "LD_AUDIT=", "LD_DEBUG=", "GLIBC_TUNABLES="];

/// What engines do about control groups, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Groups {
    /// They limit the whole container.
    Limited,
    /// The engine makes them where it can, and may not set limits.
    Bare,
    /// The engine is told to make none; not every runtime can do without.
    Disabled,
}

/// How containers are made on this host, as the probe found it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manner {
    /// The runtime below the engine; `None` is the engine's own choice.
    pub(super) runtime: Option<String>,
    pub(super) groups: Groups,
    /// Whether one of them limits the memory, so that no limit per process has to stand in for it.
    pub(super) memory_held: bool,
}

/// A volume as the engine is told of it.
#[derive(Debug, Clone)]
pub(super) struct Bind {
    pub(super) source: PathBuf,
    pub(super) inside: PathBuf,
    pub(super) access: Access,
}

/// One container.
pub(super) struct Container<'a> {
    pub(super) name: &'a str,
    pub(super) image: &'a str,
    pub(super) socket: &'a Path,
    pub(super) binds: &'a [Bind],
    pub(super) limits: &'a Limits,
}

/// The whole command line after the engine's own options.
pub(super) fn arguments(
    engine: &Engine,
    manner: &Manner,
    carrier: &Carrier,
    home: &Home,
    container: &Container<'_>,
) -> Vec<String> {
    let Container { name, image, socket, binds, limits } = container;
    let mut line = Vec::with_capacity(96);
    let mut add = |argument: &str| line.push(argument.to_owned());
    if let (Kind::Podman, Some(runtime)) = (engine.kind, &manner.runtime) {
        add(&format!("--runtime={runtime}"));
    }
    for argument in [
        "run",
        "--detach",
        "--rm",
        "--pull=never",
        "--network=none",
        "--ipc=private",
        "--cgroupns=private",
        "--hostname=sandbox",
        "--workdir=/",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--read-only",
        "--log-driver=none",
        "--no-healthcheck",
        "--oom-score-adj=300",
    ] {
        add(argument);
    }
    add(&format!("--name={name}"));
    add(&format!("--label={STATE}={}", home.state.display()));
    add(&format!("--label={OWNER}={}", home.owner));
    match engine.kind {
        Kind::Podman => {
            for argument in ["--read-only-tmpfs=false", "--image-volume=ignore", "--http-proxy=false"] {
                add(argument);
            }
            add(&format!("--security-opt=mask={COVERED}"));
        }
        Kind::Docker => {
            // It has no words for covering a place; an empty file system on top does the same.
            add("--tmpfs=/sys:ro,nosuid,nodev,noexec,size=4k");
            if let Some(runtime) = &manner.runtime {
                add(&format!("--runtime={runtime}"));
            }
        }
    }
    identity(engine).iter().for_each(|argument| add(argument));

    let scratch = limits.scratch.max(1 << 16);
    // The other engine has no word for it; there the memory that empty files take is all that limits them.
    let files = match engine.kind {
        Kind::Docker => format!(",nr_inodes={}", scratch_files(scratch)),
        Kind::Podman => String::new(),
    };
    add(&format!("--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size={scratch}{files}"));
    add(&format!("--shm-size={}", scratch.min(LARGEST_SHARED_MEMORY)));
    // The stage lowers these for the program; here they must not exceed what the node itself may have.
    for (name, resource, wanted) in [
        ("nofile", Resource::Nofile, limits.open_files.max(64)),
        ("nproc", Resource::Nproc, u64::from(limits.processes) + 8),
        ("fsize", Resource::Fsize, limits.file_size),
        ("core", Resource::Core, 0),
    ] {
        let most = rustix::process::getrlimit(resource).maximum.map_or(wanted, |most| most.min(wanted));
        add(&format!("--ulimit={name}={most}:{most}"));
    }
    if manner.groups == Groups::Limited {
        add(&format!("--memory={}", limits.memory));
        add(&format!("--memory-swap={}", limits.memory));
        // The first process counts too.
        add(&format!("--pids-limit={}", u64::from(limits.processes) + 1));
        add(&format!("--cpus={}", processors(limits.cpu)));
    } else if manner.groups == Groups::Disabled {
        add("--cgroups=disabled");
    }

    for variable in NEUTRAL {
        add(&format!("--env={variable}"));
    }
    add(&format!("--env=PATH={PLACE}"));
    for (file, inside) in &carrier.files {
        add(&bind(file, Path::new(inside), Access::ReadOnly));
    }
    add(&bind(&home.file("hosts"), Path::new("/etc/hosts"), Access::ReadOnly));
    // An image's list of libraries to load first must not reach the stage.
    for place in ["/etc/resolv.conf", "/etc/ld.so.preload"] {
        add(&bind(&home.file("empty"), Path::new(place), Access::ReadOnly));
    }
    add(&bind(socket, Path::new(CONTROL), Access::ReadWrite));
    for volume in *binds {
        add(&bind(&volume.source, &volume.inside, volume.access));
    }
    add(&format!("--entrypoint={}", carrier.entry));
    add(image);
    carrier.arguments.iter().for_each(|argument| add(argument));
    add(ROLE);
    line
}

/// Who the program is, inside and outside.
fn identity(engine: &Engine) -> Vec<String> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let user = |uid: u32, gid: u32| format!("--user={uid}:{gid}");
    match (engine.kind, engine.rootless) {
        (Kind::Podman, false) => {
            let map = format!("0:{FIRST_ID}:{IDS}");
            vec![format!("--uidmap={map}"), format!("--gidmap={map}"), user(INNER_ID, INNER_ID)]
        }
        // The node's own user, under another number where the engine can: what it writes is the node's.
        (Kind::Podman, true) if engine.is_at_least(4, 3) => {
            vec![format!("--userns=keep-id:uid={INNER_ID},gid={INNER_ID}"), user(INNER_ID, INNER_ID)]
        }
        (Kind::Podman, true) => vec!["--userns=keep-id".to_owned(), user(uid.as_raw(), gid.as_raw())],
        // The root of a rootless daemon's containers is the node's own user, and no other number is.
        (Kind::Docker, true) => vec![user(0, 0)],
        (Kind::Docker, false) if uid.is_root() => vec![user(65534, 65534)],
        (Kind::Docker, false) => vec![user(uid.as_raw(), gid.as_raw())],
    }
}

/// Engines take no more processors than there are.
fn processors(wanted: f64) -> f64 {
    let most = std::thread::available_parallelism()
        .map_or(1.0, |count| f64::from(u32::try_from(count.get()).unwrap_or(1)));
    wanted.min(most).max(0.01)
}

fn bind(source: &Path, inside: &Path, access: Access) -> String {
    let read_only = if access == Access::ReadOnly { ",readonly" } else { "" };
    format!("--mount=type=bind,source={},target={}{read_only}", source.display(), inside.display())
}

/// Places that the engines' way of naming mounts has no words for.
pub(super) fn check_mount(mount: &Mount) -> Result<(), SandboxError> {
    let refuse = |reason: &str| {
        Err(SandboxError::Mount {
            host: mount.host.clone(),
            inside: mount.inside.clone(),
            reason: reason.to_owned(),
        })
    };
    let odd = |path: &Path| path.to_string_lossy().contains([',', '"', '\n', '\r']);
    if odd(&mount.host) || odd(&mount.inside) {
        return refuse(
            "commas, quotes and line ends can't be part of a path that a container is given; rename it",
        );
    }
    if mount.inside.starts_with(PLACE) || mount.inside.starts_with("/sys") {
        return refuse("this place is the sandbox's own; choose another");
    }
    Ok(())
}

/// A name that can't be taken for anything else than an image's.
pub(super) fn check_image(image: &str) -> Result<(), SandboxError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    if image.len() > 512
        || !image.starts_with(|first: char| first.is_ascii_alphanumeric())
        || !image.bytes().all(plain)
    {
        return Err(SandboxError::Argument(format!(
            "`{}` can't name an image; write it as in registry/name:tag",
            image.escape_default().take(80).collect::<String>()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_never_an_option() {
        for image in ["", "-v/:/host", "--privileged", "a b", "a\nb", "ä", "$(id)", &"x".repeat(600)] {
            assert!(check_image(image).is_err(), "{image}");
        }
        for image in ["debian", "localhost/tools:1.2", "registry.local:5000/a/b@sha256:00ff", "a_b"] {
            assert!(check_image(image).is_ok(), "{image}");
        }
    }

    #[test]
    fn a_path_is_never_an_option_of_its_mount() {
        let mount = |host: &str, inside: &str| Mount {
            host: host.into(),
            inside: inside.into(),
            access: Access::ReadOnly,
        };
        for (host, inside) in [
            ("/a,readonly=false", "/w"),
            ("/a", "/w,source=/etc"),
            ("/a\"", "/w"),
            ("/a", "/.aegis/x"),
            ("/a", "/sys/x"),
        ] {
            assert!(check_mount(&mount(host, inside)).is_err(), "{host} {inside}");
        }
        assert!(check_mount(&mount("/srv/a b:c", "/volume/ä")).is_ok());
    }
}
