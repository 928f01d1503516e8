use axum::http::HeaderValue;
use proptest::prelude::*;
use serde_json::Value;

use super::{
    super::{fault::METHOD_NOT_FOUND, message::Message},
    *,
};

const PV: &str = "io.modelcontextprotocol/protocolVersion";
const CC: &str = "io.modelcontextprotocol/clientCapabilities";

fn body(method: &str, params: impl Into<Value>) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params.into()}).to_string()
}

fn meta() -> Value {
    json!({PV: MODERN, CC: {}})
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

fn with_request<T>(text: &str, test: impl FnOnce(&Request<'_>) -> T) -> T {
    match Message::parse(text) {
        Ok(Message::Request(request)) => test(&request),
        other => panic!("{other:?}"),
    }
}

/// The status and code of the first fault, or none.
fn climbed(text: &str, list: &[(&'static str, &str)]) -> Option<(u16, i64)> {
    let map = headers(list);
    with_request(text, |request| climb(request, Some(&Headers::of(&map))).err())
        .map(|fault| (fault.status.as_u16(), fault.code))
}

fn modern(text: &str, list: &[(&'static str, &str)]) -> bool {
    let map = headers(list);
    with_request(text, |request| is_modern(request, Some(&Headers::of(&map))))
}

#[test]
fn a_request_is_modern_by_its_body_or_by_its_header() {
    let plain = body("tools/list", json!({}));
    let claim = body("tools/list", json!({"_meta": {PV: "x"}}));
    assert!(!modern(&plain, &[]));
    assert!(!modern(&plain, &[(VERSION_HEADER, "2025-06-18")]));
    assert!(modern(&plain, &[(VERSION_HEADER, MODERN)]));
    assert!(modern(&plain, &[(VERSION_HEADER, "nonsense")]));
    assert!(modern(&plain, &[(VERSION_HEADER, "2025-06-18"), (VERSION_HEADER, "2025-06-18")]));
    assert!(modern(&claim, &[]));
    assert!(modern(&claim, &[(VERSION_HEADER, "2025-06-18")]));
    assert!(modern(&body("server/discover", json!({})), &[]));
    assert!(!modern(&body("initialize", json!({"protocolVersion": MODERN})), &[]));
    assert!(modern(&body("initialize", json!({"_meta": meta()})), &[(VERSION_HEADER, MODERN)]));
}

#[test]
fn the_rungs_come_in_the_protocols_order() {
    let version = (VERSION_HEADER, MODERN);
    let list = (METHOD_HEADER, "tools/list");
    let whole = body("tools/list", json!({"_meta": meta()}));
    let cases = [
        // The body's own facts come before any header.
        (body("tools/list", json!({})), vec![version], Some((400, -32602))),
        (body("tools/list", json!([])), vec![version, list], Some((400, -32602))),
        (body("tools/list", json!({"_meta": 1})), vec![version, list], Some((400, -32602))),
        (body("tools/list", json!({"_meta": {PV: MODERN}})), vec![version, list], Some((400, -32602))),
        (body("tools/list", json!({"_meta": {CC: {}}})), vec![version, list], Some((400, -32602))),
        (body("tools/list", json!({"_meta": {PV: 1, CC: {}}})), vec![version, list], Some((400, -32602))),
        (
            body("tools/list", json!({"_meta": {PV: MODERN, CC: []}})),
            vec![version, list],
            Some((400, -32602)),
        ),
        // A header that disagrees comes before a version that is not spoken.
        (whole.clone(), vec![list], Some((400, -32020))),
        (whole.clone(), vec![version, version, list], Some((400, -32020))),
        (body("tools/list", json!({"_meta": {PV: "v9", CC: {}}})), vec![version, list], Some((400, -32020))),
        (
            body("tools/list", json!({"_meta": {PV: "v9", CC: {}}})),
            vec![(VERSION_HEADER, "v9"), list],
            Some((400, -32022)),
        ),
        (
            body("tools/list", json!({"_meta": {PV: "2025-11-25", CC: {}}})),
            vec![(VERSION_HEADER, "2025-11-25"), list],
            Some((400, -32022)),
        ),
        (whole.clone(), vec![version], Some((400, -32020))),
        (whole.clone(), vec![version, (METHOD_HEADER, "Tools/List")], Some((400, -32020))),
        (whole, vec![version, list], None),
        (
            body("initialize", json!({"_meta": meta()})),
            vec![version, (METHOD_HEADER, "initialize")],
            Some((404, i64::from(i32::try_from(METHOD_NOT_FOUND).unwrap()))),
        ),
    ];
    for (text, list, expected) in cases {
        assert_eq!(climbed(&text, &list), expected, "{text} {list:?}");
    }
}

#[test]
fn the_name_is_compared_after_decoding() {
    let call = |name: &str| body("tools/call", json!({"name": name, "_meta": meta()}));
    let sent = |name: &'static str| {
        vec![(VERSION_HEADER, MODERN), (METHOD_HEADER, "tools/call"), (NAME_HEADER, name)]
    };
    assert_eq!(climbed(&call("fs.read"), &sent("fs.read")), None);
    assert_eq!(climbed(&call("fs.read"), &sent("  fs.read  ")), None);
    assert_eq!(climbed(&call("fs.read"), &sent("=?base64?ZnMucmVhZA==?=")), None);
    for wrong in
        ["fs.write", "FS.READ", "", "=?base64?ZnMucmVhZA?=", "=?base64?!!!!?=", "=?BASE64?ZnMucmVhZA==?="]
    {
        assert_eq!(climbed(&call("fs.read"), &sent(wrong)), Some((400, -32020)), "{wrong}");
    }
    // Also for a tool that does not exist.
    assert_eq!(climbed(&call("nosuch"), &sent("fs.read")), Some((400, -32020)));
    assert_eq!(climbed(&call("fs.read"), &sent("fs.read")[..2]), Some((400, -32020)));
    // A body without a name is not the headers' affair.
    assert_eq!(climbed(&body("tools/call", json!({"_meta": meta()})), &sent("x")[..2]), None);
}

#[test]
fn without_headers_only_the_body_is_checked() {
    let text = body("tools/list", json!({"_meta": meta()}));
    with_request(&text, |request| assert_eq!(climb(request, None), Ok(())));
    let text = body("tools/list", json!({"_meta": {PV: "v9", CC: {}}}));
    with_request(&text, |request| assert_eq!(climb(request, None).unwrap_err().code, UNSUPPORTED_VERSION));
}

proptest! {
    #[test]
    fn every_name_survives_a_header(name in any::<String>()) {
        let value = encode(&name);
        prop_assert!(HeaderValue::from_str(&value).is_ok());
        let decoded = decode(value.trim());
        prop_assert_eq!(decoded.as_deref(), Some(name.as_str()));
    }
}

#[test]
fn parameters_say_the_same_in_headers_and_body() {
    let parameters = vec![
        (vec!["region".to_owned()], HeaderName::from_static("mcp-param-region")),
        (vec!["more".to_owned(), "count".to_owned()], HeaderName::from_static("mcp-param-count")),
    ];
    let checked = |arguments: &str, headers: &[(&'static str, &'static str)]| {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{arguments}}}}}"#
        );
        let Ok(Message::Request(request)) = Message::parse(&text) else { panic!("{text}") };
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        parameters_alike(&request, &headers, &parameters).is_ok()
    };
    assert!(checked("{}", &[]));
    assert!(checked(r#"{"region":"eu"}"#, &[("mcp-param-region", "eu")]));
    assert!(checked(r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8=?=")]));
    assert!(checked(r#"{"more":{"count":42}}"#, &[("mcp-param-count", "42.0")]));
    assert!(checked(r#"{"region":null}"#, &[]));
    assert!(!checked(r#"{"region":"eu"}"#, &[]));
    assert!(!checked(r#"{"region":"eu"}"#, &[("mcp-param-region", "us")]));
    assert!(!checked("{}", &[("mcp-param-region", "us")]));
    assert!(!checked(r#"{"region":"Hello"}"#, &[("mcp-param-region", "=?base64?SGVsbG8?=")]));
    assert!(!checked(r#"{"more":{"count":42}}"#, &[("mcp-param-count", "43")]));
}
