//! `kill -9` while 64 callers write: nothing acknowledged is lost, nothing is half written, the chain holds.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use common::{TestNode, cli, data, text};
use serde_json::{Value, json};

const ROUNDS: u64 = 100;
const CALLERS: usize = 64;

/// What one caller knows of its own file: the content of the last acknowledged write, and what it tried since then
/// without hearing back.
#[derive(Default, Clone)]
struct Known {
    acknowledged: Option<String>,
    tried: Vec<String>,
}

#[test]
fn killed_a_hundred_times() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let known = Arc::new(Mutex::new(vec![Known::default(); CALLERS]));
    let mut acknowledged_in_all = 0;
    for round in 0..ROUNDS {
        let node = TestNode::on(Arc::clone(&dir));
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (address, token) = (node.address.clone(), node.token.clone());
                let (known, calls, over) = (Arc::clone(&known), Arc::clone(&calls), Arc::clone(&over));
                std::thread::spawn(move || {
                    write_until_killed(caller, round, &address, &token, &known, &calls, &over);
                })
            })
            .collect();
        // In the thick of it, and at another moment each round: some rounds die before the first answer.
        let enough = usize::try_from((round * 37) % 100).unwrap();
        for _ in 0..2000 {
            if calls.lock().unwrap().len() >= enough {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        node.kill();
        over.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.join().unwrap();
        }
        check_files(&dir, &known.lock().unwrap());
        let calls = calls.lock().unwrap();
        acknowledged_in_all += calls.len();
        check_records(&dir, &calls);
    }
    println!("{ROUNDS} kills, {acknowledged_in_all} acknowledged writes, none lost");
    assert!(acknowledged_in_all > ROUNDS as usize, "the callers hardly wrote anything");
    // A last start settles what the last kill left open: every intent has its outcome.
    let (_, dir) = TestNode::on(dir).stop();
    let records = common::records(&data(dir.path()));
    let of = |kind: &str| -> HashSet<String> {
        let of_kind = records.iter().filter(|record| record["entry"]["entry"] == kind);
        of_kind.map(|record| record["entry"]["call"].as_str().unwrap().to_owned()).collect()
    };
    assert!(of("intent").is_subset(&of("call")));
    let ended = records.iter().filter(|record| record["entry"]["entry"] == "call").count();
    assert_eq!(ended, of("call").len(), "one call, one record");
}

fn write_until_killed(
    caller: usize,
    round: u64,
    address: &str,
    token: &str,
    known: &Mutex<Vec<Known>>,
    calls: &Mutex<Vec<String>>,
    over: &AtomicBool,
) {
    let Ok(stream) = TcpStream::connect(address) else { return };
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let content = content(caller, round, turn);
        known.lock().unwrap()[caller].tried.push(content.clone());
        let body = json!({"path": format!("c{caller}/file.txt"), "content": content}).to_string();
        let head = format!(
            "POST /v1/tools/fs.write HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).is_err() {
            return;
        }
        let Some(answer) = read_json(&mut reader) else { return };
        let call = answer["call"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        assert_eq!(answer["is_error"], false, "{answer}");
        known.lock().unwrap()[caller] = Known { acknowledged: Some(content), tried: Vec::new() };
        calls.lock().unwrap().push(call);
    }
}

/// A text that shows whether it is whole: its length first, then that many of one letter.
fn content(caller: usize, round: u64, turn: usize) -> String {
    let length = 1 + (caller * 7919 + turn * 104_729) % 20_000;
    let letter = char::from(b'a' + u8::try_from((round as usize + turn) % 26).unwrap());
    format!("{length}:{round}:{turn}:{}", letter.to_string().repeat(length))
}

fn read_json(reader: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

/// Each file holds the last acknowledged content or one that was under way later, whole.
fn check_files(dir: &tempfile::TempDir, known: &[Known]) {
    let workspace = data(dir.path()).join("volumes/local/workspace");
    for (caller, known) in known.iter().enumerate() {
        let found = std::fs::read_to_string(workspace.join(format!("c{caller}/file.txt"))).ok();
        let shown = found.as_deref().map(|text| &text[..text.len().min(40)]);
        let tried = found.as_ref().is_some_and(|found| known.tried.contains(found));
        assert!(found == known.acknowledged || tried, "caller {caller} found {shown:?}");
    }
}

/// The chain verifies and every acknowledged call has its record.
fn check_records(dir: &tempfile::TempDir, acknowledged: &[String]) {
    let data = data(dir.path());
    let verified = cli(&data, &["audit", "verify", "--json"]);
    assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
    let output =
        cli(&data, &["audit", "tail", "--json", "--limit", &(acknowledged.len() * 2 + 2000).to_string()]);
    let mut statuses = HashMap::new();
    for line in text(&output.stdout).lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["entry"]["entry"] == "call" {
            let call = record["entry"]["call"].as_str().unwrap().to_owned();
            statuses.insert(call, record["entry"]["result"]["status"].as_str().unwrap().to_owned());
        }
    }
    for call in acknowledged {
        assert_eq!(
            statuses.get(call).map(String::as_str),
            Some("done"),
            "no record of the acknowledged {call}"
        );
    }
}
