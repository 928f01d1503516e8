//! One owner at a time, one format, nothing that others can write.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use aegis_core::config::AuditConfig;
use aegis_stores::{
    AuditLog,
    data_dir::{DataDir, DataDirError},
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn first_use_makes_it_private() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("deep").join("data");
    let data = DataDir::open(&path).unwrap();
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&data.volumes()), 0o700);
    assert_eq!(fs::read_to_string(path.join("VERSION")).unwrap(), "1\n");
    assert_eq!(names(&path), ["VERSION", "lock", "volumes"]);
}

#[test]
fn second_owner_is_told_who_has_it() {
    let home = tempfile::tempdir().unwrap();
    let first = DataDir::open(home.path()).unwrap();
    let error = DataDir::open(home.path()).unwrap_err();
    assert!(
        matches!(error, DataDirError::InUse { pid: Some(pid), .. } if pid == std::process::id()),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");

    // Readers come in while it is taken, and a clone keeps it taken.
    DataDir::read_only(home.path()).unwrap();
    let clone = first.clone();
    drop(first);
    DataDir::open(home.path()).unwrap_err();
    drop(clone);
    DataDir::open(home.path()).unwrap();
}

#[test]
fn newer_format_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("VERSION"), "2\n").unwrap();
    for error in [DataDir::open(home.path()).unwrap_err(), DataDir::read_only(home.path()).unwrap_err()] {
        assert!(matches!(error, DataDirError::Newer { found: 2, .. }), "{error}");
    }
    assert_eq!(names(home.path()), ["VERSION"]);
}

#[test]
fn unclear_formats_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for content in [&b"one"[..], b"", b"-1", b"\xff\xfe", b"1.5"] {
        fs::write(home.path().join("VERSION"), content).unwrap();
        let error = DataDir::open(home.path()).unwrap_err();
        assert!(matches!(error, DataDirError::UnreadableVersion { .. }), "{content:?}: {error}");
    }
    fs::remove_file(home.path().join("VERSION")).unwrap();
    fs::write(home.path().join("audit.db"), "").unwrap();
    let error = DataDir::open(home.path()).unwrap_err();
    assert!(matches!(error, DataDirError::LostVersion { .. }), "{error}");
    assert_eq!(names(home.path()), ["audit.db"]);
}

#[test]
fn directories_that_others_may_write_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for open in [0o770, 0o702, 0o1777] {
        fs::set_permissions(home.path(), fs::Permissions::from_mode(open)).unwrap();
        let error = DataDir::open(home.path()).unwrap_err();
        assert!(matches!(error, DataDirError::OthersMayWrite { .. }), "{error}");
    }
    assert!(names(home.path()).is_empty());
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    DataDir::open(home.path()).unwrap();
}

#[test]
fn what_is_no_directory_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(DataDir::open(&file).unwrap_err(), DataDirError::NotADirectory { .. }));
    assert!(matches!(DataDir::read_only(&file).unwrap_err(), DataDirError::NotADirectory { .. }));
    let absent = home.path().join("absent");
    assert!(matches!(DataDir::read_only(&absent).unwrap_err(), DataDirError::Missing { .. }));
    assert!(!absent.exists());
    // An empty directory is not yet anyone's data.
    assert!(matches!(DataDir::read_only(home.path()).unwrap_err(), DataDirError::Missing { .. }));
}

#[test]
fn two_spellings_of_one_directory_share_the_lock() {
    let home = tempfile::tempdir().unwrap();
    let link = home.path().join("link");
    let path = home.path().join("data");
    let _data = DataDir::open(&path).unwrap();
    symlink(&path, &link).unwrap();
    assert!(matches!(DataDir::open(&link).unwrap_err(), DataDirError::InUse { .. }));
}

#[test]
fn small_files_are_replaced_as_a_whole() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    data.write_file(&data.node_file(), b"first", 0o600).unwrap();
    // What a crash in the middle of an earlier write left behind.
    fs::write(home.path().join(".node.json.new"), "half").unwrap();
    data.write_file(&data.node_file(), b"second", 0o644).unwrap();
    assert_eq!(fs::read(data.node_file()).unwrap(), b"second");
    assert_eq!(mode(&data.node_file()), 0o644);
    assert_eq!(names(home.path()), ["VERSION", "lock", "node.json", "volumes"]);
}

/// Whoever opens a pipe waits for its other end.
#[test]
fn what_is_no_file_is_named_instead_of_opened() {
    let names = [
        "VERSION",
        "lock",
        "audit.db",
        "audit.db-wal",
        "registry.db",
        "audit.key",
        "audit.pub",
        "seal.keys",
        "secret.keys",
        "seal-replay-0",
        "nfs.key",
        "operator.token",
        "node.json",
    ];
    for name in names {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        for error in [DataDir::open(home.path()).unwrap_err(), DataDir::read_only(home.path()).unwrap_err()] {
            let told = error.to_string();
            assert!(told.contains(&format!("{name} is a named pipe")), "{told}");
        }
    }
    let home = tempfile::tempdir().unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(home.path().join("audit.key")).unwrap();
    let told = DataDir::open(home.path()).unwrap_err().to_string();
    assert!(told.contains("audit.key is a socket"), "{told}");
    let home = tempfile::tempdir().unwrap();
    symlink("/dev/null", home.path().join("registry.db")).unwrap();
    let told = DataDir::open(home.path()).unwrap_err().to_string();
    assert!(told.contains("registry.db is a device"), "{told}");
}

#[test]
fn what_stands_in_the_way_is_told_by_its_own_name() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    for name in [".audit.db.new", ".audit.db.new-wal", ".operator.token.new"] {
        fs::create_dir(home.path().join(name)).unwrap();
        let told = match name {
            ".operator.token.new" => {
                data.write_file(&data.operator_token(), b"x", 0o600).unwrap_err().to_string()
            }
            _ => AuditLog::open(&data, &AuditConfig::default()).unwrap_err().to_string(),
        };
        let path = home.path().canonicalize().unwrap().join(name);
        assert!(told.starts_with(&format!("can't remove {}: ", path.display())), "{told}");
        fs::remove_dir(home.path().join(name)).unwrap();
    }
}
