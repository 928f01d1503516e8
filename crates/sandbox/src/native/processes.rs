//! What runs in a sandbox: the tree below its first process, read from the host's /proc.

use std::{collections::VecDeque, fs, io::Read, time::Duration};

use crate::running::ProcessInfo;

/// More than any limit of processes that makes sense.
const MOST: usize = 4096;
/// What is read of a command line; the program itself decides how long it is.
const LONGEST_COMMAND: u64 = 4096;

/// Every process below that one. Whatever loses its parent inside becomes the first process's child, so the tree is
/// complete.
pub(super) fn below(first: u32) -> Vec<ProcessInfo> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([first]);
    while let Some(pid) = waiting.pop_front() {
        if found.len() >= MOST {
            break;
        }
        waiting.extend(children(pid));
        if pid != first {
            found.extend(read(pid));
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn read(host_pid: u32) -> Option<ProcessInfo> {
    let status = fs::read_to_string(format!("/proc/{host_pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let inner = |text: &str| text.split_whitespace().last()?.parse().ok();
    let parent: Option<u32> = field("PPid:").and_then(|parent| {
        let status = fs::read_to_string(format!("/proc/{parent}/status")).ok()?;
        inner(status.lines().find_map(|line| line.strip_prefix("NSpid:"))?)
    });
    let mut command = Vec::new();
    if let Ok(file) = fs::File::open(format!("/proc/{host_pid}/cmdline")) {
        // What could be read is shown.
        let _ = file.take(LONGEST_COMMAND).read_to_end(&mut command);
    }
    let command = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    Some(ProcessInfo {
        pid: inner(field("NSpid:")?)?,
        host_pid,
        parent: parent.unwrap_or(0),
        name: field("Name:")?.to_owned(),
        command,
        state: field("State:")?.chars().next()?,
        memory: field("VmRSS:")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kibibytes| kibibytes * 1024),
        cpu: processor_time(host_pid).unwrap_or_default(),
    })
}

/// User and system time; the fields stand after the name, which may itself hold spaces and brackets.
fn processor_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis(ticks * 1000 / per_second))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn of_a_long_command_line_its_beginning_is_read() {
        let long = "x".repeat(100_000);
        let mut child = Command::new("cat").args(["-", &long]).stdin(Stdio::piped()).spawn().unwrap();
        // A child is there a moment before the kernel lists it with its command line.
        let look = || {
            let found = below(std::process::id()).into_iter().find(|process| process.host_pid == child.id());
            found.map(|found| found.command).filter(|command| !command.is_empty())
        };
        let command = (0..10_000).find_map(|_| look()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(command[..2], ["cat", "-"]);
        assert_eq!(command.iter().map(|word| word.len() as u64 + 1).sum::<u64>(), LONGEST_COMMAND + 1);
    }
}
