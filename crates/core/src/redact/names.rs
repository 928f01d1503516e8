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
const SECRET_ENDINGS: [&str; 22] = [
    "_key",
    "_pat",
    "_pwd",
    "_auth",
    "-key",
    "bearer",
    "accesskey",
    "accountkey",
    "sharedkey",
    "privatekey",
    "signingkey",
    "masterkey",
    "dbpass",
    "pgpass",
    "mypass",
    "userpass",
    "rootpass",
    "adminpass",
    "mailpass",
    "smtppass",
    "keypass",
    "storepass",
];

/// How keys of well-known providers begin, and the node's own.
pub(super) const SECRET_BEGINNINGS: [&str; 36] = [
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
    "ghr_",
    "xoxa-",
    "xoxe-",
    "xoxe.",
    "dckr_pat_",
    "GOCSPX-",
    "SG.",
    "dop_v1_",
    "sk_test_",
    "rk_test_",
    "hvs.",
    "shpat_",
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
/// Schemes of addresses in which what stands before the host is a secret, even without a colon.
pub(super) const WEB_SCHEMES: [&str; 5] = ["http", "https", "ftp", "ws", "wss"];
/// Shorter words begin like a key by chance.
pub(super) const SHORTEST_KEY: usize = 20;

pub fn is_secret_name(name: &str) -> bool {
    let name = name.as_bytes();
    // Asked of most words of every call: few letters begin one of these names.
    (0..name.len()).any(|at| {
        matches!(name[at].to_ascii_lowercase(), b'a' | b'c' | b'p' | b's' | b't')
            && SECRET_NAMES.iter().any(|secret| begins(&name[at..], secret))
    })
}

fn begins(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

fn ends(text: &str, word: &str) -> bool {
    let text = text.as_bytes();
    text.len().checked_sub(word.len()).is_some_and(|start| begins(&text[start..], word))
}

/// Whether the value of an option, a variable or a header of this name is a secret.
pub(super) fn names_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-');
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default();
    (is_secret_name(name)
        || WHOLE_NAMES.iter().any(|whole| last.eq_ignore_ascii_case(whole))
        || SECRET_ENDINGS.iter().any(|ending| ends(name, ending)))
        && !SETTINGS.iter().any(|setting| ends(name, setting))
}

/// Whether what has this name may be a secret, where nothing is lost by taking it for one: settings whose names speak
/// of secrets are among them.
pub fn may_be_secret(name: &str) -> bool {
    is_secret_name(name) || names_secret(name)
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

/// Whether a word after the name of a header may be a scheme that nobody has listed: `Bot`, `AWS4-HMAC-SHA256`.
pub(super) fn may_be_scheme(word: &str) -> bool {
    const LONGEST: usize = 20;
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    !word.is_empty() && word.len() <= LONGEST && (is_plain || word.contains("-SHA"))
}

/// Names of what proves that somebody has a secret, which is worth as much as long as it is valid.
pub(super) fn names_proof(name: &str) -> bool {
    ["signature", "response"].iter().any(|proof| name.eq_ignore_ascii_case(proof))
}

pub(super) fn is_password(name: &str) -> bool {
    ["password", "passwd"].iter().any(|password| name.eq_ignore_ascii_case(password))
}

/// Whether this may be a password where none is announced: letters and digits together are no word of a sentence.
pub(super) fn looks_made_up(word: &str) -> bool {
    const SHORTEST: usize = 6;
    word.len() >= SHORTEST
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !word.contains(['/', '=', ':'])
}

/// Whether a function of this name is given a secret, and not asked for one: `setPassword("X")`, `password('X')`.
pub(super) fn sets_secret(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let begins_with = |word: &&str| begins(last.as_bytes(), word);
    names_secret(last) && (["set", "with"].iter().any(begins_with) || SECRET_NAMES.iter().any(begins_with))
}

/// Whether this ends with the scheme of an address of the web.
pub(super) fn ends_with_web_scheme(text: &str) -> bool {
    WEB_SCHEMES.iter().any(|scheme| {
        let before = || text.as_bytes()[..text.len() - scheme.len()].iter().rev();
        // `sftp` and `news` are others, but a letter after a backslash is none of the scheme.
        let is_whole =
            || !before().next().is_some_and(u8::is_ascii_alphanumeric) || before().nth(1) == Some(&b'\\');
        ends(text, scheme) && (scheme.starts_with("http") || is_whole())
    })
}

pub(super) fn is_authorization(name: &str) -> bool {
    ends(name, "authorization")
}

pub(super) fn is_cookie(name: &str) -> bool {
    ends(name, "cookie")
}

pub(super) fn is_key(name: &str) -> bool {
    // What is made up by chance has one of these; the name of a tool or a file that begins alike need not.
    let is_made_up = |rest: &str| rest.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    let name = name.trim_start_matches('-');
    name.len() >= SHORTEST_KEY
        && SECRET_BEGINNINGS.iter().any(|beginning| name.strip_prefix(beginning).is_some_and(is_made_up))
}
