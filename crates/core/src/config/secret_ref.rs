use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::secret::Secret;

/// Where a secret is to be found. A literal is taken, but shown to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    Env(String),
    File(String),
    Literal(Secret),
}

impl SecretRef {
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("env", name)) => Self::Env(name.to_owned()),
            Some(("file", path)) => Self::File(path.to_owned()),
            Some(("literal", value)) => Self::Literal(Secret::new(value)),
            _ => Self::Literal(Secret::new(text)),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Literal(_) => f.write_str("[redacted]"),
        }
    }
}

impl Serialize for SecretRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SecretRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_never_show() {
        let secret = SecretRef::parse("hunter2");
        for shown in [format!("{secret}"), format!("{secret:?}"), serde_json::to_string(&secret).unwrap()] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(SecretRef::parse("env:KEY").to_string(), "env:KEY");
    }
}
