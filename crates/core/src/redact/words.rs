//! Secrets among the words of a command, or of any other text.
//!
//! A secret is known by what stands before it: an option (`--token X`), a variable or a member (`PASSWORD=X`,
//! `"password": "X"`), a header (`Authorization: Bearer X`), or the start of an address (`https://ann:X@host`). Some are
//! known by how they begin. What is in doubt is hidden: a record that says less can still be read, one that says too much
//! can't be taken back.

use std::{borrow::Cow, ops::Range};

use super::{REDACTED, SECRET_BEGINNINGS, SECRET_ENDINGS, is_secret_name};

/// Of a longer text the rest is in the record by its digest, and nothing can be guessed from the digest of so much.
const LONGEST: usize = 64 << 10;
/// A command within a command within a command.
const DEEPEST: usize = 4;
/// Shorter words begin like a key by chance.
const SHORTEST_KEY: usize = 20;

/// Names that mean a secret, besides those that hold a word for one.
const WHOLE_NAMES: [&str; 8] = ["pass", "pwd", "pw", "pat", "auth", "cred", "creds", "bearer"];
/// Ends of names that speak of a secret and hold none: `--token-file`, `MAX_TOKENS`.
const SETTINGS: [&str; 20] = [
    "file",
    "path",
    "url",
    "uri",
    "endpoint",
    "limit",
    "size",
    "length",
    "count",
    "tokens",
    "type",
    "name",
    "ttl",
    "timeout",
    "format",
    "directory",
    "stdin",
    "helper",
    "tokenizer",
    "provider",
];
/// What stands between a header and its secret.
const SCHEMES: [&str; 5] = ["bearer", "basic", "digest", "token", "negotiate"];
/// Options whose value is a name, a colon and a password.
const USERS: [&str; 4] = ["-u", "-U", "--user", "--proxy-user"];
/// How a private key begins, as it is written in files.
const KEY_BEGINS: &str = "-----BEGIN";
const KEY_KIND: &str = "PRIVATE KEY";

/// Whether the value of an option, a variable or a header of this name is a secret.
pub(super) fn names_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    !SETTINGS.iter().any(|setting| name.ends_with(setting))
        && (is_secret_name(&name)
            || WHOLE_NAMES.contains(&last)
            || SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// The words of a command without the secrets among them.
pub fn words(words: &[impl AsRef<str>]) -> Vec<Cow<'_, str>> {
    let mut next = Next::Plain;
    words
        .iter()
        .map(|word| {
            let word = word.as_ref();
            let mut found = Vec::new();
            next = look_at_word(bounded(word), 0, next, 0, &mut found);
            masked(word, found)
        })
        .collect()
}

/// A text without the secrets in it.
pub(super) fn masked_text(text: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    look_at_text(bounded(text), 0, 0, &mut found);
    masked(text, found)
}

/// What of a text is looked at.
pub(super) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

fn masked(text: &str, mut found: Vec<Range<usize>>) -> Cow<'_, str> {
    if found.is_empty() {
        return text.into();
    }
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for Range { start, end } in found {
        if start >= at {
            kept.push_str(&text[at..start]);
            kept.push_str(REDACTED);
        }
        at = at.max(end);
    }
    kept.push_str(&text[at..]);
    kept.into()
}

/// What one word says of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Plain,
    /// It is a secret.
    Secret,
    /// It is a secret from its first colon on.
    AfterColon,
    /// It says which kind of key begins, or certificate, that is cut into words.
    Kind,
    /// It and all that follow may be of a private key.
    Key,
}

/// Adds the secrets of a text that begins at `at` of the whole.
fn look_at_text(text: &str, at: usize, depth: usize, found: &mut Vec<Range<usize>>) {
    // A shell's words would cut it.
    if let Some(key) = private_key(text) {
        found.push(at + key..at + text.len());
    }
    look_at_words(text, shell_words(text), at, depth, found);
}

/// Where a private key begins, which goes on to the end.
fn private_key(text: &str) -> Option<usize> {
    text.find(KEY_BEGINS).filter(|key| text[*key..].contains(KEY_KIND))
}

fn look_at_words(
    text: &str,
    words: Vec<Range<usize>>,
    at: usize,
    depth: usize,
    found: &mut Vec<Range<usize>>,
) {
    let mut next = Next::Plain;
    for word in words {
        next = look_at_word(&text[word.clone()], at + word.start, next, depth, found);
    }
}

fn look_at_word(word: &str, at: usize, next: Next, depth: usize, found: &mut Vec<Range<usize>>) -> Next {
    let bare = word.trim_matches(['"', '\'', '\\', ',', ';']);
    match next {
        // An option that follows is no value.
        Next::Secret if !bare.starts_with("--") && !bare.is_empty() => {
            found.push(at..at + word.len());
            let scheme = SCHEMES.iter().any(|scheme| bare.eq_ignore_ascii_case(scheme));
            return if scheme { Next::Secret } else { Next::Plain };
        }
        Next::AfterColon => {
            if let Some(password) = password_after_name(word) {
                found.push(at + password..at + word.len());
                return Next::Plain;
            }
        }
        Next::Kind if bare.starts_with("PRIVATE") => {
            found.push(at..at + word.len());
            return Next::Key;
        }
        Next::Kind if !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            return Next::Kind;
        }
        Next::Key => {
            found.push(at..at + word.len());
            return Next::Key;
        }
        Next::Secret | Next::Kind | Next::Plain => {}
    }
    if bare.ends_with(KEY_BEGINS) {
        return Next::Kind;
    }
    if let Some(key) = private_key(word) {
        found.push(at + key..at + word.len());
    }
    if bare.eq_ignore_ascii_case("bearer") {
        return Next::Secret;
    }
    if USERS.contains(&bare) {
        return Next::AfterColon;
    }
    if let Some(user) = joined_user(bare)
        && let Some(password) = password_after_name(user)
    {
        let begin = user.as_ptr().addr() - word.as_ptr().addr();
        found.push(at + begin + password..at + word.len());
        return Next::Plain;
    }
    passwords_in_addresses(word, at, found);
    let has_blanks = word.contains(char::is_whitespace);
    let mut first = true;
    for run in names(word) {
        let name = &word[run.clone()];
        if is_key(name) {
            found.push(at + run.start..at + run.end);
        }
        if let Some(value) = value_after(word, run.end)
            && names_secret(name)
        {
            if value == word.len() {
                return Next::Secret;
            }
            // Where blanks follow, the value may end at one: then the text inside is looked at word by word.
            if !has_blanks || first {
                found.push(at + value..at + word.len());
                return Next::Plain;
            }
        }
        if run.end == word.trim_end_matches(['"', '\'']).len() && name.starts_with('-') && names_secret(name)
        {
            return Next::Secret;
        }
        first = false;
    }
    if has_blanks && depth >= DEEPEST {
        found.push(at..at + word.len());
    } else if has_blanks {
        let begin = word.len() - word.trim_start_matches(['"', '\'']).len();
        let inside = word[begin..].trim_end_matches(['"', '\'']);
        let words = match shell_words(inside) {
            // Its quotes hold it together: it is split at every blank.
            one if one.len() < 2 => blank_words(inside),
            several => several,
        };
        look_at_words(inside, words, at + begin, depth + 1, found);
    }
    Next::Plain
}

/// The value of an option for a name and a password that is one word with it: `-uann:pw`, `--user=ann:pw`.
fn joined_user(word: &str) -> Option<&str> {
    USERS.iter().find_map(|option| {
        let rest = word.strip_prefix(option)?;
        if option.starts_with("--") { rest.strip_prefix('=') } else { Some(rest) }
    })
}

/// Where the password begins in `name:password`. Two numbers are a user and a group.
fn password_after_name(word: &str) -> Option<usize> {
    let (name, password) = word.split_once(':')?;
    let is_number = password.bytes().all(|byte| byte.is_ascii_digit());
    (!is_number).then_some(name.len() + 1)
}

/// Words as a shell would split them, with their quotes.
fn shell_words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        if quote.is_none() && !escaped && character.is_whitespace() {
            words.extend(start.take().map(|start| start..at));
            continue;
        }
        start.get_or_insert(at);
        match character {
            _ if escaped => escaped = false,
            '\\' if quote != Some('\'') => escaped = true,
            '"' | '\'' if quote == Some(character) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(character),
            _ => {}
        }
    }
    words.extend(start.map(|start| start..text.len()));
    words
}

fn blank_words(text: &str) -> Vec<Range<usize>> {
    let start = |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
    text.split_whitespace().map(|word| start(word)..start(word) + word.len()).collect()
}

/// Runs of characters that names are made of.
fn names(word: &str) -> impl Iterator<Item = Range<usize>> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let bytes = word.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_part(bytes[at]) {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_part(bytes[at]) {
            at += 1;
        }
        (start < at).then_some(start..at)
    })
}

/// Where the value begins that a name ending at `end` has, if it has one: after `=` or `:` and what may stand around it.
fn value_after(word: &str, end: usize) -> Option<usize> {
    let rest = &word[end..];
    let sign = rest.trim_start_matches(['"', '\'', '\\', ']']).trim_start();
    if !sign.starts_with(['=', ':']) || sign.starts_with("://") {
        return None;
    }
    let value = sign.trim_start_matches(['=', ':', '>']).trim_start().trim_start_matches(['"', '\'', '\\']);
    Some(word.len() - value.len())
}

fn is_key(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    name.len() >= SHORTEST_KEY && SECRET_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

fn passwords_in_addresses(word: &str, at: usize, found: &mut Vec<Range<usize>>) {
    for (colon, sign) in word.match_indices("://") {
        let start = colon + sign.len();
        let end = word[start..].find(['/', '\\', '?', '#', '"', '\'']).map_or(word.len(), |end| start + end);
        let Some(host) = word[start..end].rfind('@').map(|host| start + host) else { continue };
        let web = word[..colon].ends_with("http") || word[..colon].ends_with("https");
        // The name of a user alone is no secret, but for tokens that stand in its place.
        if web || word[start..host].contains(':') {
            found.push(at + start..at + host);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::command::CommandLine;

    fn argv(arguments: &[&str]) -> Vec<String> {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        words(&arguments).into_iter().map(Cow::into_owned).collect()
    }

    #[test]
    fn secrets_are_taken_out_and_the_rest_is_kept() {
        for (given, kept) in [
            (&["--token", "x1", "-v"] as &[&str], &["--token", "[redacted]", "-v"] as &[&str]),
            (&["--password=a b", "x"], &["--password=[redacted]", "x"]),
            (&["-H", "Authorization: Bearer a.b.c"], &["-H", "Authorization: [redacted]"]),
            (&["-H", "X-Api-Key: 1234"], &["-H", "X-Api-Key: [redacted]"]),
            (&["-b", "Cookie: a=b; c=d"], &["-b", "Cookie: [redacted]"]),
            (&["env", "DB_PASSWORD=1", "make"], &["env", "DB_PASSWORD=[redacted]", "make"]),
            (&["-u", "ann:pw", "x:y"], &["-u", "ann:[redacted]", "x:y"]),
            (&["-uann:pw", "x:y"], &["-uann:[redacted]", "x:y"]),
            (&["--user=ann:p w"], &["--user=ann:[redacted]"]),
            (&["--proxy-user=ann:pw"], &["--proxy-user=ann:[redacted]"]),
            (&["https://ann:pw@host/a?b=c"], &["https://[redacted]@host/a?b=c"]),
            (&["https://host/?api_key=abc"], &["https://host/?api_key=[redacted]"]),
            (
                &["-d", r#"{"user": "ann", "password": "a b", "n": 1}"#],
                &["-d", r#"{"user": "ann", "password": [redacted] "n": 1}"#],
            ),
            (
                &["-c", "curl --token abc --header 'Authorization: Basic abc' x"],
                &["-c", "curl --token [redacted] --header 'Authorization: [redacted] x"],
            ),
            (&["push", "ghp_0123456789abcdefghij"], &["push", "[redacted]"]),
            (&["--token", "--verbose"], &["--token", "--verbose"]),
            (&["-k", "-----BEGIN RSA PRIVATE KEY-----\nabc\n", "x"], &["-k", "[redacted]", "x"]),
            (&["--key=-----BEGIN PRIVATE KEY-----\nabc"], &["--key=[redacted]"]),
            (
                &["-d", "see https://ann:pw@h/ and -----BEGIN PRIVATE KEY-----\nabc"],
                &["-d", "see https://[redacted]@h/ and [redacted]"],
            ),
            (
                &["-----BEGIN", "RSA", "PRIVATE", "KEY-----", "abc"],
                &["-----BEGIN", "RSA", "[redacted]", "[redacted]", "[redacted]"],
            ),
        ] {
            assert_eq!(argv(given), kept);
        }
    }

    #[test]
    fn settings_paths_and_plain_words_stay() {
        for plain in [
            &["--token-file", "/run/token"] as &[&str],
            &["--max-tokens", "4096"],
            &["status", "--porcelain=v2", "-z"],
            &["-u", "1000:1000"],
            &["-u1000:1000", "--user=1000:1000", "--user=ann", "--update=a:b"],
            &["-----BEGIN CERTIFICATE-----\nabc"],
            &["ssh://git@host/x.git"],
            &["--author", "Ann <ann@example.org>"],
            &["sort", "--key=2"],
            &["a:b", "x=y", "12:34"],
            &["-c", "for f in *.c; do echo \"$f\"; done"],
        ] {
            assert_eq!(argv(plain), plain);
            let line = plain.join(" ");
            assert!(matches!(masked_text(&line), Cow::Borrowed(_)), "{line}");
        }
    }

    #[test]
    fn whole_lines_are_read_like_words() {
        let kept = |line: &str| masked_text(line).into_owned();
        assert_eq!(kept("curl --token abc x"), "curl --token [redacted] x");
        assert_eq!(kept("TOKEN='a b' make"), "TOKEN='[redacted] make");
        assert_eq!(kept("password: hunter2"), "password: [redacted]");
        assert_eq!(kept("Authorization: Bearer abc def"), "Authorization: [redacted] [redacted] def");
        let key = "x -----BEGIN RSA PRIVATE KEY-----\nabc\n";
        assert_eq!(kept(key), "x [redacted]");
    }

    #[test]
    fn what_is_too_deep_to_be_looked_at_is_hidden() {
        let mut line = "a --token hunter2".to_owned();
        for _ in 0..8 {
            line = format!("b {}", serde_json::Value::from(line));
        }
        assert!(!masked_text(&line).contains("hunter2"), "{}", masked_text(&line));
        let mut found = Vec::new();
        look_at_word("'a b'", 3, Next::Plain, DEEPEST, &mut found);
        assert_eq!(found.first(), Some(&(3..8)));
    }

    fn secret() -> impl Strategy<Value = String> {
        // Long enough not to be a part of the words around it by chance.
        "[ -~ä]{6,24}".prop_filter("has something to hide", |text| {
            !text.starts_with(['-', '"', '\'', '\\', ' ', '=', ':', '>', ',', ';', ']'])
                && !text.ends_with([' ', '"', '\'', '\\', ',', ';'])
                && !"Authorization: Bearer password token example".contains(text.as_str())
        })
    }

    /// The whole and every long part of a secret: to leave out half of it is to leave out nothing.
    fn holds(text: &str, secret: &str) -> bool {
        text.contains(secret)
            || secret.split(char::is_whitespace).any(|part| part.chars().count() >= 6 && text.contains(part))
    }

    proptest! {
        #[test]
        fn no_secret_is_left_among_arguments(secret in secret(), form in 0..9usize, before in "[a-z]{0,3}", after in "[a-z]{0,3}") {
            let with = |text: &str| text.replace("{}", &secret);
            let words: Vec<String> = match form {
                0 => vec!["--token".into(), secret.clone()],
                1 => vec!["--client-secret".into(), secret.clone()],
                2 => vec![with("--password={}")],
                3 => vec!["-H".into(), with("Authorization: Bearer {}")],
                4 => vec!["-H".into(), with("Cookie: session={}")],
                5 => vec![with("GITHUB_TOKEN={}")],
                6 => vec!["-e".into(), with("AWS_SECRET_ACCESS_KEY={}")],
                7 => vec![with("-Dspring.datasource.password={}")],
                _ => vec![with("X-Api-Key: {}")],
            };
            let all: Vec<String> = [vec![before], words, vec![after]].concat();
            let kept = argv(&all.iter().map(String::as_str).collect::<Vec<_>>());
            prop_assert!(!holds(&kept.join("\n"), &secret), "{kept:?}");
            // The same as one line, as a shell would take it.
            let line = CommandLine { program: "run".into(), arguments: all }.shown();
            let kept = masked_text(&line);
            prop_assert!(!holds(&kept, &secret), "{line} became {kept}");
        }

        #[test]
        fn any_text_is_looked_at_without_harm(text in any::<String>(), depth in 0..6usize) {
            let mut found = Vec::new();
            look_at_text(&text, 0, depth, &mut found);
            prop_assert!(found.iter().all(|range| text.get(range.clone()).is_some()));
            let _ = masked(&text, found);
            let _ = words(&[text]);
        }
    }
}
