//! What attributes say.

use std::borrow::Cow;

use super::tidy::LONGEST_CLASS;

/// Text that a page hides from its readers is often meant for its other readers.
pub(super) fn is_invisible<'a>(name: &str, find: impl Fn(&str) -> Option<&'a str>) -> bool {
    if find("hidden").is_some() || (name == "dialog" && find("open").is_none()) {
        return true;
    }
    // The mark that shows when one points at a heading.
    if name == "a"
        && find("href").is_some_and(|href| href.starts_with('#'))
        && find("class").is_some_and(|class| class.contains("headerlink") || class.contains("anchor"))
    {
        return true;
    }
    find("style").is_some_and(|style| {
        let style: String =
            style.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect();
        style.contains("display:none") || style.contains("visibility:hidden")
    })
}

/// `rust` from `language-rust`, `lang-rust`, `highlight-source-rust` or `highlight-rust`.
pub(super) fn language(class: &str) -> Option<String> {
    if class.len() > LONGEST_CLASS {
        return None;
    }
    let name = class.split_ascii_whitespace().find_map(|word| {
        ["language-", "lang-", "highlight-source-", "highlight-"]
            .iter()
            .find_map(|start| word.strip_prefix(start))
    })?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'#' | b'-' | b'_');
    let named =
        (1..=20).contains(&name.len()) && name.bytes().all(plain) && name != "default" && name != "none";
    named.then(|| name.to_owned())
}

pub(super) fn decoded(attribute: &str) -> Cow<'_, str> {
    html_escape::decode_html_entities(attribute)
}

/// Character references stay as they are.
pub(super) fn quoted(attribute: &str) -> Cow<'_, str> {
    if attribute.contains(['"', '<']) {
        attribute.replace('"', "&quot;").replace('<', "&lt;").into()
    } else {
        attribute.into()
    }
}
