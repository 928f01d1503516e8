//! What a server says when it wants a better credential: RFC 6750's `WWW-Authenticate: Bearer`.

use http::{HeaderMap, header::WWW_AUTHENTICATE};

/// Text from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) resource_metadata: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) error: Option<String>,
}

impl Challenge {
    /// The first `Bearer` challenge; an empty one if there is none.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for value in headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()) {
            let Some(parameters) = after_scheme(value) else { continue };
            for (name, value) in parse(parameters) {
                let place = match name.to_ascii_lowercase().as_str() {
                    "resource_metadata" => &mut found.resource_metadata,
                    "scope" => &mut found.scope,
                    "error" => &mut found.error,
                    _ => continue,
                };
                place.get_or_insert(value);
            }
            break;
        }
        found
    }

    /// The credential is good, and not good enough.
    pub(super) fn wants_more(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// The parameters of the scheme we speak.
fn after_scheme(value: &str) -> Option<&str> {
    const SCHEME: &str = "bearer";
    let value = value.trim_start();
    let (scheme, rest) = value.split_at_checked(SCHEME.len())?;
    (scheme.eq_ignore_ascii_case(SCHEME) && (rest.is_empty() || rest.starts_with([' ', '\t'])))
        .then_some(rest)
}

/// `name=token, name="quoted \"text\""`. What follows something else belongs to another scheme.
fn parse(text: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = rest.split_once('=') else { return found };
        let name = name.trim();
        if name.is_empty() || name.contains([' ', '\t', ',']) {
            return found;
        }
        let after = after.trim_start();
        let (value, remaining) = match after.strip_prefix('"') {
            Some(quoted) => match unquote(quoted) {
                Some(unquoted) => unquoted,
                None => return found,
            },
            None => {
                let end = after.find([',', ' ', '\t']).unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        found.push((name, value));
        rest = remaining;
    }
}

/// The text up to the closing quote, and what comes after it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(values: &[&'static str]) -> Challenge {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        Challenge::of(&headers)
    }

    #[test]
    fn parameters_are_read_quoted_and_plain() {
        let read = of(&[
            r#"Bearer realm="a, b", error=insufficient_scope,scope="x y" , resource_metadata="https://h/p""#,
        ]);
        assert_eq!(read.scope.as_deref(), Some("x y"));
        assert_eq!(read.resource_metadata.as_deref(), Some("https://h/p"));
        assert!(read.wants_more());
        assert_eq!(of(&[r#"bearer scope="a \"b\"""#]).scope.as_deref(), Some(r#"a "b""#));
    }

    #[test]
    fn other_schemes_and_nonsense_say_nothing() {
        assert_eq!(of(&[]), Challenge::default());
        assert_eq!(of(&["Basic realm=\"x\"", "Bearerish scope=a"]), Challenge::default());
        assert_eq!(of(&["Bearer", "Bearer scope=late"]), Challenge::default());
        assert_eq!(of(&["Bearer scope=\"never ends"]), Challenge::default());
        assert_eq!(of(&["Basic x", "Bearer scope=a, Other scope=b"]).scope.as_deref(), Some("a"));
    }
}
