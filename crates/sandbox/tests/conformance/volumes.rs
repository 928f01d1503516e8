//! Volumes: where they stand, what may be done with them, and that nothing else can be changed.

use std::{fs, os::unix::fs::MetadataExt};

use aegis_sandbox::{Access, Backend, Exit, Launch, Limits};

use super::programs::write_program;
use crate::support::{directory, mount, run, says, sh};

pub(crate) async fn written_files_are_the_nodes(backend: &dyn Backend) {
    let place = directory();
    fs::write(place.path().join("given"), "from outside").unwrap();
    let mut launch = sh("cat given; mkdir made; echo inside > made/file; mv given taken; ln -s taken link");
    launch.cwd = "/workspace/deep".into();
    launch.mounts = vec![mount(place.path(), "/workspace/deep", Access::ReadWrite)];
    assert_eq!(says(backend, launch).await, "from outside");
    let file = place.path().join("made/file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "inside\n");
    assert_eq!(fs::metadata(&file).unwrap().uid(), rustix::process::geteuid().as_raw());
    assert!(place.path().join("taken").exists() && !place.path().join("given").exists());
}

pub(crate) async fn read_only_stays(backend: &dyn Backend) {
    let place = directory();
    fs::write(place.path().join("given"), "as it was").unwrap();
    let mut launch =
        sh("cat /data/given; echo x > /data/new || echo refused; rm -f /data/given || echo refused; \
                         chmod 777 /data/given || echo refused; true > /data/given || echo refused");
    launch.mounts = vec![mount(place.path(), "/data", Access::ReadOnly)];
    let outcome = run(backend, launch).await;
    assert_eq!(outcome.out().matches("refused").count(), 4, "{outcome:?}");
    assert!(
        outcome.err().contains("Read-only file system") || outcome.err().contains("Permission denied"),
        "{outcome:?}"
    );
    assert_eq!(fs::read_to_string(place.path().join("given")).unwrap(), "as it was");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

pub(crate) async fn single_files(backend: &dyn Backend) {
    let place = directory();
    fs::write(place.path().join("settings"), "one").unwrap();
    let mut launch = sh("cat /conf/settings; echo two > /conf/settings || echo refused");
    launch.mounts = vec![mount(&place.path().join("settings"), "/conf/settings", Access::ReadOnly)];
    assert_eq!(says(backend, launch).await, "onerefused");
}

pub(crate) async fn nested_volumes(backend: &dyn Backend) {
    let (outer, inner) = (directory(), directory());
    fs::create_dir(outer.path().join("vendor")).unwrap();
    fs::write(inner.path().join("library"), "kept").unwrap();
    let mut launch = sh("echo a > /w/file; cat /w/vendor/library; echo b > /w/vendor/file || echo refused");
    // Named inner first: the order must not matter.
    launch.mounts = vec![
        mount(inner.path(), "/w/vendor", Access::ReadOnly),
        mount(outer.path(), "/w", Access::ReadWrite),
    ];
    assert_eq!(says(backend, launch).await, "keptrefused");
    assert!(outer.path().join("file").exists());
    assert_eq!(fs::read_dir(inner.path()).unwrap().count(), 1);
}

/// Nothing but scratch space can be written, and the host's files are not there.
pub(crate) async fn root_is_closed(backend: &dyn Backend) {
    let place = directory();
    fs::write(place.path().join("secret"), "of the node").unwrap();
    let script = format!(
        "for at in / /etc /usr /usr/bin /bin /dev /proc /proc/sys/kernel /var /root /home; do \
           [ -d $at ] && (: > $at/probe) 2>/dev/null && echo wrote $at; done; \
         for at in {} /root /etc/shadow /home /boot /sys/kernel /run/docker.sock /var/run/docker.sock; do \
           [ -r $at ] && ls -A $at 2>/dev/null | grep -q . && echo saw $at; done; echo done",
        place.path().display()
    );
    assert_eq!(says(backend, sh(&script)).await, "done");
}

pub(crate) async fn scratch_is_private_and_bounded(backend: &dyn Backend) {
    let mut launch =
        sh("echo mine > /tmp/note; head -c 8388608 /dev/zero > /tmp/large && echo stored; ls /tmp");
    launch.limits = Limits { scratch: 4 << 20, ..launch.limits };
    let outcome = run(backend, launch).await;
    assert!(!outcome.out().contains("stored"), "{outcome:?}");
    assert!(outcome.err().contains("No space left"), "{outcome:?}");
    assert_eq!(says(backend, sh("ls -A /tmp; echo end")).await, "end");
    assert_eq!(
        says(backend, sh("echo x > /dev/shm/x && cat /dev/shm/x; ls -A /dev/shm | wc -l")).await,
        "x\n1"
    );
}

/// A link that an agent left in its volume leads to a place inside, never to the host.
pub(crate) async fn links_lead_nowhere(backend: &dyn Backend) {
    let (place, outside) = (directory(), directory());
    fs::write(outside.path().join("secret"), "of the node").unwrap();
    std::os::unix::fs::symlink(outside.path(), place.path().join("out")).unwrap();
    std::os::unix::fs::symlink("../../../../../..", place.path().join("up")).unwrap();
    let script = format!(
        "cat /w/out/secret || echo nothing; cat /w/up{0}/secret || echo nothing; cat /proc/self/root{0}/secret || echo nothing",
        outside.path().display()
    );
    let mut launch = sh(&script);
    launch.mounts = vec![mount(place.path(), "/w", Access::ReadWrite)];
    assert_eq!(says(backend, launch).await, "nothing\nnothing\nnothing");
}

pub(crate) async fn executables_on_volumes(backend: &dyn Backend) {
    let place = directory();
    write_program(&place.path().join("tool"), "#!/bin/sh\necho \"$0 $1\"\n");
    for (program, cwd) in [("/volume/tool", "/"), ("./tool", "/volume")] {
        let mut launch = Launch::new(program);
        launch.args = vec!["one".into()];
        launch.cwd = cwd.into();
        launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
        assert_eq!(says(backend, launch).await, format!("{program} one"));
    }
    let mut launch = Launch::new("tool");
    launch.env = vec![("PATH".into(), "/volume:/usr/bin:/bin".into())];
    launch.mounts = vec![mount(place.path(), "/volume", Access::ReadOnly)];
    assert_eq!(run(backend, launch).await.exit, Exit::Code(0));
}
