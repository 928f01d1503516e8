use super::*;
use crate::config::{AccessMode, NodeConfig};

fn config(servers: &str) -> Result<NodeConfig, Vec<String>> {
    let indented: String = servers.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!(
        "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {{name: n}}\nspec:\n  mcp_servers:\n{indented}"
    );
    NodeConfig::parse(&text).map_err(|mistakes| {
        mistakes.into_iter().map(|one| format!("{}: {}", one.pointer, one.message)).collect()
    })
}

fn one(server: &str) -> McpServer {
    config(&format!("- {{{server}}}")).unwrap().spec.mcp_servers.remove(0)
}

fn mistake(servers: &str) -> String {
    config(servers).unwrap_err().join("\n")
}

#[test]
fn the_forms_of_the_documents_are_read() {
    let read = config(
        r#"- name: web-search
  executable: "node"
  args: ["/opt/aegis-tools/web-search/index.js"]
  capabilities: [web.search, {name: web.fetch, skip_judge: true}]
  credentials:
    SEARCH_API_KEY: "secret:aegis-system/tools/search-api-key"
  health_check:
    interval_seconds: 60
    method: "tools/list"
- name: github
  url: https://mcp.example.org/mcp
  identity: per_principal
  trust: approve
  credentials: {X-Api-Key: "secret:github/{user}"}
  oauth:
    grant: token_exchange
    token_url: https://login.example.org/token
    client_id: aegis
    client_secret: env:CLIENT_SECRET
    subject: {signed: {}}
  tools:
    create_issue: {mutability: mutating, approval: required}
    delete_repo: {enabled: false}
  restart: {max_failures: 3}
  limits: {call_timeout: 30s, max_message: 1Mi}"#,
    )
    .unwrap();
    let [search, github] = read.spec.mcp_servers.as_slice() else { panic!() };
    assert_eq!(search.public_name("web.search").as_deref(), Some("web.search"));
    assert_eq!(search.public_name("web.delete"), None);
    assert!(search.skips_judge("web.fetch", "web.fetch") && !search.skips_judge("web.search", "web.search"));
    assert_eq!(github.public_name("create_issue").as_deref(), Some("github.create_issue"));
    assert_eq!(github.public_name("delete_repo"), None);
    assert_eq!(github.approval("create_issue"), ApprovalRule::Required);
    assert_eq!(github.references().count(), 2);
    // What is written comes back as it was.
    let again: McpServer = serde_json::from_value(serde_json::to_value(github).unwrap()).unwrap();
    assert_eq!(again, *github);
    assert!(!serde_json::to_value(search).unwrap().as_object().unwrap().contains_key("restart"));
}

#[test]
fn an_annotation_is_a_default_that_an_operator_makes_stricter() {
    let server =
        one("name: s, executable: x, tools: {a: {mutability: read_only}, b: {mutability: destructive}}");
    assert_eq!(server.mutability("a", None), Mutability::ReadOnly);
    assert_eq!(server.mutability("a", Some(Mutability::Destructive)), Mutability::Destructive);
    assert_eq!(server.mutability("b", Some(Mutability::ReadOnly)), Mutability::Destructive);
    assert_eq!(server.mutability("c", Some(Mutability::ReadOnly)), Mutability::SaidReadOnly);
    assert_eq!(server.mutability("a", Some(Mutability::ReadOnly)), Mutability::ReadOnly);
    assert_eq!(server.mutability("c", None), Mutability::Destructive);
    assert_eq!(server.trust_class("c"), TrustClass::ExternalUntrusted);
}

#[test]
fn tools_can_take_the_place_of_built_in_ones() {
    let server = one("name: fetcher, executable: x, tools: {fetch: {as: web.fetch}}");
    assert_eq!(server.public_name("fetch").as_deref(), Some("web.fetch"));
    assert_eq!(server.public_name("other").as_deref(), Some("fetcher.other"));
    let claims: Vec<String> = server.claims().iter().map(ToString::to_string).collect();
    assert_eq!(claims, ["fetcher.*", "web.fetch"]);
}

#[test]
fn slips_are_told_with_the_nearest_key() {
    assert!(mistake("- {name: a, executabel: x}").contains("did you mean `executable`"));
    assert!(
        mistake("- {name: a, executable: x, capabilities: ['web*']}")
            .contains("write a name such as web.search")
    );
    assert!(
        mistake("- {name: a, executable: x, capabilities: [{name: web.a, skipjudge: true}]}")
            .contains("skip_judge")
    );
    assert!(mistake("- {name: a b, executable: x}").contains("letters, digits"));
    assert!(mistake("- {name: a, executable: x, health_check: {method: tools/call}}").contains("tools/list"));
}

#[test]
fn a_server_is_reached_in_one_way() {
    assert!(mistake("- {name: a}").contains("`executable` or `url`"));
    assert!(mistake("- {name: a, executable: x, url: https://x}").contains("a program or an address"));
    assert!(mistake("- {name: a, url: ftp://x}").contains("https://"));
    assert!(mistake("- {name: a, url: https://x, args: [b]}").contains("for programs"));
    assert!(mistake("- {name: a, executable: x, headers: {A: b}}").contains("for addresses"));
    assert!(mistake("- {name: a, url: https://x, headers: {Host: b}}").contains("sets this header itself"));
    assert!(mistake("- {name: a, executable: x, working_directory: here}").contains("whole path"));
}

#[test]
fn collisions_name_both_servers() {
    let both = mistake(
        "- {name: a, executable: x, capabilities: [web.search]}\n- {name: b, executable: x, capabilities: [web.search]}",
    );
    assert!(both.contains("`a` and `b` both claim `web.search`"), "{both}");
    let both = mistake("- {name: a, executable: x, namespace: n}\n- {name: b, executable: x, namespace: n}");
    assert!(both.contains("`a` and `b` both claim `n.*`"), "{both}");
    assert!(mistake("- {name: a, executable: x}\n- {name: a, executable: y}").contains("defined twice"));
    // The longest name decides, so these live together; one that does not run claims nothing.
    config("- {name: a, executable: x, capabilities: [web.*]}\n- {name: b, executable: x, capabilities: [web.search]}")
        .unwrap();
    config("- {name: a, executable: x, capabilities: [web.*]}\n- {name: b, enabled: false, executable: x, capabilities: [web.*]}")
        .unwrap();
}

#[test]
fn the_nodes_own_names_are_kept() {
    for server in [
        "name: fs, executable: x",
        "name: a, executable: x, namespace: aegis",
        "name: a, executable: x, capabilities: [cmd.run]",
        "name: a, executable: x, tools: {b: {as: fs.read}}",
    ] {
        assert!(mistake(&format!("- {{{server}}}")).contains("the node's own tools"), "{server}");
    }
    assert!(mistake("- {name: a, executable: x, namespace: n, capabilities: [m.a]}").contains("n.m.a"));
    one("name: a, executable: x, capabilities: [web.*, email.*]");
}

#[test]
fn secrets_do_not_stand_in_the_file() {
    for (server, advice) in [
        ("name: gh, executable: x, credentials: {TOKEN: hunter2hunter2}", "aegis secret set gh/token"),
        ("name: gh, executable: x, environment: {API_TOKEN: hunter2hunter2}", "secret:gh/api-token"),
        ("name: gh, executable: x, args: [--token, hunter2hunter2]", "credentials"),
        ("name: gh, url: 'https://x/?api_key=hunter2hunter2'", "credentials"),
        ("name: gh, url: https://x, headers: {Authorization: Bearer hunter2hunter2}", "aegis secret set"),
        ("name: gh, executable: x, credentials: {A: 'file:relative'}", "whole path"),
        ("name: gh, executable: x, credentials: {A: 'secret:a/{user}'}", "per_principal"),
    ] {
        let told = mistake(&format!("- {{{server}}}"));
        assert!(told.contains(advice), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn oauth_is_whole_or_refused() {
    let with =
        |oauth: &str| format!("- {{name: a, url: https://x, identity: per_principal, oauth: {{{oauth}}}}}");
    let base = "token_url: https://l/t, client_id: c";
    for (oauth, told) in [
        (format!("grant: client_credentials, {base}"), "client_secret"),
        (format!("grant: token_exchange, {base}"), "stands for the caller"),
        (
            "grant: client_credentials, token_url: http://l/t, client_id: c, client_secret: env:A".into(),
            "https://",
        ),
        (format!("grant: token_exchange, {base}, subject: {{stored: {{token: 'secret:t'}}}}"), "{user}"),
        (format!("grant: client_credentials, {base}, client_secret: plain-text"), "aegis secret set"),
    ] {
        let found = mistake(&with(&oauth));
        assert!(found.contains(told), "{found}");
    }
    config(&with(
        "grant: client_credentials, token_url: http://127.0.0.1:1/t, client_id: c, client_secret: env:A",
    ))
    .unwrap();
}

#[test]
fn servers_of_their_own_are_checked_as_in_a_configuration() {
    assert_eq!(parse("name: a\nexecutable: x").unwrap().len(), 1);
    let twice = parse("- {name: a, executable: x}\n- {name: a, executable: x}\n").unwrap_err();
    assert_eq!((twice[0].line, twice[0].pointer.as_str()), (2, "/1/name"));
    let there = [one("name: a, executable: x")];
    let mut added = McpServer::named("b");
    added.url = Some("https://x".into());
    check_added(&there, &added).unwrap();
    added.namespace = Some("a".into());
    assert!(check_added(&there, &added).unwrap_err().contains("both claim `a.*`"));
}

#[test]
fn a_sandbox_shows_what_is_named() {
    let server = one(
        "name: a, executable: x, sandbox: {mounts: [{host: /srv/a}, {volume: /workspace, inside: /w, access: read-write}], \
         egress: ['*.example.org'], image: tools}",
    );
    let sandbox = server.sandbox.as_ref().unwrap();
    assert_eq!(sandbox.mounts[0].source(), Some(MountSource::Host("/srv/a")));
    assert_eq!((sandbox.mounts[0].inside(), sandbox.mounts[0].access), ("/srv/a", AccessMode::ReadOnly));
    assert_eq!(sandbox.mounts[1].source(), Some(MountSource::Volume("/workspace")));
    assert_eq!((sandbox.mounts[1].inside(), sandbox.mounts[1].access), ("/w", AccessMode::ReadWrite));
    let again: McpServer = serde_json::from_value(serde_json::to_value(&server).unwrap()).unwrap();
    assert_eq!(again, server);
    let nothing = one("name: a, executable: x, sandbox: {}").sandbox.unwrap();
    assert!(nothing.mounts.is_empty() && nothing.egress.is_empty());
}

#[test]
fn a_sandbox_is_whole_or_refused() {
    for (mounts, told) in [
        ("[{access: read-only}]", "what is mounted"),
        ("[{host: /a, volume: /b}]", "what is mounted"),
        ("[{host: a}]", "whole path"),
        ("[{host: /a/../b}]", "whole path"),
        ("[{host: /}]", "whole path"),
        ("[{host: /a, inside: b}]", "whole path"),
        ("[{host: /a, inside: /x}, {volume: /b, inside: /x}]", "same place inside"),
        ("[{host: /a}, {host: /a}]", "same place inside"),
        ("[{host: /a}, {host: /b, inside: /a/}]", "same place inside"),
    ] {
        let found = mistake(&format!("- {{name: a, executable: x, sandbox: {{mounts: {mounts}}}}}"));
        assert!(found.contains(told), "{mounts}: {found}");
    }
    assert!(mistake("- {name: a, url: https://x, sandbox: {}}").contains("for programs"));
    let image = "- {name: a, executable: x, sandbox: {image: --privileged}}";
    assert!(mistake(image).contains("registry/name:tag"));
}
