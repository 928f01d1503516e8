//! What the server's tools do, or fail to do.

use super::*;

impl Server {
    pub(super) fn call(&self, message: &Value) {
        let params = &message["params"];
        let arguments = &params["arguments"];
        match params["name"].as_str().unwrap_or_default() {
            "echo" => {
                // Built by hand: this one is measured.
                let id = &message["id"];
                let mut result = text(arguments["text"].as_str().unwrap_or_default());
                if Self::modern(message) {
                    result["resultType"] = "complete".into();
                }
                say_bytes(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).as_bytes());
            }
            "slow" => {
                let wait = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(200));
                // Nobody wakes this thread, though it may wake by itself.
                let until = std::time::Instant::now() + wait;
                while let Some(left) = until.checked_duration_since(std::time::Instant::now()) {
                    std::thread::park_timeout(left);
                }
                self.answer(message, text("done at last"));
            }
            "hang" => {
                let mut cancelled = self.cancelled.lock().unwrap_or_else(|e| e.into_inner());
                while !cancelled.contains(&message["id"]) {
                    cancelled = self.cancels.wait(cancelled).unwrap_or_else(|e| e.into_inner());
                }
                let _ = std::io::stderr().lock().write_all(b"hang was cancelled\n");
            }
            "die" => std::process::abort(),
            "huge" => {
                let bytes = arguments["bytes"].as_u64().unwrap_or(64 << 20);
                let id = &message["id"];
                let mut out = std::io::stdout().lock();
                let _ = write!(
                    out,
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":""#
                );
                let piece = vec![b'a'; 64 << 10];
                for _ in 0..bytes >> 16 {
                    if out.write_all(&piece).is_err() {
                        return;
                    }
                }
                let _ = out.write_all(b"\"}]}}\n");
                let _ = out.flush();
            }
            "twice" => {
                self.answer(message, text("first"));
                self.answer(message, text("second"));
            }
            "wrong_id" => {
                say(&json!({"jsonrpc": "2.0", "id": 987_654_321, "result": text("not yours")}));
                say(&json!({"jsonrpc": "2.0", "id": "what", "result": {}}));
                self.answer(message, text("yours"));
            }
            "garbage" => {
                say_bytes(b"DEBUG: this is no message");
                say_bytes(b"{\"jsonrpc\":\"2.0\",");
                say_bytes(b"");
                self.answer(message, text("after garbage"));
            }
            "bad_utf8" => {
                say_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\xfe\"}");
                self.answer(message, text("after bad bytes"));
            }
            "ask" => self.ask(message, "Your name?"),
            "leak" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                let value = std::env::var(name).unwrap_or_default();
                say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                    {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": format!("with {value}")}}));
                say(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params":
                    {"level": "info", "data": {"key": value}}}));
                self.ask(message, &format!("Is {value} yours?"));
            }
            "task" => {
                self.answer(message, json!({"resultType": "task", "taskId": "t1", "status": "working"}));
            }
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for step in 1..=3 {
                    say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                        {"progressToken": token, "progress": step, "total": 3, "message": format!("step {step}")}}));
                }
                self.answer(message, text("progressed"));
            }
            "env" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                let said = std::env::var(name)
                    .map_or_else(|_| "unset".to_owned(), |value| format!("{} bytes", value.len()));
                self.answer(message, text(said));
            }
            "look" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                let said = match std::fs::read_dir(name) {
                    Ok(entries) => {
                        let mut names: Vec<String> = entries
                            .flatten()
                            .map(|one| one.file_name().to_string_lossy().into_owned())
                            .collect();
                        names.sort();
                        Ok(names.join(" "))
                    }
                    Err(_) => std::fs::read_to_string(name),
                };
                self.answer(message, text(said.unwrap_or_else(|error| format!("can't: {:?}", error.kind()))));
            }
            "write" => {
                let name = arguments["name"].as_str().unwrap_or_default();
                let done = std::fs::write(name, "written by a server");
                self.answer(
                    message,
                    text(done.map_or_else(|_| "can't".to_owned(), |()| "written".to_owned())),
                );
            }
            "reach" => {
                let address = arguments["name"].as_str().unwrap_or_default();
                let reached = std::net::TcpStream::connect(address).is_ok();
                self.answer(message, text(if reached { "reached" } else { "can't" }));
            }
            "fetch" => {
                let url = arguments["name"].as_str().unwrap_or_default();
                self.answer(
                    message,
                    text(fetch(url).unwrap_or_else(|error| format!("can't: {:?}", error.kind()))),
                );
            }
            "descriptors" => {
                let own = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
                let mut open: Vec<String> = own
                    .filter_map(|one| {
                        let target = std::fs::read_link(one.path()).ok()?;
                        Some(format!("{} {}", one.file_name().to_string_lossy(), target.display()))
                    })
                    .collect();
                open.sort();
                self.answer(message, text(open.join("\n")));
            }
            "meta" => self.answer(message, text(params["_meta"].to_string())),
            "fail" => {
                let mut result = text("it did not work");
                result["isError"] = true.into();
                self.answer(message, result);
            }
            "flood" => {
                let mut stderr = std::io::stderr().lock();
                for _ in 0..10_000 {
                    let _ = stderr.write_all(&[b'y'; 500]);
                    let _ = stderr.write_all(b"\n");
                }
                // And one line that takes its time to end.
                let _ = stderr.write_all(&vec![b'z'; 1 << 20]);
                self.answer(message, text("flooded"));
            }
            "structured" => {
                let mut result = text("{\"n\":3}");
                result["structuredContent"] = json!({"n": 3});
                self.answer(message, result);
            }
            "lies" => {
                let mut result = text("{\"n\":\"three\"}");
                result["structuredContent"] = json!({"n": "three"});
                self.answer(message, result);
            }
            "changed" => {
                say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                self.answer(message, text("told"));
            }
            other => self.error(message, -32602, &format!("no tool {other}")),
        }
    }

    fn ask(&self, message: &Value, what: &str) {
        let question = json!({"mode": "form", "message": what, "requestedSchema":
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}});
        if Self::modern(message) {
            let answer = &message["params"]["inputResponses"]["who"];
            if answer.is_null() {
                return self.answer(
                    message,
                    json!({"resultType": "input_required", "requestState": "s1",
                        "inputRequests": {"who": {"method": "elicitation/create", "params": question}}}),
                );
            }
            return self.answer(message, text(format!("hello {}", answer["content"]["name"])));
        }
        let key = format!("q-{}", message["id"]);
        say(&json!({"jsonrpc": "2.0", "id": key, "method": "elicitation/create", "params": question}));
        let mut answers = self.answers.lock().unwrap_or_else(|e| e.into_inner());
        let answer = loop {
            if let Some(answer) = answers.remove(&key) {
                break answer;
            }
            answers = self.answered.wait(answers).unwrap_or_else(|e| e.into_inner());
        };
        drop(answers);
        match answer.get("result") {
            Some(result) => self.answer(message, text(format!("hello {}", result["content"]["name"]))),
            None => self.answer(message, text(format!("nobody there: {}", answer["error"]["message"]))),
        }
    }
}
