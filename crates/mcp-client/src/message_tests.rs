use serde_json::{Value, json};

use super::*;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn meta(version: Version, progress: bool, further: &[String]) -> Meta<'_> {
    Meta { version, client: r#"{"name":"t","version":"1"}"#, capabilities: "{}", progress, further }
}

#[test]
fn messages_are_told_apart() {
    let kind = |text: &str| read(text.as_bytes()).map(|message| format!("{message:?}"));
    let starts = |text: &str, with: &str| {
        let got = kind(text).unwrap();
        assert!(got.starts_with(with), "{text}: {got}");
    };
    starts(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, "Answer { id: 3, result: Ok");
    starts(r#"{"id":"3","result":{}}"#, "Answer { id: 3, result: Ok");
    starts(r#"{"id":3,"error":{"code":-1,"message":"no"}}"#, "Answer { id: 3, result: Err");
    starts(r#"{"id":"a","method":"ping"}"#, "Question");
    starts(r#"{"method":"notifications/progress","params":{}}"#, "Notice");
    starts(r#"{"id":"other","result":{}}"#, "Stray");
    starts(r#"{"id":null,"error":{"code":-32700,"message":"?"}}"#, "Stray");
    starts(r#" [{"id":1,"result":{}}]"#, "Batch");
    for bad in ["", "null", "3", "{", r#"{"id":1}"#, "{}", "\u{1}", r#"{"id":1,"id":2,"result":{}}"#] {
        assert!(kind(bad).is_err(), "{bad}");
    }
    assert!(read(b"{\"id\":1,\"result\":\"\xff\"}").is_err());
}

#[test]
fn meta_is_put_into_whatever_parameters_there_are() {
    let written = |params: Option<&str>, meta: &Meta<'_>| -> Value {
        let params = params.map(raw);
        serde_json::from_slice(&request(7, "tools/call", params.as_deref(), meta)).unwrap()
    };
    let legacy = meta(Version::V2025_06_18, false, &[]);
    assert_eq!(written(None, &legacy), json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call"}));
    assert_eq!(written(Some("{ \"a\":1}"), &legacy)["params"], json!({"a": 1}));
    let token = meta(Version::V2025_06_18, true, &[]);
    assert_eq!(written(Some("{}"), &token)["params"], json!({"_meta": {"progressToken": 7}}));
    let further = [r#""traceparent":"00-1""#.to_owned()];
    let modern = meta(Version::V2026_07_28, true, &further);
    assert_eq!(
        written(Some("{\n\"name\": \"x\"\n}"), &modern)["params"],
        json!({"name": "x", "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": 7,
            "traceparent": "00-1",
        }})
    );
    assert!(!request(1, "x", Some(&raw("{\"a\":\n1}")), &modern).contains(&b'\n'));
}

#[test]
fn the_id_of_a_huge_answer_is_found_in_its_head() {
    assert_eq!(id_in_head(br#"{"jsonrpc":"2.0","id":42,"result":{"content":"aaaa"#), Some(42));
    assert_eq!(id_in_head(br#"{"id" : 7 ,"jsonrpc"#), Some(7));
    assert_eq!(id_in_head(br#"{"result":{"id":9,"x":"aaa"#), None);
    assert_eq!(id_in_head(b"aaaaaaa"), None);
}
