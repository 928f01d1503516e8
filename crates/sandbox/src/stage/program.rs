//! The last steps before the program: its streams, limits and rights, then the program itself.

use std::{convert::Infallible, ffi::CString, io::Write, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit},
};

use super::{At, look, rights, sandbox};
use crate::{
    launch::DEFAULT_PATH,
    sys,
    wire::{Fault, Plan, Program, Report},
};

/// Becomes the program, or says why not and ends.
pub(super) fn run(plan: &Plan, filter: &[libc::sock_filter], descriptors: &[OwnedFd], words: OwnedFd) -> ! {
    let Err(report) = become_program(plan, filter, descriptors);
    if let Ok(text) = serde_json::to_vec(&report) {
        let _ = std::fs::File::from(words).write_all(&text);
    }
    sys::leave(127)
}

fn become_program(
    plan: &Plan,
    filter: &[libc::sock_filter],
    descriptors: &[OwnedFd],
) -> Result<Infallible, Report> {
    let confinement = rights::rules(plan).map_err(Report::Failed)?;
    settle(plan, descriptors).map_err(Report::Failed)?;
    rustix::process::chdir(&plan.cwd).map_err(|error| Report::NoDirectory { errno: error.raw_os_error() })?;
    if let Some(rules) = &confinement {
        sys::landlock_confine(rules).at("landlock").map_err(Report::Failed)?;
    }
    sys::close_on_exec_from(3).at("descriptors").map_err(Report::Failed)?;
    sys::filter_calls(filter).at("seccomp").map_err(Report::Failed)?;
    match &plan.program {
        Program::LookAround => look::around(),
        Program::Run { argv, env } => Err(execute(argv, env)),
    }
}

/// A session, streams and limits of its own.
fn settle(plan: &Plan, descriptors: &[OwnedFd]) -> Result<(), Fault> {
    rustix::process::setsid().at("session")?;
    let streams =
        sandbox::streams(descriptors).ok_or(Fault { step: "streams".into(), errno: libc::EINVAL })?;
    for (number, stream) in (0..).zip(streams) {
        sys::place(stream, number).at("streams")?;
    }
    sys::default_signals();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let limits = &plan.limits;
    // The first process counts too.
    let processes = u64::from(limits.processes) + 1;
    let mut wanted = vec![
        (Resource::Core, 0),
        (Resource::Fsize, limits.file_size),
        (Resource::Nofile, limits.open_files.max(16)),
        (Resource::Nproc, processes),
        (Resource::Memlock, 1 << 20),
        (Resource::Msgqueue, 1 << 16),
        (Resource::Sigpending, 4096),
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
    ];
    if !plan.memory_held {
        wanted.push((Resource::Data, limits.memory));
    }
    for (resource, limit) in wanted {
        // Limits only ever get lower: raising one is a right that nobody here has.
        let most = rustix::process::getrlimit(resource).maximum.map_or(limit, |most| most.min(limit));
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
            .at("resource limits")?;
    }
    Ok(())
}

/// Tries the program along PATH, as execvp does, but never through a shell.
fn execute(argv: &[String], env: &[(String, String)]) -> Report {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let arguments: Vec<_> = argv.iter().map(|argument| text(argument)).collect();
    let variables: Vec<_> = env.iter().map(|(name, value)| text(&format!("{name}={value}"))).collect();
    let name = argv.first().map_or("", String::as_str);
    if name.contains('/') {
        let errno = sys::execute(&text(name), &arguments, &variables).raw_os_error().unwrap_or(libc::EIO);
        return Report::NotStarted { errno, found: exists(name) };
    }
    let path = env.iter().find(|(variable, _)| variable == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    let mut best = Report::NotStarted { errno: libc::ENOENT, found: false };
    for directory in path.split(':') {
        // An empty entry would mean the working directory, where an agent may have put anything.
        if directory.is_empty() {
            continue;
        }
        let candidate = format!("{directory}/{name}");
        let errno =
            sys::execute(&text(&candidate), &arguments, &variables).raw_os_error().unwrap_or(libc::EIO);
        match Errno::from_raw_os_error(errno) {
            Errno::NOENT | Errno::NOTDIR if !exists(&candidate) => {}
            Errno::ACCESS => best = Report::NotStarted { errno, found: exists(&candidate) },
            _ => return Report::NotStarted { errno, found: true },
        }
    }
    best
}

fn exists(path: &str) -> bool {
    rustix::fs::stat(path).is_ok()
}
