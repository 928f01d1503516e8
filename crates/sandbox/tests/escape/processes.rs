//! Other processes: the sandbox's first one, the node, and whoever else runs on the host.

use aegis_sandbox::{Exit, Signal};

use crate::{
    attack_program, must_answer, outside,
    support::{directory, finish, native, says, sh},
};

#[tokio::test]
async fn memory_and_descriptors_of_others_stay_theirs() {
    let place = directory();
    attack_program(place.path());
    let answers = [
        ("ptrace-me", "EPERM"),
        ("ptrace-init", "EPERM"),
        ("read-parent", "EPERM"),
        ("write-parent", "EPERM"),
        ("pidfd-getfd", "EPERM"),
        // Of the first process not even the directory is there.
        ("read=/proc/1/mem", "ENOENT"),
        ("read=/proc/1/environ", "ENOENT"),
        ("read=/proc/1/root", "ENOENT"),
        ("read=/proc/1/cwd", "ENOENT"),
        ("read=/proc/1/ns/mnt", "ENOENT"),
        ("read=/proc/1/fd/0", "ENOENT"),
        ("write=/proc/1/oom_score_adj", "ENOENT"),
        ("write=/proc/self/mem", "EACCES"),
        ("write=/proc/self/uid_map", "EACCES"),
        ("write=/proc/self/oom_score_adj", "EACCES"),
    ];
    must_answer(&native(), place.path(), &answers).await;
    outside(
        place.path(),
        &[("ptrace-me", "ok"), ("write=/proc/self/mem", "ok"), ("write=/proc/self/oom_score_adj", "ok")],
    );
}

/// The first process can't be killed or stopped from inside, and no number reaches out of the namespace.
#[tokio::test]
async fn signals_stay_inside() {
    let place = directory();
    attack_program(place.path());
    let own = std::process::id();
    let kill = format!("kill-outside={own}");
    let backend = native();
    must_answer(&backend, place.path(), &[("kill-init", "EPERM"), ("stop-init", "EPERM"), (&kill, "ESRCH")])
        .await;
    outside(place.path(), &[(&kill, "ok")]);
    // Every signal to everyone, and the sandbox still keeps its time and answers.
    let outcome = finish(
        aegis_sandbox::Backend::launch(
            &backend,
            sh("trap '' TERM HUP; kill -TERM -1; kill -HUP 1; kill -9 1; echo on"),
        )
        .await
        .unwrap(),
    )
    .await;
    assert_eq!((outcome.exit, outcome.out()), (Exit::Code(0), "on"));
}

#[tokio::test]
async fn only_its_own_processes_and_descriptors_are_there() {
    let backend = native();
    let said = says(&backend, sh("ls /proc | grep -c '^[0-9]'; ls /proc/self/fd | wc -l; echo $$")).await;
    let numbers: Vec<u32> = said.lines().map(|line| line.parse().unwrap()).collect();
    // The shell, `ls` and what stands after the bar; streams and the listed directory itself.
    assert!(numbers[0] <= 3 && numbers[2] == 2, "{said}");
    assert_eq!(numbers[1], 4, "a descriptor leaked in: {said}");
    let links = says(&backend, sh("readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2")).await;
    let kinds: Vec<_> = links.lines().map(|link| link.split(':').next().unwrap()).collect();
    assert_eq!(kinds, ["/dev/null", "pipe", "pipe"]);
}

/// A program that keeps its parent from noticing anything is still ended from outside.
#[tokio::test]
async fn a_stopped_tree_is_still_killed() {
    let backend = native();
    let mut running =
        aegis_sandbox::Backend::launch(&backend, sh("kill -STOP $$; echo never")).await.unwrap();
    crate::support::until("it stopped", || running.processes().iter().any(|process| process.state == 'T'))
        .await;
    running.signal(Signal::Kill).unwrap();
    assert_eq!(running.wait().await, Exit::Signal(9));
}
