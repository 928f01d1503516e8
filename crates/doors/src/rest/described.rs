//! Bodies that describe one thing in the words of the configuration file.

use std::fmt::Write;

use aegis_core::{Violation, ViolationKind, document::Diagnostic, quantity::counted};

/// Mistakes told in one refusal.
const MOST_MISTAKES: usize = 10;

/// The one `what` that a body describes, checked as `section` of the configuration file is.
pub(super) fn one<T>(
    body: &[u8],
    what: &str,
    section: &str,
    parse: impl FnOnce(&str) -> Result<Vec<T>, Vec<Diagnostic>>,
) -> Result<T, Violation> {
    let refused = |message: String| {
        Violation::new(ViolationKind::MalformedRequest, message)
            .rule(section)
            .hint(format!("docs/reference/config.md has the members of a {what}"))
    };
    let text = std::str::from_utf8(body).map_err(|error| refused(format!("the body is no text: {error}")))?;
    let mut described = parse(text).map_err(|mistakes| refused(listed(what, &mistakes)))?;
    match (described.pop(), described.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(refused(format!("the body must hold exactly one {what}"))),
    }
}

fn listed(what: &str, mistakes: &[Diagnostic]) -> String {
    let mut text = format!("the {what} has {}", counted(mistakes.len(), "mistake"));
    for mistake in mistakes.iter().take(MOST_MISTAKES) {
        // Writing to a String does not fail.
        let _ = write!(text, "; {mistake}");
    }
    text
}
