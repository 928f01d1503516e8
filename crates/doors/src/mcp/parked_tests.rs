use proptest::prelude::*;

use super::*;

fn asked(digest: &str) -> Asked {
    Asked {
        id: "1".into(),
        era: Era::Modern,
        manner: Manner::Repeat { prompt: Prompt::Form, digest: digest.into() },
        may_wait: true,
        alone: false,
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

#[test]
fn a_state_comes_back_to_its_own_request_only() {
    let state = State { approval: "approval:1".into(), request: "abc".into(), round: 3, waits: true };
    let sent = raw(&json!(state.seal()));
    let answer = raw(&json!({"approval": {"action": "accept"}, "other": 1}));
    let retry = asked("abc").retry(&sent, Some(&answer)).unwrap();
    assert_eq!((retry.state.round, retry.state.waits, retry.said), (3, true, Said::Accept));
    assert_eq!(asked("abc").retry(&sent, None).unwrap().said, Said::Nothing);
    assert!(asked("xyz").retry(&sent, None).is_err());
}

#[test]
fn the_order_of_arguments_makes_no_other_request() {
    let call = |text: &str| Call::new("t", serde_json::from_str(text).unwrap());
    assert_eq!(digest(&call(r#"{"a":1,"b":{"c":2,"d":3}}"#)), digest(&call(r#"{"b":{"d":3,"c":2},"a":1}"#)));
    assert_ne!(digest(&call(r#"{"a":1}"#)), digest(&call(r#"{"a":2}"#)));
}

proptest! {
    #[test]
    fn what_is_no_state_is_refused(text in ".{0,200}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for text in [text, URL_SAFE_NO_PAD.encode(bytes)] {
            prop_assert!(asked("abc").retry(&raw(&json!(text)), None).is_err());
        }
    }
}
