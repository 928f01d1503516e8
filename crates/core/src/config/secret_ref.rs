use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::secret::Secret;

/// Where a secret is to be found. A literal is taken, but shown to nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// A variable of the node's own environment.
    Env(String),
    /// A file, without the line break at its end.
    File(String),
    /// An entry of the node's secret store. `{user}` and `{tenant}` stand for whoever calls.
    Stored(String),
    Literal(Secret),
}

impl SecretRef {
    pub fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some(("env", name)) => Self::Env(name.to_owned()),
            Some(("file", path)) => Self::File(path.to_owned()),
            Some(("secret", name)) => Self::Stored(name.to_owned()),
            Some(("literal", value)) => Self::Literal(Secret::new(value)),
            _ => Self::Literal(Secret::new(text)),
        }
    }

    /// Whether what it stands for differs from caller to caller.
    pub fn is_per_principal(&self) -> bool {
        matches!(self, Self::Stored(name) if name.contains("{user}") || name.contains("{tenant}"))
    }

    /// What is wrong with the reference itself, whatever it leads to.
    pub fn mistake(&self) -> Option<String> {
        match self {
            Self::Env(name) if name.is_empty() || name.contains(['=', '\0']) => {
                Some("name a variable after `env:`, as in env:GITHUB_TOKEN".to_owned())
            }
            Self::File(path) if !path.starts_with('/') => {
                Some("write the whole path after `file:`, as in file:/etc/aegis/token".to_owned())
            }
            Self::Stored(name) => stored_name_mistake(name),
            _ => None,
        }
    }
}

/// The longest name of a stored secret.
pub const LONGEST_SECRET_NAME: usize = 200;

/// Whether a secret can be stored under this name: parts of letters, digits, `.`, `_` and `-`, joined by `/`.
pub fn is_secret_store_name(name: &str) -> bool {
    name.len() <= LONGEST_SECRET_NAME
        && name.split('/').all(|part| {
            part.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte))
        })
}

fn stored_name_mistake(name: &str) -> Option<String> {
    let sample = name.replace("{user}", "user").replace("{tenant}", "tenant");
    (!is_secret_store_name(&sample)).then(|| {
        "after `secret:` write parts of letters, digits, `.`, `_` and `-`, joined by `/`, as in \
         secret:tools/search-key; a part may be {user} or {tenant}"
            .to_owned()
    })
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Stored(name) => write!(f, "secret:{name}"),
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

    #[test]
    fn references_say_what_is_wrong_with_them() {
        for good in
            ["env:KEY", "file:/run/key", "secret:a", "secret:aegis-system/tools/key", "secret:gh/{user}"]
        {
            assert_eq!(SecretRef::parse(good).mistake(), None, "{good}");
            assert_eq!(SecretRef::parse(good).to_string(), good);
        }
        for bad in
            ["env:", "env:A=B", "file:key", "file:", "secret:", "secret:a//b", "secret:../x", "secret:a b"]
        {
            assert!(SecretRef::parse(bad).mistake().is_some(), "{bad}");
        }
        assert!(SecretRef::parse("secret:gh/{user}").is_per_principal());
        assert!(!SecretRef::parse("secret:gh/user").is_per_principal());
    }
}
