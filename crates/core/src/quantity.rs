//! Durations and sizes as people write them in manifests: `30s`, `1h30m`, `512Mi`, or a bare number. Numbers of things
//! as people read them.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// `1 record`, `2 records`.
pub fn counted<N: Copy + fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// `a`, `a and b`, `a, b and c`.
pub fn enumerated(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => String::new(),
    }
}

/// A length of time; a bare integer means seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

impl Span {
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(seconds) = text.parse::<u64>() {
            return Ok(Self::seconds(seconds));
        }
        humantime::parse_duration(text)
            .map(Self)
            .map_err(|_| format!("`{text}` is no duration: write 30s, 5m, 1h30m or a number of seconds"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

/// A number of bytes; `Ki`, `Mi`, `Gi` and `Ti` are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Size {
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is no size: write 512Mi, 1Gi or a number of bytes");
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let factor = match unit.trim() {
            "" | "B" => 1_u64,
            "Ki" | "KiB" => 1 << 10,
            "Mi" | "MiB" => 1 << 20,
            "Gi" | "GiB" => 1 << 30,
            "Ti" | "TiB" => 1 << 40,
            _ => return Err(bad()),
        };
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)] {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

macro_rules! number_or_text {
    ($name:ident, $from_number:expr, $pattern:literal, $description:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($description)
                    }

                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        Ok($from_number(number))
                    }

                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        u64::try_from(number)
                            .map($from_number)
                            .map_err(|_| E::custom(concat!("negative: ", $description)))
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text).map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": $pattern}],
                    "description": $description,
                })
            }
        }
    };
}

number_or_text!(
    Span,
    Span::seconds,
    r"^[0-9]+\s*([a-zA-Zµ]+\s*([0-9]+\s*[a-zA-Zµ]+\s*)*)?$",
    "a duration such as 30s, 5m, 1h30m, or a number of seconds"
);
number_or_text!(Size, Size, r"^[0-9]+\s*([KMGT]iB?|B)?$", "a size such as 512Mi, 1Gi, or a number of bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_no_things() {
        let texts = [counted(0_u64, "record"), counted(1_usize, "record"), counted(2_u32, "signed head")];
        assert_eq!(texts, ["0 records", "1 record", "2 signed heads"]);
    }

    #[test]
    fn durations() {
        assert_eq!(Span::parse("1h30m").unwrap(), Span::seconds(5400));
        assert_eq!(serde_json::from_str::<Span>("90").unwrap(), Span::seconds(90));
        assert!(Span::parse("soon").is_err());
        assert!(serde_json::from_str::<Span>("-1").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(Size::parse("512Mi").unwrap(), Size(512 << 20));
        assert_eq!(Size(1 << 30).to_string(), "1Gi");
        assert_eq!(Size(1000).to_string(), "1000");
        for text in ["", "Mi", "1.5Gi", "99999999999Ti", "1MB", "-1"] {
            assert!(Size::parse(text).is_err(), "{text}");
        }
    }
}
