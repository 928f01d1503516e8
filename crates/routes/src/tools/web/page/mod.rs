//! HTML to clean Markdown: the main content, with its links, tables and code.

mod attributes;
mod elements;
mod grid;
mod tidy;
pub(super) mod tokens;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use dom_query::Document;
use dom_smoothie::{Config, Readability, TextMode};
use url::Url;

use tidy::{AMPERSAND, Tidied, letters, tidy};

/// Finding the main content scores every element several times over; beyond this many the whole page is taken.
const MOST_ELEMENTS: usize = 20_000;
/// Main content that is less than this part of a page is probably not the page's point, ...
const LEAST_SHARE: f64 = 0.25;
/// ... unless it is long in itself, and the rest the menus and lists of a large site.
const LONG_ENOUGH: usize = 2000;
const LEAST_SHARE_WHEN_LONG: f64 = 0.08;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) title: Option<String>,
    pub(super) markdown: String,
}

/// Converts a page. Work for a blocking thread: a large page takes a noticeable time, though never more than in
/// proportion to its size.
pub(super) fn to_markdown(html: &str, address: &Url) -> Page {
    let tidied = tidy(html, address);
    // The search for the main content goes by scores; a page that upsets them is still a page.
    let found = catch_unwind(AssertUnwindSafe(|| main_content(&tidied))).unwrap_or_default();
    let (title, markdown) = found.unwrap_or_else(|| whole(&tidied));
    let title = one_line(&title);
    let mut markdown = without_blank_runs(&markdown).replace(AMPERSAND, "&");
    if !title.is_empty() && !markdown.starts_with('#') {
        markdown = format!("# {title}\n\n{markdown}");
    }
    Page { title: Some(title).filter(|title| !title.is_empty()), markdown }
}

/// The text of a page in one line, for error messages.
pub(super) fn to_text(html: &str, address: &Url) -> String {
    let tidied = tidy(html, address);
    one_line(&Document::from(tidied.html.as_str()).formatted_text())
}

fn main_content(page: &Tidied) -> Option<(String, String)> {
    if page.elements > MOST_ELEMENTS {
        return None;
    }
    let config = Config {
        // The language of a code block is a class.
        keep_classes: true,
        disable_json_ld: true,
        text_mode: TextMode::Markdown,
        ..Config::default()
    };
    let article = Readability::new(document(page), None, Some(config)).ok()?.parse().ok()?;
    let found = letters(&article.content);
    let share = found as f64 / page.letters.max(1) as f64;
    let wanted = if found >= LONG_ENOUGH { LEAST_SHARE_WHEN_LONG } else { LEAST_SHARE };
    (share >= wanted).then(|| (article.title.to_string(), article.text_content.to_string()))
}

fn whole(page: &Tidied) -> (String, String) {
    let document = Document::from(document(page));
    let title = document.select_single("title").text().to_string();
    (title, document.md(None).to_string())
}

fn document(page: &Tidied) -> String {
    let title = page.title.replace('<', "&lt;");
    format!("<!DOCTYPE html><html><head><title>{title}</title></head><body>{}</body></html>", page.html)
}

/// White space of any kind as single spaces.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most one blank line between blocks, and no white space at the ends; code keeps its own.
fn without_blank_runs(markdown: &str) -> String {
    let mut kept = String::with_capacity(markdown.len());
    let mut fence: Option<&str> = None;
    let mut blank = true;
    for line in markdown.lines() {
        let start = line.trim_start();
        let ticks = &start[..start.len() - start.trim_start_matches('`').len()];
        match fence {
            Some(open) if start == open => fence = None,
            None if ticks.len() >= 3 => fence = Some(ticks),
            _ => {}
        }
        let empty = fence.is_none() && line.trim().is_empty();
        if empty && blank {
            continue;
        }
        blank = empty;
        // Two spaces at the end of a line break it.
        kept.push_str(if line.ends_with("  ") && !empty { line } else { line.trim_end() });
        kept.push('\n');
    }
    kept.truncate(kept.trim_end().len());
    kept
}
