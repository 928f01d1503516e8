//! The canonicaliser against plain models of it.

use aegis_gates::identity::seal::{
    canonical::{DEEPEST, LONGEST, Order, Unreadable, canonical},
    envelope::Envelope,
};
use proptest::prelude::*;
use serde_json::Value;

fn by_code_point(text: &str) -> Result<String, Unreadable> {
    canonical(text, Order::CodePoint).map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn only_what_must_be_is_escaped() {
    let text = r#" { "b" : "\u0041\/\u00e9\ud83d\ude00\u0000\u001F\b\f\n\r\t\"\\\u007f\u2028" , "a" : [ 1.0 , -0.0, 1E5 ] } "#;
    let expected =
        "{\"a\":[1.0,-0.0,1E5],\"b\":\"A/é😀\\u0000\\u001f\\b\\f\\n\\r\\t\\\"\\\\\u{7f}\u{2028}\"}";
    assert_eq!(by_code_point(text).unwrap(), expected);
}

#[test]
fn numbers_stay_as_they_came() {
    for number in
        ["0", "-0", "1e16", "1E+16", "1e-05", "123456789012345678901234567890", "1.50", "0.1e0", "-1.0E00"]
    {
        assert_eq!(by_code_point(number).unwrap(), number);
    }
    for wrong in ["01", "+1", "1.", ".5", "1e", "1e+", "-", "0x1", "NaN", "Infinity", "1_0", "--1"] {
        assert!(by_code_point(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn names_sort_by_what_they_mean_not_by_how_they_are_written() {
    // Escaped, the first begins with a backslash, which is above the letters.
    assert_eq!(by_code_point(r#"{"A":1,"\"":2,"\u0009":3}"#).unwrap(), r#"{"\t":3,"\"":2,"A":1}"#);
    let astral = "{\"\u{1f600}\":1,\"\u{ff5e}\":2}";
    assert_eq!(by_code_point(astral).unwrap(), "{\"\u{ff5e}\":2,\"\u{1f600}\":1}");
    assert_eq!(canonical(astral, Order::Utf16).unwrap(), astral.as_bytes());
}

#[test]
fn a_name_may_be_there_once() {
    for twice in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"o":{"x":1,"\u0078":2}}"#,
        r#"[{"b":0,"a":1,"b":0}]"#,
    ] {
        assert!(matches!(by_code_point(twice), Err(Unreadable::Duplicate { .. })), "{twice}");
    }
}

#[test]
fn half_of_a_surrogate_pair_is_refused() {
    for lone in [
        r#""\ud83d""#,
        r#""\ude00""#,
        r#""\ud83d\ud83d""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
        r#"{"\ud83d":1}"#,
        r#""\ud83d\u0041""#,
    ] {
        assert!(matches!(by_code_point(lone), Err(Unreadable::LoneSurrogate { .. })), "{lone}");
    }
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert!(by_code_point(&nested(DEEPEST as usize)).is_ok());
    assert_eq!(by_code_point(&nested(DEEPEST as usize + 1)), Err(Unreadable::TooDeep));
    assert_eq!(by_code_point(&nested(1_000_000)), Err(Unreadable::TooDeep));
    let objects = format!("{}1{}", "{\"b\":0,\"a\":".repeat(90), "}".repeat(90));
    assert!(by_code_point(&objects).is_ok());
    assert_eq!(by_code_point(&" ".repeat(LONGEST + 1)), Err(Unreadable::TooLong));
}

#[test]
fn many_unsorted_members_at_every_depth_are_quick() {
    // Each byte would be copied once per level if levels were put in order one after the other.
    let mut text = "0".to_owned();
    for level in 0..90 {
        text = format!("{{\"z\":{text},\"y\":\"{}\",\"a\":{level}}}", "x".repeat(2000));
    }
    let sorted = by_code_point(&text).unwrap();
    assert_eq!(sorted.len(), text.len());
    assert!(sorted.starts_with("{\"a\":89,\"y\":\"xx"));
    assert_eq!(by_code_point(&sorted).unwrap(), sorted);
}

#[test]
fn what_is_no_json_is_refused() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\" 1}",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "tru",
        "nul",
        "1 2",
        "[1 2]",
        "{\"a\":1}x",
        "\"\u{1}\"",
        "\u{feff}{}",
        "{\"a\":}",
        "[,1]",
        "\"\\",
        "{\"a\":1 \"b\":2}",
    ] {
        assert!(by_code_point(text).is_err(), "{text}");
    }
}

/// JSON without numbers, so that ordinary tools write it the same.
fn plain() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        ".{0,12}".prop_map(Value::String)
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((".{0,6}", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Written by an ordinary writer, which escapes by the same rule, with the members of objects sorted by hand.
fn sorted(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(sorted).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let members: std::collections::BTreeMap<_, _> = members.iter().collect();
            let member = |(name, value): (&&String, &&Value)| {
                format!("{}:{}", serde_json::to_string(name).unwrap(), sorted(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

/// A value with its numbers as text, and members in the order they were made.
#[derive(Debug, Clone)]
enum Model {
    Number(String),
    Text(String),
    List(Vec<Model>),
    Object(Vec<(String, Model)>),
}

fn model() -> impl Strategy<Value = Model> {
    let leaf = prop_oneof![
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?".prop_map(Model::Number),
        ".{0,8}".prop_map(Model::Text),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Model::List),
            prop::collection::btree_map(".{0,5}", inner, 0..6)
                .prop_flat_map(|members| Just(members.into_iter().collect::<Vec<_>>()).prop_shuffle())
                .prop_map(Model::Object),
        ]
    })
}

impl Model {
    /// With white space and needless escapes.
    fn loose(&self, out: &mut String) {
        match self {
            Self::Number(digits) => out.push_str(digits),
            Self::Text(text) => escaped(text, out),
            Self::List(items) => {
                out.push_str("[ ");
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index > 0 { " ,\n" } else { "" });
                    item.loose(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    out.push_str(if index > 0 { ",\t" } else { "\r\n" });
                    escaped(name, out);
                    out.push_str(" : ");
                    value.loose(out);
                }
                out.push_str(" }");
            }
        }
    }

    fn canonical(&self, out: &mut String, order: Order) {
        match self {
            Self::Number(digits) => out.push_str(digits),
            Self::Text(text) => out.push_str(&serde_json::to_string(text).unwrap()),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.written(order)).collect();
                out.push_str(&format!("[{}]", items.join(",")));
            }
            Self::Object(members) => {
                let mut members = members.clone();
                members.sort_by(|one, other| match order {
                    Order::CodePoint => one.0.chars().cmp(other.0.chars()),
                    Order::Utf16 => {
                        one.0.encode_utf16().collect::<Vec<_>>().cmp(&other.0.encode_utf16().collect())
                    }
                });
                let members: Vec<String> = members
                    .iter()
                    .map(|(name, value)| {
                        format!("{}:{}", serde_json::to_string(name).unwrap(), value.written(order))
                    })
                    .collect();
                out.push_str(&format!("{{{}}}", members.join(",")));
            }
        }
    }

    fn written(&self, order: Order) -> String {
        let mut out = String::new();
        self.canonical(&mut out, order);
        out
    }
}

/// Every other character as an escape, as a client that keeps to ASCII would send it.
fn escaped(text: &str, out: &mut String) {
    out.push('"');
    for (index, character) in text.chars().enumerate() {
        if index % 2 == 0 || character < ' ' || matches!(character, '"' | '\\') {
            for unit in character.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
}

proptest! {
    #[test]
    fn agrees_with_an_ordinary_writer(value in plain()) {
        prop_assert_eq!(by_code_point(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), sorted(&value));
    }

    #[test]
    fn agrees_with_the_model(model in model()) {
        let mut sent = String::new();
        model.loose(&mut sent);
        for order in [Order::CodePoint, Order::Utf16] {
            let written = String::from_utf8(canonical(&sent, order).unwrap()).unwrap();
            prop_assert_eq!(&written, &model.written(order));
            prop_assert_eq!(canonical(&written, order).unwrap(), written.as_bytes());
        }
    }

    #[test]
    fn reads_no_more_and_no_less_than_json(text in r#"[\[\]{}:,"\\a-c0-9.eE\-+ utnrfl]{0,24}"#) {
        let read = by_code_point(&text);
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => match read {
                Ok(written) => prop_assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), value),
                Err(error) => prop_assert!(matches!(error, Unreadable::Duplicate { .. }), "{error}: {text}"),
            },
            // It also refuses numbers that no machine holds.
            Err(error) => prop_assert!(read.is_err() || error.to_string().contains("out of range"), "{text}"),
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::read(&bytes);
    }
}
