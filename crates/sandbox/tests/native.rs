//! The native backend against the conformance set, as root and as an unprivileged user, and what is its own.
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]

mod conformance;
mod support;

use aegis_sandbox::{
    Access, Backend, Exit, Floor, Launch, Layer, Limits, Native, NativeSettings, SandboxError, State,
};

use support::{alive, directory, mount, native, run, says, settings, sh, try_run, until};

conformance::suite!(|| Some(native()));

#[test]
fn the_set_holds_for_an_unprivileged_user() {
    support::again_without_root();
}

/// Every layer of the standard floor is tried and told; what is missing comes with a reason.
#[test]
fn the_probe_tells_every_layer() {
    let layers = aegis_sandbox::probe(settings());
    assert_eq!(layers.iter().count(), Layer::ALL.len());
    Floor::standard().check(&layers).unwrap();
    for (layer, state) in layers.iter() {
        if let State::Missing(reason) = state {
            assert!(!reason.is_empty() && reason != "it was not tried", "{layer}");
        }
    }
    let without = aegis_sandbox::probe(NativeSettings { control_groups: false, ..settings() });
    assert_eq!(without.state(Layer::MemoryCgroup), State::Missing("control groups are switched off".into()));
}

/// A host on which no sandbox can be made: nothing is run, and the reason is told.
#[tokio::test]
async fn nothing_runs_below_the_floor() {
    let settings = NativeSettings { executable: "/bin/false".into(), ..settings() };
    let backend = Native::new(settings, Floor::least());
    assert!(Layer::ALL.into_iter().all(|layer| !backend.layers().holds(layer)));
    let error = try_run(&backend, Launch::new("true")).await.unwrap_err();
    assert!(matches!(&error, SandboxError::BelowFloor(refusal) if refusal.missing.len() >= 8), "{error}");
    assert!(error.to_string().contains("nothing is run"), "{error}");
}

#[tokio::test]
async fn an_image_is_not_for_this_backend() {
    let launch = Launch { image: Some("alpine".into()), ..Launch::new("true") };
    let error = try_run(&native(), launch).await.unwrap_err();
    assert!(matches!(error, SandboxError::NoImages { .. }), "{error}");
}

/// A sandbox that can't even be set up takes no other with it.
#[tokio::test]
async fn limits_too_small_hurt_nobody_else() {
    let backend = native();
    let mut other = backend.launch(sh("sleep 0.5; exit 3")).await.unwrap();
    if backend.layers().holds(Layer::MemoryCgroup) {
        for _ in 0..3 {
            let mut small = Launch::new("true");
            small.limits = Limits { memory: 100_000, ..Limits::default() };
            assert!(!matches!(try_run(&backend, small).await, Ok(outcome) if outcome.exit == Exit::Code(0)));
        }
    }
    assert_eq!(other.wait().await, Exit::Code(3));
    assert_eq!(run(&backend, Launch::new("true")).await.exit, Exit::Code(0));
}

/// When the stage itself is killed its sandboxes end, and the next launch starts another.
#[tokio::test]
async fn a_killed_stage_is_replaced() {
    let backend = native();
    let mut running = backend.launch(sh("sleep 100")).await.unwrap();
    let stage = parent(parent(running.pid()));
    assert!(stage > 1 && stage != std::process::id());
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(stage).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    assert_eq!(running.wait().await, Exit::Signal(9));
    until("the sandbox's end", || !alive(running.pid())).await;
    assert_eq!(says(&backend, sh("echo again")).await, "again");
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

/// As root: a volume of a third user is not written in anybody's name.
#[tokio::test]
async fn volumes_of_a_third_user_are_refused_for_writing() {
    if !support::is_root() {
        return;
    }
    let place = directory();
    std::os::unix::fs::chown(place.path(), Some(12345), Some(12345)).unwrap();
    let mut launch = sh("ls /volume");
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadWrite)];
    let error = try_run(&native(), launch).await.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Mount { reason, .. } if reason.contains("belongs to user 12345")),
        "{error}"
    );
    // One of the sandbox's own user needs no mapping.
    std::os::unix::fs::chown(place.path(), Some(65534), Some(65534)).unwrap();
    let mut launch = sh("echo x > /volume/file; stat -c %u /volume/file");
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadWrite)];
    assert_eq!(says(&native(), launch).await, "1000");
}
