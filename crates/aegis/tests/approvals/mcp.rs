use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use super::{Scene, token};
use crate::common::{AEGIS, Answer, TestNode, write_config};

const PROTOCOL: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn tasks() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn form() -> Value {
    json!({"elicitation": {}})
}

/// A request of the stateless era.
fn modern(node: &TestNode, token: &str, method: &str, capabilities: &Value, mut params: Value) -> Answer {
    params["_meta"] = json!({PROTOCOL: "2026-07-28", CAPABILITIES: capabilities});
    let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or("-").to_owned();
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
        ("mcp-name", name.as_str()),
    ];
    node.raw("POST", "/mcp", Some(token), &headers, body.as_bytes())
}

fn write(path: &str) -> Value {
    json!({"name": "fs.write", "arguments": {"path": path, "content": "hello\n"}})
}

fn id_of(result: &Value) -> String {
    result["_meta"]["aegis/approval"]["id"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// The last message of an answer, be it JSON or events.
fn last(answer: &Answer) -> Value {
    match answer.body.strip_prefix('{') {
        Some(_) => answer.json(),
        None => {
            let data = answer.body.lines().rev().find_map(|line| line.strip_prefix("data: "));
            serde_json::from_str(data.unwrap_or_else(|| panic!("{}", answer.body))).unwrap()
        }
    }
}

#[test]
fn a_question_that_the_client_answers_by_asking_again() {
    let scene = Scene::new();
    let (node, agent) = (&scene.node, &scene.agent);
    let asked = modern(node, agent, "tools/call", &form(), write("a.txt")).json();
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let question = &result["inputRequests"]["approval"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["mode"], "form");
    let id = id_of(result);
    assert!(question["params"]["message"].as_str().unwrap().contains(&id), "{question}");

    let mut retry = write("a.txt");
    retry["requestState"] = result["requestState"].clone();
    // Without an answer it is asked again.
    let unanswered = modern(node, agent, "tools/call", &form(), retry.clone()).json();
    assert_eq!(unanswered["result"]["resultType"], "input_required");
    assert!(unanswered["result"]["inputRequests"].is_object());

    retry["inputResponses"] = json!({"approval": {"action": "accept", "content": {}}});
    let answered = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| modern(node, agent, "tools/call", &form(), retry.clone()));
        scene.approve(&id);
        last(&waiting.join().unwrap())
    });
    let result = &answered["result"];
    assert_eq!(
        (&result["resultType"], &result["isError"]),
        (&json!("complete"), &json!(false)),
        "{answered}"
    );
    assert_eq!(result["structuredContent"]["bytes_written"], 6);
    assert_eq!(result["_meta"]["aegis/approval"]["state"], "executed");
    assert_eq!(scene.content("a.txt").as_deref(), Some("hello\n"));

    // The state says which request is meant and nothing else: it is no key.
    let other = token(node, json!({"context": "careful", "user": "bob"}));
    assert_eq!(modern(node, &other, "tools/call", &form(), retry.clone()).json()["error"]["code"], -32602);
    let mut elsewhere = write("b.txt");
    elsewhere["requestState"] = retry["requestState"].clone();
    assert_eq!(modern(node, agent, "tools/call", &form(), elsewhere).json()["error"]["code"], -32602);
    for nonsense in [json!("e30"), json!(5), json!("!"), json!("x".repeat(5000))] {
        let mut wrong = write("a.txt");
        wrong["requestState"] = nonsense;
        assert_eq!(modern(node, agent, "tools/call", &form(), wrong).json()["error"]["code"], -32602);
    }
}

#[test]
fn declining_takes_the_request_back() {
    let scene = Scene::new();
    let asked = modern(&scene.node, &scene.agent, "tools/call", &form(), write("a.txt")).json();
    let id = id_of(&asked["result"]);
    let mut retry = write("a.txt");
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = json!({"approval": {"action": "decline"}});
    let ended = modern(&scene.node, &scene.agent, "tools/call", &form(), retry).json();
    assert_eq!(ended["result"]["isError"], true, "{ended}");
    assert_eq!(ended["result"]["_meta"]["aegis/approval"]["state"], "cancelled");
    assert_eq!(scene.decide(&scene.node.token, &id, "approve").status, 409);
}

#[test]
fn a_reason_reaches_the_model() {
    let scene = Scene::new();
    let asked = modern(&scene.node, &scene.agent, "tools/call", &form(), write("a.txt")).json();
    scene.decide(&scene.node.token, &id_of(&asked["result"]), "reject");
    let mut retry = write("a.txt");
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = json!({"approval": {"action": "accept"}});
    let ended = modern(&scene.node, &scene.agent, "tools/call", &form(), retry).json();
    assert_eq!(ended["result"]["isError"], true, "{ended}");
    assert!(ended["result"]["content"][0]["text"].as_str().unwrap().contains("not there"), "{ended}");
    let again = modern(&scene.node, &scene.agent, "tools/call", &json!({}), write("a.txt")).json();
    assert!(again["result"]["content"][0]["text"].as_str().unwrap().contains("not there"), "{again}");
}

#[test]
fn clients_that_can_open_pages_are_sent_to_one() {
    let scene = Scene::new();
    let url = json!({"elicitation": {"form": {}, "url": {}}});
    let asked = modern(&scene.node, &scene.agent, "tools/call", &url, write("a.txt")).json();
    let params = &asked["result"]["inputRequests"]["approval"]["params"];
    assert_eq!(params["mode"], "url", "{asked}");
    let page = params["url"].as_str().unwrap().strip_prefix(&format!("http://{}", scene.node.address));
    assert_eq!(scene.node.request("GET", page.unwrap(), None, None).status, 200);
}

#[test]
fn a_task_waits_and_has_the_result() {
    let scene = Scene::new();
    let (node, agent) = (&scene.node, &scene.agent);
    let created = modern(node, agent, "tools/call", &tasks(), write("a.txt")).json();
    let task = &created["result"];
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{created}");
    let id = task["taskId"].as_str().unwrap();
    let about = |method: &str, token: &str, capabilities: &Value| {
        modern(node, token, method, capabilities, json!({"taskId": id, "inputResponses": {}})).json()
    };
    assert_eq!(about("tasks/get", agent, &tasks())["result"]["status"], "working");
    assert_eq!(about("tasks/update", agent, &tasks())["result"]["resultType"], "complete");
    assert_eq!(about("tasks/get", agent, &form())["error"]["code"], -32021);
    let other = token(node, json!({"context": "careful", "user": "bob"}));
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(about(method, &other, &tasks())["error"]["code"], -32602);
    }
    scene.approve(id);
    scene.ended(id);
    let done = about("tasks/get", agent, &tasks());
    let done = &done["result"];
    assert_eq!((&done["resultType"], &done["status"]), (&json!("complete"), &json!("completed")), "{done}");
    assert_eq!(done["result"]["structuredContent"]["bytes_written"], 6);
    assert_eq!(done["result"]["isError"], false);

    let second = modern(node, agent, "tools/call", &tasks(), write("b.txt")).json();
    let second = second["result"]["taskId"].as_str().unwrap();
    let cancelled = modern(node, agent, "tasks/cancel", &tasks(), json!({"taskId": second})).json();
    assert_eq!(cancelled["result"]["resultType"], "complete");
    let now = modern(node, agent, "tasks/get", &tasks(), json!({"taskId": second})).json();
    assert_eq!(now["result"]["status"], "cancelled", "{now}");
    let discovered = modern(node, agent, "server/discover", &json!({}), json!({})).json();
    assert!(discovered["result"]["capabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object());
}

#[test]
fn others_hear_that_it_waits_and_ask_again() {
    let scene = Scene::new();
    let (node, agent) = (&scene.node, &scene.agent);
    let asked = modern(node, agent, "tools/call", &json!({}), write("a.txt")).json();
    let result = &asked["result"];
    assert_eq!((&result["resultType"], &result["isError"]), (&json!("complete"), &json!(true)), "{asked}");
    assert!(result.get("structuredContent").is_none());
    let told: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(told["pendingApproval"], true);
    assert!(told["hint"].as_str().unwrap().contains("again"), "{told}");
    let id = id_of(result);
    let answered = std::thread::scope(|scope| {
        let again = scope.spawn(|| modern(node, agent, "tools/call", &json!({}), write("a.txt")));
        scene.approve(&id);
        last(&again.join().unwrap())
    });
    assert_eq!(answered["result"]["structuredContent"]["bytes_written"], 6, "{answered}");
}

/// A session of 2025-11-25 whose client can be asked.
fn session(scene: &Scene) -> String {
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params":
        {"protocolVersion": "2025-11-25", "capabilities": form(), "clientInfo": {"name": "t", "version": "1"}}});
    let begun = scene.node.raw("POST", "/mcp", Some(&scene.agent), &HEADERS, body.to_string().as_bytes());
    begun.header("mcp-session-id").unwrap().to_owned()
}

const HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

fn post(scene: &Scene, token: &str, session: &str, body: &Value) -> Answer {
    let headers = [HEADERS[0], HEADERS[1], ("mcp-session-id", session)];
    scene.node.raw("POST", "/mcp", Some(token), &headers, body.to_string().as_bytes())
}

/// A request whose answer comes as events, read one by one.
struct Events(BufReader<TcpStream>);

impl Events {
    fn of(scene: &Scene, session: &str, body: &Value) -> Self {
        let body = body.to_string();
        let mut stream = scene.node.connect();
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-session-id: {session}\r\ncontent-length: {}\r\n\r\n{body}",
            scene.node.address,
            scene.agent,
            body.len(),
        )
        .unwrap();
        Self(BufReader::new(stream))
    }

    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.0.read_to_string(&mut rest).unwrap();
        rest
    }
}

#[test]
fn older_clients_are_asked_on_the_stream_of_their_answer() {
    let scene = Scene::new();
    let own = session(&scene);
    let call = |id: u32, path: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": write(path)});
    let mut stream = Events::of(&scene, &own, &call(1, "a.txt"));
    let question = stream.next();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(question["params"]["requestedSchema"]["type"], "object");
    let accept = |question: &Value, action: &str| json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": action}});
    // Neither another session of the same client nor another's token answers it.
    let another = session(&scene);
    assert_eq!(post(&scene, &scene.agent, &another, &accept(&question, "decline")).status, 202);
    let bob = token(&scene.node, json!({"context": "careful", "user": "bob"}));
    assert_eq!(post(&scene, &bob, &own, &accept(&question, "decline")).status, 404);
    assert_eq!(post(&scene, &scene.agent, &own, &accept(&question, "accept")).status, 202);
    let waiting = scene.node.request("GET", "/v1/approvals", Some(&scene.agent), None).json();
    assert_eq!(waiting["approvals"][0]["state"], "pending", "accepting approves nothing: {waiting}");
    scene.approve(waiting["approvals"][0]["id"].as_str().unwrap());
    let answer = stream.next();
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(1), &json!(false)), "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["bytes_written"], 6);
    assert_eq!(stream.rest().trim_matches(['\r', '\n', '0']), "");

    let mut stream = Events::of(&scene, &own, &call(2, "b.txt"));
    let question = stream.next();
    post(&scene, &scene.agent, &own, &accept(&question, "decline"));
    let answer = stream.next();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(answer["result"]["_meta"]["aegis/approval"]["state"], "cancelled");

    let mut stream = Events::of(&scene, &own, &call(3, "c.txt"));
    let question = stream.next();
    let failed = json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no user"}});
    post(&scene, &scene.agent, &own, &failed);
    let answer = stream.next();
    assert_eq!(answer["result"]["_meta"]["aegis/approval"]["state"], "pending", "{answer}");
}

/// `aegis mcp`, spoken to on its pipes.
struct Pipe {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Pipe {
    fn new(scene: &Scene) -> Self {
        let mut command = Command::new(AEGIS);
        command.args(["mcp", "--data"]).arg(scene.node.data()).env("AEGIS_TOKEN", &scene.agent);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.to, "{message}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_bridge_carries_questions_and_answers() {
    let scene = Scene::new();
    let mut pipe = Pipe::new(&scene);
    pipe.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params":
        {"protocolVersion": "2025-11-25", "capabilities": form(), "clientInfo": {"name": "t", "version": "1"}}}));
    assert_eq!(pipe.hear()["id"], 0);
    pipe.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": write("a.txt")}));
    let question = pipe.hear();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    pipe.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}}));
    let waiting = scene.node.request("GET", "/v1/approvals", Some(&scene.agent), None).json();
    scene.approve(waiting["approvals"][0]["id"].as_str().unwrap());
    let answer = pipe.hear();
    assert_eq!(answer["result"]["structuredContent"]["bytes_written"], 6, "{answer}");

    let mut params = write("b.txt");
    params["_meta"] = json!({PROTOCOL: "2026-07-28", CAPABILITIES: tasks()});
    pipe.say(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}));
    let task = pipe.hear()["result"]["taskId"].clone();
    let meta = json!({PROTOCOL: "2026-07-28", CAPABILITIES: tasks()});
    pipe.say(
        &json!({"jsonrpc": "2.0", "id": 3, "method": "tasks/get", "params": {"taskId": task, "_meta": meta}}),
    );
    assert_eq!(pipe.hear()["result"]["status"], "working");
}

#[test]
fn without_a_node_of_its_own_standing_nothing_waits() {
    let dir = tempfile::tempdir().unwrap();
    write_config(dir.path(), super::CAREFUL);
    let mut command = Command::new(AEGIS);
    command.args(["mcp", "--context", "careful", "--config"]).arg(dir.path().join("config.yaml"));
    command.env("AEGIS_DATA", dir.path().join("data")).env_remove("AEGIS_TOKEN");
    let mut pipe = Pipe::of(command);
    let mut params = write("a.txt");
    params["_meta"] = json!({PROTOCOL: "2026-07-28", CAPABILITIES: form()});
    pipe.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
    let told = pipe.hear();
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert!(told["result"]["content"][0]["text"].as_str().unwrap().contains("aegis up"), "{told}");
}
