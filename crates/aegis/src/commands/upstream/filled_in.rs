//! `${NAME}` in a client's file, filled in as the client would do it.

use aegis_core::redact;

/// Variables of an environment, by name.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A value that is longer is no setting.
const LONGEST: usize = 8 << 10;

/// A text with its variables in their places: `${NAME}`, `${env:NAME}`, and `${NAME:-default}`. `None` where it has none,
/// where one is not set, or where one looks like a secret, which must not be written down.
pub(super) fn filled_in(text: &str, variables: Variables<'_>) -> Option<String> {
    let mut filled = String::new();
    let mut rest = text;
    let mut is_any = false;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}')?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inside, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        let value = variables(name).filter(|_| is_name(name)).or(default)?;
        if value.len() > LONGEST || names_secret(name) || redact::looks_secret(name, &value) {
            return None;
        }
        filled.push_str(before);
        filled.push_str(&value);
        rest = behind;
        is_any = true;
    }
    filled.push_str(rest);
    is_any.then_some(filled)
}

/// Whether a variable is a secret by its name, whatever its value is at this moment.
pub(super) fn names_secret(name: &str) -> bool {
    // Long enough to be no setting.
    redact::looks_secret(name, "0123456789abcdef")
}

pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
