//! How long a sandboxed `true` takes, beside `bwrap --unshare-all` with the same mounts and beside a bare spawn.
//! Prints, never judges: `cargo run -p aegis-sandbox --example launch_times [RUNS]`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a figure for people to read")]

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use aegis_sandbox::{Backend, Exit, Floor, Launch, Native, NativeSettings};

const BWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--ro-bind",
    "/etc/ssl",
    "/etc/ssl",
    "--ro-bind",
    "/etc/alternatives",
    "/etc/alternatives",
    "--ro-bind",
    "/etc/ld.so.cache",
    "/etc/ld.so.cache",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/dev/shm",
    "/usr/bin/true",
];

fn main() {
    if aegis_sandbox::is_stage() {
        aegis_sandbox::stage_main();
    }
    let runs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let begin = Instant::now();
    let ready = Native::new(NativeSettings::default(), Floor::default());
    println!("start and probe: {:?}", begin.elapsed());
    for (layer, state) in ready.layers().iter() {
        println!("  {layer}: {state:?}");
    }
    let fresh = Native::new(NativeSettings { spare: 0, ..NativeSettings::default() }, Floor::default());
    let bare = Native::new(
        NativeSettings { spare: 0, control_groups: false, ..NativeSettings::default() },
        Floor::default(),
    );
    let mut times: [Vec<Duration>; 6] = Default::default();
    for _ in 0..runs {
        for (times, backend) in times.iter_mut().zip([&ready, &fresh, &bare]) {
            let begin = Instant::now();
            let exit = runtime.block_on(async {
                let mut running = backend.launch(Launch::new("true")).await.unwrap();
                running.wait().await
            });
            assert_eq!(exit, Exit::Code(0));
            times.push(begin.elapsed());
        }
        let begin = Instant::now();
        let running = runtime.block_on(ready.launch(Launch::new("true"))).unwrap();
        times[5].push(begin.elapsed());
        drop(running);
        times[3].push(command("bwrap", BWRAP));
        times[4].push(command("/usr/bin/true", &[]));
    }
    let names = [
        "sandbox, kept ready",
        "sandbox, fresh",
        "sandbox, no cgroups",
        "bwrap",
        "bare spawn",
        "sandbox, kept ready, until it runs",
    ];
    for (name, mut times) in names.into_iter().zip(times) {
        times.sort();
        let at = |share: usize| times[times.len() * share / 100];
        println!("{name}: p10 {:?}, median {:?}, p90 {:?}", at(10), at(50), at(90));
    }
}

fn command(program: &str, arguments: &[&str]) -> Duration {
    let begin = Instant::now();
    let _ = Command::new(program).args(arguments).stdout(Stdio::null()).status();
    begin.elapsed()
}
