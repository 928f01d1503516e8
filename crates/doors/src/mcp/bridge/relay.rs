//! What the node answered, as lines for the client.

use axum::http::{StatusCode, header};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::node::{self, Answered, Gone};
use crate::mcp::fault::Fault;

/// More than any event of a node.
const LARGEST_EVENT: usize = 256 << 20;

/// Writes an answer to the client. `id` is that of the request, if it was one: it is answered in any case.
pub(super) async fn answer(response: Answered, id: Option<&str>, outbox: &mpsc::Sender<Vec<u8>>) {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let told = match kind {
        Some(kind) if kind.starts_with("text/event-stream") => events(response, outbox).await,
        _ => match node::body(response).await {
            // Taken note of; nothing follows.
            Ok(body) if body.is_empty() && status.is_success() => return,
            Ok(body) => {
                let _ = outbox.send(reply(status, &body, id)).await;
                return;
            }
            Err(gone) => Err(gone),
        },
    };
    let lost = match told {
        Ok(()) => return,
        Err(gone) => gone,
    };
    let _ = outbox.send(lost.fault().render(id)).await;
}

/// The members by which a message is recognised.
#[derive(Deserialize)]
struct Outline {
    jsonrpc: Option<Value>,
    id: Option<Value>,
    method: Option<Value>,
    error: Option<Value>,
}

fn reply(status: StatusCode, body: &Bytes, id: Option<&str>) -> Vec<u8> {
    let outline = serde_json::from_slice::<Outline>(body);
    match outline {
        // Refused before anybody looked at the message: the id is ours to add.
        Ok(Outline { id: None, error: Some(error), .. }) => error_for(status, &error, id),
        Ok(Outline { jsonrpc: Some(_), .. }) => one_line(body),
        _ if body.trim_ascii_start().starts_with(b"[") => one_line(body),
        _ => {
            let shown: String = String::from_utf8_lossy(body).chars().take(200).collect();
            Fault::new(status, -32603, format!("the node answered {status}: {shown}")).render(id)
        }
    }
}

/// As [`reply`], for an answer with a body that was read already.
pub(super) fn addressed(body: &Bytes, id: Option<&str>) -> Vec<u8> {
    reply(StatusCode::OK, body, id)
}

fn error_for(status: StatusCode, error: &Value, id: Option<&str>) -> Vec<u8> {
    let fault = Fault {
        status,
        code: error["code"].as_i64().unwrap_or(-32603),
        message: error["message"]
            .as_str()
            .map_or_else(|| format!("the node answered {status}"), str::to_owned),
        data: error.get("data").cloned().map(Box::new),
    };
    fault.render(id)
}

/// The same JSON without line breaks.
fn one_line(body: &Bytes) -> Vec<u8> {
    if !body.contains(&b'\n') && !body.contains(&b'\r') {
        return body.to_vec();
    }
    serde_json::from_slice::<Value>(body)
        .map_or_else(|_| body.to_vec(), |value| value.to_string().into_bytes())
}

/// Passes events on as they come. Fails if they end before the answer did.
pub(super) async fn events(response: Answered, outbox: &mpsc::Sender<Vec<u8>>) -> Result<(), Gone> {
    let mut body = response.into_body();
    let mut reader = Events::default();
    let mut seen_any = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Gone::BrokenOff(error.to_string()))?;
        let Ok(chunk) = frame.into_data() else { continue };
        seen_any = true;
        for event in reader.feed(&chunk)? {
            // A question to the client has an id too.
            let ends = serde_json::from_slice::<Outline>(&event)
                .is_ok_and(|outline| outline.id.is_some() && outline.method.is_none());
            let _ = outbox.send(one_line(&event.into())).await;
            if ends {
                return Ok(());
            }
        }
    }
    // A stream without a word is how the node drops a request that was withdrawn.
    if seen_any { Err(Gone::BrokenOff("the stream ended without a result".into())) } else { Ok(()) }
}

/// Splits a stream into the data of its events.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
}

impl Events {
    fn feed(&mut self, chunk: &[u8]) -> Result<Vec<Vec<u8>>, Gone> {
        let mut events = Vec::new();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len() + self.data.len() > LARGEST_EVENT {
                return Err(Gone::BrokenOff(format!("an event was larger than {LARGEST_EVENT} bytes")));
            }
            if !piece.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = line.trim_ascii_end();
            if line.is_empty() {
                if !self.data.is_empty() {
                    events.push(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(data.trim_ascii_start());
            }
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_they_are_cut() {
        let stream =
            b": hi\n\ndata: {\"a\":1}\n\nevent: message\r\ndata:{\"b\":\r\ndata: 2}\r\n\r\ndata: {\"c\"";
        for size in 1..stream.len() {
            let mut reader = Events::default();
            let events: Vec<_> = stream.chunks(size).flat_map(|chunk| reader.feed(chunk).unwrap()).collect();
            assert_eq!(events, [b"{\"a\":1}".to_vec(), b"{\"b\":\n2}".to_vec()], "{size}");
        }
    }

    #[test]
    fn every_answer_carries_the_id() {
        let told = |body: &'static str| {
            let bytes =
                reply(StatusCode::SERVICE_UNAVAILABLE, &Bytes::from_static(body.as_bytes()), Some("7"));
            serde_json::from_slice::<Value>(&bytes).unwrap()
        };
        assert_eq!(told(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#)["result"], serde_json::json!({}));
        assert_eq!(told(r#"{"error":{"code":-32603,"message":"full"}}"#)["id"], 7);
        assert_eq!(told(r#"{"error":{"code":-32603,"message":"full"}}"#)["error"]["message"], "full");
        assert_eq!(told("<html>\nbad gateway")["id"], 7);
        assert_eq!(told("")["id"], 7);
    }
}
