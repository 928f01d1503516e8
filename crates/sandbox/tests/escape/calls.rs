//! System calls that programs don't need.

use crate::{
    attack_program, must_answer, outside,
    support::{directory, native},
};

#[tokio::test]
async fn mounts_and_roots_are_refused() {
    let place = directory();
    attack_program(place.path());
    must_answer(
        &native(),
        place.path(),
        &[
            ("mount-tmpfs", "EPERM"),
            ("mount-proc", "EPERM"),
            // The way to a release agent.
            ("mount-cgroup", "EPERM"),
            ("mount-debugfs", "EPERM"),
            ("remount", "EPERM"),
            ("umount-proc", "EPERM"),
            ("pivot-root", "EPERM"),
            ("chroot", "EPERM"),
            ("fsopen", "EPERM"),
            ("open-tree", "EPERM"),
            ("move-mount", "EPERM"),
            ("mount-setattr", "EPERM"),
            ("fspick", "EPERM"),
            ("open-tree-attr", "ENOSYS"),
            ("name-to-handle", "EOPNOTSUPP"),
            ("open-by-handle", "EPERM"),
        ],
    )
    .await;
    outside(place.path(), &[("name-to-handle", "ok")]);
}

#[tokio::test]
async fn namespaces_are_refused() {
    let place = directory();
    attack_program(place.path());
    let answers = [
        ("unshare-user", "EPERM"),
        ("unshare-mount", "EPERM"),
        ("unshare-net", "EPERM"),
        ("unshare-time", "EPERM"),
        ("clone-user", "EPERM"),
        ("clone3", "ENOSYS"),
        ("setns", "EPERM"),
    ];
    must_answer(&native(), place.path(), &answers).await;
    outside(place.path(), &[("unshare-user", "ok"), ("clone-user", "ok"), ("clone3", "EINVAL")]);
}

#[tokio::test]
async fn rights_are_not_raised() {
    let place = directory();
    attack_program(place.path());
    let answers = [
        // Root is no user of this namespace at all.
        ("setuid-root", "EINVAL"),
        ("setgid-root", "EINVAL"),
        ("setgroups", "EPERM"),
        ("capset", "EPERM"),
        ("ambient", "EPERM"),
        ("new-privileges", "EINVAL"),
        ("more-processes", "EPERM"),
        ("core-dumps", "EPERM"),
    ];
    must_answer(&native(), place.path(), &answers).await;
}

#[tokio::test]
async fn the_kernels_darker_corners_are_closed() {
    let place = directory();
    attack_program(place.path());
    let answers = [
        ("bpf", "EPERM"),
        ("perf", "EPERM"),
        ("userfaultfd", "EPERM"),
        ("io-uring", "ENOSYS"),
        ("fanotify", "EPERM"),
        ("add-key", "EPERM"),
        ("request-key", "EPERM"),
        ("keyctl", "EPERM"),
        ("personality", "EPERM"),
        ("type-into-terminal", "EPERM"),
        ("line-discipline", "EPERM"),
        ("size-of-terminal", "ok"),
    ];
    must_answer(&native(), place.path(), &answers).await;
    outside(
        place.path(),
        &[
            ("add-key", "ok"),
            ("keyctl", "ok"),
            ("personality", "ok"),
            ("userfaultfd", "ok"),
            ("io-uring", "ok"),
        ],
    );
}

#[tokio::test]
async fn the_machine_is_out_of_reach() {
    let place = directory();
    attack_program(place.path());
    let answers = [
        ("kexec", "EPERM"),
        ("init-module", "EPERM"),
        ("delete-module", "EPERM"),
        ("swapon", "EPERM"),
        ("reboot", "EPERM"),
        ("settimeofday", "EPERM"),
        ("clock-settime", "EPERM"),
        ("adjtimex", "EPERM"),
        ("sethostname", "EPERM"),
        ("acct", "EPERM"),
        ("quotactl", "EPERM"),
        ("syslog", "EPERM"),
        ("make-device=/volume/mem", "EPERM"),
        ("make-device=/tmp/mem", "EPERM"),
        ("make-disk=/volume/disk", "EPERM"),
        ("make-fifo=/volume/fifo", "ok"),
    ];
    must_answer(&native(), place.path(), &answers).await;
}

#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn other_architectures_calls_are_no_way_around() {
    let place = directory();
    attack_program(place.path());
    let answers = [("iopl", "EPERM"), ("modify-ldt", "EPERM"), ("x32", "ENOSYS"), ("int80", "signal-31")];
    must_answer(&native(), place.path(), &answers).await;
    outside(place.path(), &[("modify-ldt", "ok")]);
}
