//! Programs: what they are given, what they give back, and what is no program.

use aegis_sandbox::{Access, Backend, Exit, Input, Launch, SandboxError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{directory, mount, run, says, sh, try_run};

pub(crate) async fn exit_codes(backend: &dyn Backend) {
    for code in [0, 1, 7, 255] {
        assert_eq!(run(backend, sh(&format!("exit {code}"))).await.exit, Exit::Code(code));
    }
}

pub(crate) async fn signals_end_programs(backend: &dyn Backend) {
    assert_eq!(run(backend, sh("kill -TERM $$")).await.exit, Exit::Signal(15));
    assert_eq!(run(backend, sh("kill -KILL $$")).await.exit, Exit::Signal(9));
}

pub(crate) async fn streams_are_kept_apart_byte_for_byte(backend: &dyn Backend) {
    let outcome = run(backend, sh(r"printf 'a\377\376\000b'; printf 'c\300' >&2")).await;
    assert_eq!(outcome.stdout, b"a\xff\xfe\0b");
    assert_eq!(outcome.stderr, b"c\xc0");
    // A program may open its own streams anew.
    let outcome = run(backend, sh("echo out > /dev/stdout; echo err > /dev/stderr")).await;
    assert_eq!((outcome.out(), outcome.err().as_str()), ("out", "err"));
}

pub(crate) async fn environment_is_exact(backend: &dyn Backend) {
    let mut launch = Launch::new("env");
    launch.env = vec![("GREETING".into(), "hello world".into()), ("HOME".into(), "/elsewhere".into())];
    let said = says(backend, launch).await;
    let mut names: Vec<_> = said.lines().filter_map(|line| line.split_once('=')).collect();
    names.sort_unstable();
    assert_eq!(
        names.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["GREETING", "HOME", "LANG", "PATH", "TMPDIR"]
    );
    assert!(names.contains(&("GREETING", "hello world")) && names.contains(&("HOME", "/elsewhere")));
}

pub(crate) async fn arguments_reach_no_shell(backend: &dyn Backend) {
    let mut launch = Launch::new("echo");
    launch.args = vec!["$HOME; id && `true` > /tmp/x *".into(), "--".into()];
    assert_eq!(says(backend, launch).await, "$HOME; id && `true` > /tmp/x * --");
}

pub(crate) async fn working_directory(backend: &dyn Backend) {
    let mut launch = Launch::new("pwd");
    launch.cwd = "/tmp".into();
    assert_eq!(says(backend, launch.clone()).await, "/tmp");
    launch.cwd = "/nowhere".into();
    let error = try_run(backend, launch).await.unwrap_err();
    assert!(matches!(error, SandboxError::WorkingDirectory { .. }), "{error:?}");
}

pub(crate) async fn standard_input(backend: &dyn Backend) {
    let bytes: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut launch = Launch::new("cat");
    launch.stdin = Input::Bytes(bytes.clone());
    assert_eq!(run(backend, launch).await.stdout, bytes);
    assert_eq!(run(backend, Launch::new("cat")).await.stdout, b"");
}

/// A program that is spoken to while it runs, for as long as anybody likes.
pub(crate) async fn open_input(backend: &dyn Backend) {
    let mut launch = sh("while read -r line; do echo \"heard $line\"; done < /dev/stdin; echo end; exit 5");
    launch.stdin = Input::Pipe;
    launch.limits.wall = std::time::Duration::MAX;
    let mut running = backend.launch(launch).await.unwrap();
    let (mut input, mut output) = (running.stdin.take().unwrap(), running.stdout.take().unwrap());
    for word in ["one", "two"] {
        input.write_all(format!("{word}\n").as_bytes()).await.unwrap();
        let expected = format!("heard {word}\n");
        let mut heard = vec![0; expected.len()];
        output.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, expected.as_bytes());
    }
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).await.unwrap();
    assert_eq!((rest.as_str(), running.wait().await), ("end\n", Exit::Code(5)));
    // Nobody else gets a pipe.
    let running = backend.launch(sh("true")).await.unwrap();
    assert!(running.stdin.is_none());
}

/// A program that does not read blocks nobody, and a writer whose program has ended is told.
pub(crate) async fn unread_input(backend: &dyn Backend) {
    let mut launch = sh("exit 3");
    launch.stdin = Input::Pipe;
    let mut running = backend.launch(launch).await.unwrap();
    let mut input = running.stdin.take().unwrap();
    assert_eq!(running.wait().await, Exit::Code(3));
    assert!(input.write_all(&vec![b'x'; 1 << 20]).await.is_err());
}

pub(crate) async fn missing_program(backend: &dyn Backend) {
    for name in ["no-such-program", "/usr/bin/no-such-program", "./no-such-program"] {
        let error = try_run(backend, Launch::new(name)).await.unwrap_err();
        assert!(matches!(error, SandboxError::NotFound { .. }), "{name}: {error:?}");
    }
}

pub(crate) async fn what_cannot_be_executed(backend: &dyn Backend) {
    let place = directory();
    std::fs::write(place.path().join("plain"), "echo no").unwrap();
    write_program(&place.path().join("nonsense"), "neither a program nor a script");
    for name in ["/volume/plain", "/volume/nonsense", "/tmp"] {
        let mut launch = Launch::new(name);
        launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
        let error = try_run(backend, launch).await.unwrap_err();
        assert!(matches!(error, SandboxError::NotExecutable { .. }), "{name}: {error:?}");
    }
}

pub(crate) async fn scripts_with_carriage_returns(backend: &dyn Backend) {
    let place = directory();
    write_program(&place.path().join("script"), "#!/bin/sh\r\necho no\r\n");
    let mut launch = Launch::new("/volume/script");
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
    let error = try_run(backend, launch).await.unwrap_err();
    assert!(matches!(error, SandboxError::NotExecutable { .. }), "{error:?}");
}

pub(crate) async fn identity_is_nobodys(backend: &dyn Backend) {
    let said = says(backend, sh("id -u; id -G; grep -c '^Cap.*:.*[1-9a-f]' /proc/self/status || true")).await;
    let lines: Vec<_> = said.lines().collect();
    assert_ne!(lines[0], "0", "{said}");
    assert!(!lines[1].split(' ').any(|group| group == "0"), "{said}");
    assert_eq!(lines[2], "0", "no capability is left: {said}");
}

pub(crate) async fn much_output(backend: &dyn Backend) {
    let outcome = run(backend, sh("head -c 33554432 /dev/zero; head -c 1048576 /dev/zero >&2")).await;
    assert_eq!((outcome.stdout.len(), outcome.stderr.len()), (32 << 20, 1 << 20));
}

/// A program that closes its pipes still runs, and a reader that is gone does not hold it.
pub(crate) async fn closed_pipes(backend: &dyn Backend) {
    let outcome = run(backend, sh("exec >&- 2>&-; sleep 0.2; exit 3")).await;
    assert_eq!(outcome.exit, Exit::Code(3));
    let mut running = backend.launch(sh("trap '' PIPE; yes; exit 4")).await.unwrap();
    drop(running.stdout.take());
    assert_eq!(running.wait().await, Exit::Code(4));
}

pub(crate) async fn unreadable_requests(backend: &dyn Backend) {
    let mut nul = Launch::new("echo");
    nul.args = vec!["a\0b".into()];
    let mut long = Launch::new("echo");
    long.args = vec!["x".repeat(2 << 20)];
    for launch in [nul, long, Launch::new("")] {
        let error = try_run(backend, launch).await.unwrap_err();
        assert!(matches!(error, SandboxError::Argument(_)), "{error:?}");
    }
    // The longest that is taken, is.
    let mut longest = Launch::new("echo");
    longest.args = vec!["x".repeat(100_000); 10];
    assert_eq!(says(backend, longest).await.len(), 10 * 100_000 + 9);
}

pub(crate) fn write_program(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
