//! Real work inside: builds, tests and computations, offline, with their results.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests say what must hold, and what they left out"
)]

mod support;

use std::{fs, path::Path, process::Command, time::Duration};

use aegis_sandbox::{Access, Exit, Launch, Limits};

use support::{directory, mount, native, run, says};

fn launch(program: &str, args: &[&str], volume: &Path) -> Launch {
    let mut launch = Launch::new(program);
    launch.args = args.iter().map(|argument| (*argument).to_owned()).collect();
    launch.cwd = "/workspace".into();
    launch.mounts = vec![mount(volume, "/workspace", Access::ReadWrite)];
    launch.limits = Limits { wall: Duration::from_secs(100), memory: 2 << 30, ..Limits::default() };
    launch
}

fn installed(program: &str) -> bool {
    let there =
        ["/usr/bin", "/usr/local/bin"].iter().any(|directory| Path::new(directory).join(program).exists());
    if !there {
        println!("no {program} on this machine");
    }
    there
}

#[tokio::test]
async fn a_c_project_is_built_and_tested() {
    if !installed("make") || !installed("cc") {
        return;
    }
    let place = directory();
    fs::write(place.path().join("sum.c"), "int sum(int a, int b) { return a + b; }\n").unwrap();
    fs::write(
        place.path().join("test.c"),
        "#include <stdio.h>\nint sum(int, int);\nint main(void) { printf(\"sum %d\\n\", sum(20, 22)); return sum(1, 1) != 2; }\n",
    )
    .unwrap();
    fs::write(
        place.path().join("Makefile"),
        "test: check\n\t./check\ncheck: sum.o test.o\n\t$(CC) -o $@ $^\n",
    )
    .unwrap();
    let said = says(&native(), launch("make", &["-s", "-j2", "test"], place.path())).await;
    assert_eq!(said, "sum 42");
    assert!(place.path().join("check").exists());
}

#[tokio::test]
async fn python_and_node_compute() {
    let place = directory();
    let backend = native();
    if installed("python3") {
        let code = "import json, tempfile, threading, multiprocessing as m, socket\n\
                    with m.Pool(2) as pool: total = sum(pool.map(abs, range(-10, 10)))\n\
                    server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname())\n\
                    tempfile.NamedTemporaryFile().write(b'x')\n\
                    print(json.dumps({'total': total}))\n";
        assert_eq!(
            says(&backend, launch("/usr/bin/python3", &["-c", code], place.path())).await,
            r#"{"total": 100}"#
        );
    }
    if installed("node") {
        let code = "require('fs').writeFileSync('out.txt', [3,1,2].sort().join()); \
                    new (require('worker_threads').Worker)('process.stdout.write(String(6*7))', {eval: true})";
        assert_eq!(says(&backend, launch("node", &["-e", code], place.path())).await, "42");
        assert_eq!(fs::read_to_string(place.path().join("out.txt")).unwrap(), "1,2,3");
    }
}

#[tokio::test]
async fn git_works_on_a_volume() {
    if !installed("git") {
        return;
    }
    let place = directory();
    let backend = native();
    for args in [
        &["init", "-q", "."][..],
        &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"],
    ] {
        says(&backend, launch("git", args, place.path())).await;
    }
    assert_eq!(says(&backend, launch("git", &["log", "--format=%s"], place.path())).await, "first");
}

/// A crate is built and tested offline, with the toolchain mounted read-only.
#[tokio::test]
async fn a_crate_is_built_offline() {
    let Ok(found) = Command::new("rustc").args(["--print", "sysroot"]).output() else { return };
    let sysroot = fs::canonicalize(String::from_utf8_lossy(&found.stdout).trim()).unwrap_or_default();
    if !sysroot.join("bin/cargo").exists() {
        println!("no toolchain that could be mounted");
        return;
    }
    let place = directory();
    fs::create_dir(place.path().join("src")).unwrap();
    fs::write(
        place.path().join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    )
    .unwrap();
    fs::write(
        place.path().join("src/lib.rs"),
        "pub fn double(n: u32) -> u32 { n * 2 }\n#[test]\nfn doubles() { assert_eq!(double(21), 42); }\n",
    )
    .unwrap();
    let mut launch = launch("/toolchain/bin/cargo", &["test", "--offline", "-q", "--lib"], place.path());
    launch.mounts.push(mount(&sysroot, "/toolchain", Access::ReadOnly));
    launch.env = vec![
        ("PATH".into(), "/toolchain/bin:/usr/bin:/bin".into()),
        ("CARGO_HOME".into(), "/tmp/cargo".into()),
    ];
    let outcome = run(&native(), launch).await;
    assert_eq!(outcome.exit, Exit::Code(0), "{outcome:?}");
    assert!(outcome.out().contains("1 passed"), "{outcome:?}");
}

#[test]
fn the_set_holds_for_an_unprivileged_user() {
    support::again_without_root();
}
