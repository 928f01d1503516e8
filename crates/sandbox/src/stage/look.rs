//! The look from inside: what the layers are really worth, tried by a process that stands where programs stand.

use std::fs;

use crate::{Layer, sys, wire::Sighting};

/// The namespaces of a process, by name and identity.
pub(crate) fn namespaces() -> Vec<(String, u64)> {
    ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]
        .into_iter()
        .filter_map(|name| {
            let link = fs::read_link(format!("/proc/self/ns/{name}")).ok()?;
            let number = link.to_str()?.split_once('[')?.1.trim_end_matches(']').parse().ok()?;
            Some((name.to_owned(), number))
        })
        .collect()
}

/// Looks around, writes what it found to the standard output, and ends.
pub(super) fn around() -> ! {
    // A program that was executed may look at and write its own /proc; what refuses this one must be Landlock.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let sighting = Sighting {
        namespaces: namespaces(),
        interfaces: interfaces(),
        tried: vec![
            (Layer::PrivateProc, private_proc()),
            (Layer::NoCapabilities, no_capabilities(&status)),
            (Layer::NoNewPrivileges, no_new_privileges()),
            (Layer::Seccomp, seccomp()),
            (Layer::Landlock, landlock()),
            (Layer::ResourceLimits, resource_limits()),
        ],
    };
    let text = serde_json::to_vec(&sighting).unwrap_or_default();
    // Unbuffered: the process leaves without flushing anything.
    let told = rustix::io::retry_on_intr(|| rustix::io::write(rustix::stdio::stdout(), &text));
    sys::leave(i32::from(told.is_err()))
}

fn interfaces() -> Vec<String> {
    let table = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim().to_owned())
        .filter(|name| name != "lo")
        .collect()
}

/// The sandbox's own first process, which tells nothing and can't be reached.
const FIRST_PROCESS: &str = "1";

type Finding = Result<String, String>;

fn private_proc() -> Finding {
    let entries = fs::read_dir("/proc").map_err(|error| format!("/proc can't be read: {error}"))?;
    let mine = std::process::id().to_string();
    let others: Vec<_> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            name.bytes().all(|byte| byte.is_ascii_digit()) && *name != mine && name != FIRST_PROCESS
        })
        .collect();
    if others.is_empty() {
        Ok("shows its own processes only".into())
    } else {
        Err(format!("shows {others:?}"))
    }
}

fn no_capabilities(status: &str) -> Finding {
    let sets: Vec<_> = status.lines().filter(|line| line.starts_with("Cap")).collect();
    if !sets.is_empty() {
        let left: Vec<_> =
            sets.iter().filter(|line| line.bytes().any(|byte| (b'1'..=b'9').contains(&byte))).collect();
        return if left.is_empty() {
            Ok("all five sets are empty".into())
        } else {
            Err(format!("left: {left:?}"))
        };
    }
    // Without /proc the kernel is asked directly.
    match rustix::thread::capabilities(None) {
        Ok(sets) if sets.permitted.is_empty() && sets.effective.is_empty() => Ok("none is permitted".into()),
        Ok(sets) => Err(format!("left: {sets:?}")),
        Err(error) => Err(error.to_string()),
    }
}

fn no_new_privileges() -> Finding {
    match rustix::thread::no_new_privs() {
        Ok(true) => Ok(String::new()),
        Ok(false) => Err("the kernel did not keep the mark".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// A call that would answer otherwise if the filter did not: a number that no key has.
fn seccomp() -> Finding {
    const DESCRIBE: libc::c_long = 6;
    match sys::try_call(libc::SYS_keyctl, DESCRIBE, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            Ok("refuses what programs don't need".into())
        }
        Err(error) => Err(format!("a refused call answered `{error}`")),
        Ok(()) => Err("a refused call went through".into()),
    }
}

/// A place where the file rights alone would allow writing.
fn landlock() -> Finding {
    let version = sys::landlock_version().map_err(|error| format!("this kernel has none: {error}"))?;
    match fs::OpenOptions::new().write(true).open("/proc/self/comm") {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => Ok(format!("version {version}")),
        Err(error) => Err(format!("a refused write answered `{error}`")),
        Ok(_) => Err("a refused write went through".into()),
    }
}

fn resource_limits() -> Finding {
    let core = rustix::process::getrlimit(rustix::process::Resource::Core);
    let files = rustix::process::getrlimit(rustix::process::Resource::Fsize);
    match (core.maximum, files.maximum) {
        (Some(0), Some(_)) => Ok("files, processes, descriptors, locked memory".into()),
        other => Err(format!("limits not kept: {other:?}")),
    }
}
