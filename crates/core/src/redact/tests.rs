use super::*;

#[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn redacted(value: Value) -> Value {
    Value::Object(arguments(value.as_object().unwrap()))
}

#[test]
fn secrets_are_masked_at_any_depth() {
    let record = redacted(
        json!({"headers": {"Authorization": "Bearer s3cret", "Accept": "*/*"}, "x": [{"api_key": "k"}]}),
    );
    assert_eq!(
        record,
        json!({"headers": {"Authorization": "[redacted]", "Accept": "*/*"}, "x": [{"api_key": "[redacted]"}]})
    );
}

#[test]
fn names_may_hold_secrets_or_name_another_member() {
    let record = redacted(json!({
        "token=hunter2": 1,
        "plain": {"--password hunter2": true, "a b": 1, "ghp_0123456789abcdefghij": 2},
        "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"key": "api-key", "Value": ["hunter2"]}],
        "fields": [{"name": "title", "value": "Hello"}, {"name": "password", "label": "Hello"}],
    }));
    assert_eq!(
        record,
        json!({
            "token=[redacted]": "[redacted]",
            "plain": {"--password [redacted]": "[redacted]", "a b": 1, "[redacted]": 2},
            "env": [{"name": "DB_PASSWORD", "value": "[redacted]"}, {"key": "api-key", "Value": "[redacted]"}],
            "fields": [{"name": "title", "value": "Hello"}, {"name": "password", "label": "Hello"}],
        })
    );
    assert!(hides(&record["plain"]) && hides_name("token=[redacted]") && !hides_name("token"));
}

#[test]
fn secrets_in_plain_text_are_told_from_settings() {
    for (name, value) in [
        ("GITHUB_PERSONAL_ACCESS_TOKEN", "0123456789abcdef0123"),
        ("OPENAI_KEY", "abcdefghijklmnop"),
        ("X", "ghp_0123456789abcdefghij"),
        ("Authorization", "Bearer abcdefghijklmnop"),
        ("DATABASE_URL", "postgres://ann:pw@db/x"),
        ("DB_PASS", "hunter22"),
        ("SMTP_PW", "hunter22"),
        ("X-Auth", "hunter22"),
        ("ENDPOINT", "https://example.org/?api_key=abcdefghijkl"),
    ] {
        assert!(looks_secret(name, value), "{name}");
    }
    for (name, value) in [
        ("TOKEN_LIMIT", "100000000"),
        ("MAX_TOKENS", "4096"),
        ("TOKEN_FILE", "/run/secrets/token"),
        ("TOKEN_URL", "https://example.org/token"),
        ("LANG", "en_GB.UTF-8"),
        ("API_KEY", ""),
        ("API_KEY", "${API_KEY}"),
        ("DATABASE_URL", "postgres://db/x"),
        ("auth", "required"),
    ] {
        assert!(!looks_secret(name, value), "{name}={value}");
    }
    let arguments = |list: &[&str]| {
        secret_arguments(&list.iter().map(|&argument| argument.to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(arguments(&["-y", "server", "--token", "abcdefghijklmnop"]), [(3, 0)]);
    assert_eq!(arguments(&["--api-key=abcdefghijklmnop"]), [(0, 10)]);
    assert_eq!(arguments(&["--header", "Authorization: Bearer abcdefghijklmnop"]), [(1, 15)]);
    assert_eq!(arguments(&["--header", "Authorization:${AUTH}", "/srv/data", "--port=8080"]), []);
    assert_eq!(arguments(&["postgresql://ann:pw@localhost/db"]), [(0, 0)]);
}

#[test]
fn long_text_becomes_digest_and_preview() {
    let record = redacted(json!({"content": "ä".repeat(1000)}));
    assert_eq!(record["content"]["bytes"], 2000);
    assert_eq!(record["content"]["preview"], "ä".repeat(64));
    assert_eq!(record["content"]["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn passwords_in_urls_are_masked() {
    let record = redacted(json!({"url": "https://ann:pw@example.org/a@b?c"}));
    assert_eq!(record["url"], "https://[redacted]@example.org/a@b?c");
    for url in
        ["http:ann:pw@h/", "http:/ann:pw@h/", "HTTP:\\\\ann:pw@h/", " https://ann:pw@h/", "ftp:///ann:pw@h"]
    {
        let record = redacted(json!({ "url": url }));
        assert!(!record.to_string().contains("pw"), "{record}");
    }
    assert_eq!(redacted(json!({"text": "mail: ann@example.org"}))["text"], "mail: ann@example.org");
    for text in ["a://b@", "://@://@", "x://@@@/y://z@w", "no@url", "http://plain/@"] {
        let _ = redacted(json!({ "x": text }));
    }
}

#[test]
fn many_middling_members_stay_small() {
    let row = json!(vec!["x".repeat(250); 30]);
    let table = json!(vec![row; 30]);
    let all: Map<String, Value> =
        (0..20).map(|n| (format!("{n}{}", "k".repeat(300)), table.clone())).collect();
    let text = Value::Object(arguments(&all)).to_string();
    assert!(text.len() < 64 * 1024, "{}", text.len());
}

#[test]
fn what_is_left_out_can_be_told() {
    for whole in [json!("a"), json!(1), json!({"a": ["b", null]}), json!("mail ann@example.org")] {
        let record = redacted(json!({ "x": whole }));
        assert!(!hides(&record["x"]), "{record}");
    }
    let mut deep = json!(1);
    for _ in 0..20 {
        deep = json!([deep]);
    }
    let wide: Map<String, Value> = (0..100).map(|n| (n.to_string(), n.into())).collect();
    for cut in [
        json!("x".repeat(1000)),
        json!(["a", "x".repeat(1000)]),
        json!({"password": "p"}),
        json!("https://ann:pw@example.org/"),
        json!((0..100).collect::<Vec<_>>()),
        deep,
        wide.into(),
    ] {
        let record = redacted(json!({ "x": cut }));
        assert!(hides(&record["x"]), "{record}");
    }
    assert!(hides(&redacted(json!({"token": "t"}))["token"]));
}

#[test]
fn so_much_of_a_call_is_looked_at_and_the_rest_is_not_kept() {
    let list = |word: &str| json!(vec![word; 60]);
    // Sixty long texts in a list use up what there is.
    let record = redacted(json!({
        "a": "plain", "b": list(&"x ".repeat(32 << 10)), "c": list("hunter2"), "d": "hunter2",
        "e": {"f": ["hunter2", 1], "token": "hunter2"}, "g": 7, "h": "hunter2 ".repeat(100),
    }));
    assert!(!record.to_string().contains("hunter2"), "{record}");
    assert_eq!((&record["a"], &record["d"], &record["g"]), (&json!("plain"), &json!(REDACTED), &json!(7)));
    assert_eq!(record["e"], json!({"f": [REDACTED, 1], "token": REDACTED}));
    assert_eq!(record["h"]["bytes"], 800);
    assert!(["b", "c", "d", "e", "h"].iter().all(|name| hides(&record[*name])), "{record}");
    // One text may be as long as it likes: the rest of it is in the record by its digest.
    let record = redacted(json!({"content": "x".repeat(10 << 20), "path": "/workspace/a"}));
    assert_eq!((&record["content"]["bytes"], &record["path"]), (&json!(10 << 20), &json!("/workspace/a")));
}

/// Whoever knows the rest could try every PIN against a digest of the whole.
#[test]
fn what_was_not_looked_at_has_no_digest() {
    let deep = |pin: &str| (0..20).fold(json!({ "password": pin }), |deep, _| json!({ "a": deep }));
    let nested = |pin: &str| (0..20).fold(json!(["--password", pin]), |deep, _| json!([deep]));
    let args = |pin: &str| -> Value {
        let rest = (0..100).map(|n| n.to_string().into());
        [Value::from("--password"), pin.into()].into_iter().chain(rest).collect()
    };
    let objects = |pin: &str| json!(vec![json!({ "password": pin }); 65]);
    let late = |pin: &str| json!(format!("{}--password {pin}", "x ".repeat(40 << 10)));
    let word = |pin: &str| json!(["run", format!("{} --password {pin}", "x".repeat(70 << 10))]);
    let calls: [&dyn Fn(&str) -> Value; 5] = [
        &|pin| json!({"command": "true", "args": args(pin)}),
        &|pin| json!({"deep": deep(pin), "nested": nested(pin)}),
        &|pin| json!({ "env": objects(pin) }),
        &|pin| json!({"content": late(pin), "words": word(pin)}),
        // Texts before it use up what is looked at.
        &|pin| json!({"a": vec!["x ".repeat(32 << 10); 60], "b": format!("{}{pin}", "x ".repeat(200))}),
    ];
    for call in calls {
        let record = redacted(call("4711"));
        assert_eq!(record, redacted(call("4712")), "the record is the same whatever the secret is");
        assert!(!record.to_string().contains("4711") && hides(&record), "{record}");
    }
    let record = redacted(json!({ "args": args("4711") }));
    assert_eq!(record["args"], json!({"sha256": REDACTED, "bytes": length(&args("4711"))}));
}

#[test]
fn of_a_secret_that_is_longer_than_what_is_looked_at_no_end_is_left() {
    let long = format!("{}tail", "s".repeat(64 << 10));
    let text = redacted(json!({"text": format!("token={long}"), "args": ["--token", long]}));
    assert!(!text.to_string().contains("tail"), "{text}");
    assert_eq!(text["text"]["preview"], "token=[redacted]");
    assert_eq!((&text["args"][1]["preview"], &text["args"][1]["bytes"]), (&json!(REDACTED), &json!(65540)));
    assert!(!words(&["--token", &long]).concat().contains("tail"));
}

#[test]
fn names_are_looked_at_within_the_same_budget() {
    let long = |n: usize| format!("{n:02} {}", "x ".repeat(8 << 10));
    let mut all: Map<String, Value> = (0..40).map(|n| (long(n), 1.into())).collect();
    all.insert("99 hunter2".into(), "hunter2".into());
    all.insert("last".into(), 7.into());
    let record = redacted(all.into());
    assert_eq!((&record[REDACTED], &record["last"]), (&json!(REDACTED), &json!(7)));
    assert!(!record.to_string().contains("hunter2") && hides(&record), "{record}");
    // Fifteen names of 16 KiB are within it, and one is the last.
    assert_eq!(record.as_object().unwrap().len(), 15 + 2, "{record}");
}

#[test]
fn a_list_is_charged_once() {
    let record = redacted(json!({"a": vec!["x ".repeat(16 << 10); 5], "b": "plain"}));
    assert_eq!((&record["b"], record["a"][4]["preview"].is_string()), (&json!("plain"), true), "{record}");
}

#[test]
fn a_text_is_masked_before_it_is_cut() {
    let key = "ghp_0123456789abcdefghij";
    assert_eq!(beginning(key, 30), key);
    assert_eq!(beginning(&format!("ab {key}"), 10), "ab [redact");
    assert_eq!(beginning(&"ä".repeat(5000), 10), "ä".repeat(10));
}

#[test]
fn what_a_message_repeats_is_masked() {
    for (text, kept) in [
        (
            "`/etc/token=hunter2` is outside of `/workspace`",
            "`/etc/token=[redacted] is outside of `/workspace`",
        ),
        (
            "unknown field 'api_key=hunter2' (it takes: path)",
            "unknown field 'api_key=[redacted] (it takes: path)",
        ),
        ("`http:ann:pw@h/` is no address", "`http://[redacted]@h/` is no address"),
        ("there is no tool called `--token hunter2`", "there is no tool called `--token [redacted]"),
        ("can't reach https://ann:pw@h/?sig=x now", "can't reach https://[redacted]@h/?sig=[redacted] now"),
    ] {
        assert_eq!(message(text), kept);
    }
    for plain in [
        "`token`: must be a string",
        "the caller's token can't be used: it has expired",
        "the password is not that of `ann`",
        "`fs.read` may not touch `/etc/passwd`",
        "field 'password' must be of type string, not a number",
        "secret `github/token` is not set; `aegis secret set github/token` sets it",
    ] {
        assert!(matches!(message(plain), Cow::Borrowed(_)), "{}", message(plain));
    }
    let mut told = json!({"path": "/a?token=x1", "n": 1, "all": [{"reason": "password: x1"}]});
    detail(told.as_object_mut().unwrap());
    assert_eq!(
        told,
        json!({"path": "/a?token=[redacted]", "n": 1, "all": [{"reason": "password: [redacted]"}]})
    );
}

#[test]
fn deep_and_wide_arguments_stay_small() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let wide: Vec<u32> = (0..100_000).collect();
    let text = redacted(json!({"deep": deep, "wide": wide})).to_string();
    assert!(text.len() < 1000, "{}", text.len());
}

/// Which option is a password is known only with the program before it.
#[test]
fn a_command_is_read_as_a_whole_whatever_its_members_are_called() {
    for (given, kept) in [
        (
            json!({"command": "mysql", "args": ["-psecret", "-h", "db"]}),
            json!({"command": "mysql", "args": ["-p[redacted]", "-h", "db"]}),
        ),
        (
            json!({"program": "/usr/bin/mysql", "arguments": ["-psecret"]}),
            json!({"program": "/usr/bin/mysql", "arguments": ["-p[redacted]"]}),
        ),
        (
            json!({"cmd": "curl", "argv": ["-su", "ann:secret"]}),
            json!({"cmd": "curl", "argv": ["-su", "ann:[redacted]"]}),
        ),
        (json!({"argv": ["mysql", "-psecret"]}), json!({"argv": ["mysql", "-p[redacted]"]})),
        (json!({"command": "mysql -psecret db"}), json!({"command": "mysql -p[redacted] db"})),
        (
            json!({"command": "mkdir", "args": ["-psecret"]}),
            json!({"command": "mkdir", "args": ["-psecret"]}),
        ),
    ] {
        assert_eq!(Value::Object(arguments(given.as_object().unwrap())), kept);
    }
}
