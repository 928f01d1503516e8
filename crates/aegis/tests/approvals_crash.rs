//! A thousand approvals, eight approvers at once, and `kill -9` twenty times: what was agreed to ran once, or is
//! reported as unknown; nothing else ran.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    collections::{HashMap, HashSet},
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{TestNode, cli, data, text, write_config};
use serde_json::{Value, json};

const CALLS: usize = 1000;
const KILLS: usize = 20;
const REQUESTERS: usize = 4;
const APPROVERS: usize = 8;
/// Each request is decided by two approvers, who race.
const SHARES: usize = APPROVERS / 2;

/// Every tenth is turned down.
fn is_rejected(number: usize) -> bool {
    number % 10 == 3
}

/// Running it twice would show: the mark is still there after the first time.
fn edit(number: usize) -> Value {
    let replacement = format!("<mark>{number};");
    json!({"path": format!("f{number}.txt"), "target_content": "<mark>", "replacement_content": replacement})
}

/// What the people know: the answers that reached them.
#[derive(Default)]
struct Known {
    /// Approval by number of the call.
    asked: Mutex<HashMap<usize, String>>,
    /// Who has decided what.
    decided: Mutex<HashSet<(usize, usize)>>,
    /// Answers that came, over all nodes.
    answers: AtomicUsize,
}

struct People {
    address: String,
    requester: String,
    approvers: Vec<String>,
    known: Arc<Known>,
    over: Arc<AtomicBool>,
}

#[test]
fn killed_twenty_times_while_eight_approvers_decide() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    write_config(
        dir.path(),
        "  security_contexts:\n    - name: asks\n      capabilities: [{tool_pattern: \"fs.*\", approval: required}]\n    \
         - name: reviewers\n      capabilities: [{tool_pattern: aegis.approvals}]",
    );
    let (requester, approvers) = prepare(&dir);
    let known = Arc::new(Known::default());
    let all = CALLS * 3;
    for kill in 0..=KILLS {
        let node = TestNode::on(Arc::clone(&dir));
        let over = Arc::new(AtomicBool::new(false));
        let people = Arc::new(People {
            address: node.address.clone(),
            requester: requester.clone(),
            approvers: approvers.clone(),
            known: Arc::clone(&known),
            over: Arc::clone(&over),
        });
        let busy = people.go();
        if kill < KILLS {
            // Somewhere in the next stretch; what was under way when it dies is what matters.
            let enough = (all * (kill + 1)) / (KILLS + 1);
            while known.answers.load(Ordering::Relaxed) < enough && !busy.iter().all(|one| one.is_finished())
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            node.kill();
            over.store(true, Ordering::Relaxed);
            busy.into_iter().for_each(|one| one.join().unwrap());
            continue;
        }
        busy.into_iter().for_each(|one| one.join().unwrap());
        let asked = known.asked.lock().unwrap().clone();
        assert_eq!(asked.len(), CALLS);
        let states = settled(&people, &asked);
        node.stop();
        let unknown = check(&dir, &asked, &states);
        let ran = states.values().filter(|state| *state == "executed").count();
        println!(
            "{CALLS} requests, {KILLS} kills: {ran} ran once, {unknown} unknown, the others were turned down"
        );
    }
}

/// The files that the calls edit, and everybody's tokens.
fn prepare(dir: &Arc<tempfile::TempDir>) -> (String, Vec<String>) {
    let node = TestNode::on(Arc::clone(dir));
    // The workspace comes with its first use.
    assert_eq!(node.call("fs.write", json!({"path": "first.txt", "content": ""})).status, 200);
    let token = |context: &str, user: String| {
        let wanted = json!({"context": context, "user": user});
        let made = node.request("POST", "/v1/tokens", Some(&node.token), Some(&wanted));
        made.json()["token"].as_str().unwrap_or_else(|| panic!("{}", made.body)).to_owned()
    };
    let requester = token("asks", "builder".into());
    let approvers = (0..APPROVERS).map(|number| token("reviewers", format!("reviewer-{number}"))).collect();
    for number in 0..CALLS {
        std::fs::write(node.workspace().join(format!("f{number}.txt")), "<mark>").unwrap();
    }
    node.stop();
    (requester, approvers)
}

impl People {
    /// Everybody at work until all is asked and decided, or the node dies.
    fn go(self: &Arc<Self>) -> Vec<std::thread::JoinHandle<()>> {
        let requesters = (0..REQUESTERS).map(|number| {
            let people = Arc::clone(self);
            std::thread::spawn(move || people.ask(number))
        });
        let approvers = (0..APPROVERS).map(|number| {
            let people = Arc::clone(self);
            std::thread::spawn(move || people.decide(number))
        });
        requesters.chain(approvers).collect()
    }

    fn ask(&self, requester: usize) {
        for number in (requester..CALLS).step_by(REQUESTERS) {
            if self.known.asked.lock().unwrap().contains_key(&number) {
                continue;
            }
            let answer = self.request("POST", "/v1/tools/fs.edit", &self.requester, Some(&edit(number)));
            let Some((status, answer)) = answer else { return };
            // Asked before, its answer lost, and decided since: the call itself tells which request that was.
            let id = match status {
                202 => answer["result"]["approvalRequestId"].as_str().map(str::to_owned),
                _ => match self.find(number) {
                    Some(found) => found,
                    None => return,
                },
            };
            let id = id.unwrap_or_else(|| panic!("{number}: {status} {answer}"));
            self.known.asked.lock().unwrap().insert(number, id);
            self.known.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `None` when the node is gone.
    fn find(&self, number: usize) -> Option<Option<String>> {
        let (_, all) = self.request("GET", "/v1/approvals?limit=1000", &self.requester, None)?;
        let own = |approval: &&Value| approval["arguments"]["path"] == format!("f{number}.txt");
        let found = all["approvals"].as_array().into_iter().flatten().find(own);
        Some(found.and_then(|approval| approval["id"].as_str()).map(str::to_owned))
    }

    fn decide(&self, approver: usize) {
        loop {
            let mine: Vec<(usize, String)> = {
                let decided = self.known.decided.lock().unwrap();
                let asked = self.known.asked.lock().unwrap();
                let open = asked.iter().filter(|(number, _)| {
                    **number % SHARES == approver % SHARES && !decided.contains(&(approver, **number))
                });
                open.map(|(number, id)| (*number, id.clone())).collect()
            };
            let share = (0..CALLS).filter(|number| number % SHARES == approver % SHARES).count();
            let done = self.known.decided.lock().unwrap().iter().filter(|(who, _)| *who == approver).count();
            if done == share {
                return;
            }
            for (number, id) in mine {
                let (word, body) = match is_rejected(number) {
                    true => ("reject", Some(json!({"reason": "not this one"}))),
                    false => ("approve", None),
                };
                let path = format!("/v1/approvals/{id}/{word}");
                let Some((status, answer)) =
                    self.request("POST", &path, &self.approvers[approver], body.as_ref())
                else {
                    return;
                };
                assert_eq!(status, 200, "{number}: {answer}");
                self.known.decided.lock().unwrap().insert((approver, number));
                self.known.answers.fetch_add(1, Ordering::Relaxed);
            }
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// None when the node is gone.
    fn request(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        if self.over.load(Ordering::Relaxed) {
            return None;
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let answer = String::from_utf8(answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, serde_json::from_str(body).ok()?))
    }
}

/// How each request ended.
fn settled(people: &People, asked: &HashMap<usize, String>) -> HashMap<usize, String> {
    let ended = asked.iter().map(|(number, id)| {
        let path = format!("/v1/approvals/{id}?wait=60s");
        let (status, approval) = people.request("GET", &path, &people.requester, None).unwrap();
        assert_eq!(status, 200, "{approval}");
        let state = approval["state"].as_str().unwrap();
        if state == "failed" {
            let message = approval["outcome"]["violation"]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with("unknown: "), "{number}: {approval}");
        }
        (*number, state.to_owned())
    });
    ended.collect()
}

/// Returns of how many nobody knows whether they ran.
fn check(dir: &tempfile::TempDir, asked: &HashMap<usize, String>, states: &HashMap<usize, String>) -> usize {
    let data = data(dir.path());
    let verified = cli(&data, &["audit", "verify", "--json"]);
    assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
    let mut unknown = 0;
    for (number, state) in states {
        let file = data.join("volumes/local/workspace").join(format!("f{number}.txt"));
        let found = std::fs::read_to_string(file).unwrap();
        let (before, after) = ("<mark>".to_owned(), format!("<mark>{number};"));
        match (is_rejected(*number), state.as_str()) {
            (true, "rejected") => assert_eq!(found, before, "{number} ran although a person said no"),
            (false, "executed") => assert_eq!(found, after, "{number} did not run exactly once"),
            (false, "failed") => {
                unknown += 1;
                assert!(found == before || found == after, "{number}: {found}");
            }
            (_, other) => panic!("{number} is {other}"),
        }
    }
    let records: Vec<Value> =
        common::records(&data).into_iter().map(|record| record["entry"].clone()).collect();
    let of = |id: &str, kind: &str, member: &str| {
        let approval = |record: &&Value| {
            let named = record["approval"].as_str().or(record["detail"]["approval"].as_str());
            record["entry"] == kind && named == Some(id)
        };
        let found = records.iter().enumerate().filter(|(_, record)| approval(record));
        found.map(|(at, record)| (at, record[member].clone())).collect::<Vec<_>>()
    };
    for (number, id) in asked {
        let intents = of(id, "intent", "arguments_sha256");
        assert_eq!(intents.len(), usize::from(!is_rejected(*number)), "{number}: {intents:?}");
        assert_eq!(of(id, "call", "call").len(), 1, "{number}: one call, one record");
        let Some((ran_at, digest)) = intents.first() else { continue };
        let agreed = of(id, "node", "detail").into_iter().find(|(at, detail)| {
            at < ran_at && detail["state"] == "approved" && detail["arguments_sha256"] == *digest
        });
        assert!(agreed.is_some(), "{number} ran before anybody had agreed to exactly this");
    }
    unknown
}
