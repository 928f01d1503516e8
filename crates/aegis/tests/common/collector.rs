//! A trace collector for tests.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::{
    io::{BufReader, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use serde_json::Value;

use crate::common::read_request;

/// A collector on loopback that keeps what it is sent: heads and spans.
pub(crate) struct Collector {
    pub(crate) url: String,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    /// Answers with these statuses one after the other, and with the last for ever.
    pub(crate) fn start(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (heads, spans) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (kept_heads, kept_spans) = (Arc::clone(&heads), Arc::clone(&spans));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((head, body)) = read_request(&mut reader) {
                    let number = kept_heads.lock().unwrap().len();
                    kept_heads.lock().unwrap().push(head.to_lowercase());
                    let status = statuses[number.min(statuses.len() - 1)];
                    if status == 200 {
                        let sent: Value = serde_json::from_slice(&body).unwrap();
                        let scope = &sent["resourceSpans"][0]["scopeSpans"][0];
                        kept_spans.lock().unwrap().extend(scope["spans"].as_array().unwrap().clone());
                    }
                    write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\n{{}}").unwrap();
                }
            }
        });
        Self { url, heads, spans }
    }

    pub(crate) fn config(&self) -> String {
        format!(
            "  observability: {{otlp: {{endpoint: '{}', interval: 50ms, headers: {{X-Team: tools}}, credentials: {{X-Key: 'secret:otlp/key'}}}}}}",
            self.url
        )
    }

    pub(crate) fn spans(&self) -> Vec<Value> {
        self.spans.lock().unwrap().clone()
    }

    /// The span of a call, by the name of its tool.
    pub(crate) fn of(&self, tool: &str) -> Option<Value> {
        let is_tool = |span: &Value| attribute(span, "gen_ai.tool.name").as_deref() == Some(tool);
        self.spans().into_iter().find(is_tool)
    }
}

pub(crate) fn attribute(span: &Value, key: &str) -> Option<String> {
    let all = span["attributes"].as_array()?;
    let found = all.iter().find(|attribute| attribute["key"] == key)?;
    found["value"]["stringValue"].as_str().map(str::to_owned)
}
