//! Files and listeners that are too much for memory: the node's own stays within bounds.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
};

use common::{TestNode, wait_until};
use serde_json::{Value, json};

const GIBIBYTE: u64 = 1 << 30;
/// What a node may have taken, at its highest, after all of it: an eighth of the file.
const MOST_MEMORY: u64 = 128 << 20;

/// The most memory that the node ever had in use.
fn peak_memory(node: &TestNode) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_sparse_gibibyte_is_searched_and_refused_within_bounds() {
    let node = TestNode::start();
    node.call("fs.write", json!({"path": "small", "content": "needle\n"}));
    File::create(node.workspace().join("huge")).unwrap().set_len(GIBIBYTE).unwrap();
    let found = node.call("fs.grep", json!({"pattern": "needle", "path": "."}));
    assert_eq!((found.status, found.result()), (200, json!("small:1:needle")), "{}", found.body);
    let read = node.call("fs.read", json!({"path": "huge"}));
    assert_eq!(read.result()["error_kind"], "FileTooLarge", "{}", read.body);
    let edit = json!({"path": "huge", "target_content": "a", "replacement_content": "b"});
    assert_eq!(node.call("fs.edit", edit).result()["error_kind"], "FileTooLarge");
    assert!(peak_memory(&node) < MOST_MEMORY, "{} MiB", peak_memory(&node) >> 20);
}

#[test]
fn a_gibibyte_of_lines_is_searched_within_bounds() {
    let node = TestNode::start();
    node.call("fs.list", json!({"path": "."}));
    let mut lines = BufWriter::new(File::create(node.workspace().join("lines")).unwrap());
    let block = "a line of a log that says nothing in particular\n".repeat(1 << 15);
    let mut written = 0;
    while written < GIBIBYTE {
        lines.write_all(block.as_bytes()).unwrap();
        written += block.len() as u64;
    }
    lines.write_all(b"the needle\n").unwrap();
    lines.flush().unwrap();
    let found = node.call("fs.grep", json!({"pattern": "needle", "path": "."}));
    let number = written / 48 + 1;
    assert_eq!(found.result(), json!(format!("lines:{number}:the needle")), "{}", found.body);
    // Every line is a hit: it stops at its limit and says so.
    let cut = node.call("fs.grep", json!({"pattern": "line|needle", "path": "."})).result();
    assert!(cut.as_str().unwrap().contains("[cut: more than 1000 matches"), "{cut}");
    assert!(peak_memory(&node) < MOST_MEMORY, "{} MiB", peak_memory(&node) >> 20);
}

/// Calls on one connection, one after the other.
struct Caller {
    stream: BufReader<TcpStream>,
    request: String,
}

impl Caller {
    fn new(node: &TestNode, tool: &str, arguments: &Value) -> Self {
        let body = arguments.to_string();
        let request = format!(
            "POST /v1/tools/{tool} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
            node.address,
            node.token,
            body.len()
        );
        Self { stream: BufReader::new(node.connect()), request }
    }

    fn call(&mut self) {
        self.stream.get_mut().write_all(self.request.as_bytes()).unwrap();
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        self.stream.read_exact(&mut vec![0; length]).unwrap();
    }
}

/// What a listener has been told.
#[derive(Default)]
struct Heard {
    events: u64,
    missed: u64,
    lagged: u64,
}

fn listen(events: impl BufRead, heard: &Mutex<Heard>) {
    let mut name = String::new();
    for line in events.lines() {
        let Ok(line) = line else { return };
        let mut heard = heard.lock().unwrap();
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut name);
            heard.events += u64::from(event != "lagged");
        } else if let Some(data) = line.strip_prefix("data: ")
            && name == "lagged"
        {
            let data: Value = serde_json::from_str(data).unwrap();
            heard.lagged += 1;
            heard.missed += data["missed"].as_u64().unwrap();
        }
    }
}

/// A listener that does not read until the node has dropped events for it is told how many, and the record has
/// everything.
#[test]
fn a_listener_that_falls_behind_is_told_and_the_record_is_complete() {
    const CALLERS: usize = 4;
    const CALLS_EACH: usize = 1000;
    const EVENTS_PER_CALL: u64 = 3;
    let node = TestNode::start();
    // A long path makes long events: the kernel's buffers are full the sooner.
    let path = format!("{}/file", vec!["d".repeat(250); 14].join("/"));
    node.call("fs.write", json!({"path": path, "content": "x"}));
    let deaf = node.subscribe();
    let arguments = json!({"path": path});
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut caller = Caller::new(&node, "fs.read", &arguments);
                (0..CALLS_EACH).for_each(|_| caller.call());
            });
        }
    });
    let calls = CALLERS * CALLS_EACH;
    let heard = Arc::new(Mutex::new(Heard::default()));
    let listening = Arc::clone(&heard);
    std::thread::spawn(move || listen(deaf, &listening));
    wait_until(|| {
        let heard = heard.lock().unwrap();
        heard.events + heard.missed >= calls as u64 * EVENTS_PER_CALL
    });
    let heard = heard.lock().unwrap();
    assert!(heard.lagged > 0, "{} events came through", heard.events);
    assert_eq!(heard.events + heard.missed, calls as u64 * EVENTS_PER_CALL, "none is missed unsaid");
    let recorded = node.records().iter().filter(|record| record["entry"]["tool"] == "fs.read").count();
    assert_eq!(recorded, calls);
    assert!(peak_memory(&node) < MOST_MEMORY, "{} MiB", peak_memory(&node) >> 20);
}
