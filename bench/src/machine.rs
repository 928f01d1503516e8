//! What figures depend on besides the code. No names: the table is public.

use std::{fs, path::Path, process::Command, thread};

use crate::process;

pub(crate) fn facts(temporary: &Path) -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let processor = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|size| size.trim_end_matches(" kB").parse::<u64>().ok())
        .map_or_else(|| "?".to_owned(), |kibibytes| format!("{:.0}", kibibytes as f64 / f64::from(1 << 20)));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim();
    format!(
        "{cores} cores ({processor}), {memory} GiB of memory, Linux {kernel}, data on {}; {}; node {}.",
        file_system(temporary),
        version("rg").unwrap_or_else(|| "no ripgrep".to_owned()),
        version("node").unwrap_or_else(|| "not installed".to_owned()),
    )
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn version(program: &str) -> Option<String> {
    let said = process::output(Command::new(program).arg("--version")).ok()?;
    Some(String::from_utf8_lossy(&said).lines().next()?.trim().to_owned())
}

/// On tmpfs an fdatasync costs nothing, which makes the durable figures worthless; the reader should know.
fn file_system(path: &Path) -> String {
    match rustix::fs::statfs(path).map(|stat| stat.f_type) {
        Ok(0xef53) => "ext4".to_owned(),
        Ok(0x0102_1994) => "tmpfs".to_owned(),
        Ok(0x5846_5342) => "xfs".to_owned(),
        Ok(0x9123_683e) => "btrfs".to_owned(),
        Ok(0x794c_7630) => "overlayfs".to_owned(),
        Ok(other) => format!("file system {other:#x}"),
        Err(_) => "an unknown file system".to_owned(),
    }
}
