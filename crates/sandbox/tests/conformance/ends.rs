//! Signals and ends: who hears what, and that nothing survives.

use std::time::Duration;

use aegis_sandbox::{Backend, Exit, Signal};
use tokio::io::AsyncReadExt;

use crate::support::{alive, finish, run, sh, until};

pub(crate) async fn signals_are_passed_on(backend: &dyn Backend) {
    let mut running = backend
        .launch(sh("trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done"))
        .await
        .unwrap();
    let mut ready = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    running.signal(Signal::Terminate).unwrap();
    let outcome = finish(running).await;
    assert_eq!((outcome.exit, outcome.out()), (Exit::Code(9), "got it"));
}

pub(crate) async fn kill_ends_everything(backend: &dyn Backend) {
    let mut running = backend.launch(sh("sleep 100 & sleep 100 & sleep 100")).await.unwrap();
    let mut inside = Vec::new();
    until("its children", || {
        inside = running.processes();
        inside.len() >= 4
    })
    .await;
    running.kill();
    assert_eq!(running.wait().await, Exit::Signal(9));
    for process in inside {
        assert!(!alive(process.host_pid), "{process:?}");
    }
}

pub(crate) async fn dropping_ends_everything(backend: &dyn Backend) {
    let running = backend.launch(sh("sleep 100 & sleep 100")).await.unwrap();
    let mut inside = Vec::new();
    until("its children", || {
        inside = running.processes();
        inside.len() >= 3
    })
    .await;
    let pid = running.pid();
    drop(running);
    until("the end", || !alive(pid) && inside.iter().all(|process| !alive(process.host_pid))).await;
}

pub(crate) async fn processes_are_listed(backend: &dyn Backend) {
    let mut running = backend.launch(sh("sleep 77 & wait")).await.unwrap();
    let mut inside = Vec::new();
    until("the sleeper", || {
        inside = running.processes();
        inside.iter().any(|process| process.command == ["sleep", "77"])
    })
    .await;
    let sleeper = inside.iter().find(|process| process.name == "sleep").unwrap();
    let shell = inside.iter().find(|process| process.pid == sleeper.parent).unwrap();
    assert_eq!(shell.name, "sh");
    assert!(sleeper.pid < 20 && sleeper.host_pid > 1 && sleeper.memory > 0, "{sleeper:?}");
    running.kill();
    running.wait().await;
    assert!(running.processes().is_empty());
    assert!(running.signal(Signal::Terminate).is_err());
}

pub(crate) async fn one_process_is_signalled(backend: &dyn Backend) {
    let running = backend.launch(sh("sleep 66 & wait $!; echo status $?")).await.unwrap();
    let mut pid = 0;
    until("the sleeper", || {
        pid = running
            .processes()
            .iter()
            .find(|process| process.name == "sleep")
            .map_or(0, |process| process.pid);
        pid != 0
    })
    .await;
    // Numbers of the host, and the sandbox's own first process, are out of reach.
    assert!(running.signal_process(1, Signal::Kill).is_err());
    running.signal_process(pid, Signal::Terminate).unwrap();
    let outcome = finish(running).await;
    assert_eq!((outcome.exit, outcome.out()), (Exit::Code(0), "status 143"));
}

pub(crate) async fn zombies_are_reaped(backend: &dyn Backend) {
    // Orphans whose parent never waits: each becomes the first process's child and must not stay.
    let running = backend
        .launch(sh("for i in 1 2 3 4 5 6 7 8; do (true & exec true) & done; wait; sleep 100"))
        .await
        .unwrap();
    until("only the sleeper is left", || {
        let inside = running.processes();
        inside.iter().any(|process| process.name == "sleep") && inside.len() <= 2
    })
    .await;
    assert!(running.processes().iter().all(|process| process.state != 'Z'));
}

pub(crate) async fn daemons_do_not_survive(backend: &dyn Backend) {
    let outcome = run(backend, sh("(setsid sleep 88 >/dev/null 2>&1 &); exit 0")).await;
    assert_eq!(outcome.exit, Exit::Code(0));
    let mut running =
        backend.launch(sh("(setsid sleep 88 >/dev/null 2>&1 &); sleep 0.3; exit 0")).await.unwrap();
    let mut daemon = None;
    until("the daemon", || {
        daemon = running
            .processes()
            .iter()
            .find(|process| process.command == ["sleep", "88"])
            .map(|it| it.host_pid);
        daemon.is_some()
    })
    .await;
    assert_eq!(running.wait().await, Exit::Code(0));
    assert!(!alive(daemon.unwrap()), "the daemon outlived its sandbox");
}

pub(crate) async fn waiting_twice(backend: &dyn Backend) {
    let mut running = backend.launch(sh("sleep 0.3; exit 6")).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(1), running.wait()).await.is_err(), "given up early");
    assert_eq!(running.wait().await, Exit::Code(6));
    assert_eq!(running.wait().await, Exit::Code(6));
}

pub(crate) async fn many_at_once(backend: &dyn Backend) {
    // An engine takes a third of a second for each container.
    let count = if backend.name() == "oci" { 30 } else { 200 };
    let runs = (0..count).map(|number| async move {
        let outcome = run(backend, sh(&format!("echo {number}; exit {}", number % 100))).await;
        assert_eq!((outcome.exit, outcome.out()), (Exit::Code(number % 100), number.to_string().as_str()));
    });
    futures::future::join_all(runs).await;
}
