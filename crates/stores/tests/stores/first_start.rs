//! The first start, interrupted anywhere: the next one completes what it finds.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use aegis_core::{id::TenantId, record::Entry};
use aegis_stores::{
    AuditLog, DataDir, Registry,
    audit::{AuditError, Filter, LogReader},
};
use rusqlite::Connection;

use crate::common::{call, config, verify_database};

const HOME: &str = "AEGIS_FIRST_START_TEST_HOME";

/// Names, with what is in the files.
type Files<'a> = &'a [(&'a str, &'a [u8])];

async fn start(home: &Path) {
    let data = DataDir::open(home).unwrap();
    let log = AuditLog::open(&data, &config(50)).unwrap();
    let registry = Registry::open(&data).unwrap();
    let operator = registry.ensure_operator_token(&TenantId::new("default")).await.unwrap();
    assert_eq!(fs::read_to_string(data.operator_token()).unwrap().trim(), operator.secret.expose());
    let found = registry.ensure_operator_token(&TenantId::new("default")).await.unwrap();
    assert!(!found.is_new && found.token.id == operator.token.id);
    log.record_durable(&call("fs.read")).await.unwrap();
    log.close().await.unwrap();
}

/// Starts, and looks at what is there afterwards.
async fn completes(home: &Path, left: &str) {
    start(home).await;
    let report = verify_database(home);
    assert_eq!(report.fault, None, "{left}");
    assert!(report.records > 0, "{left}");
    for entry in fs::read_dir(home).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with('.'), "{left}: {name} is left over");
    }
    let journal = |name: &str| -> String {
        let connection = Connection::open(home.join(name)).unwrap();
        connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap()
    };
    assert_eq!((journal("audit.db").as_str(), journal("registry.db").as_str()), ("wal", "wal"), "{left}");
}

/// Each step of the first start leaves this much behind when it is the last.
#[tokio::test]
async fn whatever_a_first_start_left_is_completed() {
    let whole = tempfile::tempdir().unwrap();
    start(whole.path()).await;
    // A log that nothing was signed in yet, as it is before the first record.
    let unsigned = tempfile::tempdir().unwrap();
    {
        let data = DataDir::open(unsigned.path()).unwrap();
        AuditLog::open(&data, &config(50)).unwrap().close().await.unwrap();
    }
    let half = b"SQLite format 3\0 and no more of it".as_slice();
    let log = fs::read(unsigned.path().join("audit.db")).unwrap();
    let (key, public) = (
        fs::read(unsigned.path().join("audit.key")).unwrap(),
        fs::read(unsigned.path().join("audit.pub")).unwrap(),
    );
    let registry = fs::read(whole.path().join("registry.db")).unwrap();
    let token = fs::read(whole.path().join("operator.token")).unwrap();
    let states: [(&str, Files<'_>); 12] = [
        ("nothing", &[]),
        ("half a version", &[(".VERSION.new", b"")]),
        ("a version", &[("VERSION", b"1\n")]),
        (
            "half a log and half a registry",
            &[
                ("VERSION", b"1\n"),
                (".audit.db.new", half),
                (".audit.db.new-wal", b"rest"),
                (".audit.db.new-shm", b"rest"),
                (".registry.db.new", half),
                (".registry.db.new-journal", b"rest"),
            ],
        ),
        ("empty files", &[("VERSION", b"1\n"), ("audit.db", b""), ("registry.db", b"")]),
        ("a whole log beside its place", &[("VERSION", b"1\n"), (".audit.db.new", &log)]),
        (
            "journals of files that were moved away",
            &[
                ("VERSION", b"1\n"),
                ("audit.db-wal", half),
                ("audit.db-journal", half),
                ("registry.db-wal", half),
                ("registry.db-shm", half),
            ],
        ),
        ("a log without a key", &[("VERSION", b"1\n"), ("audit.db", &log)]),
        ("half a key", &[("VERSION", b"1\n"), ("audit.db", &log), (".audit.key.new", b"-----BEGIN")]),
        (
            "half a public key",
            &[("VERSION", b"1\n"), ("audit.db", &log), ("audit.key", &key), (".audit.pub.new", b"--")],
        ),
        (
            "a registry whose token is nowhere",
            &[("VERSION", b"1\n"), ("audit.db", &log), ("audit.key", &key), ("registry.db", &registry)],
        ),
        (
            "a token that the registry has not",
            &[
                ("VERSION", b"1\n"),
                ("audit.db", &log),
                ("audit.key", &key),
                ("audit.pub", &public),
                ("operator.token", &token),
                (".operator.token.new", b"half"),
            ],
        ),
    ];
    for (left, files) in states {
        let home = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = home.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        }
        completes(home.path(), left).await;
    }
}

/// Earlier builds made their files in place: a header without tables is one of theirs that was killed.
#[tokio::test]
async fn a_file_without_tables_is_filled() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("VERSION"), "1\n").unwrap();
    for name in ["audit.db", "registry.db"] {
        let connection = Connection::open(home.path().join(name)).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
    }
    completes(home.path(), "files without tables").await;
}

/// The node that gets killed: the test below runs this one in a process of its own.
#[tokio::test]
async fn victim() {
    let Some(home) = std::env::var_os(HOME) else { return };
    start(Path::new(&home)).await;
}

#[tokio::test]
async fn a_first_start_that_was_killed_is_completed() {
    for step in 0..24_u32 {
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "first_start::victim", "--test-threads=1"])
            .env(HOME, home.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Wherever it gets to by then: any place will do.
        tokio::time::sleep(Duration::from_millis(1) * step).await;
        child.kill().unwrap();
        child.wait().unwrap();
        completes(home.path(), &format!("killed after {step} ms")).await;
    }
}

/// A data directory whose log is gone is none that was never started.
#[tokio::test]
async fn a_log_that_was_taken_away_is_not_replaced() {
    let gone = |home: &Path| fs::remove_file(home.join("audit.db")).unwrap();
    let emptied = |home: &Path| fs::write(home.join("audit.db"), "").unwrap();
    let bare = |home: &Path| {
        gone(home);
        let connection = Connection::open(home.join("audit.db")).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
    };
    let without_private_key = |home: &Path| {
        gone(home);
        fs::remove_file(home.join("audit.key")).unwrap();
    };
    type Way<'a> = (&'a str, &'a dyn Fn(&Path));
    let ways: [Way<'_>; 4] = [
        ("removed", &gone),
        ("emptied", &emptied),
        ("without tables", &bare),
        ("removed with its key", &without_private_key),
    ];
    for (way, take_away) in ways {
        let home = tempfile::tempdir().unwrap();
        start(home.path()).await;
        take_away(home.path());
        let before = fs::read(home.path().join("audit.db")).ok();
        let data = DataDir::open(home.path()).unwrap();
        let error = AuditLog::open(&data, &config(50)).unwrap_err();
        assert!(matches!(error, AuditError::Lost { .. }), "{way}: {error}");
        let told = error.to_string();
        assert!(
            told.contains("audit.db is missing or empty")
                && told.contains("move audit.key and audit.pub away")
        );
        assert_eq!(fs::read(home.path().join("audit.db")).ok(), before, "{way}");
    }
}

/// What the first entry of the log says that befell the node.
fn first_action(home: &Path) -> Option<String> {
    let entries = LogReader::open(&home.join("audit.db")).unwrap().tail(&Filter::default(), 100).unwrap();
    let first = entries.into_iter().find(|stored| stored.seq == 1).unwrap();
    if let Entry::Node(record) = first.entry.unwrap() { Some(record.action) } else { None }
}

#[tokio::test]
async fn a_new_log_begins_where_the_keys_were_moved_away() {
    let home = tempfile::tempdir().unwrap();
    start(home.path()).await;
    let old = fs::read(home.path().join("audit.pub")).unwrap();
    for name in ["audit.db", "audit.key", "audit.pub"] {
        fs::remove_file(home.path().join(name)).unwrap();
    }
    {
        // A start that gets no further.
        let data = DataDir::open(home.path()).unwrap();
        let log = AuditLog::open(&data, &config(50)).unwrap();
        assert_eq!(log.progress().entries, 1);
        log.close().await.unwrap();
    }
    completes(home.path(), "keys moved away").await;
    assert_ne!(fs::read(home.path().join("audit.pub")).unwrap(), old);
    assert_eq!(first_action(home.path()).as_deref(), Some("audit-begun-anew"));
    assert_eq!(verify_database(home.path()).records, 2, "it is said once");
}

/// What is empty may be of a node that did nothing yet: no earlier log is missing.
#[tokio::test]
async fn a_first_log_begins_with_nothing_to_say() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let data = DataDir::open(home.path()).unwrap();
        let _registry = Registry::open(&data).unwrap();
        let log = AuditLog::open(&data, &config(50)).unwrap();
        assert_eq!(log.progress().entries, 0);
        log.close().await.unwrap();
    }
    start(home.path()).await;
    assert_eq!(first_action(home.path()), None);
}

/// What `doctor` tells, and what a start would: the same.
#[tokio::test]
async fn a_look_at_the_log_tells_what_a_start_would() {
    let outcome = async |home: &Path| {
        let checked = AuditLog::check(&DataDir::read_only(home).unwrap());
        let told = checked.map_or_else(|error| error.to_string(), |()| String::new());
        match AuditLog::open(&DataDir::open(home).unwrap(), &config(50)) {
            Ok(log) => {
                assert_eq!(told, "");
                log.close().await.unwrap();
            }
            Err(error) => assert_eq!(told, error.to_string()),
        }
        told
    };
    let without_tables = |path: &Path| {
        fs::write(path, "").unwrap();
        Connection::open(path).unwrap().pragma_update(None, "journal_mode", "wal").unwrap();
    };
    let home = tempfile::tempdir().unwrap();
    start(home.path()).await;
    let log = home.path().join("audit.db");
    assert_eq!(outcome(home.path()).await, "");
    without_tables(&log);
    assert!(outcome(home.path()).await.contains("is missing or empty"));
    fs::remove_file(&log).unwrap();
    assert!(outcome(home.path()).await.contains("is missing or empty"));
    // It is there, and nobody can tell what it is.
    std::os::unix::fs::symlink(&log, &log).unwrap();
    let told = AuditLog::check(&DataDir::read_only(home.path()).unwrap()).unwrap_err().to_string();
    assert!(told.contains("can't look at") && !told.contains("missing"), "{told}");
    fs::remove_file(&log).unwrap();
    Connection::open(&log).unwrap().execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
    assert!(outcome(home.path()).await.contains("is not an audit log of aegis"));
    for name in ["audit.db", "audit.key", "audit.pub"] {
        fs::remove_file(home.path().join(name)).unwrap();
    }
    let nothing = AuditLog::check(&DataDir::read_only(home.path()).unwrap());
    assert!(nothing.is_ok() && !log.exists(), "{nothing:?}");
    without_tables(&log);
    assert_eq!(outcome(home.path()).await, "");
}
