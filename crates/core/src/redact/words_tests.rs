use proptest::prelude::*;

use super::*;
use crate::command::CommandLine;

fn argv(arguments: &[&str]) -> Vec<String> {
    words(arguments).into_iter().map(Cow::into_owned).collect()
}

fn kept(line: &str) -> String {
    masked_text(line).into_owned()
}

#[test]
fn secrets_are_taken_out_and_the_rest_is_kept() {
    for (given, kept) in [
        (&["--token", "x1", "-v"] as &[&str], &["--token", "[redacted]", "-v"] as &[&str]),
        (&["--password=a b", "x"], &["--password=[redacted]", "x"]),
        (&["-H", "Authorization: Bearer a.b.c"], &["-H", "Authorization: [redacted]"]),
        (&["-H", "Authorization:Bearer a.b.c"], &["-H", "Authorization:[redacted]"]),
        (&["-H", "X-Api-Key: 1234"], &["-H", "X-Api-Key: [redacted]"]),
        (&["-b", "Cookie: a=b; c=d"], &["-b", "Cookie: [redacted]"]),
        (&["--cookie", "a=b; c=d", "x"], &["--cookie", "[redacted]", "x"]),
        (&["env", "DB_PASSWORD=1", "make"], &["env", "DB_PASSWORD=[redacted]", "make"]),
        (&["-u", "ann:pw", "x:y"], &["-u", "ann:[redacted]", "x:y"]),
        (&["-uann:pw", "x:y"], &["-uann:[redacted]", "x:y"]),
        (&["curl", "-u", "ann:pw"], &["curl", "-u", "ann:[redacted]"]),
        (&["--user=ann:p w"], &["--user=ann:[redacted]"]),
        (&["--proxy-user=ann:pw"], &["--proxy-user=ann:[redacted]"]),
        (&["https://ann:pw@host/a?b=c"], &["https://[redacted]@host/a?b=c"]),
        (&["https://host/?api_key=abc"], &["https://host/?api_key=[redacted]"]),
        (&["https://host/?sig=abc&page=2#x"], &["https://host/?sig=[redacted]&page=2#x"]),
        (&["https://host/a?b=c&access_token=abc"], &["https://host/a?b=c&access_token=[redacted]"]),
        (&["/a?token=abc&X-Amz-Signature=def&z=1"], &["/a?token=[redacted]&X-Amz-Signature=[redacted]&z=1"]),
        (
            &["-d", r#"{"user": "ann", "password": "a b", "n": 1}"#],
            &["-d", r#"{"user": "ann", "password": [redacted] "n": 1}"#],
        ),
        (&["-d", r#"{"password" : "x"}"#], &["-d", r#"{"password" : "[redacted]"#]),
        (
            &["-c", "curl --token abc --header 'Authorization: Basic abc' x"],
            &["-c", "curl --token [redacted] --header 'Authorization: [redacted] x"],
        ),
        (&["push", "ghp_0123456789abcdefghij"], &["push", "[redacted]"]),
        (&["npm_abcdefghijklmnopqrst1", "hf_abcdefghijkLmnopqrst"], &["[redacted]", "[redacted]"]),
        (&["--token", "--verbose"], &["--token", "--verbose"]),
        (&["-k", "-----BEGIN RSA PRIVATE KEY-----\nabc\n", "x"], &["-k", "[redacted]", "x"]),
        (&["--key=-----BEGIN PRIVATE KEY-----\nabc"], &["--key=[redacted]"]),
        (
            &["-d", "see https://ann:pw@h/ and -----BEGIN PRIVATE KEY-----\nabc"],
            &["-d", "see https://[redacted]@h/ and [redacted]"],
        ),
        (
            &["-----BEGIN", "RSA", "PRIVATE", "KEY-----", "abc"],
            &["-----BEGIN", "RSA", "[redacted]", "[redacted]", "[redacted]"],
        ),
        (&["mysql", "-phunter2", "-P", "3306"], &["mysql", "-p[redacted]", "-P", "3306"]),
        (
            &["mysqldump", "-e", "select 1;", "-p", "hunter2"],
            &["mysqldump", "-e", "select 1;", "-p", "[redacted]"],
        ),
        (&["/usr/bin/redis-cli", "-a", "hunter2", "get"], &["/usr/bin/redis-cli", "-a", "[redacted]", "get"]),
        (&["docker", "login", "-p", "hunter2", "host"], &["docker", "login", "-p", "[redacted]", "host"]),
        (&["auth:Hunter2", "password:hunter"], &["auth:[redacted]", "password:[redacted]"]),
    ] {
        assert_eq!(argv(given), kept);
    }
}

#[test]
fn settings_paths_and_plain_words_stay() {
    for plain in [
        &["--token-file", "/run/token"] as &[&str],
        &["--max-tokens", "4096"],
        &["status", "--porcelain=v2", "-z"],
        &["-u", "1000:1000"],
        &["-u1000:1000", "--user=1000:1000", "--user=ann", "--update=a:b"],
        &["-----BEGIN CERTIFICATE-----\nabc"],
        &["ssh://git@host/x.git"],
        &["--author", "Ann <ann@example.org>"],
        &["sort", "--key=2"],
        &["sort", "-u", "a:b"],
        &["docker", "run", "-u", "node:node", "-p", "8080:80"],
        &["npm", "run", "auth:test"],
        &["cargo", "test", "secret::tests", "token::a::b"],
        &["--env", "secret:github/token"],
        &["mkdir", "-p", "a/b"],
        &["https://host/?page=2&design=x"],
        &["a:b", "x=y", "12:34"],
        &["-c", "for f in *.c; do echo \"$f\"; done"],
        &["the", "password", "is", "elsewhere"],
        &["cat", "/workspace/npm_package_lock_backup.json", "sk-learn_examples_of_today"],
        &["call", "npm_registry.search_packages", "hf_datasets.list_everything"],
    ] {
        assert_eq!(argv(plain), plain);
        let line = plain.join(" ");
        assert!(matches!(masked_text(&line), Cow::Borrowed(_)), "{line}: {}", kept(&line));
    }
}

#[test]
fn whole_lines_are_read_like_words() {
    for (line, shown) in [
        ("curl --token abc x", "curl --token [redacted] x"),
        ("TOKEN='a b' make", "TOKEN='[redacted] make"),
        ("password: hunter2", "password: [redacted]"),
        ("password = hunter2", "password = [redacted]"),
        (r#"{"password" : "hunter 2"}"#, r#"{"password" : [redacted]"#),
        (r#"{"a": 1, "password" :"x"}"#, r#"{"a": 1, "password" :"[redacted]"#),
        ("Authorization: Bearer abc def", "Authorization: [redacted] [redacted] def"),
        ("Authorization:Bearer abc def", "Authorization:[redacted] [redacted] def"),
        ("Cookie: a=b; c=d; e=f next", "Cookie: [redacted] [redacted] [redacted] next"),
        ("Cookie:a=b; c=d next", "Cookie:[redacted] [redacted] next"),
        ("GET https://h/?sig=abc&a=1 now", "GET https://h/?sig=[redacted]&a=1 now"),
        ("x -----BEGIN RSA PRIVATE KEY-----\nabc\n", "x [redacted]"),
        ("cat x | mysql -u root -phunter2 db; ls -p", "cat x | mysql -u root -p[redacted] db; ls -p"),
        ("sudo -n mysql -p hunter2", "sudo -n mysql -p [redacted]"),
        ("bash -c 'sshpass -p hunter2 ssh h'", "bash -c 'sshpass -p [redacted] ssh h'"),
        ("cat a | sort -u a:b", "cat a | sort -u a:b"),
        ("sort -u a:b; curl -u ann:pw h", "sort -u a:b; curl -u ann:[redacted] h"),
        ("mysql -u root ab -phunter2", "mysql -u root ab -p[redacted]"),
        ("mysql -u root /tmp/zip -p hunter2", "mysql -u root /tmp/zip -p [redacted]"),
        ("unzip -P hunter2 ab.zip", "unzip -P [redacted] ab.zip"),
        ("?sig=a?sig=b&sig=c", "?sig=[redacted]&sig=[redacted]"),
    ] {
        assert_eq!(kept(line), shown);
    }
}

/// How secrets are announced besides, and neighbours that announce none.
#[test]
fn rarer_announcements_are_known_from_their_neighbours() {
    for (line, shown) in [
        ("Authorization: Bot hunter2 x", "Authorization: [redacted] [redacted] x"),
        ("Authorization:ApiKey hunter2 x", "Authorization:[redacted] [redacted] x"),
        ("curl -H Authorization:h2nter https://h/", "curl -H Authorization:[redacted] https://h/"),
        ("Proxy-Authorization: hunter https://h/", "Proxy-Authorization: [redacted] https://h/"),
        (
            "Authorization: AWS4-HMAC-SHA256 Credential=AK/s3, SignedHeaders=host, Signature=hunter2 x",
            "Authorization: [redacted] [redacted] [redacted] [redacted] x",
        ),
        (
            r#"Authorization: Digest username="ann", uri="/", response="hunter2" x"#,
            "Authorization: [redacted] [redacted] [redacted] [redacted] x",
        ),
        ("AWS4 Signature=0123456789abcdef0123456789abcdef, x", "AWS4 Signature=[redacted], x"),
        (
            r#"realm="x", response="0123456789abcdef0123456789abcdef", qop=auth"#,
            r#"realm="x", response="[redacted]", qop=auth"#,
        ),
        ("response=ok Signature=none response=0123456789", "response=ok Signature=none response=0123456789"),
        ("TOKEN+=hunter2 make", "TOKEN+=[redacted] make"),
        ("TOKEN ?= hunter2", "TOKEN ?= [redacted]"),
        ("credentials: {A: hunter} b: 2", "credentials: [redacted] [redacted] b: 2"),
        (r#"{"a": 1, "password": "--hunter"}"#, r#"{"a": 1, "password": [redacted]"#),
        ("COUNT+=1 x?=2", "COUNT+=1 x?=2"),
        ("os.environ['TOKEN'] = 'hunter2'", "os.environ['TOKEN'] = [redacted]"),
        ("os.environ['TOKEN']='hunter2'", "os.environ['TOKEN']='[redacted]"),
        ("os.environ['LANG'] = 'C'", "os.environ['LANG'] = 'C'"),
        ("run --token=$(echo hunter2) -v", "run --token=[redacted] [redacted] -v"),
        (
            "run --token $(echo $(printf hunter2) x) -v",
            "run --token [redacted] [redacted] [redacted] [redacted] -v",
        ),
        ("PASSWORD=`echo hunter2` make", "PASSWORD=[redacted] [redacted] make"),
        ("run --name=$(echo hunter2) -v", "run --name=$(echo hunter2) -v"),
        ("curl -su ann:hunter2 h", "curl -su ann:[redacted] h"),
        ("curl -fsSLuann:hunter2 h", "curl -fsSLuann:[redacted] h"),
        ("docker exec c curl -sU ann:hunter2 h", "docker exec c curl -sU ann:[redacted] h"),
        ("rsync -avu src:a dst && curl -so u:x h", "rsync -avu src:a dst && curl -so u:x h"),
        ("AccountName=a;AccountKey=hunter2==;EndpointSuffix=x", "AccountName=a;AccountKey=[redacted]"),
        ("AccountName=a;Suffix=x monkey=b", "AccountName=a;Suffix=x monkey=b"),
        ("<a><password>hunter 2</password><b>x</b></a>", "<a><password>[redacted]</password><b>x</b></a>"),
        (
            "<w:Password Type=\"t\">\n hunter2\n</w:Password> <user>ann</user>",
            "<w:Password Type=\"t\">[redacted]</w:Password> <user>ann</user>",
        ),
        ("<secret><b>hunter2</b></secret>", "<secret>[redacted]</secret>"),
        (
            "<secret><id>A</id><token>B</token><value>C</value></secret><id>D</id>",
            "<secret>[redacted]</secret><id>D</id>",
        ),
        ("<token>A<token>B</token>C</token> D", "<token>[redacted]</token> D"),
        ("<token>A</token> D <token>B</token>", "<token>[redacted]</token> D <token>[redacted]</token>"),
        ("<token/> D <token a=\"b/\">B</token>", "<token/> D <token a=\"b/\">[redacted]</token>"),
        ("usage: run <token> <file>, Vec<Token> </x>", "usage: run <token> <file>, Vec<Token> </x>"),
        ("machine h login ann password hunter x", "machine h login ann password [redacted] x"),
        ("machine h\n  password hunter\n", "machine h\n  password [redacted]\n"),
        ("password hunter2", "password [redacted]"),
        (
            "password reset, the password of ann, passwd now",
            "password reset, the password of ann, passwd now",
        ),
        ("login first, then the password reset", "login first, then the password reset"),
        (
            "a: 1\ntoken: |\n  hunter\n\n   two\nb: 2",
            "a: 1\ntoken: [redacted]\n  [redacted]\n\n   [redacted]\nb: 2",
        ),
        ("- 'api_key': >-\n    hunter\n  b: 2", "- 'api_key': [redacted]\n    [redacted]\n  b: 2"),
        ("token: | # the key\n  hunter\nb: 2 # one", "token: [redacted] # the key\n  [redacted]\nb: 2 # one"),
        ("token: >-\t#\n  hunter\nb: 2", "token: [redacted]\t#\n  [redacted]\nb: 2"),
        ("text: | # the token: |\n  hunter\nb: 2", "text: | # the token: [redacted]\n  hunter\nb: 2"),
        ("text: |\n  hunter\nb: 2", "text: |\n  hunter\nb: 2"),
        (r#"[{"name":"DB_PASSWORD","value":"hunter2"}]"#, r#"[{"name":"DB_PASSWORD","value":"[redacted]"#),
        (r#"{"key": "DB_PASSWORD", "value": "hunter2"}"#, r#"{"key": "DB_PASSWORD", "value": [redacted]"#),
        ("- name: DB_PASSWORD\n  value: hunter\n", "- name: DB_PASSWORD\n  value: [redacted]\n"),
        (r#"[{"name":"title","value":"Hello"}]"#, r#"[{"name":"title","value":"Hello"}]"#),
        (r#"{"name": "title", "value": "Hello"}"#, r#"{"name": "title", "value": "Hello"}"#),
    ] {
        assert_eq!(kept(line), shown);
    }
    assert_eq!(argv(&["curl", "-su", "ann:pw"]), ["curl", "-su", "ann:[redacted]"]);
    assert_eq!(
        argv(&["-d", "a: 1\ntoken: |\n  hunter\n"]),
        ["-d", "a: 1\ntoken: [redacted]\n  [redacted]\n"]
    );
    assert_eq!(argv(&["<password>x</password>"]), ["<password>[redacted]</password>"]);
}

#[test]
fn what_a_program_is_given_is_read_as_its_own() {
    let given = |program: &str, arguments: &[&str]| -> Vec<String> {
        arguments_of(program, arguments).into_iter().map(Cow::into_owned).collect()
    };
    assert_eq!(given("mysql", &["-phunter2"]), ["-p[redacted]"]);
    assert_eq!(given("sort", &["-u", "a:b"]), ["-u", "a:b"]);
    assert_eq!(given("curl", &["sort", "-u", "ann:pw"]), ["sort", "-u", "ann:[redacted]"]);
    assert_eq!(given("mkdir", &["-p", "a"]), ["-p", "a"]);
    assert_eq!(given("sudo -n mysql", &["-phunter2"]), ["-p[redacted]"]);
}

#[test]
fn what_is_too_deep_to_be_looked_at_is_hidden() {
    let mut line = "a --token hunter2".to_owned();
    for _ in 0..8 {
        line = format!("b {}", serde_json::Value::from(line));
    }
    assert!(!kept(&line).contains("hunter2"), "{}", kept(&line));
    let mut found = Vec::new();
    Reader::line(DEEPEST).read("'a b'", 3, &mut found);
    assert_eq!(found.first(), Some(&(3..8)));
}

fn secret() -> impl Strategy<Value = String> {
    // Long enough not to be a part of the words around it by chance.
    "[ -~ä]{6,24}".prop_filter("has something to hide", |text| {
        !text.starts_with(['-', '"', '\'', '\\', ' ', '=', ':', '>', ',', ';', ']', '/'])
            && !text.ends_with([' ', '"', '\'', '\\', ',', ';'])
            && !"Authorization: Bearer password token example".contains(text.as_str())
    })
}

/// The whole and every long part of a secret: to leave out half of it is to leave out nothing.
fn holds(text: &str, secret: &str) -> bool {
    text.contains(secret)
        || secret.split(char::is_whitespace).any(|part| part.chars().count() >= 6 && text.contains(part))
}

/// How a secret may be announced, `{}` standing for it. The first word is the program.
const ANNOUNCED: [&[&str]; 24] = [
    &["run", "--token", "{}"],
    &["run", "--client-secret", "{}"],
    &["run", "--password={}"],
    &["run", "-H", "Authorization: Bearer {}"],
    &["run", "-H", "Authorization:Bearer {}"],
    &["run", "-H", "Cookie: session={}"],
    &["run", "-H", "Cookie: a=b; session={}"],
    &["run", "GITHUB_TOKEN={}"],
    &["run", "-e", "AWS_SECRET_ACCESS_KEY={}"],
    &["run", "-Dspring.datasource.password={}"],
    &["run", "X-Api-Key: {}"],
    &["run", "password:{}"],
    &["curl", "-u", "ann:{}"],
    &["curl", "--user=ann:{}"],
    &["mysql", "-p{}"],
    &["mysql", "-h", "host", "-p", "{}"],
    &["redis-cli", "-a", "{}"],
    &["curl", "-su", "ann:{}"],
    &["run", "-H", "Authorization: Bot {}"],
    &["run", "TOKEN+={}"],
    &["run", "<password>{}</password>"],
    &["docker", "login", "-u", "ann", "-p", "{}"],
    &["mysql", "-u", "root", "ab", "-p{}"],
    &["docker", "--config", "/tmp/zip", "login", "-u", "ann", "-p", "{}"],
];

/// Words that are names of programs, and mean something else where they stand.
const NAMES: [&str; 8] = ["plain", "ab", "/tmp/zip", "7z", "redis-cli", "sort", "docker", "login"];

proptest! {
    #[test]
    fn no_secret_is_left_among_arguments(secret in secret(), form in 0..ANNOUNCED.len(), name in prop::sample::select(NAMES.to_vec()), after in "[a-z]{0,3}") {
        let mut all: Vec<String> = ANNOUNCED[form].iter().map(|word| word.replace("{}", &secret)).collect();
        all.insert(1, name.to_owned());
        all.push(after);
        let kept = argv(&all.iter().map(String::as_str).collect::<Vec<_>>());
        prop_assert!(!holds(&kept.join("\n"), &secret), "{kept:?}");
        let kept = arguments_of(&all[0], &all[1..]).join("\n");
        prop_assert!(!holds(&kept, &secret), "{kept:?}");
        // The same as one line, as a shell would take it.
        let line = CommandLine { program: all[0].clone(), arguments: all[1..].to_vec() }.shown();
        let kept = masked_text(&line);
        prop_assert!(!holds(&kept, &secret), "{line} became {kept}");
    }

    #[test]
    fn no_secret_is_left_in_json_or_in_an_address(secret in "[!-~]{6,24}", blanks in (" {0,2}", " {0,2}"), name in prop::sample::select(vec!["password", "client_secret", "access_token", "api_key"])) {
        let (before, after) = blanks;
        let text = format!("{{\"a\": 1, \"{name}\"{before}:{after}{}}}", serde_json::Value::from(secret.clone()));
        for kept in [masked_text(&text).into_owned(), words(&["-d", &text]).concat()] {
            prop_assert!(!holds(&kept, &secret), "{text} became {kept}");
        }
        let encoded: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for name in [name, "sig", "X-Amz-Signature"] {
            let address = format!("https://host/a?b=c&{name}={encoded}&page=2");
            let kept = masked_text(&address);
            prop_assert!(!kept.contains(&encoded) && kept.ends_with("&page=2"), "{address} became {kept}");
        }
    }

    #[test]
    fn any_text_is_looked_at_without_harm(text in any::<String>(), depth in 0..6usize) {
        let mut found = Vec::new();
        Reader::line(depth).read_all(&text, shell_words(&text), 0, &mut found);
        prop_assert!(found.iter().all(|range| text.get(range.clone()).is_some()));
        let _ = masked(&text, found);
        let _ = words(&[text]);
    }
}
