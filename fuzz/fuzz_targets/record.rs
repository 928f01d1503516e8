//! Records and the exported log. Whatever bytes come: an entry has one text, the reader of exports does not fall over,
//! a log written after the description verifies, and the same log with one byte changed does not.
#![no_main]

use std::{io::Cursor, sync::LazyLock};

use aegis_core::{call::hex, record::Entry};
use aegis_stores::audit::{PublicKey, Report, Source, VerifyError, verify};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

static KEY: LazyLock<PublicKey> = LazyLock::new(|| {
    PublicKey::from_pem(
        "-----BEGIN PUBLIC KEY-----\n\
         MCowBQYDK2VwAyEAjU8C6XxXPuGM20nOWLniCL+664M8HeJ1MRzCXR9yZG0=\n\
         -----END PUBLIC KEY-----\n",
    )
    .expect("a public key")
});

fn verified(export: Vec<u8>) -> Result<Report, VerifyError> {
    verify(Source::Export(Box::new(Cursor::new(export))), &KEY, None)
}

/// The lines of an export over these bodies, made from what the documentation of the log says and nothing else.
fn export(bodies: &[&[u8]]) -> (Vec<u8>, usize) {
    let mut text = format!("{{\"export\":{{\"format\":1,\"records\":{}}}}}\n", bodies.len()).into_bytes();
    let header = text.len();
    let mut previous = [0_u8; 32];
    for (seq, body) in (1_u64..).zip(bodies) {
        previous = Sha256::new()
            .chain_update([0])
            .chain_update(previous)
            .chain_update(seq.to_be_bytes())
            .chain_update(body)
            .finalize()
            .into();
        text.extend_from_slice(
            format!("{{\"seq\":{seq},\"hash\":\"{}\",\"body\":", hex(&previous)).as_bytes(),
        );
        text.extend_from_slice(body);
        text.extend_from_slice(b"}\n");
    }
    (text, header)
}

fuzz_target!(|data: &[u8]| {
    if let Ok(entry) = serde_json::from_slice::<Entry>(data) {
        let text = serde_json::to_string(&entry).expect("an entry can be written");
        let again: Entry = serde_json::from_str(&text).expect("what was written can be read");
        assert_eq!(serde_json::to_string(&again).expect("an entry can be written"), text);
    }
    // Any outcome but a panic will do.
    let _ = verified(data.to_vec());

    let [at, mask, rest @ ..] = data else { return };
    let bodies: Vec<&[u8]> = rest.split(|byte| *byte == b'\n').collect();
    let (mut text, header) = export(&bodies);
    let report = verified(text.clone()).expect("an export can be read");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.records, bodies.len() as u64);

    let place = header + usize::from(*at) * (text.len() - header) / 256;
    if *mask != 0 {
        text[place] ^= mask;
        assert!(!verified(text).is_ok_and(|report| report.is_sound()), "a change at {place} was not found");
    }
});
