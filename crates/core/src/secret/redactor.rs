//! Known secrets taken out of texts that others will read: a server may echo what it was given.

use std::{borrow::Cow, ops::Range};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use serde_json::Value;

use super::Secret;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Shorter values would take ordinary words out of every text.
pub const SHORTEST_REDACTED: usize = 6;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Finds all known secrets in one pass, as they are and as JSON, URLs, headers and dumps write them.
#[derive(Debug, Default)]
pub struct Redactor {
    search: Search,
}

#[derive(Debug, Default)]
enum Search {
    #[default]
    Nothing,
    Automaton(AhoCorasick),
    /// Of more text than an automaton can hold, the longest first. Slow, but nothing goes unseen.
    Plain(Vec<Secret>),
}

impl Search {
    fn of(forms: Vec<String>) -> Self {
        if forms.is_empty() {
            return Self::Nothing;
        }
        // The longest form wins: of a secret that begins with another nothing is left over.
        match AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&forms) {
            Ok(automaton) => Self::Automaton(automaton),
            Err(_) => Self::plain(forms),
        }
    }

    fn plain(mut forms: Vec<String>) -> Self {
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self::Plain(forms.into_iter().map(Secret::new).collect())
    }

    /// The next hit from `from` on.
    fn next(&self, bytes: &[u8], from: usize) -> Option<Range<usize>> {
        match self {
            Self::Nothing => None,
            Self::Automaton(automaton) => {
                automaton.find(Input::new(bytes).range(from..)).map(|hit| hit.range())
            }
            Self::Plain(forms) => (from..bytes.len()).find_map(|start| {
                let form = forms
                    .iter()
                    .map(Secret::expose)
                    .find(|form| bytes[start..].starts_with(form.as_bytes()))?;
                Some(start..start + form.len())
            }),
        }
    }
}

impl Redactor {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut forms: Vec<String> = secrets
            .into_iter()
            .map(Secret::expose)
            .filter(|secret| secret.len() >= SHORTEST_REDACTED)
            .flat_map(written_forms)
            .collect();
        forms.sort_unstable();
        forms.dedup();
        Self { search: Search::of(forms) }
    }

    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut found = self.search.next(text.as_bytes(), 0);
        if found.is_none() {
            return Cow::Borrowed(text);
        }
        let mut kept = String::with_capacity(text.len());
        let mut end = 0;
        while let Some(hit) = found {
            // Forms are whole texts, so hits end between characters.
            kept.push_str(text.get(end..hit.start).unwrap_or_default());
            kept.push_str(REDACTED);
            end = hit.end;
            found = self.search.next(text.as_bytes(), end);
        }
        kept.push_str(text.get(end..).unwrap_or_default());
        Cow::Owned(kept)
    }

    /// Whether a secret stands anywhere in these bytes.
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.search.next(bytes, 0).is_some()
    }

    /// As [`Self::text`], in every text and every name of a member.
    pub fn value(&self, value: &mut Value) {
        if matches!(self.search, Search::Nothing) {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(kept) = self.text(text) {
                    *text = kept;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.value(member));
                if members.keys().any(|name| self.finds(name.as_bytes())) {
                    *members = std::mem::take(members)
                        .into_iter()
                        .map(|(name, member)| (self.text(&name).into_owned(), member))
                        .collect();
                }
            }
            // A secret of digits may come back as a number.
            Value::Number(number) => {
                if self.finds(number.to_string().as_bytes()) {
                    *value = REDACTED.into();
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

fn written_forms(secret: &str) -> Vec<String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned();
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms =
        vec![secret.to_owned(), json, hex.to_uppercase(), hex, percent(secret, false), percent(secret, true)];
    for upper in [true, false] {
        forms.push(percent_all(secret, upper));
        let escaped = escaped(secret, upper);
        // And as a text that holds it is written as JSON in turn.
        forms.push(escaped.replace('\\', "\\\\"));
        forms.push(escaped);
        // As Python and others write JSON: only what is not ASCII is escaped.
        forms.push(escaped_beyond_ascii(secret, upper));
    }
    forms.extend(base64_cores(secret.as_bytes()));
    forms.extend(base32_cores(secret.as_bytes()));
    forms.retain(|form| form.len() >= SHORTEST_REDACTED);
    forms
}

fn percent(text: &str, space_is_plus: bool) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            b' ' if space_is_plus => "+".to_owned(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Every byte as URLs may spell it, though they need not.
fn percent_all(text: &str, upper: bool) -> String {
    text.bytes().map(|byte| if upper { format!("%{byte:02X}") } else { format!("%{byte:02x}") }).collect()
}

/// Every character as JSON may spell it, though it need not.
fn escaped(text: &str, upper: bool) -> String {
    text.encode_utf16().map(|unit| escape(unit, upper)).collect()
}

fn escaped_beyond_ascii(text: &str, upper: bool) -> String {
    let json = serde_json::to_string(text).unwrap_or_default();
    let json = json.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
    let unit = |unit: u16| match u8::try_from(unit) {
        Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
        _ => escape(unit, upper),
    };
    json.encode_utf16().map(unit).collect()
}

fn escape(unit: u16, upper: bool) -> String {
    if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") }
}

/// What base64 makes of the bytes wherever they stand in a longer text, as in `user:password`, in both alphabets.
fn base64_cores(bytes: &[u8]) -> Vec<String> {
    let cores = (0..3).filter_map(|before| core(bytes, before, 6, BASE64));
    cores.flat_map(|core| [core.replace('+', "-").replace('/', "_"), core]).collect()
}

/// The same for base32, in both cases.
fn base32_cores(bytes: &[u8]) -> Vec<String> {
    let cores = (0..5).filter_map(|before| core(bytes, before, 5, BASE32));
    cores.flat_map(|core| [core.to_lowercase(), core]).collect()
}

/// The digits of `bits` bits that depend on these bytes alone, when so many others stand before them.
fn core(bytes: &[u8], before: usize, bits: usize, alphabet: &[u8]) -> Option<String> {
    let first = (before * 8).div_ceil(bits);
    let last = (before + bytes.len()) * 8 / bits;
    let bit = |index: usize| -> usize {
        let byte = index / 8;
        if byte < before { 0 } else { usize::from(bytes[byte - before] >> (7 - index % 8) & 1) }
    };
    let core: String = (first..last)
        .map(|digit| (0..bits).fold(0, |value, step| value << 1 | bit(digit * bits + step)))
        .map(|value| char::from(alphabet[value]))
        .collect();
    // Fewer would be found by chance.
    (core.len() >= 8).then_some(core)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        let secrets: Vec<Secret> = secrets.iter().map(|text| Secret::new(*text)).collect();
        Redactor::new(&secrets)
    }

    #[test]
    fn secrets_go_however_they_are_written() {
        let redactor = redactor(&["p\"ss wörd/1+2"]);
        assert_eq!(redactor.text("x p\"ss wörd/1+2 y"), "x [redacted] y");
        assert_eq!(redactor.text(r#"{"a":"p\"ss wörd/1+2"}"#), r#"{"a":"[redacted]"}"#);
        assert_eq!(redactor.text("k=p%22ss+w%C3%B6rd%2F1%2B2&x"), "k=[redacted]&x");
    }

    #[test]
    fn base64_is_found_wherever_it_falls() {
        // `ann:correct-horse`, `user:correct-horse` and `ab:correct-horse`.
        let redactor = redactor(&["correct-horse"]);
        for encoded in ["YW5uOmNvcnJlY3QtaG9yc2U=", "dXNlcjpjb3JyZWN0LWhvcnNl", "YWI6Y29ycmVjdC1ob3JzZQ=="] {
            assert!(redactor.finds(encoded.as_bytes()), "{encoded}");
        }
    }

    #[test]
    fn every_letter_spelt_out_is_found() {
        let redactor = redactor(&["correct-höрse😀"]);
        let units = || "correct-höрse😀".encode_utf16();
        let escaped: String = units().map(|unit| format!("\\u{unit:04x}")).collect();
        assert_eq!(redactor.text(&format!("{{\"a\":\"{escaped}\"}}")), r#"{"a":"[redacted]"}"#);
        let upper: String = units().map(|unit| format!("\\u{unit:04X}")).collect();
        assert_eq!(redactor.text(&upper), "[redacted]");
        assert_eq!(redactor.text(r"x correct-h\u00f6\u0440se\ud83d\ude00 y"), "x [redacted] y");
        let percent: String = "correct-höрse😀".bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert_eq!(redactor.text(&percent), "[redacted]");
        assert_eq!(redactor.text(&percent.to_uppercase()), "[redacted]");
    }

    #[test]
    fn base32_is_found_wherever_it_falls() {
        // `correct-horse` after none to four other letters.
        let redactor = redactor(&["correct-horse"]);
        for encoded in [
            "MNXXE4TFMN2C22DPOJZWK===",
            "PBRW64TSMVRXILLIN5ZHGZI=",
            "PB4GG33SOJSWG5BNNBXXE43F",
            "PB4HQY3POJZGKY3UFVUG64TTMU======",
            "PB4HQ6DDN5ZHEZLDOQWWQ33SONSQ====",
        ] {
            assert!(redactor.finds(encoded.as_bytes()), "{encoded}");
            assert!(redactor.finds(encoded.to_lowercase().as_bytes()), "{encoded}");
        }
    }

    #[test]
    fn nothing_else_changes() {
        let redactor = redactor(&["abc", "hunter2hunter2"]);
        assert!(matches!(redactor.text("abc and more"), Cow::Borrowed(_)));
        let mut value = json!({"a": ["x", 1, null], "b": "has hunter2hunter2 in it", "hunter2hunter2": 1});
        redactor.value(&mut value);
        assert_eq!(value, json!({"a": ["x", 1, null], "b": "has [redacted] in it", "[redacted]": 1}));
        assert_eq!(Redactor::default().text("anything"), "anything");
    }

    #[test]
    fn the_longer_of_two_secrets_goes_whole() {
        assert_eq!(redactor(&["secret-one", "secret-one-two"]).text("a secret-one-two b"), "a [redacted] b");
    }

    #[test]
    fn what_no_automaton_holds_is_found_as_well() {
        let forms = ["secret-one", "secret-one-two", "wörd-wörd"].map(str::to_owned).to_vec();
        let plain = Redactor { search: Search::plain(forms.clone()) };
        let automaton = Redactor { search: Search::of(forms) };
        for text in ["a secret-one-two b secret-one", "ö wörd-wörd ösecret-onesecret-one-two", "none", ""]
        {
            assert_eq!(plain.text(text), automaton.text(text));
            assert_eq!(plain.finds(text.as_bytes()), automaton.finds(text.as_bytes()));
        }
        assert_eq!(plain.text("a secret-one-two b secret-one"), "a [redacted] b [redacted]");
        let mut value = json!({"wörd-wörd": ["secret-one"]});
        plain.value(&mut value);
        assert_eq!(value, json!({"[redacted]": ["[redacted]"]}));
    }
}
