//! `requestState`: what a client carries from one request to its repetition, unread. It comes from the client, so it
//! only says what is meant; that it is the caller's own is looked up, and what a server put in is the server's to check.

use aegis_core::id::ApprovalId;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{fault::Fault, message::string};

/// The longest that is looked at. Servers may put a good deal in.
const LONGEST: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Carried {
    /// A call waits for a person.
    Approval(Parked),
    /// A server answered with questions, and will know by this where it was.
    Server { request: String, state: Value },
    /// A call is under way and waits for answers.
    Held { request: String, handle: String, round: u32 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parked {
    pub(crate) approval: ApprovalId,
    pub(crate) request: String,
    pub(crate) round: u8,
    /// The user agreed to wait, and is not asked again.
    pub(crate) waits: bool,
}

impl Carried {
    pub(crate) fn seal(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }

    /// `request` is the digest of the request that brings it: answers must not come to another one.
    pub(crate) fn read(raw: &RawValue, request: &str) -> Result<Self, Fault> {
        let text = string(raw).filter(|text| text.len() <= LONGEST).ok_or_else(wrong)?;
        let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).map_err(|_| wrong())?;
        let carried: Self = serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        let own = match &carried {
            Self::Approval(parked) => &parked.request,
            Self::Server { request, .. } | Self::Held { request, .. } => request,
        };
        if own == request { Ok(carried) } else { Err(wrong()) }
    }
}

pub(crate) fn wrong() -> Fault {
    Fault::invalid_params(
        "`params.requestState` is not what this request was answered with; send the request without it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(json!(text).to_string()).unwrap()
    }

    proptest::proptest! {
        #[test]
        fn what_is_no_state_is_refused(
            text in ".{0,200}", bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)
        ) {
            for text in [text, URL_SAFE_NO_PAD.encode(bytes)] {
                proptest::prop_assert!(Carried::read(&raw(&text), "digest").is_err());
            }
        }
    }

    #[test]
    fn only_what_was_given_comes_back() {
        let given = Carried::Server { request: "digest".into(), state: json!("x") };
        let sealed = given.seal();
        assert_eq!(Carried::read(&raw(&sealed), "digest"), Ok(given));
        for (text, request) in [
            (sealed.as_str(), "another"),
            (&format!("{sealed}-TAMPERED"), "digest"),
            ("", "digest"),
            ("bm90aGluZw", "digest"),
            (&"A".repeat(LONGEST + 1), "digest"),
        ] {
            assert_eq!(Carried::read(&raw(text), request), Err(wrong()));
        }
        let number = RawValue::from_string("7".into()).unwrap();
        assert!(Carried::read(&number, "digest").is_err());
    }
}
