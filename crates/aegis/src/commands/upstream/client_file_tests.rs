use super::*;

fn imported(text: &str) -> Imported {
    read(text, &[], &|_| None).unwrap()
}

#[test]
fn both_kinds_of_servers_are_taken_over_without_their_secrets() {
    let found = imported(
        r#"{
            // as editors let people write it
            "mcpServers": {
                "github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"],
                    "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_0123456789abcdefghij", "LOG": "https://x//y", "PORT": 80}},
                "My search!": {"type": "http", "url": "https://mcp.example.org/mcp",
                    "headers": {"Authorization": "Bearer 0123456789abcdef", "X-Region": "eu"}},
                "old": {"type": "sse", "url": "http://127.0.0.1:9/sse", "disabled": true},
                "from-env": {"command": "x", "env": {"A_TOKEN": "${A_TOKEN}", "B": "${env:HOME_B}"}},
                "asked": {"command": "x", "env": {"KEY": "${input:api-key}"}}, /* VS Code */
            },
        }"#,
    );
    let server = |name: &str| found.servers.iter().find(|server| server.name == name).unwrap();
    assert_eq!(found.left_out, []);
    let github = server("github");
    assert_eq!(
        github.credentials["GITHUB_PERSONAL_ACCESS_TOKEN"].to_string(),
        "secret:github/github-personal-access-token"
    );
    assert_eq!(github.environment["LOG"], "https://x//y");
    assert_eq!(github.environment["PORT"], "80");
    let search = server("My-search");
    assert_eq!(search.credentials["Authorization"].to_string(), "secret:my-search/authorization");
    assert_eq!(search.headers["X-Region"], "eu");
    assert_eq!((server("old").transport, server("old").enabled), (HttpTransport::Sse, false));
    assert_eq!(server("from-env").credentials["A_TOKEN"].to_string(), "env:A_TOKEN");
    assert_eq!(server("from-env").credentials["B"].to_string(), "env:HOME_B");
    assert_eq!(server("asked").credentials["KEY"].to_string(), "secret:asked/api-key");
    assert_eq!(found.secrets.len(), 2);
    assert_eq!(found.secrets["my-search/authorization"].expose(), "Bearer 0123456789abcdef");
    assert!(found.remarks.iter().any(|remark| remark.contains("aegis secret set asked/api-key")));
    let shown = format!("{found:?}");
    assert!(!shown.contains("ghp_0123456789") && !shown.contains("0123456789abcdef"), "{shown}");
}

#[test]
fn what_cannot_be_taken_over_is_told() {
    let found = imported(
        r#"{"servers": {
            "aegis": {"command": "/usr/local/bin/aegis", "args": ["mcp", "--context", "workspace"]},
            "nothing": {},
            "fs": {"command": "x"},
            "secretive": {"command": "x", "args": ["--api-key", "0123456789abcdef"]},
            "good": {"command": "x"},
            "good!": {"command": "y"}}}"#,
    );
    let reasons: Vec<&str> = found.left_out.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(reasons, ["nothing", "fs", "secretive", "good!"]);
    assert_eq!(found.itself, ["aegis"]);
    assert!(!format!("{found:?}").contains("0123456789abcdef"));
    assert_eq!(found.servers.len(), 1);
    for bad in ["", "[]", "{}", r#"{"mcpServers": 1}"#] {
        assert!(read(bad, &[], &|_| None).is_err(), "{bad}");
    }
    let lost = read(r#"{"mcpServers": {"one": {"command": "x"}}}"#, &["two".into()], &|_| None);
    assert!(matches!(lost, Err(ClientFileError::NoServer { .. })), "{lost:?}");
}

#[test]
fn tables_of_codex_are_taken_over() {
    let found = imported(
        r#"model = "x"
            [mcp_servers.github]
            command = "npx"
            args = ["-y", "@modelcontextprotocol/server-github"]
            env_vars = ["LOCAL_REGION", {name = "OTHER", source = "local"}]
            startup_timeout_sec = 20
            [mcp_servers.github.env]
            GITHUB_PERSONAL_ACCESS_TOKEN = "ghp_0123456789abcdefghij"
            LOG = "info"
            [mcp_servers.docs]
            url = "https://mcp.example.org/mcp"
            bearer_token_env_var = "DOCS_TOKEN"
            http_headers = { X-Region = "eu" }
            [mcp_servers.off]
            command = "x"
            enabled = false"#,
    );
    let server = |name: &str| found.servers.iter().find(|server| server.name == name).unwrap();
    assert_eq!(found.left_out, []);
    assert_eq!(server("github").args, ["-y", "@modelcontextprotocol/server-github"]);
    assert_eq!(server("github").inherit_environment, ["LOCAL_REGION", "OTHER"]);
    assert_eq!(server("github").environment["LOG"], "info");
    assert_eq!(found.secrets["github/github-personal-access-token"].expose(), "ghp_0123456789abcdefghij");
    assert_eq!(server("docs").credentials["Authorization"].to_string(), "env:DOCS_TOKEN");
    assert_eq!(server("docs").headers["X-Region"], "eu");
    assert!(!server("off").enabled);
    let wrong = read("[mcp_servers.a\n", &[], &|_| None).unwrap_err().to_string();
    assert!(wrong.contains("neither JSON nor TOML") && wrong.contains("at line 1 column 15"), "{wrong}");
}

#[test]
fn a_mistake_is_told_where_it_stands_in_the_file() {
    let told = |text: &str| read(text, &[], &|_| None).unwrap_err().to_string();
    let bad = "{\n  // é: a remark\n  /* and\n  another */ \"a\": [1,\n  ],\n  \"mcpServers\": nope\n}";
    assert!(told(bad).ends_with("at line 6 column 18"), "{}", told(bad));
    assert!(
        told("{\"a\": /* b */ 1,\n \"c\"}").ends_with("at line 2 column 5"),
        "{}",
        told("{\"a\": 1,\n \"c\"}")
    );
    let toml = "[mcp_servers.a]\ncommand = \"x\"\nargs = [1,,2]\n";
    assert!(told(toml).contains("at line 3 column"), "{}", told(toml));
}

#[test]
fn what_the_shell_has_and_is_no_secret_is_taken_in_plain() {
    let shell = |name: &str| match name {
        "HOME" => Some("/people/ann".to_owned()),
        "REGION" => Some("eu".to_owned()),
        "API_KEY" => Some("0123456789abcdef".to_owned()),
        "DB" => Some("postgres://ann:hunter22@db/x".to_owned()),
        _ => None,
    };
    let found = read(
        r#"{"mcpServers": {
            "one": {"command": "${HOME}/bin/one", "args": ["--root", "${env:HOME}/docs", "${API_KEY}"],
                "env": {"HOME": "${HOME}", "DATA": "${HOME}/data", "LEVEL": "${LEVEL:-info}", "KEY_OF_MINE": "${API_KEY}",
                    "PASSWORD": "${REGION}", "DB": "${DB}", "LATER": "${LATER}"}},
            "two": {"url": "https://${REGION}.example.org/mcp", "headers": {"X-Region": "${REGION}",
                "Authorization": "Bearer ${API_KEY}"}}}}"#,
        &[],
        &shell,
    )
    .unwrap();
    let (one, two) = (&found.servers[0], &found.servers[1]);
    assert_eq!(one.executable.as_deref(), Some("/people/ann/bin/one"));
    assert_eq!(one.args, ["--root", "/people/ann/docs", "${API_KEY}"]);
    let plain: Vec<(&str, &str)> = one.environment.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(plain, [("DATA", "/people/ann/data"), ("HOME", "/people/ann"), ("LEVEL", "info")]);
    let kept: Vec<String> = one.credentials.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(kept, ["DB=env:DB", "KEY_OF_MINE=env:API_KEY", "LATER=env:LATER", "PASSWORD=env:REGION"]);
    assert_eq!(two.url.as_deref(), Some("https://eu.example.org/mcp"));
    assert_eq!((two.headers["X-Region"].as_str(), two.headers.len()), ("eu", 1));
    assert!(found.secrets.is_empty());
    assert!(found.remarks.iter().any(|remark| remark.contains("DATA is no secret")), "{:?}", found.remarks);
    assert!(!format!("{found:?}").contains("0123456789abcdef"));
}

#[test]
fn secrets_of_the_shell_are_never_taken_in_plain() {
    let shell = |name: &str| match name {
        "DB_PASS" | "SMTP_PW" | "X_CREDS" | "MINE" => Some("hunter2".to_owned()),
        "MSSQL" => Some("Server=db;Password=hunter2".to_owned()),
        "PLAIN" => Some("eu".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    let found = read(
        r#"{"mcpServers": {
            "one": {"command": "${DB_PASS}/x", "cwd": "/srv/${GONE}/y",
                "args": ["--password", "${MINE}", "--pass=${MINE}", "${MSSQL}", "${PLAIN}"],
                "env": {"DB_PASS": "${DB_PASS}", "SMTP_PW": "${env:SMTP_PW}", "X": "${X_CREDS}", "DSN": "${MSSQL}",
                    "PART": "at ${DB_PASS}", "OTHER_PASS": "${MINE}", "WRITTEN": "Server=db;Password=hunter2",
                    "EMPTY": "${EMPTY:-x}", "BARE": "${EMPTY}", "ASKED": "${input:key:-x}"}},
            "two": {"url": "https://example.org/${PLAIN}?token=${MINE}", "headers": {"X-Auth": "${MINE}"}}}}"#,
        &[],
        &shell,
    )
    .unwrap();
    assert_eq!(found.left_out, []);
    let (one, two) = (&found.servers[0], &found.servers[1]);
    let plain: Vec<(&str, &str)> = one.environment.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(plain, [("BARE", ""), ("EMPTY", "x")]);
    let kept: Vec<String> = one.credentials.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(
        kept,
        [
            "ASKED=secret:one/key",
            "DB_PASS=env:DB_PASS",
            "DSN=env:MSSQL",
            "OTHER_PASS=env:MINE",
            "PART=secret:one/part",
            "SMTP_PW=env:SMTP_PW",
            "WRITTEN=secret:one/written",
            "X=env:X_CREDS",
        ]
    );
    assert_eq!(one.args, ["--password", "${MINE}", "--pass=${MINE}", "${MSSQL}", "eu"]);
    assert_eq!(two.url.as_deref(), Some("https://example.org/${PLAIN}?token=${MINE}"));
    assert_eq!(two.credentials["X-Auth"].to_string(), "env:MINE");
    assert_eq!(found.secrets.len(), 1);
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
    // What was chosen is said of every place.
    for place in [
        "one: `${DB_PASS}/x` is filled in by the client",
        "one: `/srv/${GONE}/y` is filled in by the client",
        "one: `--pass=${MINE}` is filled in by the client",
        "one: `${PLAIN}` is filled in from this shell's environment",
        "one: DB_PASS is read from the environment that the node was started in, as env:DB_PASS",
        "one: PART is asked for or put together by the client: run `aegis secret set one/part`",
        "two: `https://example.org/${PLAIN}?token=${MINE}` is filled in by the client",
        "two: the header X-Auth is read from the environment that the node was started in, as env:MINE",
    ] {
        assert!(found.remarks.iter().any(|remark| remark.starts_with(place)), "{place}: {:?}", found.remarks);
    }
}

#[test]
fn a_reference_to_a_stored_secret_is_taken_as_one() {
    let found = imported(
        r#"{"mcpServers": {"gh": {"command": "x",
            "env": {"TOKEN": "secret:gh/token", "DATABASE_URL": "file:./dev.db", "API_KEY": "secret: no name"}}}}"#,
    );
    let server = &found.servers[0];
    assert_eq!(server.credentials["TOKEN"].to_string(), "secret:gh/token");
    assert_eq!(server.environment["DATABASE_URL"], "file:./dev.db");
    assert_eq!(found.secrets.keys().collect::<Vec<_>>(), ["gh/api-key"]);
    assert!(
        found.remarks.contains(&"gh: TOKEN is the stored secret:gh/token".to_owned()),
        "{:?}",
        found.remarks
    );
}
