use proptest::prelude::*;

use super::{super::fault, *};

fn request(text: &str) -> Request<'_> {
    match Message::parse(text) {
        Ok(Message::Request(request)) => request,
        other => panic!("{text}: {other:?}"),
    }
}

fn refusal(text: &str) -> (i64, Option<String>) {
    match Message::parse(text) {
        Err(unreadable) => (unreadable.fault.code, unreadable.id.map(|id| id.as_str().to_owned())),
        Ok(message) => panic!("{text}: {message:?}"),
    }
}

#[test]
fn ids_are_kept_as_written() {
    for id in ["0", "-1", "1.50", "1e400", "123456789012345678901234567890", "\"\"", "\"a\\u0000b\"", "\"é\""]
    {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(request(&text).id.as_str(), id);
    }
}

#[test]
fn other_ids_are_refused_without_echo() {
    let long = format!("\"{}\"", "x".repeat(LONGEST_ID));
    for id in ["null", "true", "{}", "[1]", &long] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(refusal(&text), (fault::INVALID_REQUEST, None), "{id}");
    }
}

#[test]
fn keys_of_ids_tell_types_apart_and_spellings_together() {
    let key = |id: &str| request(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)).id.key();
    assert_ne!(key("1"), key("\"1\""));
    assert_eq!(key("\"a\""), key("\"\\u0061\""));
}

#[test]
fn what_is_no_message_is_told_apart_from_what_is_no_json() {
    for (text, code) in [
        ("", fault::PARSE_ERROR),
        ("hello", fault::PARSE_ERROR),
        ("{", fault::PARSE_ERROR),
        ("{}{}", fault::PARSE_ERROR),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\u{0}\"}", fault::PARSE_ERROR),
        ("1", fault::INVALID_REQUEST),
        ("\"{}\"", fault::INVALID_REQUEST),
        ("{}", fault::INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"a"}"#, fault::INVALID_REQUEST),
    ] {
        assert_eq!(refusal(text), (code, None), "{text}");
    }
    for text in [
        r#"{"id":7,"method":"a"}"#,
        r#"{"jsonrpc":"1.0","id":7,"method":"a"}"#,
        r#"{"jsonrpc":2.0,"id":7,"method":"a"}"#,
        r#"{"jsonrpc":"2.0","id":7}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":5}"#,
    ] {
        assert_eq!(refusal(text), (fault::INVALID_REQUEST, Some("7".to_owned())), "{text}");
    }
}

#[test]
fn notifications_and_answers_are_recognised_by_what_is_missing() {
    let parse = |text| Message::parse(text).unwrap();
    assert!(matches!(parse(r#"{"jsonrpc":"2.0","method":"a"}"#), Message::Notification { .. }));
    assert!(matches!(
        parse(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        Message::Response { id: Some(_), result: Some(_) }
    ));
    assert!(matches!(parse(r#"{"jsonrpc":"2.0","error":{}}"#), Message::Response { id: None, result: None }));
}

#[test]
fn params_that_are_no_object_leave_a_flaw_and_the_id() {
    for params in ["[]", "1", "\"x\"", r#"{"name":"a","name":"b"}"#, r#"{"_meta":3}"#, r#"{"_meta":["v"]}"#] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let request = request(&text);
        assert!(request.params.flaw.is_some(), "{params}");
        assert!(request.params.meta.version.is_none(), "{params}");
    }
    let none = request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}"#);
    assert!(none.params.flaw.is_none());
}

#[test]
fn depth_is_no_danger() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{deep}}}}}"#);
    assert_eq!(request(&text).params.arguments.unwrap().get(), deep);
    assert_eq!(refusal(&"{\"a\":".repeat(1000)).0, fault::PARSE_ERROR);
}

#[test]
fn strings_are_unescaped_only_where_needed() {
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools\/list","params":{"name":"\ud800"}}"#;
    let request = request(text);
    assert_eq!(request.method, "tools/list");
    assert_eq!(string(request.params.name.unwrap()), None);
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(text) = text(&bytes) {
            let _ = Message::parse(text).map_err(|unreadable| unreadable.render());
        }
    }

    #[test]
    fn any_mutilated_request_gets_an_answer(at in 0usize..200, with in any::<char>()) {
        let whole = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fs.read","arguments":{"path":"/a"},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        let mutilated: String =
            whole.chars().enumerate().map(|(index, old)| if index == at { with } else { old }).collect();
        if let Err(unreadable) = Message::parse(&mutilated) {
            let answer: serde_json::Value = serde_json::from_slice(&unreadable.render()).unwrap();
            prop_assert!(answer["error"]["code"].is_i64());
        }
    }
}
