use std::{
    fs::File,
    io::{BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use aegis_core::{
    quantity::counted,
    record::{CallRecord, CallResult, Entry},
};
use aegis_stores::{
    DataDir,
    audit::{self, Filter, Head, LogReader, PublicKey, Report, Source, Status, Stored},
};
use anyhow::Context;
use serde_json::{Value, json, value::RawValue};

use crate::{
    cli::{Acting, Audit, Global, Verdict},
    client::Answer,
    input, locate,
    output::{Ending, harmless, json_line, say},
};

const NOTHING_YET: &str =
    "no records yet; every call leaves one: aegis call fs.list '{\"path\": \"/workspace\"}'";
const NOTHING_LIKE_IT: &str = "no records like that; ask for less, or see all with `aegis audit tail`";
/// How often a followed log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) async fn run(global: &Global, command: &Audit) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Audit::Tail { follow, limit, caller, tool, verdict, since } => {
            let filter = Filter {
                user: caller.as_deref().map(Into::into),
                tool: tool.clone(),
                status: verdict.map(status),
                since: *since,
                ..Filter::default()
            };
            tail(global, filter, *limit, *follow).await
        }
        Audit::Verify { exported, file, key, head } => {
            let file = exported.as_deref().or(file.as_deref());
            verify(global, file, key.as_deref(), head.as_deref()).await
        }
        Audit::Export { file } => export(global, file).await,
        Audit::Head => head(global).await,
    }
}

fn status(verdict: Verdict) -> Status {
    match verdict {
        Verdict::Done => Status::Done,
        Verdict::Failed => Status::Failed,
        Verdict::Refused => Status::Refused,
        Verdict::Unknown => Status::Unknown,
    }
}

fn database(global: &Global) -> anyhow::Result<PathBuf> {
    Ok(DataDir::read_only(locate::data_dir(global)?)?.audit_database())
}

async fn tail(global: &Global, filter: Filter, limit: usize, follow: bool) -> anyhow::Result<Ending> {
    // What a running node has queued belongs to the tail: sealing writes it first.
    let _ = sealed_by_node(global).await;
    let reader = LogReader::open(&database(global)?)?;
    let last = reader.last()?;
    let mut newest = reader.tail(&filter, limit)?;
    newest.reverse();
    newest.iter().for_each(|stored| show(global, stored));
    if newest.is_empty() && !global.json {
        say!("{}", if last == 0 { NOTHING_YET } else { NOTHING_LIKE_IT });
    }
    if !follow {
        return Ok(Ending::Done);
    }
    let mut follow = reader.follow(last, filter);
    loop {
        follow.more()?.iter().for_each(|stored| show(global, stored));
        std::io::stdout().flush()?;
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = tokio::signal::ctrl_c() => return Ok(Ending::Done),
        }
    }
}

fn show(global: &Global, stored: &Stored) {
    if global.json {
        let body = String::from_utf8_lossy(&stored.body);
        match serde_json::from_str::<&RawValue>(&body) {
            Ok(entry) => json_line(&json!({"seq": stored.seq, "hash": stored.hash, "entry": entry})),
            Err(error) => {
                json_line(&json!({"seq": stored.seq, "hash": stored.hash, "unreadable": error.to_string()}));
            }
        }
        return;
    }
    let line = match &stored.entry {
        Ok(Entry::Call(call)) => call_line(call),
        Ok(Entry::Intent(intent)) => {
            format!("{}  intent   {} by {}", intent.time, intent.tool, intent.caller.user)
        }
        Ok(Entry::Node(node)) => {
            let detail = if node.detail.is_empty() {
                String::new()
            } else {
                Value::from(node.detail.clone()).to_string()
            };
            format!("{}  node     {} {detail}", node.time, node.action)
        }
        Err(error) => format!("UNREADABLE: {error}"),
    };
    say!("{:>7}  {}", stored.seq, harmless(line.trim_end()));
}

fn call_line(call: &CallRecord) -> String {
    let said = match &call.result {
        CallResult::Done { bytes } => format!("{bytes} bytes"),
        CallResult::Failed { kind, message } => format!("{kind}: {message}"),
        CallResult::Refused { kind, rule: Some(rule), .. } => format!("{kind} by {rule}"),
        CallResult::Refused { kind, message, rule: None } => format!("{kind}: {message}"),
        CallResult::Unknown => "the node died before the outcome was known".to_owned(),
    };
    format!(
        "{}  {:<7}  {} {} by {} ({}), {} µs: {said}",
        call.time,
        call.result.status(),
        call.tool,
        Value::from(call.arguments.clone()),
        call.caller.user,
        call.caller.context,
        call.micros
    )
}

async fn verify(
    global: &Global,
    file: Option<&Path>,
    key: Option<&Path>,
    kept: Option<&Path>,
) -> anyhow::Result<Ending> {
    let key_file = match key {
        Some(key) => {
            input::open(key)?;
            key.to_owned()
        }
        None => DataDir::read_only(locate::data_dir(global)?)?.audit_public_key(),
    };
    let key = PublicKey::read(key_file)?;
    let kept: Option<Head> = match kept {
        Some(file) => {
            let text = input::text(file)?;
            Some(serde_json::from_str(&text).with_context(|| format!("{} holds no head", file.display()))?)
        }
        None => None,
    };
    let source = match file {
        Some(file) => Source::Export(Box::new(BufReader::with_capacity(1 << 20, input::open(file)?))),
        None => {
            // The newest records are signed first, so that the report covers them.
            let _ = sealed_by_node(global).await;
            Source::Database(database(global)?)
        }
    };
    let report = tokio::task::spawn_blocking(move || audit::verify(source, &key, kept.as_ref())).await??;
    tell(global, &report);
    Ok(if report.is_sound() { Ending::Done } else { Ending::Failed })
}

fn tell(global: &Global, report: &Report) {
    let fault = report.fault.as_ref().map(ToString::to_string);
    if global.json {
        json_line(&json!({
            "sound": report.is_sound(),
            "records": report.records,
            "heads": report.heads,
            "unsigned": report.unsigned,
            "last_head": report.last_head,
            "first_bad_record": report.fault.as_ref().map(|fault| fault.seq),
            "fault": fault,
        }));
        return;
    }
    match fault {
        None => {
            say!(
                "sound: {} in one chain, {}",
                counted(report.records, "record"),
                counted(report.heads, "signed head")
            );
            if report.unsigned > 0 {
                say!("not signed yet: the newest {}", counted(report.unsigned, "record"));
            }
        }
        Some(fault) => {
            say!("NOT SOUND: {fault}");
            say!("sound before it: {}", counted(report.records, "record"));
        }
    }
}

async fn export(global: &Global, file: &Path) -> anyhow::Result<Ending> {
    let _ = sealed_by_node(global).await;
    let database = database(global)?;
    let exported = if file == Path::new("-") {
        audit::export(&database, &mut BufWriter::new(std::io::stdout().lock()))?
    } else {
        let made =
            File::options().write(true).create_new(true).mode(0o600).open(file).with_context(|| {
                format!("can't make {} (an existing file is not replaced)", file.display())
            })?;
        audit::export(&database, &mut BufWriter::with_capacity(1 << 20, made))?
    };
    if global.json && file != Path::new("-") {
        json_line(&json!({"records": exported.records, "heads": exported.heads}));
    } else {
        let (records, heads) = (counted(exported.records, "record"), counted(exported.heads, "head"));
        eprintln!("{records} and {heads} written");
    }
    Ok(Ending::Done)
}

async fn head(global: &Global) -> anyhow::Result<Ending> {
    let head = match sealed_by_node(global).await {
        Some(head) => head,
        None => {
            let head = LogReader::open(&database(global)?)?.head()?;
            serde_json::to_value(head.context("the log has no signed head yet")?)?
        }
    };
    json_line(&head);
    Ok(Ending::Done)
}

/// Asks the running node to write what it has queued and sign it.
pub(super) async fn sealed_by_node(global: &Global) -> Option<Value> {
    let data = locate::data_dir(global).ok()?;
    let running = locate::running(&data)?;
    let client = locate::client(&data, &running, &Acting::default()).ok()?;
    match client.post("/v1/audit/head", &json!({})).await {
        Ok(Answer::Ok(head)) => Some(head),
        _ => None,
    }
}
