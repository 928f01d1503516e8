//! From bytes to text: what kind of content it is, and in which character encoding.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// How far into a document its encoding may be declared.
const PRESCAN: usize = 1024;

/// A parsed `Content-Type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType {
    /// `text/html`: lower case, no parameters.
    essence: String,
    charset: Option<String>,
}

impl ContentType {
    pub fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let charset = parts.find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim()
                .eq_ignore_ascii_case("charset")
                .then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        });
        Self { essence, charset }
    }

    pub fn essence(&self) -> &str {
        &self.essence
    }

    pub fn is_html(&self) -> bool {
        matches!(self.essence.as_str(), "text/html" | "application/xhtml+xml")
    }

    fn is_markup(&self) -> bool {
        self.is_html() || self.essence.ends_with("/xml") || self.essence.ends_with("+xml")
    }

    /// Pictures, sound, archives: types that are never text, whatever their bytes.
    pub fn is_binary(&self) -> bool {
        let (kind, rest) = self.essence.split_once('/').unwrap_or_default();
        match kind {
            "image" => !rest.ends_with("+xml"),
            "audio" | "video" | "font" => true,
            "application" => {
                matches!(
                    rest,
                    "pdf"
                        | "zip"
                        | "gzip"
                        | "x-gzip"
                        | "x-tar"
                        | "x-bzip2"
                        | "x-xz"
                        | "x-7z-compressed"
                        | "zstd"
                        | "vnd.rar"
                        | "wasm"
                        | "java-archive"
                        | "msword"
                        | "epub+zip"
                        | "x-executable"
                        | "vnd.debian.binary-package"
                ) || rest.starts_with("vnd.ms-")
                    || rest.starts_with("vnd.openxmlformats-")
                    || rest.starts_with("vnd.oasis.")
            }
            _ => false,
        }
    }
}

/// Whether bytes are text in no encoding: they hold a NUL, or a control character that no text has.
pub(super) fn looks_binary(bytes: &[u8], content_type: Option<&ContentType>) -> bool {
    let start = &bytes[..bytes.len().min(PRESCAN)];
    let encoding = encoding_of(bytes, content_type, true);
    if encoding == UTF_16LE || encoding == UTF_16BE {
        return false;
    }
    // ESC and the shifts belong to ISO-2022-JP.
    start.iter().any(|b| matches!(b, 0..=8 | 0x10..=0x1a | 0x1c..=0x1f))
}

/// Decodes by byte-order mark, then header, then declaration inside the document. Without any of them text that is
/// valid UTF-8 is UTF-8 and the rest Windows-1252. `complete` is false when the bytes were cut.
pub(super) fn decode(bytes: &[u8], content_type: Option<&ContentType>, complete: bool) -> String {
    let encoding = encoding_of(bytes, content_type, complete);
    let mut decoder = encoding.new_decoder_with_bom_removal();
    let capacity = decoder.max_utf8_buffer_length(bytes.len()).unwrap_or(bytes.len().saturating_mul(3));
    let mut text = String::with_capacity(capacity);
    // A cut character at the end of cut bytes is left out; anywhere else it becomes U+FFFD.
    let _ = decoder.decode_to_string(bytes, &mut text, complete);
    text.shrink_to_fit();
    text
}

fn encoding_of(bytes: &[u8], content_type: Option<&ContentType>, complete: bool) -> &'static Encoding {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return encoding;
    }
    let declared = content_type
        .and_then(|content_type| content_type.charset.as_deref())
        .and_then(|label| Encoding::for_label(label.as_bytes()));
    if let Some(encoding) = declared {
        return encoding;
    }
    let markup = content_type.map_or_else(|| looks_like_html(bytes), ContentType::is_markup);
    if markup && let Some(encoding) = declared_inside(bytes) {
        // A document that can be read far enough to say "utf-16" is not in it.
        return if encoding == UTF_16LE || encoding == UTF_16BE { UTF_8 } else { encoding };
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => UTF_8,
        Err(error) if !complete && error.error_len().is_none() => UTF_8,
        Err(_) => WINDOWS_1252,
    }
}

/// `charset=…` in a `meta` element, or `encoding="…"` in an XML declaration.
fn declared_inside(bytes: &[u8]) -> Option<&'static Encoding> {
    let start = &bytes[..bytes.len().min(PRESCAN)];
    let text: String = start.iter().map(|b| b.to_ascii_lowercase() as char).collect();
    let after = |text: &str, key: &str| -> Option<&'static Encoding> {
        let (_, rest) = text.split_once(key)?;
        let rest = rest.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
        let end = rest.find(|c: char| matches!(c, '"' | '\'' | '>' | ';' | '/' | '?') || c.is_whitespace());
        Encoding::for_label(&rest.as_bytes()[..end.unwrap_or(rest.len())])
    };
    if let Some(declaration) = text.trim_start().strip_prefix("<?xml") {
        let declaration = declaration.split("?>").next().unwrap_or_default();
        if let Some(encoding) = after(declaration, "encoding") {
            return Some(encoding);
        }
    }
    text.split("<meta").skip(1).find_map(|meta| after(meta.split('>').next().unwrap_or_default(), "charset"))
}

/// For answers without a type.
pub(super) fn looks_like_html(bytes: &[u8]) -> bool {
    let start = bytes.trim_ascii_start();
    let opens = |with: &[u8]| start.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    opens(b"<!doctype html") || opens(b"<html") || opens(b"<head") || opens(b"<body")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn decoded(bytes: &[u8], header: Option<&str>) -> String {
        decode(bytes, header.map(ContentType::parse).as_ref(), true)
    }

    #[test]
    fn content_types() {
        let parsed = ContentType::parse("Text/HTML ; Charset=\"ISO-8859-1\"; x=y");
        assert_eq!((parsed.essence(), parsed.charset.as_deref()), ("text/html", Some("ISO-8859-1")));
        assert!(parsed.is_html());
        assert!(!ContentType::parse("").is_binary());
        for binary in ["image/png", "application/pdf", "video/mp4", "application/vnd.ms-excel", "font/woff2"]
        {
            assert!(ContentType::parse(binary).is_binary(), "{binary}");
        }
        for text in [
            "image/svg+xml",
            "application/json",
            "application/octet-stream",
            "text/csv",
            "application/x-yaml",
        ] {
            assert!(!ContentType::parse(text).is_binary(), "{text}");
        }
    }

    #[test]
    fn charset_from_the_header() {
        assert_eq!(decoded(b"caf\xe9", Some("text/plain; charset=iso-8859-1")), "café");
        assert_eq!(decoded(b"\x93x\x94", Some("text/plain; charset=windows-1252")), "“x”");
        assert_eq!(decoded(b"\x83e\x83X\x83g", Some("text/plain; charset=Shift_JIS")), "テスト");
        assert_eq!(decoded("é".as_bytes(), Some("text/plain; charset=nonsense")), "é");
    }

    #[test]
    fn charset_from_the_byte_order_mark() {
        assert_eq!(decoded(b"\xef\xbb\xbfhi", Some("text/plain; charset=iso-8859-1")), "hi");
        assert_eq!(decoded(b"\xff\xfeh\0i\0", None), "hi");
        assert_eq!(decoded(b"\xfe\xff\0h\0i", None), "hi");
    }

    #[test]
    fn charset_from_the_document() {
        let html = Some("text/html");
        assert_eq!(decoded(b"<meta charset=iso-8859-1>\xe9", html), "<meta charset=iso-8859-1>é");
        let old = b"<META HTTP-EQUIV='Content-Type' content='text/html; charset=koi8-r'>\xd4";
        assert!(decoded(old, html).ends_with('т'));
        assert!(
            decoded(b"<?xml version='1.0' encoding='ISO-8859-15'?>\xa4", Some("text/xml")).ends_with('€')
        );
        assert!(decoded("<meta charset=utf-16>é".as_bytes(), html).ends_with('é'));
        // Plain text that talks about a declaration does not make one.
        assert!(decoded("<meta charset=koi8-r>é".as_bytes(), Some("text/plain")).ends_with('é'));
    }

    #[test]
    fn without_a_declaration_utf8_or_windows() {
        assert_eq!(decoded("naïve".as_bytes(), None), "naïve");
        assert_eq!(decoded(b"na\xefve", None), "naïve");
    }

    #[test]
    fn cut_bytes_lose_at_most_their_last_character() {
        let text = "a€".as_bytes();
        assert_eq!(decode(&text[..3], None, false), "a");
        assert_eq!(decode(&text[..2], Some(&ContentType::parse("text/plain; charset=utf-8")), false), "a");
        assert_eq!(
            decode(&text[..3], Some(&ContentType::parse("text/plain; charset=utf-8")), true),
            "a\u{fffd}"
        );
    }

    #[test]
    fn binary_bytes_are_seen() {
        assert!(looks_binary(b"\x89PNG\r\n\x1a\n\0\0", None));
        assert!(!looks_binary(b"plain\ttext\r\n", None));
        assert!(!looks_binary(b"\xff\xfeh\0i\0", None));
        assert!(!looks_binary(
            b"\x1b$B%F\x1b(B",
            Some(&ContentType::parse("text/plain; charset=iso-2022-jp"))
        ));
    }
}
