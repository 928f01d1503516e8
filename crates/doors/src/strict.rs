//! JSON values in which no object names a member twice. Of two members with one name, different readers take
//! different ones; then what a log in front of the node shows is not what the node did.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

struct Strict(Value);

/// Reads an object, e.g. the arguments of a call.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::from_str::<Strict>(text)?.0 {
        Value::Object(members) => Ok(members),
        _ => Err(Error::custom("expected an object")),
    }
}

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let Strict(value) = members.next_value()?;
            if object.contains_key(&name) {
                let shown: String = name.chars().take(60).collect();
                return Err(Error::custom(format_args!("`{shown}` is there twice")));
            }
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_may_be_there_once() {
        for twice in [r#"{"a":1,"a":1}"#, r#"{"o":{"x":1,"\u0078":2}}"#, r#"{"l":[{"b":0,"b":0}]}"#] {
            assert!(object(twice).unwrap_err().to_string().contains("twice"), "{twice}");
        }
    }

    #[test]
    fn only_objects_are_objects() {
        for text in ["[]", "1", "null", "\"{}\"", "", "{", "{}{}"] {
            assert!(object(text).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
        assert!(object(&deep).unwrap_err().to_string().contains("recursion"));
    }

    #[test]
    fn names_that_mean_something_to_the_parser_are_plain_names_here() {
        let text = r#"{"$serde_json::private::RawValue":"{\"a\":1}"}"#;
        assert_eq!(
            Value::Object(object(text).unwrap()),
            json!({"$serde_json::private::RawValue": "{\"a\":1}"})
        );
    }

    proptest! {
        #[test]
        fn reads_what_serde_json_reads(text in r#"\{("[a-c]":(-?[0-9]{1,3}(\.5)?|"x\\n"|null|true|\[1,\{\}\]),){0,3}"z":0\}"#) {
            if let Ok(read) = object(&text) {
                prop_assert_eq!(Value::Object(read), serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
