//! The first process of a sandbox once its program runs: reaps, passes signals on, keeps the time, and ends with the
//! program. Everything still inside ends with it, by the kernel's hand.

use std::{
    io::Read,
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    process::{Pid, WaitOptions, WaitStatus},
};

use super::{At, program};
use crate::{
    sys::{self, Fork},
    wire::{self, Fault, Plan, Report, SignalOrder},
};

/// Starts the program, stays until it ends, and ends the sandbox with it.
pub(super) fn run(
    plan: &Plan,
    filter: &[libc::sock_filter],
    control: &OwnedFd,
    descriptors: Vec<OwnedFd>,
    proxy: Option<TcpListener>,
) -> ! {
    serve(plan, filter, control, descriptors, proxy);
    sys::leave(0)
}

/// Starts the program, stays until it ends, and tells the node. Nothing else runs any more afterwards.
pub(crate) fn serve(
    plan: &Plan,
    filter: &[libc::sock_filter],
    control: &OwnedFd,
    descriptors: Vec<OwnedFd>,
    proxy: Option<TcpListener>,
) {
    let begin = Instant::now();
    let (child, ends) = match start(plan, filter, &descriptors) {
        Ok(started) => started,
        Err(report) => {
            let _ = wire::send(control, &report, &[]);
            return;
        }
    };
    // The streams must end when the program's own copies are closed.
    drop(descriptors);
    let listener: Vec<_> = proxy.iter().map(AsFd::as_fd).collect();
    if wire::send(control, &Report::Started, &listener).is_err() {
        return;
    }
    drop(proxy);
    let deadline = begin.checked_add(plan.limits.wall);
    let Some(report) = watch(control, &ends, child, deadline) else { return };
    // The node hears of the end when nothing runs any more, not when the last mount is taken down.
    if sys::send_signal(-1, libc::SIGKILL).is_ok() {
        while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    }
    let _ = wire::send(control, &report, &[]);
}

fn start(
    plan: &Plan,
    filter: &[libc::sock_filter],
    descriptors: &[OwnedFd],
) -> Result<(Pid, OwnedFd), Report> {
    let set_up = || {
        let ends = sys::children_ends().at("signals")?;
        let words = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at("start")?;
        Ok::<_, Fault>((ends, words, sys::fork_into(0).at("start")?))
    };
    let (ends, (last_words, words), fork) = set_up().map_err(Report::Failed)?;
    let child = match fork {
        Fork::Child => program::run(plan, filter, descriptors, words),
        Fork::Parent(child) => child,
    };
    drop(words);
    // Silence is success: the pipe closes when the program takes over.
    let mut said = Vec::new();
    let heard = std::fs::File::from(last_words).read_to_end(&mut said);
    match heard {
        Ok(0) => {}
        Ok(_) | Err(_) => {
            let fault = Fault { step: "start".into(), errno: libc::EIO };
            return Err(serde_json::from_slice(&said).unwrap_or(Report::Failed(fault)));
        }
    }
    let child =
        Pid::from_raw(child).ok_or(Report::Failed(Fault { step: "start".into(), errno: libc::EIO }))?;
    Ok((child, ends))
}

/// What there is to say at the end; nothing when the node is gone.
fn watch(control: &OwnedFd, ends: &OwnedFd, child: Pid, deadline: Option<Instant>) -> Option<Report> {
    loop {
        let mut ready = [PollFd::new(control, PollFlags::IN), PollFd::new(ends, PollFlags::IN)];
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Some(Report::TimedOut);
        }
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut ready, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let (asked, ended) = (ready[0].revents(), ready[1].revents());
        if !ended.is_empty() {
            let mut buffer = [0; 512];
            while rustix::io::read(ends, &mut buffer).is_ok_and(|length| length > 0) {}
            if let Some(report) = reap(child) {
                return Some(report);
            }
        }
        if asked.contains(PollFlags::IN) {
            let mut order = [0; size_of::<SignalOrder>()];
            match rustix::io::read(control, &mut order) {
                Ok(length) if length == order.len() => carry_out(order, child),
                Ok(_) | Err(_) => return None,
            }
        } else if !asked.is_empty() {
            return None;
        }
    }
}

/// Takes every ended child; tells when the program is among them.
fn reap(child: Pid) -> Option<Report> {
    let mut report = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == child {
            report = ending(status);
        }
    }
    report
}

fn ending(status: WaitStatus) -> Option<Report> {
    status.exit_status().map(Report::Returned).or_else(|| status.terminating_signal().map(Report::Signalled))
}

fn carry_out(order: [u8; size_of::<SignalOrder>()], child: Pid) {
    let [a, b, c, d, e, f, g, h] = order;
    let signal = i32::from_le_bytes([a, b, c, d]);
    let target = match i32::from_le_bytes([e, f, g, h]) {
        // The program leads a group of its own.
        0 => -child.as_raw_nonzero().get(),
        process if process > 1 => process,
        _ => return,
    };
    let _ = sys::send_signal(target, signal);
}
