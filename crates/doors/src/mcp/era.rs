//! The revisions of MCP that this door speaks. Up to 2025-11-25 a client introduces itself and keeps a session; from
//! 2026-07-28 on every request stands alone. Both are served at one address, message by message.

/// The stateless revision.
pub(crate) const MODERN: &str = "2026-07-28";

/// The revisions with `initialize` and sessions, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Revision {
    November2024,
    March2025,
    June2025,
    November2025,
}

impl Revision {
    pub(crate) const ALL: [Self; 4] =
        [Self::November2024, Self::March2025, Self::June2025, Self::November2025];
    pub(crate) const NEWEST: Self = Self::November2025;
    /// What a client speaks that names no revision: the last one in which it did not have to.
    pub(crate) const UNSAID: Self = Self::March2025;

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::November2024 => "2024-11-05",
            Self::March2025 => "2025-03-26",
            Self::June2025 => "2025-06-18",
            Self::November2025 => "2025-11-25",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// The revision for a client that asks for `wanted`: that one if we have it, else our newest. A client that
    /// can't speak it will say so.
    pub(crate) fn negotiate(wanted: &str) -> Self {
        Self::parse(wanted).unwrap_or(Self::NEWEST)
    }

    /// Several messages in one array.
    pub(crate) fn has_batches(self) -> bool {
        self <= Self::March2025
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    Modern,
    Legacy(Revision),
}

impl Era {
    pub(crate) fn is_modern(self) -> bool {
        self == Self::Modern
    }

    /// `structuredContent`, `outputSchema`, `title` and `_meta` of tools came in one revision.
    pub(crate) fn has_structured_content(self) -> bool {
        !matches!(self, Self::Legacy(revision) if revision < Revision::June2025)
    }
}

/// Everything we speak, newest first.
pub(crate) fn supported() -> Vec<&'static str> {
    std::iter::once(MODERN).chain(Revision::ALL.iter().rev().map(|revision| revision.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_revisions_are_kept_and_others_become_the_newest_legacy_one() {
        for revision in Revision::ALL {
            assert_eq!(Revision::negotiate(revision.as_str()), revision);
        }
        for other in [MODERN, "2024-10-07", "", "2099-01-01", "2025-11-25 "] {
            assert_eq!(Revision::negotiate(other), Revision::NEWEST, "{other}");
        }
    }

    #[test]
    fn the_list_is_newest_first() {
        assert_eq!(supported(), ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    }
}
