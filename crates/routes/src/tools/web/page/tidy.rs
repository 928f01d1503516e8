//! A page as well-formed, shallow HTML: no scripts, nothing invisible, every link absolute, every tag closed.
//!
//! The work and the result are linear in the page, whatever the page is.

use std::{collections::HashMap, fmt::Write as _};

use url::Url;

use super::{
    attributes::{decoded, is_invisible, language, quoted},
    elements::{Element, Kind, element},
    grid::Grid,
    tokens::{Scanner, Token},
};

/// Browsers stop at 512; pages people write stay below 100.
const DEEPEST: usize = 160;
/// Each level of a list or a quotation indents every line in it.
const DEEPEST_INDENT: usize = 8;
/// How many bytes absolute links and filled table cells may add.
const MOST_ADDED: usize = 4 << 20;
/// Tags beyond this many become spaces: the rest of the page is text only.
const MOST_TAGS: usize = 150_000;
/// Stands for `&` in a link on its way through the Markdown writer, which would make `&amp;` of it: right for a
/// renderer, and a wrong address for a reader who copies it.
pub(super) const AMPERSAND: char = '\u{fdd0}';
const LONGEST_LINK: usize = 2048;
pub(super) const LONGEST_CLASS: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Tidied {
    pub(super) html: String,
    /// Character references still in place.
    pub(super) title: String,
    /// Tags that were written, of elements with and without content.
    pub(super) elements: usize,
    /// Letters and digits that a reader of the page sees.
    pub(super) letters: usize,
}

pub(super) fn tidy(html: &str, address: &Url) -> Tidied {
    let mut tidy = Tidy {
        page: Tidied { html: String::with_capacity(html.len() / 2), ..Tidied::default() },
        base: address.clone(),
        stack: Vec::new(),
        dropped: HashMap::new(),
        grids: Vec::new(),
        hidden: 0,
        indent: 0,
        added: 0,
        based: false,
        pre: None,
    };
    let mut scanner = Scanner::new(html);
    while let Some(token) = scanner.next() {
        match token {
            Token::Text(text) => tidy.text(text),
            Token::Start { name, attributes } => tidy.start(name, attributes),
            Token::End { name } => tidy.end(name),
        }
    }
    tidy.close_to(0);
    tidy.page
}

/// How many letters and digits `html` shows.
pub(super) fn letters(html: &str) -> usize {
    let mut scanner = Scanner::new(html);
    let mut count = 0;
    while let Some(token) = scanner.next() {
        if let Token::Text(text) = token {
            count += letters_in(text);
        }
    }
    count
}

fn letters_in(text: &str) -> usize {
    text.chars().filter(|c| c.is_alphanumeric()).count()
}

struct Open {
    element: Element,
    /// What was written for it, to be closed; empty when nothing was.
    tag: &'static str,
    /// What was written right inside it, to be closed first.
    inner: &'static str,
    hides: bool,
    /// Cells to add after this one, for its `colspan`.
    cells: usize,
    /// The programming language that a class on it names.
    language: Option<String>,
}

/// The `pre` element that is open.
struct Pre {
    /// A `code` was written inside it.
    coded: bool,
    /// No text yet: the first line break does not count.
    fresh: bool,
}

/// The longest name of a character reference, with its semicolon.
const LONGEST_REFERENCE: usize = 33;

/// Writes text so that each `&` begins a reference that exists: the parser that reads this next takes a time that
/// grows with the square of the others.
fn push_text(html: &mut String, text: &str) {
    let mut parts = text.split('&');
    html.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.bytes().take(LONGEST_REFERENCE).position(|byte| byte == b';');
        let exists = end.is_some_and(|end| {
            let reference = format!("&{};", &part[..end]);
            html_escape::decode_html_entities(&reference) != reference
        });
        html.push_str(if exists { "&" } else { "&amp;" });
        html.push_str(part);
    }
}

struct Tidy {
    page: Tidied,
    base: Url,
    stack: Vec<Open>,
    /// Elements that were too deep to open, so that their end tags close nothing else.
    dropped: HashMap<&'static str, usize>,
    /// One for each open table.
    grids: Vec<Grid>,
    /// Open elements that hide what is in them.
    hidden: usize,
    /// Open lists and quotations.
    indent: usize,
    added: usize,
    /// Only the first `base` counts.
    based: bool,
    pre: Option<Pre>,
}

impl Tidy {
    fn text(&mut self, text: &str) {
        if self.hidden == 1 && self.stack.last().is_some_and(|open| open.element.name == "title") {
            if self.page.title.is_empty() {
                self.page.title = text.trim().to_owned();
            }
            return;
        }
        if self.hidden > 0 {
            return;
        }
        let first = self.pre.as_mut().is_some_and(|pre| std::mem::take(&mut pre.fresh));
        let text = if first { text.strip_prefix('\n').unwrap_or(text) } else { text };
        self.page.letters += letters_in(text);
        if text == "<" {
            if self.may_write() {
                self.page.html.push_str("&lt;");
            }
        } else {
            push_text(&mut self.page.html, text);
        }
    }

    fn start(&mut self, name: &str, attributes: &[(&str, &str)]) {
        let Some(element) = element(name) else { return };
        let find = |wanted: &str| {
            attributes.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
        };
        if element.kind == Kind::Void {
            return self.void(element.name, find);
        }
        self.close_implied(element);
        if self.stack.len() >= DEEPEST {
            *self.dropped.entry(element.name).or_default() += 1;
            return;
        }
        let hides = element.kind == Kind::Hidden || is_invisible(element.name, find);
        let language = find("class").and_then(language);
        let mut open = Open { element, tag: "", inner: "", hides, cells: 0, language };
        self.hidden += usize::from(hides);
        if self.hidden == 0 && self.may_write() {
            self.write_start(&mut open, find);
        }
        self.stack.push(open);
    }

    fn void<'a>(&mut self, name: &str, find: impl Fn(&str) -> Option<&'a str>) {
        if name == "base" {
            if let Some(href) = find("href").filter(|_| !self.based)
                && let Ok(base) = self.base.join(&decoded(href))
            {
                self.base = base;
                self.based = true;
            }
            return;
        }
        if self.hidden > 0 || !self.may_write() {
            return;
        }
        match (name, self.pre.is_some()) {
            ("br", true) => self.page.html.push('\n'),
            ("br" | "hr", false) => {
                self.close_paragraph(name == "hr");
                let _ = write!(self.page.html, "<{name}>");
            }
            // A picture without words says nothing to a reader of text.
            ("img", false) => {
                let words = find("alt").unwrap_or_default().trim();
                if let Some(source) = find("src").filter(|_| !words.is_empty()).and_then(|src| self.link(src))
                {
                    let _ = write!(self.page.html, "<img src=\"{source}\" alt=\"{}\">", quoted(words));
                }
            }
            _ => {}
        }
    }

    /// Counts a tag. When there have been too many, it is a space instead.
    fn may_write(&mut self) -> bool {
        let may = self.page.elements < MOST_TAGS;
        if may {
            self.page.elements += 1;
        } else if !self.page.html.ends_with(' ') {
            self.page.html.push(' ');
        }
        may
    }

    fn write_start<'a>(&mut self, open: &mut Open, find: impl Fn(&str) -> Option<&'a str>) {
        let name = open.element.name;
        if let Some(pre) = &mut self.pre {
            // Inside `pre` only the text counts; a `code` in it names the language.
            if name == "code" && !pre.coded {
                pre.coded = true;
                open.tag = "code";
                write_code(&mut self.page.html, open.language.as_deref());
            }
            return;
        }
        match name {
            "pre" => {
                let language = open
                    .language
                    .clone()
                    .or_else(|| self.stack.iter().rev().take(3).find_map(|outer| outer.language.clone()));
                open.tag = "pre";
                self.page.html.push_str("<pre>");
                if let Some(language) = &language {
                    open.inner = "code";
                    write_code(&mut self.page.html, Some(language));
                }
                self.pre = Some(Pre { coded: language.is_some(), fresh: true });
                return;
            }
            "a" => {
                let href = find("href").unwrap_or_default();
                if href.trim_start().starts_with('#') {
                    return;
                }
                if let Some(link) = self.link(href) {
                    open.tag = "a";
                    let _ = write!(self.page.html, "<a href=\"{link}\">");
                }
                return;
            }
            "ul" | "ol" | "menu" | "dir" | "blockquote" => {
                if self.indent >= DEEPEST_INDENT {
                    return;
                }
                self.indent += 1;
            }
            "table" => self.grids.push(Grid::default()),
            "tr" => {
                if let Some(grid) = self.grids.last_mut() {
                    grid.start_row();
                }
            }
            "td" | "th" => {
                let number = |name| find(name).and_then(|text| text.trim().parse().ok()).unwrap_or(1);
                if let Some(grid) = self.grids.last_mut() {
                    let before = grid.start_cell(number("colspan"), number("rowspan"));
                    open.cells = before.own - 1;
                    self.fill(before.empty);
                }
            }
            _ => {}
        }
        if open.element.tag.is_empty() {
            return;
        }
        open.tag = open.element.tag;
        let _ = write!(self.page.html, "<{}", open.tag);
        if open.element.kind == Kind::Block {
            // The search for the main content goes by these.
            for key in ["class", "id"] {
                if let Some(value) =
                    find(key).filter(|value| !value.is_empty() && value.len() <= LONGEST_CLASS)
                {
                    let _ = write!(self.page.html, " {key}=\"{}\"", quoted(value));
                }
            }
        }
        if let Some(first) = find("start").and_then(|text| text.parse::<u16>().ok()).filter(|_| name == "ol")
        {
            let _ = write!(self.page.html, " start=\"{first}\"");
        }
        self.page.html.push('>');
        if open.element.wrap {
            open.inner = "div";
            self.page.html.push_str("<div>");
        }
    }

    fn end(&mut self, name: &str) {
        let Some(element) = element(name) else { return };
        if let Some(count) = self.dropped.get_mut(element.name).filter(|count| **count > 0) {
            *count -= 1;
            return;
        }
        let table_part = is_table_part(element.name);
        let found = self.stack.iter().rposition(|open| {
            open.element.name == element.name || (!table_part && is_cell(open.element.name))
        });
        if let Some(at) = found.filter(|at| self.stack[*at].element.name == element.name) {
            self.close_to(at);
        }
    }

    /// What a start tag ends without saying so.
    fn close_implied(&mut self, next: Element) {
        let (ends, within): (&[&str], &[&str]) = match next.name {
            "li" => (&["li"], &["ul", "ol", "menu", "dir"]),
            "dt" | "dd" => (&["dt", "dd"], &["dl"]),
            "tr" => (&["tr"], &["table"]),
            "td" | "th" => (&["td", "th"], &["tr", "table"]),
            "thead" | "tbody" | "tfoot" => (&["thead", "tbody", "tfoot", "caption"], &["table"]),
            "a" => (&["a"], &["td", "th", "li", "div", "table"]),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                (&["h1", "h2", "h3", "h4", "h5", "h6"], &["div", "section", "td", "a"])
            }
            _ => (&[], &[]),
        };
        if !ends.is_empty() {
            let found = self
                .stack
                .iter()
                .rposition(|open| ends.contains(&open.element.name) || within.contains(&open.element.name));
            if let Some(at) = found.filter(|at| ends.contains(&self.stack[*at].element.name)) {
                self.close_to(at);
            }
        }
        self.close_paragraph(next.kind == Kind::Block);
    }

    /// A block ends the paragraph it stands in.
    fn close_paragraph(&mut self, block: bool) {
        let innermost = self.stack.iter().rposition(|open| open.element.kind != Kind::Inline);
        if let Some(at) = innermost.filter(|at| block && matches!(self.stack[*at].element.name, "p" | "dt")) {
            self.close_to(at);
        }
    }

    fn close_to(&mut self, depth: usize) {
        while self.stack.len() > depth {
            let Some(open) = self.stack.pop() else { return };
            self.close(&open);
        }
    }

    fn close(&mut self, open: &Open) {
        self.hidden -= usize::from(open.hides);
        let name = open.element.name;
        if name == "pre" && open.tag == "pre" {
            self.pre = None;
        } else if self.pre.as_ref().is_some_and(|pre| !pre.fresh)
            && open.element.kind == Kind::Block
            && !self.page.html.ends_with('\n')
        {
            // Each line of a listing may be a block of its own.
            self.page.html.push('\n');
        }
        if name == "tr" && !open.tag.is_empty() {
            let missing = self.grids.last_mut().map_or(0, Grid::end_row);
            self.fill(missing);
        }
        if open.tag.is_empty() {
            return;
        }
        for tag in [open.inner, open.tag] {
            if !tag.is_empty() {
                let _ = write!(self.page.html, "</{tag}>");
            }
        }
        match name {
            "ul" | "ol" | "menu" | "dir" | "blockquote" => self.indent -= 1,
            "table" => {
                self.grids.pop();
            }
            "td" | "th" => self.fill(open.cells),
            _ => {}
        }
    }

    fn fill(&mut self, cells: usize) {
        const CELL: &str = "<td></td>";
        for _ in 0..cells {
            if self.added > MOST_ADDED {
                return;
            }
            self.added += CELL.len();
            self.page.html.push_str(CELL);
        }
    }

    /// An absolute address, ready for an attribute. `None` for what leads nowhere a reader could go.
    fn link(&mut self, href: &str) -> Option<String> {
        if href.is_empty() || href.len() > LONGEST_LINK || self.added > MOST_ADDED {
            return None;
        }
        let url = self.base.join(decoded(href).trim()).ok()?;
        let known = matches!(url.scheme(), "http" | "https" | "mailto" | "ftp");
        let text = Some(url.as_str()).filter(|text| known && text.len() <= LONGEST_LINK)?;
        self.added += text.len().saturating_sub(href.len());
        Some(text.replace('"', "%22").replace('&', AMPERSAND.encode_utf8(&mut [0; 4])))
    }
}

fn write_code(html: &mut String, language: Option<&str>) {
    match language {
        Some(language) => {
            let _ = write!(html, "<code class=\"language-{language}\">");
        }
        None => html.push_str("<code>"),
    }
}

fn is_table_part(name: &str) -> bool {
    matches!(name, "table" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th" | "caption")
}

fn is_cell(name: &str) -> bool {
    matches!(name, "td" | "th" | "caption")
}
