//! Files of the host, of the kernel, and of others.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use aegis_sandbox::{Access, Backend, Launch, SandboxError};

use crate::{
    attack_program, must_answer,
    support::{directory, is_root, mount, native, says, sh, try_run},
};

#[tokio::test]
async fn the_hosts_files_are_not_there() {
    let (place, data) = (directory(), directory());
    attack_program(place.path());
    fs::write(data.path().join("operator.token"), "secret").unwrap();
    let direct = format!("read={}/operator.token", data.path().display());
    let by_root = format!("read=/proc/self/root{}/operator.token", data.path().display());
    let by_cwd = format!("read=/proc/self/cwd/../../../..{}/operator.token", data.path().display());
    let answers = [
        (direct.as_str(), "ENOENT"),
        (by_root.as_str(), "ENOENT"),
        (by_cwd.as_str(), "ENOENT"),
        ("read=/etc/shadow", "ENOENT"),
        ("read=/root", "ENOENT"),
        ("read=/home", "ENOENT"),
        ("read=/var/run/docker.sock", "ENOENT"),
        ("read=/run/containerd/containerd.sock", "ENOENT"),
        ("read=/sys/fs/cgroup", "ENOENT"),
        ("read=/sys/kernel/debug", "ENOENT"),
        ("read=/boot", "ENOENT"),
        ("read=/dev/mem", "ENOENT"),
        ("read=/dev/kmsg", "ENOENT"),
        ("read=/dev/kvm", "ENOENT"),
        ("read=/dev/fuse", "ENOENT"),
        ("read=/dev/vda", "ENOENT"),
        ("read=/dev/net/tun", "ENOENT"),
    ];
    must_answer(&native(), place.path(), &answers).await;
}

#[tokio::test]
async fn the_kernels_settings_are_not_to_be_changed() {
    let place = directory();
    attack_program(place.path());
    let answers = [
        ("write=/proc/sys/kernel/core_pattern", "EACCES|EROFS"),
        ("write=/proc/sys/kernel/modprobe", "EACCES|EROFS|ENOENT"),
        ("write=/proc/sys/vm/panic_on_oom", "EACCES|EROFS"),
        ("write=/proc/sys/user/max_user_namespaces", "EACCES|EROFS"),
        ("write=/proc/sysrq-trigger", "EROFS|ENOENT"),
        ("write=/proc/irq/default_smp_affinity", "ENOENT"),
        // There, but covered: nothing can be read.
        ("content=/proc/kcore", "EIO|ENOENT"),
        ("content=/proc/kallsyms", "EIO|ENOENT"),
        ("content=/proc/keys", "EIO|ENOENT"),
        ("content=/proc/kmsg", "EIO|ENOENT"),
        ("content=/proc/cmdline", "EIO"),
        ("content=/proc/version", "ok"),
        ("create=/usr/bin/attack", "EROFS"),
        ("create=/etc/ld.so.preload", "EROFS"),
        ("create=/dev/disk", "EROFS"),
        ("create=/attack", "EROFS"),
        ("create=/proc/attack", "ENOENT|EACCES"),
        ("create=/tmp/allowed", "ok"),
        ("create=/volume/allowed", "ok"),
    ];
    must_answer(&native(), place.path(), &answers).await;
}

/// A program that belongs to root and carries the mark raises nobody: not by the mount, not by the mark.
#[tokio::test]
async fn setuid_programs_raise_nobody() {
    let place = directory();
    let program = place.path().join("id");
    fs::copy("/usr/bin/id", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let mut launch = Launch::new("/volume/id");
    launch.args = vec!["-u".into()];
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
    assert_eq!(says(&native(), launch).await, "1000");
    let said = says(
        &native(),
        sh("cut -d' ' -f5,6 /proc/self/mountinfo | grep -v nosuid; grep -E '^NoNewPrivs|^Seccomp:' /proc/self/status"),
    )
    .await;
    assert_eq!(said.split_whitespace().collect::<Vec<_>>(), ["NoNewPrivs:", "1", "Seccomp:", "2"], "{said}");
    if is_root() {
        // Outside the mark works: the file system here honours it.
        use std::os::unix::process::CommandExt;
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(&program).arg("-u").uid(65534).gid(65534).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    }
}

/// Every mount but scratch and writable volumes is read-only; devices work on none but the few of /dev.
#[tokio::test]
async fn mounts_carry_their_marks() {
    let place = directory();
    let mut launch = sh("cut -d' ' -f5,6 /proc/self/mountinfo");
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadWrite)];
    let said = says(&native(), launch).await;
    for line in said.lines() {
        let (path, options) = line.split_once(' ').unwrap();
        let options: Vec<_> = options.split(',').collect();
        let writable =
            ["/tmp", "/dev/shm", "/volume", "/proc", "/dev/pts"].contains(&path) || is_device(path);
        assert_eq!(options.contains(&"rw"), writable, "{line}\n{said}");
        assert!(options.contains(&"nosuid"), "{line}");
        assert!(options.contains(&"nodev") || is_device(path) || path == "/dev/pts", "{line}");
    }
}

fn is_device(path: &str) -> bool {
    path.strip_prefix("/dev/")
        .is_some_and(|name| ["null", "zero", "full", "random", "urandom", "tty"].contains(&name))
}

/// An agent that swaps a directory for a link, on either side of a mount, gets a refusal.
#[tokio::test]
async fn links_on_the_way_of_a_mount_are_refused() {
    let (place, outside) = (directory(), directory());
    fs::create_dir(place.path().join("real")).unwrap();
    std::os::unix::fs::symlink("real", place.path().join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", place.path().join("trap")).unwrap();
    let backend = native();
    let mut launch = sh("true");
    launch.mounts = vec![mount(&place.path().join("link"), "/volume", Access::ReadWrite)];
    let error = try_run(&backend, launch).await.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Mount { reason, .. } if reason.contains("symbolic link")),
        "{error}"
    );

    let mut launch = sh("true");
    launch.mounts = vec![
        mount(place.path(), "/volume", Access::ReadWrite),
        mount(outside.path(), "/volume/trap/alternatives", Access::ReadOnly),
    ];
    let error = try_run(&backend, launch).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Mount { .. }), "{error}");
    let mut launch = sh("ls /volume/real/deep");
    launch.mounts = vec![
        mount(place.path(), "/volume", Access::ReadWrite),
        mount(outside.path(), "/volume/real/deep", Access::ReadOnly),
    ];
    assert_eq!(says(&backend, launch).await, "");
    assert!(backend.layers().holds(aegis_sandbox::Layer::Landlock));
}

/// Filling the disk stops at the scratch limit, in bytes and in files.
#[tokio::test]
async fn scratch_has_a_limit_of_files_too() {
    let mut launch = sh(
        "mkdir /tmp/d; cd /tmp/d; i=0; while [ $i -lt 3000 ]; do : > $i || exit 9; i=$((i+1)); done; echo all",
    );
    launch.limits = aegis_sandbox::Limits { scratch: 1 << 20, ..launch.limits };
    let outcome = try_run(&native(), launch).await.unwrap();
    assert!(outcome.out().is_empty() && outcome.err().contains("No space left"), "{outcome:?}");
}
