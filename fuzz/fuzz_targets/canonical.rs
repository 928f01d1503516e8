//! Whatever text is signed: its canonical form is JSON that means the same, is its own canonical form, is never longer,
//! and differs between the two orders only in order.
#![no_main]

use aegis_gates::identity::seal::canonical::{Order, Unreadable, canonical};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|text: &str| {
    let meant = serde_json::from_str::<Value>(text);
    for order in [Order::CodePoint, Order::Utf16] {
        match canonical(text, order) {
            Ok(written) => {
                assert!(written.len() <= text.len());
                assert_eq!(canonical(std::str::from_utf8(&written).expect("UTF-8"), order).expect("readable"), written);
                match (&meant, serde_json::from_slice::<Value>(&written)) {
                    (Ok(meant), Ok(read)) => assert_eq!(meant, &read),
                    (Err(_), Err(_)) => {}
                    (meant, read) => panic!("{meant:?} became {read:?}"),
                }
            }
            Err(Unreadable::Duplicate { .. } | Unreadable::TooDeep | Unreadable::TooLong) => {}
            Err(error) => assert!(meant.is_err(), "{error}"),
        }
    }
});
