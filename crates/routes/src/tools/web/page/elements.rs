//! What becomes of each element on the way to Markdown.

/// How an element behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Block,
    Inline,
    /// Has no end tag.
    Void,
    /// Shown to nobody as text, with everything inside.
    Hidden,
}

/// A known element. Unknown ones lose their tags and keep their text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: &'static str,
    /// What is written instead; empty for an element that is only looked at.
    pub(super) tag: &'static str,
    pub(super) kind: Kind,
    /// Also wrapped in a `div`, for elements that matter to the search for the main content but that Markdown would
    /// take for part of a line.
    pub(super) wrap: bool,
}

pub(super) fn element(name: &str) -> Option<Element> {
    let mut lower = [0; 10];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    let lower = std::str::from_utf8(lower).ok()?;
    TABLE.iter().find(|element| element.name == lower).copied()
}

const fn same(name: &'static str, kind: Kind) -> Element {
    Element { name, tag: name, kind, wrap: false }
}

const fn block(name: &'static str) -> Element {
    same(name, Kind::Block)
}

const fn wrapped(name: &'static str) -> Element {
    Element { name, tag: name, kind: Kind::Block, wrap: true }
}

const fn as_block(name: &'static str, tag: &'static str) -> Element {
    Element { name, tag, kind: Kind::Block, wrap: false }
}

const fn as_inline(name: &'static str, tag: &'static str) -> Element {
    Element { name, tag, kind: Kind::Inline, wrap: false }
}

const fn hidden(name: &'static str) -> Element {
    Element { name, tag: "", kind: Kind::Hidden, wrap: false }
}

/// The common ones first: the table is searched from its start.
const TABLE: &[Element] = &[
    block("div"),
    as_inline("span", ""),
    same("a", Kind::Inline),
    block("p"),
    block("li"),
    block("td"),
    block("tr"),
    same("br", Kind::Void),
    same("img", Kind::Void),
    same("code", Kind::Inline),
    same("b", Kind::Inline),
    same("i", Kind::Inline),
    same("em", Kind::Inline),
    same("strong", Kind::Inline),
    block("ul"),
    block("ol"),
    block("h1"),
    block("h2"),
    block("h3"),
    block("h4"),
    block("h5"),
    block("h6"),
    hidden("script"),
    hidden("style"),
    hidden("svg"),
    hidden("button"),
    same("hr", Kind::Void),
    block("th"),
    block("table"),
    block("thead"),
    block("tbody"),
    block("tfoot"),
    // Inside a table a paragraph moves in front of it.
    as_block("caption", "p"),
    block("pre"),
    block("blockquote"),
    block("section"),
    block("article"),
    wrapped("main"),
    wrapped("header"),
    wrapped("footer"),
    wrapped("nav"),
    wrapped("aside"),
    as_block("dl", "div"),
    as_block("dt", "p"),
    as_block("dd", "div"),
    as_block("figure", "div"),
    as_block("figcaption", "div"),
    as_block("details", "div"),
    as_block("summary", "div"),
    as_block("address", "div"),
    as_block("center", "div"),
    as_block("fieldset", "div"),
    as_block("legend", "div"),
    as_block("form", "div"),
    as_block("hgroup", "div"),
    as_block("dialog", "div"),
    as_block("search", "div"),
    as_block("menu", "ul"),
    as_block("dir", "ul"),
    as_inline("kbd", "code"),
    as_inline("samp", "code"),
    as_inline("tt", "code"),
    as_inline("small", ""),
    as_inline("font", ""),
    as_inline("label", ""),
    as_inline("abbr", ""),
    as_inline("time", ""),
    as_inline("sup", ""),
    as_inline("sub", ""),
    as_inline("u", ""),
    as_inline("s", ""),
    as_inline("del", ""),
    as_inline("ins", ""),
    as_inline("mark", ""),
    as_inline("cite", ""),
    as_inline("dfn", ""),
    as_inline("var", ""),
    as_inline("q", ""),
    as_inline("big", ""),
    as_inline("noscript", ""),
    as_inline("picture", ""),
    same("base", Kind::Void),
    hidden("title"),
    hidden("textarea"),
    hidden("select"),
    hidden("datalist"),
    hidden("template"),
    hidden("math"),
    hidden("object"),
    hidden("canvas"),
    hidden("audio"),
    hidden("video"),
    hidden("iframe"),
    hidden("noembed"),
    hidden("noframes"),
    hidden("map"),
    hidden("rp"),
];
