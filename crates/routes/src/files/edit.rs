//! Replacing one passage of a text.

use memchr::memmem;

use super::error::FileError;

/// Lines named in a message about several matches.
const SHOWN: usize = 5;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edited {
    pub(super) text: String,
    /// Where the replacement starts, counted from one.
    pub(super) line: usize,
}

/// Puts `replacement` in the place of `target`, which must occur exactly once. Overlapping occurrences are
/// several: which one is meant can't be known.
pub(super) fn replace_once(text: &str, target: &str, replacement: &str) -> Result<Edited, FileError> {
    let Some(start) = memmem::find(text.as_bytes(), target.as_bytes()) else {
        return Err(FileError::TargetNotFound(not_found(text, target)));
    };
    // Valid UTF-8 is found only at character boundaries, so stepping by one byte is safe.
    if memmem::find(&text.as_bytes()[start + 1..], target.as_bytes()).is_some() {
        return Err(FileError::TargetNotUnique(not_unique(text, target)));
    }
    let end = start + target.len();
    let mut edited = String::with_capacity(text.len() - target.len() + replacement.len());
    edited.push_str(&text[..start]);
    edited.push_str(replacement);
    edited.push_str(&text[end..]);
    Ok(Edited { text: edited, line: line_at(text, start) })
}

fn line_at(text: &str, offset: usize) -> usize {
    memchr::memchr_iter(b'\n', &text.as_bytes()[..offset]).count() + 1
}

fn not_unique(text: &str, target: &str) -> String {
    let mut lines = Vec::new();
    let mut count = 0_usize;
    let (mut line, mut from) = (1, 0);
    for start in memmem::find_iter(text.as_bytes(), target.as_bytes()) {
        count += 1;
        if lines.len() < SHOWN {
            line += memchr::memchr_iter(b'\n', &text.as_bytes()[from..start]).count();
            from = start;
            lines.push(line.to_string());
        }
    }
    if count < 2 {
        return "target_content occurs several times that overlap; extend it until it is unique".into();
    }
    let more = if count > lines.len() { ", …" } else { "" };
    format!(
        "target_content occurs {count} times, at lines {}{more}; extend it with surrounding text until it is unique",
        lines.join(", ")
    )
}

fn not_found(text: &str, target: &str) -> String {
    let plain = "target_content does not occur in the file";
    if let Some(line) = find_folded(text, target, |byte| byte == b'\r') {
        return format!(
            "{plain} as it is, but with other line endings at line {line}: the file and the target differ in \\r\\n \
             and \\n"
        );
    }
    if let Some(line) = find_folded(text, target, |byte| byte.is_ascii_whitespace()) {
        return format!(
            "{plain} as it is, but with other white space at line {line}; read the file and copy the passage exactly"
        );
    }
    format!("{plain}; read the file and copy the passage exactly")
}

/// The line where `target` is found once the bytes that `drop` names are taken out of both.
fn find_folded(text: &str, target: &str, drop: impl Fn(u8) -> bool) -> Option<usize> {
    let fold = |text: &str| -> Vec<u8> { text.bytes().filter(|byte| !drop(*byte)).collect() };
    let needle = fold(target);
    if needle.is_empty() {
        return None;
    }
    let found = memmem::find(&fold(text), &needle)?;
    let offset = text.bytes().enumerate().filter(|(_, byte)| !drop(*byte)).nth(found)?.0;
    Some(line_at(text, offset))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn says_how_many_and_where() {
        let text = "a\nfoo\nb\nfoo\nfoo foo\n";
        let Err(FileError::TargetNotUnique(message)) = replace_once(text, "foo", "x") else { panic!() };
        assert!(message.contains("occurs 4 times, at lines 2, 4, 5, 5;"), "{message}");
        let Err(FileError::TargetNotUnique(message)) = replace_once("aaa", "aa", "x") else { panic!() };
        assert!(message.contains("overlap"), "{message}");
        let many = "x\n".repeat(10);
        let Err(FileError::TargetNotUnique(message)) = replace_once(&many, "x", "y") else { panic!() };
        assert!(message.contains("10 times, at lines 1, 2, 3, 4, 5, …"), "{message}");
    }

    #[test]
    fn hints_at_white_space_and_line_endings() {
        for (text, target, hint) in [
            ("one\r\ntwo\r\nthree\r\n", "two\nthree", "other line endings at line 2"),
            ("fn a() {\n\treturn  1;\n}\n", "fn a() {\n    return 1;\n}", "other white space at line 1"),
            ("abc", "xyz", "does not occur in the file; read"),
            ("abc", " ", "does not occur in the file; read"),
        ] {
            let Err(FileError::TargetNotFound(message)) = replace_once(text, target, "") else { panic!() };
            assert!(message.contains(hint), "{message}");
        }
    }

    #[test]
    fn a_long_repetitive_text_is_no_trap() {
        let text = "a".repeat(1 << 20);
        let target = "a".repeat(1 << 19);
        assert!(matches!(replace_once(&text, &target, ""), Err(FileError::TargetNotUnique(_))));
    }

    proptest! {
        #[test]
        fn agrees_with_plain_strings(text in "[ab\u{e9}\n]{0,24}", target in "[ab\u{e9}\n]{1,4}", replacement in "[xy]{0,3}") {
            let positions = (0..text.len()).filter(|at| text.as_bytes()[*at..].starts_with(target.as_bytes())).count();
            match replace_once(&text, &target, &replacement) {
                Ok(edited) => {
                    prop_assert_eq!(positions, 1);
                    prop_assert_eq!(edited.text, text.replacen(&target, &replacement, 1));
                }
                Err(FileError::TargetNotFound(_)) => prop_assert_eq!(positions, 0),
                Err(FileError::TargetNotUnique(_)) => prop_assert!(positions > 1),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
