//! The pages under `errors/`, compiled in.

use aegis_core::{FailureKind, ViolationKind, nearest::suggestion};

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

/// The page of a violation or failure, by its name in any case.
pub fn page(name: &str) -> Option<(&'static str, &'static str)> {
    PAGES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

pub fn names() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|(name, _)| *name)
}

/// What to say about a name that has no page.
pub fn unknown(name: &str) -> String {
    format!("there is no error called `{name}`{}", suggestion(name, names()))
}

/// Every name that the node can put into an error.
pub fn all_kinds() -> impl Iterator<Item = &'static str> {
    let violations = ViolationKind::ALL.iter().map(|kind| kind.as_str());
    violations.chain(FailureKind::ALL.iter().map(|kind| kind.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_page_and_every_page_a_kind() {
        let missing: Vec<_> = all_kinds().filter(|kind| page(kind).is_none()).collect();
        assert!(missing.is_empty(), "no page under errors/ for {missing:?}");
        let stray: Vec<_> = names().filter(|name| !all_kinds().any(|kind| kind == *name)).collect();
        assert!(stray.is_empty(), "pages for no kind: {stray:?}");
    }

    #[test]
    fn pages_say_what_why_and_what_to_do() {
        for (name, text) in PAGES {
            assert!(text.starts_with(&format!("# {name}\n")), "{name}");
            assert!(text.contains("\n## What to do\n"), "{name}");
        }
    }
}
