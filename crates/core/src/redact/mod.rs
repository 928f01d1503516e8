//! What of a call's arguments may be written down.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::call::hex;

mod names;
mod programs;
mod split;
mod words;

pub use names::is_secret_name;
use names::{SECRET_BEGINNINGS, SECRET_ENDINGS};
pub use words::{arguments_of, words};

const REDACTED: &str = "[redacted]";
/// Longer texts are stored as digest and preview.
const LONGEST_TEXT: usize = 256;
const PREVIEW_CHARS: usize = 64;
/// Arrays and objects keep this many members, and nest this deep, in the record.
const MOST_MEMBERS: usize = 64;
const DEEPEST: usize = 8;
/// When the whole is still larger than this, long members give way to digests.
const MOST_BYTES: usize = 32 * 1024;
const LONGEST_MEMBER: usize = 256;
/// Of the texts of one call, so much is looked at for secrets. Nothing is kept of what was not looked at.
const MOST_LOOKED_AT: usize = 256 << 10;

/// Shorter values are settings: `TOKEN_LIMIT=100`.
const SHORTEST_SECRET: usize = 8;

/// Whether a variable or a header of this name and value is a secret that somebody wrote down in plain text.
pub fn looks_secret(name: &str, value: &str) -> bool {
    if has_secret_beginning(value) || url_holds_secret(value) {
        return true;
    }
    let name = name.to_ascii_lowercase();
    let named = is_secret_name(&name) || SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending));
    let value = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("Basic ")).unwrap_or(value);
    let is_setting = value.len() < SHORTEST_SECRET
        || value.contains(char::is_whitespace)
        || value.starts_with(['/', '.', '~', '$'])
        || value.contains("://")
        || value.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
    named && !is_setting
}

fn has_secret_beginning(value: &str) -> bool {
    let value =
        value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("token ")).unwrap_or(value).trim();
    value.len() >= 20 && SECRET_BEGINNINGS.iter().any(|beginning| value.starts_with(beginning))
}

/// Whether an address carries a password, or a secret among its parameters.
pub fn url_holds_secret(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split(['/', '#']).next().unwrap_or_default();
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    if password.is_some_and(|(_, password)| !password.is_empty() && !password.starts_with('$')) {
        return true;
    }
    let parameters = query.split('#').next().unwrap_or_default().split('&');
    parameters
        .filter_map(|parameter| parameter.split_once('='))
        .any(|(name, value)| looks_secret(name, value))
}

/// The arguments of a program that look like secrets, with where in the argument the secret begins.
pub fn secret_arguments(arguments: &[String]) -> Vec<(usize, usize)> {
    let option = |argument: &str| argument.trim_start_matches('-').to_owned();
    let mut found = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| arguments[before].as_str()).unwrap_or_default();
        let after_option =
            before.starts_with('-') && !before.contains('=') && looks_secret(&option(before), argument);
        if has_secret_beginning(argument) || url_holds_secret(argument) || after_option {
            found.push((index, 0));
        } else if let Some((name, value)) = argument.split_once(['=', ':'])
            && !argument.contains("://")
            && looks_secret(&option(name), value.trim_start())
        {
            let blanks = value.len() - value.trim_start().len();
            found.push((index, name.len() + 1 + blanks));
        }
    }
    found
}

/// A copy of `arguments` fit for the record: whatever a caller sends, it stays within tens of kilobytes.
pub fn arguments(arguments: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = members(arguments, 0, &mut Budget(MOST_LOOKED_AT));
    if length(&kept) > MOST_BYTES {
        for value in kept.values_mut().filter(|value| length(value) > LONGEST_MEMBER) {
            *value = summary(value);
        }
    }
    kept
}

fn length(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |bytes| bytes.len())
}

/// How much of a call is still looked at.
struct Budget(usize);

impl Budget {
    /// Whether there is enough for so many bytes. Once there was not, there is nothing for what comes after, either.
    fn covers(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

fn members(object: &Map<String, Value>, depth: usize, budget: &mut Budget) -> Map<String, Value> {
    // Which option means a password depends on the program.
    let program = object.get("command").and_then(Value::as_str);
    let mut kept: Map<String, Value> = object
        .iter()
        .take(MOST_MEMBERS)
        .map(|(name, member)| {
            let value = match member {
                member if is_secret_name(name) || names::names_secret(name) => masked(member),
                Value::Array(items) if name == "args" => list(items, program, depth + 1, budget),
                member => value(member, depth + 1, budget),
            };
            (clip(name), value)
        })
        .collect();
    if object.len() > MOST_MEMBERS {
        kept.insert("…".into(), (object.len() - MOST_MEMBERS).into());
    }
    kept
}

fn value(value: &Value, depth: usize, budget: &mut Budget) -> Value {
    match value {
        Value::String(text) => self::text(text, budget),
        Value::Object(_) if depth > DEEPEST => summary(value),
        Value::Array(items) => list(items, None, depth, budget),
        Value::Object(object) => Value::Object(members(object, depth, budget)),
        plain => plain.clone(),
    }
}

/// `program` is what the items are arguments of, where that is known.
fn list(items: &[Value], program: Option<&str>, depth: usize, budget: &mut Budget) -> Value {
    if depth > DEEPEST || items.len() > MOST_MEMBERS {
        return summary(&items);
    }
    match texts(items) {
        // What one word is may be said by the word before it.
        Some(texts) if budget.covers(texts.iter().map(|text| words::bounded(text).len()).sum()) => {
            let kept = match program {
                Some(program) => arguments_of(program, &texts),
                None => words(&texts),
            };
            kept.iter().map(|word| text(word, budget)).collect()
        }
        Some(texts) => texts.iter().map(|text| unread(text)).collect(),
        None => items.iter().map(|item| value(item, depth + 1, budget)).collect(),
    }
}

fn texts(items: &[Value]) -> Option<Vec<&str>> {
    items.iter().map(Value::as_str).collect()
}

fn text(text: &str, budget: &mut Budget) -> Value {
    if !budget.covers(words::bounded(text).len()) {
        return unread(text);
    }
    let text = without_password(text);
    let text = words::masked_text(&text);
    if text.len() <= LONGEST_TEXT {
        return text.into();
    }
    let preview: String = text.chars().take(PREVIEW_CHARS).collect();
    json!({"sha256": hex(&Sha256::digest(text.as_bytes())), "bytes": text.len(), "preview": preview})
}

/// A URL may carry a password before its host; everything else of it is needed to know what was fetched. Web
/// addresses are read as leniently as a browser reads them: with any number of slashes, of either kind.
fn without_password(text: &str) -> Cow<'_, str> {
    let masked = || {
        let (scheme, rest) = text.split_once(':')?;
        let is_web =
            ["http", "https", "ftp", "ws", "wss"].iter().any(|web| scheme.trim().eq_ignore_ascii_case(web));
        if !is_web && !rest.starts_with("//") {
            return None;
        }
        let authority = rest.trim_start_matches(['/', '\\', '\t', '\n', '\r']);
        let end = authority.find(['/', '\\', '?', '#']).unwrap_or(authority.len());
        let at = authority[..end].rfind('@')?;
        Some(format!("{scheme}://[redacted]{}", &authority[at..]))
    };
    masked().map_or(Cow::Borrowed(text), Cow::Owned)
}

/// What stands for a text that nobody has looked at. A short one may be a secret, and could be guessed from its digest.
fn unread(text: &str) -> Value {
    if text.len() <= LONGEST_TEXT {
        return REDACTED.into();
    }
    json!({"sha256": hex(&Sha256::digest(text.as_bytes())), "bytes": text.len()})
}

fn summary(value: &impl serde::Serialize) -> Value {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    json!({"sha256": hex(&Sha256::digest(&bytes)), "bytes": bytes.len()})
}

/// A digest of a secret would let one test guesses against the log, so nothing of it is kept.
fn masked(value: &Value) -> Value {
    if value.is_null() { Value::Null } else { REDACTED.into() }
}

/// Whether the record may hold less of this value than the call did. What a caller wrote to look like a redaction
/// counts as one: better not to know than to guess.
pub fn hides(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => items.iter().any(hides),
        Value::Object(members) => {
            (members.contains_key("sha256") && members.contains_key("bytes"))
                || members.iter().any(|(name, member)| {
                    name == "…" || name.chars().count() >= LONGEST_TEXT || hides(member)
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn clip(name: &str) -> String {
    name.chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
    fn redacted(value: Value) -> Value {
        Value::Object(arguments(value.as_object().unwrap()))
    }

    #[test]
    fn secrets_are_masked_at_any_depth() {
        let record = redacted(
            json!({"headers": {"Authorization": "Bearer s3cret", "Accept": "*/*"}, "x": [{"api_key": "k"}]}),
        );
        assert_eq!(
            record,
            json!({"headers": {"Authorization": "[redacted]", "Accept": "*/*"}, "x": [{"api_key": "[redacted]"}]})
        );
    }

    #[test]
    fn secrets_in_plain_text_are_told_from_settings() {
        for (name, value) in [
            ("GITHUB_PERSONAL_ACCESS_TOKEN", "0123456789abcdef0123"),
            ("OPENAI_KEY", "abcdefghijklmnop"),
            ("X", "ghp_0123456789abcdefghij"),
            ("Authorization", "Bearer abcdefghijklmnop"),
            ("DATABASE_URL", "postgres://ann:pw@db/x"),
            ("ENDPOINT", "https://example.org/?api_key=abcdefghijkl"),
        ] {
            assert!(looks_secret(name, value), "{name}");
        }
        for (name, value) in [
            ("TOKEN_LIMIT", "100000000"),
            ("MAX_TOKENS", "4096"),
            ("TOKEN_FILE", "/run/secrets/token"),
            ("TOKEN_URL", "https://example.org/token"),
            ("LANG", "en_GB.UTF-8"),
            ("API_KEY", ""),
            ("API_KEY", "${API_KEY}"),
            ("DATABASE_URL", "postgres://db/x"),
        ] {
            assert!(!looks_secret(name, value), "{name}={value}");
        }
        let arguments = |list: &[&str]| {
            secret_arguments(&list.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(arguments(&["-y", "server", "--token", "abcdefghijklmnop"]), [(3, 0)]);
        assert_eq!(arguments(&["--api-key=abcdefghijklmnop"]), [(0, 10)]);
        assert_eq!(arguments(&["--header", "Authorization: Bearer abcdefghijklmnop"]), [(1, 15)]);
        assert_eq!(arguments(&["--header", "Authorization:${AUTH}", "/srv/data", "--port=8080"]), []);
        assert_eq!(arguments(&["postgresql://ann:pw@localhost/db"]), [(0, 0)]);
    }

    #[test]
    fn long_text_becomes_digest_and_preview() {
        let record = redacted(json!({"content": "ä".repeat(1000)}));
        assert_eq!(record["content"]["bytes"], 2000);
        assert_eq!(record["content"]["preview"], "ä".repeat(64));
        assert_eq!(record["content"]["sha256"].as_str().unwrap().len(), 64);
    }

    #[test]
    fn passwords_in_urls_are_masked() {
        let record = redacted(json!({"url": "https://ann:pw@example.org/a@b?c"}));
        assert_eq!(record["url"], "https://[redacted]@example.org/a@b?c");
        for url in [
            "http:ann:pw@h/",
            "http:/ann:pw@h/",
            "HTTP:\\\\ann:pw@h/",
            " https://ann:pw@h/",
            "ftp:///ann:pw@h",
        ] {
            let record = redacted(json!({ "url": url }));
            assert!(!record.to_string().contains("pw"), "{record}");
        }
        assert_eq!(redacted(json!({"text": "mail: ann@example.org"}))["text"], "mail: ann@example.org");
        for text in ["a://b@", "://@://@", "x://@@@/y://z@w", "no@url", "http://plain/@"] {
            let _ = redacted(json!({ "x": text }));
        }
    }

    #[test]
    fn many_middling_members_stay_small() {
        let row = json!(vec!["x".repeat(250); 30]);
        let table = json!(vec![row; 30]);
        let all: Map<String, Value> =
            (0..20).map(|n| (format!("{n}{}", "k".repeat(300)), table.clone())).collect();
        let text = Value::Object(arguments(&all)).to_string();
        assert!(text.len() < 64 * 1024, "{}", text.len());
    }

    #[test]
    fn what_is_left_out_can_be_told() {
        for whole in [json!("a"), json!(1), json!({"a": ["b", null]}), json!("mail ann@example.org")] {
            let record = redacted(json!({ "x": whole }));
            assert!(!hides(&record["x"]), "{record}");
        }
        let mut deep = json!(1);
        for _ in 0..20 {
            deep = json!([deep]);
        }
        let wide: Map<String, Value> = (0..100).map(|n| (n.to_string(), n.into())).collect();
        for cut in [
            json!("x".repeat(1000)),
            json!(["a", "x".repeat(1000)]),
            json!({"password": "p"}),
            json!("https://ann:pw@example.org/"),
            json!((0..100).collect::<Vec<_>>()),
            deep,
            wide.into(),
        ] {
            let record = redacted(json!({ "x": cut }));
            assert!(hides(&record["x"]), "{record}");
        }
        assert!(hides(&redacted(json!({"token": "t"}))["token"]));
    }

    #[test]
    fn so_much_of_a_call_is_looked_at_and_the_rest_is_not_kept() {
        let list = |word: &str| json!(vec![word; 60]);
        // Sixty long texts in a list use up what there is.
        let record = redacted(json!({
            "a": "plain", "b": list(&"x ".repeat(32 << 10)), "c": list("hunter2"), "d": "hunter2",
            "e": {"f": ["hunter2", 1], "token": "hunter2"}, "g": 7, "h": "hunter2 ".repeat(100),
        }));
        assert!(!record.to_string().contains("hunter2"), "{record}");
        assert_eq!(
            (&record["a"], &record["d"], &record["g"]),
            (&json!("plain"), &json!(REDACTED), &json!(7))
        );
        assert_eq!(record["e"], json!({"f": [REDACTED, 1], "token": REDACTED}));
        assert_eq!(record["h"]["bytes"], 800);
        assert!(["b", "c", "d", "e", "h"].iter().all(|name| hides(&record[*name])), "{record}");
        // One text may be as long as it likes: the rest of it is in the record by its digest.
        let record = redacted(json!({"content": "x".repeat(10 << 20), "path": "/workspace/a"}));
        assert_eq!(
            (&record["content"]["bytes"], &record["path"]),
            (&json!(10 << 20), &json!("/workspace/a"))
        );
    }

    #[test]
    fn deep_and_wide_arguments_stay_small() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        let wide: Vec<u32> = (0..100_000).collect();
        let text = redacted(json!({"deep": deep, "wide": wide})).to_string();
        assert!(text.len() < 1000, "{}", text.len());
    }
}
