use super::*;

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

#[test]
fn what_the_user_said_comes_with_the_repeated_request() {
    let parked = Parked { approval: "approval:1".into(), request: "abc".into(), round: 3, waits: true };
    let answer = raw(&json!({"approval": {"action": "accept"}, "other": 1}));
    assert_eq!(Retry::read(&parked, Some(&answer)).said, Said::Accept);
    assert_eq!(Retry::read(&parked, None).said, Said::Nothing);
    for nonsense in [json!(7), json!({"approval": 7}), json!({}), json!([])] {
        assert_eq!(Retry::read(&parked, Some(&raw(&nonsense))).said, Said::Nothing, "{nonsense}");
    }
}
