//! Nothing is left behind: not after a thousand runs with random ends, not after the node itself was killed.
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]

mod support;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use aegis_sandbox::{Access, Backend, Floor, Launch, Limits, Native, NativeSettings};
use futures::{StreamExt, stream};

use support::{alive, directory, mount, settings, sh, until};

const RUNS: u32 = 1000;
const AT_ONCE: usize = 16;

/// Every process of the host that is a stage, a nursery or a sandbox's first process of that node.
fn stages(node: u32) -> Vec<u32> {
    let wanted = format!("aegis-sandbox-stage\0node-{node}\0");
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text == wanted)
        })
        .collect()
}

/// Groups of this process, or of one given.
fn groups(pid: u32) -> BTreeSet<PathBuf> {
    let wanted = format!("aegis-{pid}-");
    let mut found = BTreeSet::new();
    let mut walk = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = walk.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_str().is_some_and(|name| name.starts_with(&wanted)) {
                    found.insert(entry.path());
                }
                walk.push(entry.path());
            }
        }
    }
    found
}

/// Mounts of the host that have to do with a place.
fn mounts(place: &Path) -> usize {
    let place = place.to_str().unwrap();
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().filter(|line| line.contains(place)).count()
}

/// One run, ended in one of the ways there are.
async fn one(backend: &Native, volume: &Path, number: u32) -> Option<u32> {
    // The same mixture every time, in an order that looks random.
    let dice = number.wrapping_mul(2_654_435_761) >> 16;
    let mut launch =
        if dice & 1 == 0 { Launch::new("true") } else { sh("sleep 60 & (setsid sleep 60 &) ; sleep 60") };
    launch.mounts = vec![mount(volume, "/volume", Access::ReadWrite)];
    let pause = Duration::from_micros(u64::from(dice % 4000));
    match dice % 5 {
        0 => {
            // The caller goes away while the sandbox is being made.
            let _ = tokio::time::timeout(pause, backend.launch(launch)).await;
            return None;
        }
        1 => launch.limits = Limits { wall: pause, ..launch.limits },
        _ => {}
    }
    let mut running = backend.launch(launch).await.unwrap();
    let pid = running.pid();
    match dice % 5 {
        2 => {
            tokio::time::sleep(pause).await;
            running.kill();
            running.wait().await;
        }
        3 => {
            tokio::time::sleep(pause).await;
        }
        4 => {
            let _ = tokio::time::timeout(pause, running.wait()).await;
        }
        _ => {
            running.wait().await;
        }
    }
    Some(pid)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_runs_leave_nothing() {
    let node = std::process::id();
    let volume = directory();
    let backend = Native::new(NativeSettings { spare: 2, ..settings() }, Floor::standard());
    let started = AtomicU32::new(0);
    let pids: Vec<_> = stream::iter(0..RUNS)
        .map(|number| {
            started.fetch_add(1, Ordering::Relaxed);
            one(&backend, volume.path(), number)
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    assert_eq!(started.load(Ordering::Relaxed), RUNS);
    for pid in pids.into_iter().flatten() {
        until("every sandbox's end", || !alive(pid)).await;
    }
    // The stage, its nursery and two sandboxes that stand ready, each with its three groups.
    until("only what stands ready", || stages(node).len() <= 4).await;
    until("the groups of what stands ready", || groups(node).len() <= 2 * 3).await;
    drop(backend);
    until("the stage's end", || stages(node).is_empty()).await;
    until("the groups' end", || groups(node).is_empty()).await;
    assert_eq!(mounts(volume.path()), 0);
    assert_eq!(fs::read_dir(volume.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn launches_that_fail_leave_nothing() {
    let volume = directory();
    let backend = Native::new(NativeSettings { spare: 0, ..settings() }, Floor::standard());
    for _ in 0..20 {
        let mut launch = Launch::new("true");
        launch.mounts = vec![mount(&volume.path().join("missing"), "/volume", Access::ReadWrite)];
        backend.launch(launch).await.unwrap_err();
    }
    until("the groups' end", || groups(std::process::id()).is_empty()).await;
    drop(backend);
}

const DRIVER: &str = "AEGIS_TEST_DRIVER";

/// Not a test by itself: the node of the next test, which is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn driver() {
    if std::env::var_os(DRIVER).is_none() {
        return;
    }
    let backend = Native::new(settings(), Floor::standard());
    let mut kept = Vec::new();
    loop {
        let running = backend.launch(sh("(setsid sleep 300 &); sleep 300 & sleep 300")).await.unwrap();
        println!("pid {}", running.pid());
        for process in running.processes() {
            println!("pid {}", process.host_pid);
        }
        kept.push(running);
        if kept.len() == 8 {
            println!("full");
            kept.drain(..4);
        }
    }
}

#[tokio::test]
async fn a_killed_node_leaves_no_orphan() {
    for round in 0..6 {
        let mut node = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "driver", "--nocapture"])
            .env(DRIVER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pids = BTreeSet::new();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
        // Ended at another point of its work each time, some while sandboxes are being made.
        let mut left = 3 + round * 7;
        while left > 0 {
            let line = lines.next().unwrap().unwrap();
            if let Some(pid) = line.strip_prefix("pid ") {
                pids.insert(pid.parse::<u32>().unwrap());
                left -= 1;
            }
        }
        assert!(stages(node.id()).len() >= 3);
        node.kill().unwrap();
        node.wait().unwrap();
        until("the stage's end", || stages(node.id()).is_empty()).await;
        until("every process's end", || pids.iter().all(|pid| !alive(*pid) || reused(*pid))).await;
        // What a dead node could not remove, the next one does.
        until("the dead node's groups are removed", || {
            drop(Native::new(NativeSettings { spare: 0, ..settings() }, Floor::least()));
            groups(node.id()).is_empty()
        })
        .await;
    }
}

/// The number went to a process that has nothing to do with sandboxes.
fn reused(pid: u32) -> bool {
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    !command.contains("sleep\u{0}300") && !command.contains("setsid")
}

#[test]
fn the_set_holds_for_an_unprivileged_user() {
    support::again_without_root();
}
