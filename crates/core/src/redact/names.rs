//! Names that announce a secret, and what secrets of well-known providers look like.

/// Member names whose values are secrets wherever they stand.
const SECRET_NAMES: [&str; 12] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "passwd",
    "api_key",
    "apikey",
    "api-key",
    "private_key",
    "credential",
    "passphrase",
];

/// Ends of names that mean a secret in an environment, where `key` and `pat` have no other use.
pub(super) const SECRET_ENDINGS: [&str; 7] = ["_key", "_pat", "_pwd", "_auth", "-key", "bearer", "accesskey"];

/// How keys of well-known providers begin, and the node's own.
pub(super) const SECRET_BEGINNINGS: [&str; 24] = [
    "aegis_",
    "wl_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_live_",
    "rk_live_",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "-----BEGIN",
    "lin_api_",
];

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
/// Names that come before the colon of a script, of a test or of a reference as well: `npm run auth:test`.
const SCRIPTS: [&str; 6] = ["auth", "token", "secret", "cred", "creds", "pat"];
/// Shorter words begin like a key by chance.
const SHORTEST_KEY: usize = 20;

pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// Whether the value of an option, a variable or a header of this name is a secret.
pub(super) fn names_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_lowercase();
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    !SETTINGS.iter().any(|setting| name.ends_with(setting))
        && (is_secret_name(&name)
            || WHOLE_NAMES.contains(&last)
            || SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// As [`names_secret`], of a parameter in an address: whoever has its signature may use the address.
pub(super) fn names_secret_parameter(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let last = lower.rsplit(['-', '_', '.']).next().unwrap_or_default();
    matches!(last, "sig" | "signature") || names_secret(name)
}

/// Whether `name:rest` is the name of a script or a reference. Secrets have digits or capital letters.
pub(super) fn is_script(name: &str, rest: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || b"-_./:".contains(&byte);
    SCRIPTS.contains(&name) && !rest.is_empty() && rest.bytes().all(is_plain)
}

pub(super) fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

pub(super) fn is_cookie(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("cookie")
}

pub(super) fn is_key(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    name.len() >= SHORTEST_KEY && SECRET_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}
