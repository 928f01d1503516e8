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
        let (name, default) = with_default(inside);
        let name = name.strip_prefix("env:").unwrap_or(name);
        // What is no variable, such as `input:key`, only the client can ask for.
        if !is_name(name) || redact::may_be_secret(name) {
            return None;
        }
        // To a shell, one that is empty is as good as none.
        let value = variables(name).filter(|value| default.is_none() || !value.is_empty());
        let value = value.or_else(|| default.map(str::to_owned))?;
        if value.len() > LONGEST || is_secret(name, &value) {
            return None;
        }
        filled.push_str(before);
        filled.push_str(&value);
        rest = behind;
        is_any = true;
    }
    filled.push_str(rest);
    // What stands around a value may say that it is a secret: `?token=${MINE}`.
    (is_any && !holds_secret(&filled)).then_some(filled)
}

/// A variable's name, and what is taken where it is not set.
pub(super) fn with_default(inside: &str) -> (&str, Option<&str>) {
    match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    }
}

/// Whether the value of a variable or a header must not be written down.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    redact::looks_secret(name, value) || holds_secret(value)
}

/// Whether there is something in a text that no record would keep: `Server=db;Password=…`.
fn holds_secret(text: &str) -> bool {
    redact::message(text) != text
}

pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
