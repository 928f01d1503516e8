//! The OCI backend against the conformance set, and what is its own: images, leftovers, what an engine adds.
//!
//! The image is made here from programs of this machine. Where no engine can start a container the tests say so and pass.
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod conformance;
mod support;

#[path = "oci/image.rs"]
mod image;

use std::{io::BufRead, path::Path, process::Command, time::Duration};

use aegis_sandbox::{Access, Backend, Exit, Floor, Input, Launch, Layer, Oci, OciSettings, SandboxError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::{directory, mount, run, says, sh, try_run, until};

fn settings() -> Option<OciSettings> {
    let store = image::Store::get()?;
    let mut settings = OciSettings::new(image::NAME);
    settings.engine = Some(store.engine.clone());
    settings.engine_options = store.options();
    settings.executable = support::settings().executable;
    settings.state = store.place.join("state");
    Some(settings)
}

/// With a directory of state of its own.
fn settings_below(place: &Path) -> Option<OciSettings> {
    Some(OciSettings { state: place.join("state"), ..settings()? })
}

fn oci() -> Option<Oci> {
    holding(&settings()?)
}

fn holding(settings: &OciSettings) -> Option<Oci> {
    let backend = Oci::new(settings, Floor::standard());
    if let Err(refusal) = Floor::standard().check(backend.layers()) {
        println!("skipped: {refusal}");
        return None;
    }
    Some(backend)
}

conformance::suite!(oci);

#[tokio::test]
async fn every_layer_is_told_with_the_engine_that_holds_it() {
    let Some(backend) = oci() else { return };
    assert_eq!(backend.name(), "oci");
    for layer in
        [Layer::UserNamespace, Layer::NoCapabilities, Layer::Seccomp, Layer::Landlock, Layer::PrivateProc]
    {
        assert!(backend.layers().holds(layer), "{layer}");
    }
    let told = format!("{:?}", backend.layers().state(Layer::UnprivilegedUser));
    assert!(told.contains("podman") || told.contains("docker"), "{told}");
}

#[tokio::test]
async fn a_missing_image_is_told_and_never_fetched() {
    let Some(backend) = oci() else { return };
    let mut launch = sh("true");
    launch.image = Some("registry.invalid/no/such:image".into());
    let error = try_run(&backend, launch).await.unwrap_err();
    assert!(matches!(&error, SandboxError::NoSuchImage { image, .. } if image.contains("such")), "{error}");
    let mut launch = sh("true");
    launch.image = Some("--privileged".into());
    assert!(matches!(try_run(&backend, launch).await.unwrap_err(), SandboxError::Argument(_)));

    let mut settings = settings().unwrap();
    settings.image = "registry.invalid/no/such:image".into();
    let error = try_run(&Oci::new(&settings, Floor::least()), sh("true")).await.unwrap_err();
    assert!(
        matches!(error, SandboxError::BelowFloor(_)) && error.to_string().contains("registry.invalid"),
        "{error}"
    );
}

#[tokio::test]
async fn an_image_is_chosen_by_the_launch() {
    let Some(backend) = oci() else { return };
    let mut launch = sh("cat /etc/image");
    launch.image = Some(image::OTHER_NAME.into());
    assert_eq!(says(&backend, launch).await, "the other image");
    assert_eq!(says(&backend, sh("cat /etc/image")).await, "the image");
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_told() {
    let mut settings = OciSettings::new("any");
    settings.engine = Some("/nowhere/podman".into());
    let backend = Oci::new(&settings, Floor::least());
    let error = try_run(&backend, sh("true")).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/podman"), "{error}");
}

/// What containers are known to be left by, and what an engine would mount on its own.
#[tokio::test]
async fn nothing_of_the_engine_is_inside() {
    let Some(backend) = oci() else { return };
    let said = says(
        &backend,
        sh("for at in /var/run/docker.sock /run/docker.sock /run/podman/podman.sock /run/containerd /dev/kmsg /dev/mem \
              /dev/fuse /dev/kvm /host /sys/kernel /sys/fs/cgroup/memory; do [ -e $at ] && echo found $at; done; \
            grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; cat /proc/cmdline; cat /proc/1/environ; \
            cat /etc/hosts; hostname; true"),
    )
    .await;
    assert!(!said.contains("found"), "{said}");
    let lines: Vec<_> = said.split_whitespace().collect();
    let marks =
        ["CapBnd:", "0000000000000000", "CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"];
    assert!(marks.iter().all(|mark| lines.contains(mark)), "{said}");
    assert!(said.ends_with("127.0.0.1 localhost\n::1 localhost\nsandbox"), "{said}");
}

/// The attempts of the native backend's escape set that don't depend on how its root is made, with the answers they get
/// through an engine: most come from our own layers, a few are the engine's.
#[tokio::test]
async fn attempts_to_get_out_fail() {
    let Some(backend) = oci() else { return };
    let place = directory();
    support::compile(place.path(), "attack", include_str!("escape/attack.c"));
    let kill = format!("kill-outside={}", std::process::id());
    // Docker covers a list of its own, without the names of the kernel's symbols.
    let symbols = if image::Store::get().unwrap().is_docker() { "ok" } else { "EIO|EACCES" };
    let answers = [
        ("unshare-user", "EPERM"),
        ("unshare-net", "EPERM"),
        ("setuid-root", "EPERM|EINVAL"),
        ("setgid-root", "EPERM|EINVAL"),
        ("setgroups", "EPERM"),
        ("capset", "EPERM"),
        ("new-privileges", "EINVAL"),
        ("bpf", "EPERM"),
        ("perf", "EPERM"),
        ("userfaultfd", "EPERM"),
        ("io-uring", "ENOSYS|EPERM"),
        ("add-key", "EPERM"),
        ("keyctl", "EPERM"),
        ("kexec", "EPERM"),
        ("init-module", "EPERM"),
        ("reboot", "EPERM"),
        ("sethostname", "EPERM"),
        ("syslog", "EPERM"),
        ("make-device=/volume/mem", "EPERM"),
        ("make-device=/tmp/mem", "EPERM"),
        ("ptrace-me", "EPERM"),
        ("ptrace-init", "EPERM"),
        ("read-parent", "EPERM"),
        ("pidfd-getfd", "EPERM"),
        ("read=/proc/1/mem", "EACCES"),
        ("content=/proc/1/environ", "EACCES"),
        ("read=/proc/1/root", "EACCES"),
        ("read=/proc/1/fd/0", "EACCES"),
        ("write=/proc/self/mem", "EACCES"),
        ("write=/proc/self/oom_score_adj", "EACCES"),
        ("kill-init", "EPERM"),
        ("stop-init", "EPERM"),
        (kill.as_str(), "ESRCH"),
        ("write=/proc/sys/kernel/core_pattern", "EACCES|EROFS"),
        ("write=/proc/sysrq-trigger", "EACCES|EROFS|ENOENT"),
        ("content=/proc/kcore", "EACCES|EIO|ENOENT"),
        ("content=/proc/kallsyms", symbols),
        ("create=/usr/bin/attack", "EROFS|EACCES"),
        ("create=/etc/ld.so.preload", "EROFS|EACCES"),
        ("create=/attack", "EROFS|EACCES"),
        ("create=/tmp/allowed", "ok"),
        ("create=/volume/allowed", "ok"),
        ("metadata", "ENETUNREACH"),
        ("dns", "ENETUNREACH"),
        ("socket-raw", "EPERM"),
        ("socket-packet", "EAFNOSUPPORT|EPERM"),
        ("socket-vsock", "EAFNOSUPPORT|EPERM"),
    ];
    let mut launch = Launch::new("/volume/attack");
    launch.args = answers.iter().map(|(attempt, _)| (*attempt).to_owned()).collect();
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadWrite)];
    let said = says(&backend, launch).await;
    let said: std::collections::BTreeMap<_, _> =
        said.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    let wrong: Vec<_> = answers
        .iter()
        .filter(|(attempt, wanted)| !wanted.split('|').any(|answer| said.get(attempt) == Some(&answer)))
        .map(|(attempt, wanted)| format!("{attempt}: wanted {wanted}, got {:?}", said.get(attempt)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The socket to the node is spent once the program runs.
#[tokio::test]
async fn the_nodes_socket_answers_nobody_else() {
    let Some(backend) = oci() else { return };
    let place = directory();
    support::compile(
        place.path(),
        "call",
        "#include <sys/socket.h>\n#include <sys/un.h>\n#include <errno.h>\n#include <string.h>\n#include <stdio.h>\n\
         int main(void) { struct sockaddr_un a = { .sun_family = AF_UNIX }; strcpy(a.sun_path, \"/.aegis/control\");\
         int s = socket(AF_UNIX, SOCK_STREAM, 0); if (connect(s, (void *)&a, sizeof a) == 0) puts(\"answered\");\
         else puts(strerror(errno)); return 0; }\n",
    );
    let mut launch = Launch::new("/volume/call");
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
    assert_eq!(says(&backend, launch).await, "Connection refused");
    let said =
        says(&backend, sh("for f in /.aegis/*; do (: > $f) 2>/dev/null && echo wrote $f; done; echo end"))
            .await;
    assert_eq!(said, "end");
}

#[tokio::test]
async fn links_and_odd_names_on_the_way_of_a_mount_are_refused() {
    let Some(backend) = oci() else { return };
    let place = directory();
    std::fs::create_dir(place.path().join("a,b")).unwrap();
    std::os::unix::fs::symlink("/etc", place.path().join("link")).unwrap();
    for name in ["a,b", "link"] {
        let mut launch = sh("true");
        launch.mounts = vec![mount(&place.path().join(name), "/volume", Access::ReadWrite)];
        let error = try_run(&backend, launch).await.unwrap_err();
        assert!(matches!(error, SandboxError::Mount { .. }), "{name}: {error}");
    }
    // A link inside a volume, where a second volume is to stand.
    let mut launch = sh("true");
    launch.mounts = vec![
        mount(place.path(), "/volume", Access::ReadWrite),
        mount(&std::env::temp_dir(), "/volume/link/deep", Access::ReadOnly),
    ];
    assert!(try_run(&backend, launch).await.is_err());
}

/// Containers, mounts and files are gone a moment after their program.
#[tokio::test]
async fn nothing_is_left() {
    let place = directory();
    let Some(settings) = settings_below(place.path()) else { return };
    let Some(backend) = holding(&settings) else { return };
    let store = image::Store::get().unwrap();
    let volume = directory();
    for index in 0..3 {
        let mut launch = sh(if index == 0 { "exit 3" } else { "sleep 100" });
        launch.mounts = vec![mount(volume.path(), "/volume", Access::ReadWrite)];
        let mut running = backend.launch(launch).await.unwrap();
        match index {
            0 => assert_eq!(running.wait().await, Exit::Code(3)),
            1 => running.kill(),
            _ => drop(running),
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(settings.state.to_str().unwrap()), "{mounts}");
    until("its containers are gone", || store.containers(&settings.state).is_empty()).await;
    drop(backend);
    until("its directory is empty", || std::fs::read_dir(&settings.state).unwrap().count() == 0).await;
}

/// A backend that its node has let go of is no dead node: the next one leaves its containers alone.
#[tokio::test]
async fn a_container_outlives_its_backend() {
    let place = directory();
    let Some(settings) = settings_below(place.path()) else { return };
    let Some(backend) = holding(&settings) else { return };
    let mut launch = sh("read -r line; echo \"heard $line\"");
    launch.stdin = Input::Pipe;
    let mut running = backend.launch(launch).await.unwrap();
    let (mut input, mut output) = (running.stdin.take().unwrap(), running.stdout.take().unwrap());
    drop(backend);
    drop(Oci::new(&settings, Floor::standard()));
    input.write_all(b"it\n").await.unwrap();
    let mut said = String::new();
    output.read_to_string(&mut said).await.unwrap();
    assert_eq!((said.as_str(), running.wait().await), ("heard it\n", Exit::Code(0)));
    drop(running);
    until("its directory is empty", || std::fs::read_dir(&settings.state).unwrap().count() == 0).await;
}

/// Started by the test below in a process of its own, which is then killed.
#[tokio::test]
async fn node_that_is_killed() {
    let Some(place) = std::env::var_os(VICTIM) else { return };
    let backend = holding(&settings_below(place.as_ref()).unwrap()).unwrap();
    let _running = backend.launch(sh("sleep 300")).await.unwrap();
    println!("the container is up");
    tokio::time::sleep(Duration::from_secs(60)).await;
}

const VICTIM: &str = "AEGIS_TEST_VICTIM";

/// A killed node's containers end by themselves, and what is left of them is removed by the next node.
#[tokio::test]
async fn a_killed_node_leaves_nothing_that_the_next_does_not_remove() {
    let place = directory();
    let Some(settings) = settings_below(place.path()) else { return };
    if holding(&settings).is_none() {
        return;
    }
    let store = image::Store::get().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "node_that_is_killed", "--nocapture"])
        .env(VICTIM, place.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("the container is up")));
    assert!(!store.containers(&settings.state).is_empty());
    victim.kill().unwrap();
    victim.wait().unwrap();
    until("its container ended by itself", || store.containers(&settings.state).is_empty()).await;

    // One whose first process does not notice, of an owner that is no more.
    let (state, owner) = (format!("aegis.sandbox.state={}", settings.state.display()), "0".repeat(32));
    let line = ["run", "--detach", "--rm", "--network=none", "--ulimit=nofile=64:64", "--ulimit=nproc=64:64"];
    let owner = format!("aegis.sandbox.owner={owner}");
    let planted = store.ask(&line, &["--label", &state, "--label", &owner, image::NAME, "sleep", "300"]);
    let is_there =
        || store.containers(&settings.state).iter().any(|container| planted.starts_with(container));
    assert!(is_there());

    let next = holding(&settings).unwrap();
    assert!(!is_there(), "swept before the next node's first launch");
    assert_eq!(std::fs::read_dir(&settings.state).unwrap().count(), 1, "the dead node's directory is gone");
    assert_eq!(run(&next, sh("exit 0")).await.exit, Exit::Code(0));
}
