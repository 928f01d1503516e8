//! JSON pointers (RFC 6901).

use std::borrow::Cow;

pub(crate) fn push(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// `pointer` with `segments` below it.
pub(crate) fn below<const N: usize>(pointer: &str, segments: [&str; N]) -> String {
    let mut longer = pointer.to_owned();
    for segment in segments {
        push(&mut longer, segment);
    }
    longer
}

pub(super) fn unescape(segment: &str) -> Cow<'_, str> {
    if segment.contains('~') { segment.replace("~1", "/").replace("~0", "~").into() } else { segment.into() }
}
