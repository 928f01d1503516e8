//! Whatever body is sent as an envelope: it is answered, what was signed is JSON, and the request is read from just that.
#![no_main]

use aegis_gates::identity::seal::{Attestation, Request, envelope::Envelope};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let _ = Attestation::parse(body);
    let Ok(envelope) = Envelope::read(body) else { return };
    let text = std::str::from_utf8(envelope.message()).expect("UTF-8");
    let Ok(message) = serde_json::from_str::<Value>(text) else {
        // A number that no machine holds is signed as it came, and then refused.
        assert!(envelope.request().is_err());
        return;
    };
    assert_eq!(message["security_token"], envelope.token.as_str());
    assert_eq!(message["timestamp"], envelope.second);
    assert!(message["payload"].is_object());
    if let Some(other) = envelope.in_other_order() {
        assert_eq!(serde_json::from_slice::<Value>(&other).expect("JSON"), message);
    }
    if let Ok((id, request)) = envelope.request() {
        assert_eq!(envelope.id().unwrap_or_else(|| "null".to_owned()), id);
        if let Request::Call { tool, .. } = request {
            assert_eq!(message["payload"]["params"]["name"], tool);
        }
    }
});
