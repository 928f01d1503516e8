//! The same secrets in other spellings, each with neighbours that stay.

use super::words::{masked_text, words};

fn assert_hidden(spellings: &[&str]) {
    for spelling in spellings {
        for kept in [masked_text(spelling), words(&["run", spelling]).join("\n").into()] {
            assert!(!kept.contains("hunter"), "{spelling} became {kept}");
        }
    }
}

fn assert_stays(plain: &[&str]) {
    for text in plain {
        assert_eq!(masked_text(text), *text);
    }
}

#[test]
fn quoted_values_are_hidden_to_their_ends() {
    assert_hidden(&[
        r#"{"a":1,"password":"correct horse hunter"}"#,
        r#"{"a":"it's","password":"correct \" horse \\\" hunter"}"#,
        r#"curl -d '{"user":"a","password":"correct horse hunter"}'"#,
        r#"curl -d "{\"user\":\"a\",\"password\":\"correct \\\"horse\\\" hunter\"}""#,
        r#"--from-literal=password="correct horse hunter""#,
        "--env=DB_PASSWORD='correct horse hunter'",
        "--env=DB_PASSWORD='it'\\''s a hunter'",
        r#"--build-arg=TOKEN="a b hunter""#,
        r#"--set=auth.password="a b hunter""#,
        r#"/workspace/password="correct horse hunter""#,
        "unknown argument '--password='a b hunter'' (it takes: path)",
        r#"it's password: "a hunter""#,
        "don't\nexport API_TOKEN=\"ab cd hunter\"\necho it's",
        "it's --token 'a b hunter' now",
        "su --command=\"run --token 'a b hunter'\"",
        "it's password = \"\"\"\n a b hunter\n\"\"\"",
        r#"{"a":1,"password":"correct horse hunter"#,
    ]);
    for (text, shown) in [
        (r#"{"a":1,"password":"b c","d":"e f"}"#, r#"{"a":1,"password":"[redacted]","d":"e f"}"#),
        (r#"it's password: "a b" or so"#, r#"it's password: [redacted]" or so"#),
    ] {
        assert_eq!(masked_text(text), shown);
    }
    assert_eq!(words(&["--env=DB_PASSWORD=a b c", "d"]), ["--env=DB_PASSWORD=[redacted]", "d"]);
    assert_eq!(words(&["'see --token abc or Cookie:"]), ["'see --token [redacted] or Cookie:"]);
    assert_stays(&[
        r#"{"a":1,"title":"correct horse","n":"it's"}"#,
        r#"it's a "plain text" and it's 'kept'"#,
        "--from-literal=title=\"correct horse\"",
        "field 'password' must be 'a string'",
    ]);
}

#[test]
fn addresses_are_known_in_any_spelling() {
    assert_hidden(&[
        "see HTTPS://hunter@h/ now",
        "see wss://hunter@h now",
        "see \\nwss://hunter@h now",
        "see Ftp://hunter@h now",
        "https://h/?t%6Fken=hunter",
        "https://h/?a=b&api%5Fkey=hunter&c=d",
        "x?password%3Dhunter",
        "password%3Dhunter",
        "https://h/?to=https%3A%2F%2Fann%3Ahunter%40host%2F",
    ]);
    assert_eq!(masked_text("GET https://h/?t%6Fken=x&a=%6F"), "GET https://h/?t%6Fken=[redacted]&a=%6F");
    assert_stays(&[
        "see sftp://ann@h and SSH://git@h/x.git and news://ann@h",
        "GET https://h/?pa%67e=2&title=100%25",
        "50%ä %zz % %4",
    ]);
}

#[test]
fn more_names_and_beginnings_are_known() {
    assert_hidden(&["PGPASS=hunter make", "DBPASS=hunter", "userpass=hunter", "keytool -storepass hunter"]);
    for beginning in
        ["ghr_", "xoxe-", "xoxa-", "dckr_pat_", "GOCSPX-", "SG.", "dop_v1_", "sk_test_", "hvs.", "shpat_"]
    {
        let key = format!("{beginning}0123456789abcdefghij");
        assert_eq!(masked_text(&format!("use {key} now")), "use [redacted] now");
        assert_stays(&[
            &format!("use {beginning}abcdefghijklmnopqrst now"),
            &format!("use {beginning}1 now"),
        ]);
    }
    assert_stays(&["bypass=yes compass=north", "PGPASSFILE=/run/x", "ls SG.md hvs.example.org"]);
}

#[test]
fn shells_and_programs_spell_them_their_way() {
    assert_hidden(&[
        "TOKEN=$(echo \")\" hunter) make",
        "TOKEN=$(echo \\) hunter) make",
        "docker login --password \\\n  hunter h",
        "client.setPassword(\"hunter\")",
        "x = password('hunter')",
        "ALTER ROLE ann WITH PASSWORD 'a hunter'",
        "ALTER USER ann IDENTIFIED BY 'it''s hunter'",
    ]);
    assert_stays(&[
        "NAME=$(echo \")\" ann) make",
        "docker run \\\n  -v a:b h",
        "getPassword(\"ann\") and setTitle(\"ann\")",
        "ORDER BY 'name' WITH TITLE 'x'",
    ]);
}

#[test]
fn types_lists_and_defaults_hide_no_less_than_plain_values() {
    assert_hidden(&[
        "a: 1\npassword: !!str hunter\nb: 2",
        "password: !!str \"a hunter\"",
        "tokens:\n  - hunter\n  - hunter2\nb: 2",
        "passwords: # of the staff\n- hunter\n- a b hunter\n",
        "a:\n  api_keys:\n  - name: x\n    value: hunter\n  b: 2",
        "passwords: [a, hunter, b hunter]",
        r#"{"passwords": ["a", "b", "hunter"]}"#,
        "run ${DB_PASSWORD:-correct horse hunter} x",
        "echo \"${TOKEN:=a b hunter}\"",
    ]);
    for (text, shown) in [
        ("tokens:\n  - hunter\nb: 2", "tokens:\n  [redacted]\nb: 2"),
        ("passwords: [a, hunter] b", "passwords: [redacted] [redacted] b"),
        ("run ${TOKEN:-a hunter} x", "run ${TOKEN:[redacted] [redacted]} x"),
    ] {
        assert_eq!(masked_text(text), shown);
    }
    assert_stays(&[
        "files:\n  - hunter\n  - b",
        "max_tokens: 4096\nstop:\n  - hunter",
        "run ${NAME:-correct horse hunter} x",
        "count: !!int 7",
    ]);
}

#[test]
fn elements_that_name_a_secret_in_an_attribute_hold_one() {
    assert_hidden(&[
        r#"<property name="password">hunter</property>"#,
        r#"<a><property type="x" name = 'db.password'>a hunter</property></a>"#,
        r#"<add key="password" value="hunter"/>"#,
        r#"<add value="hunter" key="DbPassword" />"#,
        r#"<add key="password" note="x" value='a hunter' />"#,
        r#"<entry key="password">a<entry key="b">c</entry>hunter</entry>"#,
        r#"<meta name="csrf-token" content="hunter">x</meta>"#,
    ]);
    assert_eq!(
        masked_text(r#"<property name="user">ann</property><property name="password">hunter</property>"#),
        r#"<property name="user">ann</property><property name="password">[redacted]</property>"#
    );
    assert_stays(&[
        r#"<property name="user">hunter</property>"#,
        r#"<add key="color" value="hunter"/>"#,
        "if a<b && c/>d { name=\"x\" }",
    ]);
}

#[test]
fn what_nobody_sees_changes_no_name() {
    assert_hidden(&[
        "pass\u{200b}word=hunter",
        "--tok\u{ad}en hunter",
        "{\"pass\u{feff}word\": \"a hunter\"}",
        "é pass\u{2060}word: hunter",
        "password%253Dhunter",
        "https://h/?a=1&t%256Fken=hunter",
        "https://h/?to=%252Fa%253Fpassword%25253Dhunter",
    ]);
    assert_eq!(masked_text("é pass\u{200b}word=hunter ü"), "é pass\u{200b}word=[redacted] ü");
    assert_stays(&["a\u{200b}b hunter", "100%25 hunter", "a%2520hunter=b", "ünder the hunter"]);
    let kept = super::arguments(serde_json::json!({"pass\u{200b}word": "hunter"}).as_object().unwrap());
    assert!(!serde_json::to_string(&kept).unwrap().contains("hunter"), "{kept:?}");
}

#[test]
fn options_before_the_password_in_one_word() {
    assert_hidden(&["mysql -vphunter db", "mysqldump -sNphunter"]);
    assert_stays(&["mysql -vt -e hunter", "mysql -tp hunter", "tar -xvphunter", "mkdir -vphunter"]);
}
