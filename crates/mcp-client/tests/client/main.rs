//! The client against a real process and real sockets, well-behaved and not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixture;
mod hosted;
mod http;
mod stdio;

use std::sync::{Arc, Mutex};

use aegis_mcp_client::{Client, Command, Error, Handler, Identity, Limits, Preference, RpcError};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json, value::RawValue};

/// Not a test: the server that the tests start. Its arguments come in a variable, since the harness has its own.
#[test]
#[ignore = "started by the tests as a server"]
fn fixture_server() {
    let arguments = std::env::var("FIXTURE_ARGUMENTS").unwrap_or_default();
    fixture::serve(arguments.split_whitespace().map(ToOwned::to_owned));
}

pub(crate) fn command(arguments: &str) -> Command {
    Command {
        program: std::env::current_exe().unwrap().display().to_string(),
        args: ["fixture_server", "--exact", "--ignored", "--nocapture", "--quiet"]
            .map(str::to_owned)
            .to_vec(),
        environment: vec![
            ("FIXTURE_ARGUMENTS".into(), arguments.into()),
            ("SECRET".into(), "hunter2".into()),
        ],
        directory: None,
        preference: Preference::Any,
    }
}

pub(crate) fn identity() -> Identity {
    let capabilities = json!({"elicitation": {"form": {}}});
    Identity::new("test", "1", capabilities.as_object().unwrap_or(&Map::new()))
}

/// Remembers what it heard, and answers every question with a name.
#[derive(Default, Debug)]
pub(crate) struct Heard {
    pub(crate) notices: Mutex<Vec<String>>,
    pub(crate) complaints: Mutex<Vec<String>>,
    pub(crate) strays: Mutex<Vec<String>>,
}

impl Handler for Heard {
    fn asked<'a>(
        &'a self,
        method: &'a str,
        _params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        Box::pin(async move {
            match method {
                "elicitation/create" => Ok(raw(&json!({"action": "accept", "content": {"name": "anna"}}))),
                other => Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("no {other}"))),
            }
        })
    }

    fn noticed(&self, method: &str, _params: Option<&RawValue>) {
        self.notices.lock().unwrap().push(method.to_owned());
    }

    fn stderr(&self, line: &str) {
        self.complaints.lock().unwrap().push(line.to_owned());
    }

    fn stray(&self, text: &str) {
        self.strays.lock().unwrap().push(text.to_owned());
    }
}

pub(crate) fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

pub(crate) fn deaf() -> Arc<dyn Handler> {
    Arc::new(())
}

pub(crate) async fn start(arguments: &str) -> Client {
    Client::spawn(&command(arguments), &identity(), &Limits::default(), &deaf()).await.unwrap()
}

pub(crate) async fn call(client: &Client, tool: &str, arguments: Value) -> Result<Value, Error> {
    let params = raw(&json!({"name": tool, "arguments": arguments}));
    let request = aegis_mcp_client::Request::new("tools/call").params(&params).about(tool);
    client.request(request).await.map(|result| serde_json::from_str(result.get()).unwrap())
}

pub(crate) fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
