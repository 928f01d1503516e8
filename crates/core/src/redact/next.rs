//! What one word says of the next, and what the names in it announce.

use std::ops::Range;

use super::{
    names::{
        is_authorization, is_cookie, is_key, is_scheme, is_script, may_be_scheme, names_proof, names_secret,
        names_secret_parameter,
    },
    split::{
        end_of_parameter, end_of_proof, is_parameter, names, passwords_in_addresses, percent_decoded,
        value_after,
    },
};

/// What may stand around a word and is none of it.
pub(super) const AROUND: [char; 5] = ['"', '\'', '\\', ',', ';'];

/// What one word says of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Plain,
    /// It is a secret.
    Secret,
    /// It is a secret from its first colon on.
    AfterColon,
    /// It is the value of a secret if it begins with `=` or `:`, or is only that and the next one is; or if it is said
    /// to be the value of what was named.
    Named,
    /// The same, or it is the password itself.
    Password,
    /// It says how a header proves who somebody is, or is that already.
    Scheme,
    /// It is what a header has after that, and goes on after a comma.
    Credentials,
    /// It and what follows are of a command whose output is the secret, as long as so many brackets are open.
    Inside(usize),
    /// The same between backticks.
    Ticks,
    /// It is of a list of secrets, as long as nothing closes it: `passwords: [X, Y]`.
    List,
    /// It is of what a variable is unless it is set: `${PASSWORD:-X Y}`.
    Braces,
    /// It is another cookie.
    Cookie,
    /// It says which kind of key begins, or certificate, that is cut into words.
    Kind,
    /// It and all that follow may be of a private key.
    Key,
}

/// Looks at the names and addresses in a word that are written as in an address: `?t%6Fken=X`.
pub(super) fn look_at_escaped(word: &str, at: usize, found: &mut Vec<Range<usize>>) {
    let Some((decoded, places)) = word.contains('%').then(|| percent_decoded(word)).flatten() else { return };
    let mut inside = Vec::new();
    passwords_in_addresses(&decoded, 0, &mut inside);
    look_at_names(&decoded, None, 0, &mut inside);
    let query = word.find('?').unwrap_or(word.len());
    for range in inside {
        let (start, end) = (places[range.start], places[range.end]);
        // The parameter that it is in ends where it is written so.
        let end = if query < start { end.min(end_of_parameter(word, start)) } else { end };
        found.push(at + start..at + end);
    }
}

/// What the names in a word announce; `None` when the rest of it is still to be looked at.
/// The first blank is at `blank`.
pub(super) fn look_at_names(
    word: &str,
    blank: Option<usize>,
    at: usize,
    found: &mut Vec<Range<usize>>,
) -> Option<Next> {
    // An option is of one value, whatever it consists of: `--env=PASSWORD=a b`.
    let before_blanks = blank.filter(|_| word.starts_with('-')).unwrap_or_default();
    let end = word.trim_end_matches(['"', '\'', ']', ',']).len();
    // Once for the whole word: of its many runs each would look as far.
    let query = word.find('?');
    let mut hidden = 0;
    let mut first = true;
    // Whether a member before was the name of a secret, whose value is in another.
    let mut named = false;
    for run in names(word) {
        let name = &word[run.clone()];
        if is_key(name) {
            found.push(at + run.start..at + run.end);
        }
        match value_after(word, run.end) {
            Some(value) if is_parameter(word, query, &run) && names_secret_parameter(name) => {
                // One that lies in another's value ends where that does.
                hidden = if value < hidden { hidden } else { end_of_parameter(word, value) };
                found.push(at + value..at + hidden);
            }
            Some(value) if names_secret(name) && !(first && names_script(word, &run)) => {
                if value == word.len() {
                    return Some(match name {
                        name if is_cookie(name) => Next::Cookie,
                        name if is_authorization(name) => Next::Scheme,
                        _ => Next::Secret,
                    });
                }
                // Where blanks follow, the value may end at one: then the text inside is looked at word by word.
                if blank.is_none() || first || run.end <= before_blanks {
                    found.push(at + value..at + word.len());
                    return Some(match word[value..].trim_matches(AROUND) {
                        scheme if is_authorization(name) && may_be_scheme(scheme) => Next::Credentials,
                        scheme if is_scheme(scheme) => Next::Secret,
                        _ if is_cookie(name) => after_cookie(word),
                        value if word[..run.start].ends_with("${") && !value.contains('}') => Next::Braces,
                        value => after_value(value),
                    });
                }
            }
            Some(value) if named && name.eq_ignore_ascii_case("value") => {
                if value == word.len() {
                    return Some(Next::Secret);
                }
                found.push(at + value..at + word.len());
                return Some(Next::Plain);
            }
            Some(value) if value >= hidden && names_proof(name) => {
                if let Some(end) = end_of_proof(word, value) {
                    hidden = end;
                    found.push(at + value..at + end);
                }
            }
            None if run.end == end && names_secret(name) && name.starts_with('-') => {
                return Some(Next::Secret);
            }
            None if run.end == end && names_secret(name) && blank.is_none() => return Some(Next::Named),
            // Only then another member may follow.
            None => named |= word[run.end..].starts_with(['"', '\'', '\\']) && names_secret(name),
            Some(_) => {}
        }
        first = false;
    }
    None
}

/// Whether the word, of which this is the first run, is the name of a script that begins like the name of a secret.
fn names_script(word: &str, run: &Range<usize>) -> bool {
    let bare = word.trim_matches(AROUND);
    word[..run.start].trim_matches(AROUND).is_empty()
        && bare.split_once(':').is_some_and(|(name, rest)| name.len() == run.len() && is_script(name, rest))
}

/// What follows a secret: nothing more of it, unless a command begins there that says it.
pub(super) fn after_value(value: &str) -> Next {
    match value.strip_prefix("$(") {
        Some(command) => inside(1, command),
        None if value.starts_with('`') && value.matches('`').count() % 2 == 1 => Next::Ticks,
        None if value.starts_with('[') && !value.contains(']') => Next::List,
        None => Next::Plain,
    }
}

/// What follows a word of such a command.
pub(super) fn inside(open: usize, word: &str) -> Next {
    let (mut open, mut quote, mut escaped) = (open, None, false);
    for byte in word.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quote != Some(b'\'') => escaped = true,
            b'"' | b'\'' if quote == Some(byte) => quote = None,
            b'"' | b'\'' if quote.is_none() => quote = Some(byte),
            b'(' if quote.is_none() => open += 1,
            b')' if quote.is_none() => open = open.saturating_sub(1),
            _ => {}
        }
    }
    if open == 0 { Next::Plain } else { Next::Inside(open) }
}

/// Cookies follow one another after semicolons.
pub(super) fn after_cookie(word: &str) -> Next {
    if word.ends_with(';') { Next::Cookie } else { Next::Plain }
}
