//! What the sandbox's tests share: backends, and ways to run a program to its end.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]

use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use aegis_sandbox::{
    Access, Backend, Exit, Floor, Launch, Limits, Mount, Native, NativeSettings, Running, SandboxError,
};
use tokio::io::AsyncReadExt;

/// Set for the second round of a test binary: the one without root.
const UNPRIVILEGED: &str = "AEGIS_TEST_UNPRIVILEGED";
/// Where that round finds the stage.
const STAGE: &str = "AEGIS_TEST_STAGE";

pub(crate) fn settings() -> NativeSettings {
    let executable = std::env::var_os(STAGE)
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_aegis-sandbox-stage")), PathBuf::from);
    NativeSettings { executable, ..NativeSettings::default() }
}

pub(crate) fn native() -> Native {
    Native::new(NativeSettings { spare: 1, ..settings() }, Floor::standard())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory that the sandbox's user can reach, whoever runs the test.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("sandbox-test-").tempdir_in("/tmp").unwrap()
}

pub(crate) fn mount(host: &Path, inside: &str, access: Access) -> Mount {
    Mount { host: host.to_owned(), inside: inside.into(), access }
}

/// A shell script, by an explicit shell.
pub(crate) fn sh(script: &str) -> Launch {
    let mut launch = Launch::new("sh");
    launch.args = vec!["-c".into(), script.into()];
    launch.limits = Limits { wall: Duration::from_secs(30), ..Limits::default() };
    launch
}

pub(crate) struct Outcome {
    pub(crate) exit: Exit,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(4000)]).into_owned();
        write!(formatter, "{:?}\n--- out\n{}\n--- err\n{}", self.exit, text(&self.stdout), text(&self.stderr))
    }
}

impl Outcome {
    pub(crate) fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap().trim_end()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim_end().to_owned()
    }
}

pub(crate) async fn finish(mut running: Running) -> Outcome {
    let (mut stdout, mut stderr) = (running.stdout.take().unwrap(), running.stderr.take().unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (_, _, exit) =
        tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err), running.wait());
    Outcome { exit, stdout: out, stderr: err }
}

pub(crate) async fn try_run(backend: &dyn Backend, launch: Launch) -> Result<Outcome, SandboxError> {
    Ok(finish(backend.launch(launch).await?).await)
}

pub(crate) async fn run(backend: &dyn Backend, launch: Launch) -> Outcome {
    try_run(backend, launch).await.unwrap()
}

/// Runs a script that must print something and return 0.
pub(crate) async fn says(backend: &dyn Backend, launch: Launch) -> String {
    let outcome = run(backend, launch).await;
    assert_eq!(outcome.exit, Exit::Code(0), "{outcome:?}\n{}", outcome.err());
    outcome.out().to_owned()
}

/// Compiles a C program, linked statically so that it needs nothing inside but itself.
pub(crate) fn compile(directory: &Path, name: &str, source: &str) -> PathBuf {
    let (file, program) = (directory.join(format!("{name}.c")), directory.join(name));
    std::fs::write(&file, source).unwrap();
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// Runs all other tests of this binary again as an unprivileged user, when this is root.
pub(crate) fn again_without_root() {
    if !is_root() || std::env::var_os(UNPRIVILEGED).is_some() {
        return;
    }
    let place = directory();
    open_to_all(place.path());
    let copy = |from: &Path, name: &str| {
        let to = place.path().join(name);
        std::fs::copy(from, &to).unwrap();
        open_to_all(&to);
        to
    };
    let program = copy(&std::env::current_exe().unwrap(), "tests");
    let stage = copy(&settings().executable, "stage");
    let nobody = 65534;
    let output = Command::new(program)
        .args(["--test-threads", "3", "--skip", "unprivileged"])
        .env(UNPRIVILEGED, "1")
        .env(STAGE, stage)
        .env("HOME", place.path())
        .env("TMPDIR", "/tmp")
        .current_dir("/")
        .uid(nobody)
        .gid(nobody)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "as user {nobody}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits for something to become true; fails the test when it does not within a generous time.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never came: {what}");
}

/// Whether a process of the host is there and not merely waiting to be reaped.
pub(crate) fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}
