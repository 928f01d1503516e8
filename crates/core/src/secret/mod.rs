//! A secret is a type that neither prints nor serialises, and whose memory is wiped when it goes.

mod redactor;
mod source;

use std::fmt;

use zeroize::Zeroizing;

pub use redactor::{REDACTED, Redactor, SHORTEST_REDACTED};
pub use source::{Principal, Resolved, SecretError, SecretSource, SubjectTokens};

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The only way to the text. Search for this name to see every place that handles one.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
