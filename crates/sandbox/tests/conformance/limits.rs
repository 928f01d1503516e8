//! Limits: what a program may use up, and that the host never notices.

use std::time::Duration;

use aegis_sandbox::{Access, Backend, Exit, Layer, Limits};

use crate::support::{alive, compile, directory, mount, run, says, sh};

const HOG: &str = "#include <stdlib.h>\n#include <string.h>\n#include <stdio.h>\n\
    int main(void) { for (int i = 0; i < 64; i++) { char *p = malloc(16 << 20);\
      if (!p) { puts(\"refused\"); return 5; } memset(p, i + 1, 16 << 20); } puts(\"had it all\"); return 0; }\n";

pub(crate) async fn memory(backend: &dyn Backend) {
    let place = directory();
    compile(place.path(), "hog", HOG);
    let hog = |memory: u64| {
        let mut launch = sh("exec /volume/hog");
        launch.limits = Limits { memory, ..launch.limits };
        launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
        launch
    };
    assert_eq!(says(backend, hog(2 << 30)).await, "had it all");
    let outcome = run(backend, hog(128 << 20)).await;
    if backend.layers().holds(Layer::MemoryCgroup) {
        assert_eq!(outcome.exit, Exit::OutOfMemory, "{outcome:?}");
    } else {
        assert_eq!((outcome.exit, outcome.out()), (Exit::Code(5), "refused"), "{outcome:?}");
    }
}

/// A fork bomb fills its own limit and nothing else, and ends with its time.
pub(crate) async fn processes(backend: &dyn Backend) {
    let mut launch = sh("i=0; while [ $i -lt 40 ]; do sleep 20 & i=$((i+1)); done; echo all");
    launch.limits = Limits { processes: 20, ..launch.limits };
    let outcome = run(backend, launch).await;
    assert!(!outcome.out().contains("all"), "{outcome:?}");
    assert!(outcome.err().contains("fork"), "{outcome:?}");

    let mut bomb = sh("b() { b | b & }; b; sleep 30");
    bomb.limits = Limits { processes: 64, wall: Duration::from_secs(2), ..bomb.limits };
    let mut running = backend.launch(bomb).await.unwrap();
    let pid = running.pid();
    drop((running.stdout.take(), running.stderr.take()));
    let exit = running.wait().await;
    // Or by a signal: it complains into a pipe that nobody reads.
    assert!(matches!(exit, Exit::TimedOut | Exit::Code(_) | Exit::Signal(_)), "{exit:?}");
    drop(running);
    crate::support::until("the bomb's end", || !alive(pid)).await;
}

pub(crate) async fn file_size(backend: &dyn Backend) {
    let place = directory();
    let mut launch = sh("head -c 2097152 /dev/zero > /volume/file");
    launch.limits = Limits { file_size: 1 << 20, ..launch.limits };
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadWrite)];
    assert_ne!(run(backend, launch).await.exit, Exit::Code(0));
    assert_eq!(std::fs::metadata(place.path().join("file")).unwrap().len(), 1 << 20);
}

pub(crate) async fn open_files(backend: &dyn Backend) {
    let mut launch = sh("ulimit -n; ulimit -n 4096 2>/dev/null || echo kept");
    launch.limits = Limits { open_files: 64, ..launch.limits };
    assert_eq!(says(backend, launch).await, "64\nkept");
}

/// A child that ignores every signal it may ignore does not outlive its time.
pub(crate) async fn wall_clock(backend: &dyn Backend) {
    let mut launch = sh("trap '' TERM INT HUP QUIT; echo started; while :; do sleep 1; done");
    launch.limits = Limits { wall: Duration::from_millis(700), ..launch.limits };
    let outcome = run(backend, launch).await;
    assert_eq!((outcome.exit, outcome.out()), (Exit::TimedOut, "started"));
}

pub(crate) async fn wall_clock_with_daemons(backend: &dyn Backend) {
    let mut launch =
        sh("(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' >/dev/null 2>&1 &); sleep 30");
    launch.limits = Limits { wall: Duration::from_millis(700), ..launch.limits };
    let mut running = backend.launch(launch).await.unwrap();
    let pid = running.pid();
    let mut inside = Vec::new();
    crate::support::until("the daemon", || {
        inside = running.processes();
        inside.len() >= 3
    })
    .await;
    assert_eq!(running.wait().await, Exit::TimedOut);
    for process in inside {
        assert!(!alive(process.host_pid), "{process:?} survived");
    }
    drop(running);
    crate::support::until("the sandbox's end", || !alive(pid)).await;
}
