mod policies;
mod upstreams;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use aegis_core::config::NodeConfig;
use aegis_routes::exec::{Runtimes, Sandbox};
use aegis_sandbox::State as LayerState;
use aegis_stores::{AuditLog, DataDir, audit::AuditError};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    cli::{Acting, Global},
    client::Answer,
    locate::{self, NodeFile},
    output::{Ending, in_words, json_line, say},
    volumes,
};

const LOW_DISK: u64 = 1 << 30;
const LOW_FILES: u64 = 1024;
/// This code did not exist before; a clock that says so is wrong.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);

/// What one look found.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    state: State,
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Warning,
    Bad,
}

impl Finding {
    fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, state: State::Good, found: found.into(), mend: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, state: State::Warning, found: found.into(), mend: Some(mend.into()) }
    }

    fn bad(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { check, state: State::Bad, found: found.into(), mend: Some(mend.into()) }
    }
}

pub(super) async fn run(global: &Global) -> anyhow::Result<Ending> {
    let data = locate::data_dir(global)?;
    let running = locate::running(&data);
    let asked = match &running {
        Some(running) => Some(ask(&data, running).await),
        None => None,
    };
    let status = match &asked {
        Some(Ok(Answer::Ok(status))) => status.clone(),
        _ => Value::Null,
    };
    let refused = &status["refused"];
    let (configuration, config) = configuration(global, &status);
    let mut findings = vec![configuration, data_directory(&data), token(&data), disk(&data)];
    findings.extend(volumes(&data, &config));
    if let Some(running) = &running {
        findings.extend(uncounted(&data, running).await);
    }
    findings.extend(policies::look(&data, &config, refused["policies"].as_str()).await);
    findings.extend([clock(&data), kernel(), open_files()]);
    findings.extend(sandbox(&config).await);
    findings.extend(upstreams::look(&data, running.as_ref(), &config).await);
    findings.push(node(running.as_ref().zip(asked), &config).await);
    let bad = findings.iter().any(|finding| finding.state == State::Bad);
    if global.json {
        json_line(&json!({"healthy": !bad, "findings": findings}));
    } else {
        for finding in &findings {
            let mark = match finding.state {
                State::Good => "good",
                State::Warning => "WARN",
                State::Bad => "BAD ",
            };
            say!("{mark}  {:<14} {}", finding.check, in_column(&finding.found));
            if let Some(mend) = &finding.mend {
                say!("      {:<14} mend: {}", "", in_column(mend));
            }
        }
    }
    Ok(if bad { Ending::Failed } else { Ending::Done })
}

/// A text of several lines, all of which stand in the last column.
fn in_column(text: &str) -> String {
    text.trim_end().replace('\n', &format!("\n{:21}", ""))
}

/// The file of the running node, unless another one was asked about.
fn configuration(global: &Global, status: &Value) -> (Finding, NodeConfig) {
    const CHECK: &str = "configuration";
    const MEND: &str = "correct it; `aegis config validate` checks it again";
    let own = status["configuration_file"].as_str().map(PathBuf::from);
    let file = match own.filter(|own| global.config.is_none() && own.is_file()) {
        Some(own) => Ok(Some(own)),
        None => locate::config_file(global),
    };
    let read = file.and_then(|file| Ok((locate::read_config(file.as_deref())?, file)));
    let refused = status["refused"]["configuration"].as_str();
    match (read, refused) {
        (Ok((config, _)), Some(refused)) => {
            let found = format!("the running node goes on with what it had: {refused}");
            (Finding::bad(CHECK, found, MEND), config)
        }
        (Ok((config, None)), None) => (Finding::good(CHECK, "built-in defaults"), config),
        (Ok((config, Some(file))), None) => {
            (Finding::good(CHECK, format!("{} is valid", file.display())), config)
        }
        (Err(error), refused) => {
            let kept = if refused.is_some() { "the running node goes on with what it had: " } else { "" };
            (Finding::bad(CHECK, format!("{kept}{}", in_words(&error)), MEND), NodeConfig::default())
        }
    }
}

fn data_directory(data: &Path) -> Finding {
    const CHECK: &str = "data directory";
    let shown = data.display();
    let metadata = match fs::metadata(data) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Finding::good(CHECK, format!("{shown} does not exist yet; `aegis up` makes it"));
        }
        Err(error) => {
            return Finding::bad(CHECK, format!("{shown}: {error}"), "check the permissions of its parents");
        }
    };
    if !metadata.is_dir() {
        return Finding::bad(CHECK, format!("{shown} is no directory"), "choose another with --data");
    }
    if metadata.permissions().mode() & 0o022 != 0 {
        return Finding::bad(CHECK, format!("others can write to {shown}"), format!("chmod 700 {shown}"));
    }
    if rustix::fs::access(data, rustix::fs::Access::WRITE_OK).is_err() {
        return Finding::bad(CHECK, format!("{shown} can't be written"), "run as its owner, or chown it");
    }
    match DataDir::read_only(data) {
        Ok(paths) => match AuditLog::check(&paths) {
            Ok(()) => Finding::good(CHECK, shown.to_string()),
            Err(AuditError::Lost { path, .. }) => Finding::bad(
                CHECK,
                format!("{} is missing or empty, and its key is there", path.display()),
                "put it back from a backup, or move audit.key and audit.pub away to begin a new log",
            ),
            Err(error) => Finding::bad(CHECK, error.to_string(), "see the message; nothing was changed"),
        },
        Err(aegis_stores::data_dir::DataDirError::Missing { .. }) => {
            Finding::good(CHECK, format!("{shown} is empty; `aegis up` fills it"))
        }
        Err(error) => Finding::bad(CHECK, error.to_string(), "see the message; nothing was changed"),
    }
}

fn token(data: &Path) -> Finding {
    const CHECK: &str = "operator token";
    let Ok(paths) = DataDir::read_only(data) else {
        return Finding::good(CHECK, "made at the first start");
    };
    let file = paths.operator_token();
    match fs::metadata(&file) {
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => Finding::bad(
            CHECK,
            format!("others can read {}", file.display()),
            format!("chmod 600 {0} && rm {0}, then restart the node: it makes a new one", file.display()),
        ),
        Ok(_) => Finding::good(CHECK, file.display().to_string()),
        Err(_) => Finding::warning(
            CHECK,
            format!("{} is not there", file.display()),
            "restart the node: it makes a new one and revokes the old",
        ),
    }
}

fn volumes(data: &Path, config: &NodeConfig) -> Vec<Finding> {
    const CHECK: &str = "volumes";
    let workspaces = data.join("volumes");
    if workspaces.exists() && rustix::fs::access(&workspaces, rustix::fs::Access::WRITE_OK).is_err() {
        let found = format!("{}, where tenants' workspaces are, can't be written", workspaces.display());
        return vec![Finding::bad(CHECK, found, "run as its owner, or chown it")];
    }
    let found: Vec<Finding> = volumes::look(config, data)
        .into_iter()
        .map(|trouble| match trouble.severe {
            true => Finding::bad(CHECK, trouble.found, trouble.mend),
            false => Finding::warning(CHECK, trouble.found, trouble.mend),
        })
        .collect();
    match (found.is_empty(), config.spec.storage.volumes.len()) {
        (false, _) => found,
        (true, 0) => vec![Finding::good(CHECK, "a workspace for each tenant")],
        (true, count) => {
            vec![Finding::good(CHECK, format!("a workspace for each tenant, and {count} configured"))]
        }
    }
}

/// Directories in volumes that the running node can't look into.
async fn uncounted(data: &Path, running: &NodeFile) -> Vec<Finding> {
    let Ok(client) = locate::client(data, running, &Acting::default()) else { return Vec::new() };
    let Ok(Answer::Ok(found)) = client.get("/v1/volumes").await else { return Vec::new() };
    let volumes = found["volumes"].as_array().into_iter().flatten();
    volumes
        .filter(|row| row["unread_directories"].as_u64().unwrap_or(0) > 0)
        .map(|row| {
            let mend =
                "let the node's user read them, or delete them: until then a quota holds less than it says";
            Finding::warning("volumes", super::volume::uncounted(row), mend)
        })
        .collect()
}

fn disk(data: &Path) -> Finding {
    const CHECK: &str = "disk";
    let place = data.ancestors().find(|place| place.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(place) {
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            let found = format!("{} MiB free", free >> 20);
            if space.f_favail == 0 && space.f_files > 0 {
                Finding::bad(CHECK, "no inodes are left", "remove files: no record can be written")
            } else if free < LOW_DISK / 16 {
                Finding::bad(
                    CHECK,
                    found,
                    "make room: a node that can't write its audit log refuses every call",
                )
            } else if free < LOW_DISK {
                Finding::warning(CHECK, found, "make room soon")
            } else {
                Finding::good(CHECK, found)
            }
        }
        Err(error) => Finding::warning(CHECK, format!("unknown: {error}"), "check with df"),
    }
}

fn clock(data: &Path) -> Finding {
    const CHECK: &str = "clock";
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if since < EARLIEST {
        return Finding::bad(CHECK, "the clock is years behind", "set it: tokens and records carry times");
    }
    let newest = DataDir::read_only(data)
        .ok()
        .and_then(|paths| fs::metadata(paths.audit_database()).ok()?.modified().ok())
        .filter(|written| written.duration_since(now).is_ok_and(|ahead| ahead > Duration::from_secs(60)));
    match newest {
        Some(_) => Finding::warning(
            CHECK,
            "the audit log was written in the future of this clock",
            "the clock went back; set it, or records will be out of order in time",
        ),
        None => Finding::good(CHECK, aegis_core::Timestamp::now().to_string()),
    }
}

fn kernel() -> Finding {
    const CHECK: &str = "kernel";
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy().into_owned();
    let confined = rustix::fs::openat2(
        rustix::fs::CWD,
        ".",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
        rustix::fs::ResolveFlags::BENEATH,
    );
    if confined.is_ok() {
        Finding::good(CHECK, format!("Linux {release}: openat2 confines files"))
    } else {
        Finding::warning(
            CHECK,
            format!("Linux {release} has no openat2"),
            "Linux 5.6 or newer has it; until then every symbolic link in a volume is refused",
        )
    }
}

/// Which layers confine commands here, whether they are enough, and what code can be run.
async fn sandbox(config: &NodeConfig) -> Vec<Finding> {
    const CHECK: &str = "sandbox";
    let exec = &config.spec.exec;
    if !exec.enabled {
        return vec![Finding::good(CHECK, "commands are turned off (spec.exec.enabled)")];
    }
    let sandbox = Sandbox::new(exec);
    let tried = {
        let sandbox = sandbox.clone();
        tokio::task::spawn_blocking(move || (sandbox.tried(), sandbox.missing())).await
    };
    let mend = "see docs/sandbox.md; until then every command is refused";
    let (backend, missing) = match tried {
        Ok((Ok(backend), missing)) => (backend, missing),
        Ok((Err(reason), _)) => return vec![Finding::bad(CHECK, reason, mend)],
        Err(error) => return vec![Finding::bad(CHECK, error.to_string(), mend)],
    };
    let (mut held, mut lacking) = (Vec::new(), Vec::new());
    for (layer, state) in backend.layers().iter() {
        match state {
            LayerState::Held(how) if how.is_empty() => held.push(layer.to_string()),
            LayerState::Held(how) => held.push(format!("{layer} ({how})")),
            LayerState::Missing(reason) => lacking.push(format!("{layer} ({reason})")),
        }
    }
    let held = format!("{} backend: {}", backend.name(), held.join(", "));
    let mut findings = vec![match &missing {
        Some(refusal) => Finding::bad(CHECK, refusal.to_string(), mend),
        None => Finding::good(CHECK, held),
    }];
    if missing.is_none() && !lacking.is_empty() {
        findings.push(Finding::warning(
            CHECK,
            format!("without {}", lacking.join(", ")),
            "nothing, if you can do without; docs/sandbox.md says what each layer stops",
        ));
    }
    let runtimes = format!("code can be run in: {}", Runtimes::look(exec).listed());
    findings.push(Finding::good("runtimes", runtimes));
    findings
}

fn open_files() -> Finding {
    const CHECK: &str = "open files";
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < LOW_FILES {
        return Finding::warning(CHECK, format!("at most {limit}"), "raise it: ulimit -n 65536");
    }
    Finding::good(CHECK, format!("at most {limit}"))
}

async fn ask(data: &Path, running: &NodeFile) -> anyhow::Result<Answer> {
    locate::client(data, running, &Acting::default())?.get("/v1/status").await
}

/// What the running node answered, if one runs.
async fn node(running: Option<(&NodeFile, anyhow::Result<Answer>)>, config: &NodeConfig) -> Finding {
    const CHECK: &str = "node";
    let Some((running, answer)) = running else {
        let listen = config.spec.network.listen;
        return match TcpListener::bind(listen).await {
            Ok(_) => Finding::good(CHECK, format!("not running; {listen} is free")),
            Err(error) => Finding::bad(
                CHECK,
                format!("not running, and {listen} can't be used: {error}"),
                "choose another address with --listen, or stop the program that has it",
            ),
        };
    };
    match answer {
        Ok(Answer::Ok(status)) => Finding::good(
            CHECK,
            format!(
                "version {} answers at {} (process {})",
                status["version"].as_str().unwrap_or("?"),
                running.address,
                running.pid
            ),
        ),
        Ok(Answer::Refused(violation)) => {
            Finding::bad(CHECK, violation.message, "delete DATA/operator.token and restart the node")
        }
        Ok(Answer::ToolFailed(_)) | Err(_) => Finding::bad(
            CHECK,
            format!(
                "process {} holds the data directory and does not answer at {}",
                running.pid, running.address
            ),
            format!("look at its log, or stop it with `kill {}`", running.pid),
        ),
    }
}
