//! Tags and text of an HTML page, in one pass that never looks at a byte twice. The real parser is quadratic in the
//! depth of a page and in the attributes of a tag, so hostile pages must be cut to size before it sees them.

/// What the scanner found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tools::web) enum Token<'a> {
    /// Character references are still in place. A `<` in it is text.
    Text(&'a str),
    Start {
        name: &'a str,
        attributes: &'a [(&'a str, &'a str)],
    },
    End {
        name: &'a str,
    },
}

/// Attributes beyond this many are not looked at.
const MOST_ATTRIBUTES: usize = 32;

/// Elements whose content is text up to their own end tag.
const RAW: [&str; 9] =
    ["script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext"];

#[derive(Debug)]
pub(in crate::tools::web) struct Scanner<'a> {
    html: &'a str,
    at: usize,
    attributes: Vec<(&'a str, &'a str)>,
    /// The raw element that was opened last.
    raw: Option<&'a str>,
}

impl<'a> Scanner<'a> {
    pub(in crate::tools::web) fn new(html: &'a str) -> Self {
        Self { html, at: 0, attributes: Vec::new(), raw: None }
    }

    pub(in crate::tools::web) fn next(&mut self) -> Option<Token<'_>> {
        if let Some(name) = self.raw.take() {
            let end = self.raw_end(name);
            if end > self.at {
                let text = &self.html[self.at..end];
                self.at = end;
                return Some(Token::Text(text));
            }
        }
        loop {
            let rest = &self.html[self.at..];
            if rest.is_empty() {
                return None;
            }
            match rest.find('<') {
                Some(0) => {}
                found => {
                    let end = found.unwrap_or(rest.len());
                    self.at += end;
                    return Some(Token::Text(&rest[..end]));
                }
            }
            let next = rest.as_bytes().get(1).copied().unwrap_or_default();
            match next {
                b'!' if rest.starts_with("<!--") => self.skip_past("-->", 4),
                b'!' | b'?' => self.skip_past(">", 2),
                b'/' if rest.as_bytes().get(2).is_some_and(u8::is_ascii_alphabetic) => {
                    let name = self.tag(2)?;
                    return Some(Token::End { name });
                }
                b'/' => self.skip_past(">", 2),
                _ if next.is_ascii_alphabetic() => {
                    let name = self.tag(1)?;
                    self.raw = RAW.iter().any(|raw| raw.eq_ignore_ascii_case(name)).then_some(name);
                    return Some(Token::Start { name, attributes: &self.attributes });
                }
                _ => {
                    self.at += 1;
                    return Some(Token::Text("<"));
                }
            }
        }
    }

    fn skip_past(&mut self, end: &str, from: usize) {
        let start = (self.at + from).min(self.html.len());
        self.at = self.html[start..].find(end).map_or(self.html.len(), |found| start + found + end.len());
    }

    /// Reads a tag whose name starts `from` bytes after its `<`. `None` when the page ends inside it.
    fn tag(&mut self, from: usize) -> Option<&'a str> {
        let html = self.html;
        let bytes = html.as_bytes();
        let until = |start: usize, stop: fn(u8) -> bool| {
            bytes[start..].iter().position(|b| stop(*b)).map_or(bytes.len(), |found| start + found)
        };
        self.attributes.clear();
        let start = self.at + from;
        let mut at = until(start, |b| b.is_ascii_whitespace() || b == b'/' || b == b'>');
        let name = &html[start..at];
        loop {
            at = until(at, |b| !b.is_ascii_whitespace() && b != b'/');
            match bytes.get(at) {
                None => {
                    self.at = bytes.len();
                    return None;
                }
                Some(b'>') => {
                    self.at = at + 1;
                    return Some(name);
                }
                Some(_) => {}
            }
            // A `=` where a name should start is part of it.
            let end = until(at + 1, |b| b.is_ascii_whitespace() || matches!(b, b'/' | b'>' | b'='));
            let key = &html[at..end.max(at)];
            let equals = until(end, |b| !b.is_ascii_whitespace());
            let mut value = "";
            at = end;
            if bytes.get(equals) == Some(&b'=') {
                let first = until(equals + 1, |b| !b.is_ascii_whitespace());
                let (open, close) = match bytes.get(first) {
                    Some(b'"') => (first + 1, until(first + 1, |b| b == b'"')),
                    Some(b'\'') => (first + 1, until(first + 1, |b| b == b'\'')),
                    _ => (first, until(first, |b| b.is_ascii_whitespace() || b == b'>')),
                };
                value = &html[open..close];
                at = if open > first { (close + 1).min(bytes.len()) } else { close };
            }
            if self.attributes.len() < MOST_ATTRIBUTES {
                self.attributes.push((key, value));
            }
        }
    }

    /// Where the end tag of the raw element `name` starts; the end of the page when there is none.
    fn raw_end(&self, name: &str) -> usize {
        let html = self.html.as_bytes();
        let mut at = self.at;
        while let Some(found) = self.html[at..].find("</") {
            let start = at + found;
            let after = start + 2 + name.len();
            let named =
                html.get(start + 2..after).is_some_and(|text| text.eq_ignore_ascii_case(name.as_bytes()));
            if named && html.get(after).is_none_or(|b| b.is_ascii_whitespace() || matches!(b, b'/' | b'>')) {
                return start;
            }
            at = start + 2;
        }
        html.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(html: &str) -> Vec<String> {
        let mut scanner = Scanner::new(html);
        let mut found = Vec::new();
        while let Some(token) = scanner.next() {
            found.push(match token {
                Token::Text(text) => format!("'{text}'"),
                Token::Start { name, attributes } => {
                    let attributes: String = attributes.iter().map(|(k, v)| format!(" {k}={v}")).collect();
                    format!("<{name}{attributes}>")
                }
                Token::End { name } => format!("</{name}>"),
            });
        }
        found
    }

    #[test]
    fn tags_text_and_attributes() {
        assert_eq!(
            tokens("a<B id=x class = 'y z' data-q=\"a>b\" hidden/>c</b >"),
            ["'a'", "<B id=x class=y z data-q=a>b hidden=>", "'c'", "</b>"]
        );
        assert_eq!(tokens("<a title=it's href=/x/y>q"), ["<a title=it's href=/x/y>", "'q'"]);
        assert_eq!(tokens("1 < 2 <3 <é"), ["'1 '", "'<'", "' 2 '", "'<'", "'3 '", "'<'", "'é'"]);
    }

    #[test]
    fn comments_and_declarations_vanish() {
        assert_eq!(tokens("<!DOCTYPE html><!-- <p> -->a<?php x ?>b</ 1>c<!-->d"), ["'a'", "'b'", "'c'"]);
        assert_eq!(tokens("a<!-- never closed <p>"), ["'a'"]);
    }

    #[test]
    fn raw_elements_hold_text() {
        assert_eq!(
            tokens("<script>if (a<b) '</p>'</SCRIPT ><p>"),
            ["<script>", "'if (a<b) '</p>''", "</SCRIPT>", "<p>"]
        );
        assert_eq!(tokens("<title>a & <b></title>"), ["<title>", "'a & <b>'", "</title>"]);
        assert_eq!(tokens("<style>x</styles>"), ["<style>", "'x</styles>'"]);
    }

    #[test]
    fn unfinished_tags_end_the_page() {
        for html in ["a<p", "a<p class", "a<p class=", "a<p class='x", "a</p", "a<p /"] {
            assert_eq!(tokens(html), ["'a'"], "{html}");
        }
        assert_eq!(tokens("a<"), ["'a'", "'<'"]);
    }
}
