use aegis_core::{
    FailureKind, Outcome, Violation, ViolationKind,
    config::{EgressConfig, SearchConfig},
    label::Label,
    progress::Silence,
    quantity::Size,
    tool::Target,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{engine::Engine, register_web};
use crate::{
    Catalog,
    egress::{
        Egress,
        testing::{Act, NoTools, Server, answer, config, grant, head, page, path, permit, redirect},
    },
};

fn catalog_with(egress: &EgressConfig, search: Value) -> Catalog {
    let search: SearchConfig = serde_json::from_value(search).unwrap();
    register_web(Catalog::default(), &Egress::new(egress).unwrap(), &Engine::from_config(&search).unwrap())
}

fn catalog() -> Catalog {
    catalog_with(&config(&["127.0.0.1"]), json!({}))
}

async fn try_call(catalog: &Catalog, tool: &str, arguments: Value) -> Result<Outcome, Violation> {
    let spec = catalog.resolve(tool).unwrap().clone();
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let cancel = CancellationToken::new();
    catalog
        .carry_out(permit(&spec.name, grant(&[])), &spec, arguments, &NoTools, &NoTools, &cancel, &Silence)
        .await
}

async fn call(catalog: &Catalog, tool: &str, arguments: Value) -> Outcome {
    try_call(catalog, tool, arguments).await.unwrap()
}

async fn fetch(url: &str) -> Outcome {
    call(&catalog(), "web.fetch", json!({"url": url})).await
}

#[track_caller]
fn failed(outcome: &Outcome, kind: FailureKind) -> &Map<String, Value> {
    assert_eq!(outcome.failure, Some(kind), "{}", outcome.value);
    let object = outcome.value.as_object().unwrap();
    assert_eq!(object["error_kind"], kind.as_str());
    assert!(object["tool"].is_string() && object["error"].is_string(), "{object:?}");
    object
}

/// What the contracts fix of an input: names, types, defaults, bounds.
fn without_descriptions(mut schema: Value) -> Value {
    if let Some(properties) = schema["properties"].as_object_mut() {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            property.remove("description");
        }
    }
    schema
}

#[test]
fn inputs_are_as_the_contracts_say() {
    let catalog = catalog();
    let input = |tool: &str| without_descriptions(catalog.resolve(tool).unwrap().input_schema.clone());
    assert_eq!(
        input("web.fetch"),
        json!({"type": "object", "additionalProperties": false, "required": ["url"], "properties": {
            "url": {"type": "string", "minLength": 1, "format": "uri"},
            "to_markdown": {"type": "boolean", "default": true},
            "follow_redirects": {"type": "boolean", "default": true},
            "timeout_secs": {"type": "integer", "minimum": 1, "maximum": 300, "default": 30},
        }})
    );
    assert_eq!(
        input("web.search"),
        json!({"type": "object", "additionalProperties": false, "required": ["query"], "properties": {
            "query": {"type": "string", "minLength": 1},
            "max_results": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
        }})
    );
    assert_eq!(
        input("tool.http-fetch"),
        json!({"type": "object", "additionalProperties": false, "required": ["url"], "properties": {
            "url": {"type": "string", "format": "uri"},
            "method": {"type": "string", "enum": ["GET"], "default": "GET"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
            "timeoutMs": {"type": "integer", "minimum": 1, "maximum": 30000, "default": 12000},
        }})
    );
    assert_eq!(
        input("tool.web-search"),
        json!({"type": "object", "additionalProperties": false, "required": ["query"], "properties": {
            "query": {"type": "string", "minLength": 1},
            "maxResults": {"type": "integer", "minimum": 1, "maximum": 10, "default": 5},
            "safeMode": {"type": "boolean", "default": true},
        }})
    );
}

#[test]
fn policies_know_where_each_tool_goes() {
    let catalog =
        catalog_with(&config(&[]), json!({"engine": "searxng", "endpoint": "https://Find.example/"}));
    for tool in ["web.fetch", "tool.http-fetch"] {
        assert_eq!(catalog.resolve(tool).unwrap().targets, [Target::Url { argument: "url".into() }]);
    }
    for tool in ["web.search", "tool.web-search"] {
        assert_eq!(catalog.resolve(tool).unwrap().targets, [Target::Host { host: "find.example".into() }]);
    }
}

#[tokio::test]
async fn html_comes_as_markdown() {
    let server = Server::start(|_| {
        page("text/html; charset=utf-8", "<title>Tea</title><h1>Tea</h1><p>See <a href=/milk>milk</a>.</p>")
    })
    .await;
    let outcome = fetch(&server.url("/tea")).await;
    let markdown = format!("# Tea\n\nSee [milk]({}).", server.url("/milk"));
    assert_eq!(outcome.value, json!(markdown));
    assert_eq!(
        outcome.structured.unwrap(),
        json!({"url": server.url("/tea"), "status": 200, "content_type": "text/html", "title": "Tea",
            "format": "markdown", "content": markdown})
    );
    assert_eq!(outcome.label.trust.as_str(), "EXTERNAL_UNTRUSTED");
    assert_eq!(
        (outcome.label.source.as_ref(), outcome.label.origin),
        ("remote-http", Some(server.url("/tea")))
    );
}

#[tokio::test]
async fn other_text_comes_as_it_is() {
    let server = Server::start(|asked| match path(asked) {
        "/json" => page("application/json", " {\"a\": [1,\n2], \"b\": \"<p>\"}\n"),
        "/octets" => page("application/octet-stream", "# plain words\n"),
        "/html" => page("text/html", "<p>as\n it is"),
        "/untyped" => answer(200, &[], "<!DOCTYPE html><p>typed by its look"),
        "/latin" => page("text/html", b"<meta charset=iso-8859-1><p>caf\xe9"),
        _ => answer(204, &[], ""),
    })
    .await;
    let text = |path: &'static str| {
        let url = server.url(path);
        async move { fetch(&url).await.value }
    };
    assert_eq!(text("/json").await, " {\"a\": [1,\n2], \"b\": \"<p>\"}\n");
    assert_eq!(text("/octets").await, "# plain words\n");
    assert_eq!(text("/untyped").await, "typed by its look");
    assert_eq!(text("/latin").await, "café");
    assert_eq!(text("/nothing").await, "");
    let source =
        call(&catalog(), "web.fetch", json!({"url": server.url("/html"), "to_markdown": false})).await;
    assert_eq!(source.value, "<p>as\n it is");
    assert_eq!(source.structured.unwrap()["format"], "source");
}

#[tokio::test]
async fn error_statuses_are_failures_with_the_reason() {
    let server = Server::start(|asked| match path(asked) {
        "/gone" => answer(
            404,
            &[("content-type", "text/html")],
            "<h1>Gone</h1><p>Try &lt;elsewhere&gt;</p><script>x</script>",
        ),
        "/long" => answer(500, &[("content-type", "text/plain")], "x".repeat(100_000)),
        _ => answer(503, &[("content-type", "image/png")], "\u{89}PNG"),
    })
    .await;
    let gone = fetch(&server.url("/gone")).await;
    let object = failed(&gone, FailureKind::HttpStatusError);
    assert_eq!(object["status"], 404);
    assert_eq!(object["body"], "Gone Try <elsewhere>");
    assert_eq!(object["error"], format!("{} answered 404 Not Found: Gone Try <elsewhere>", server.url("")));
    let long = fetch(&server.url("/long")).await;
    assert!(failed(&long, FailureKind::HttpStatusError)["body"].as_str().unwrap().len() < 600);
    let picture = fetch(&server.url("/picture")).await;
    assert_eq!(failed(&picture, FailureKind::HttpStatusError)["body"], "");
}

#[tokio::test]
async fn what_is_no_text_is_said_to_be_none() {
    let server = Server::start(|asked| match path(asked) {
        "/picture" => vec![
            Act::Send(head(200, &[("content-type", "image/png"), ("content-length", "123456789")])),
            Act::Hang,
        ],
        _ => page("application/octet-stream", b"\x7fELF\x02\x01\x01\0\0\0"),
    })
    .await;
    let picture = fetch(&server.url("/picture")).await;
    let message = failed(&picture, FailureKind::NotUtf8)["error"].as_str().unwrap();
    assert!(message.contains("image/png") && message.contains("123456789 bytes"), "{message}");
    let program = fetch(&server.url("/program")).await;
    let message = failed(&program, FailureKind::NotUtf8)["error"].as_str().unwrap();
    assert!(message.contains("application/octet-stream, 10 bytes"), "{message}");
}

/// What another machine says of its answer is its own word, and a session that has read it knows where it came from.
#[tokio::test]
async fn a_type_that_an_answer_claims_is_no_word_of_the_node() {
    let server = Server::start(|_| page("application/ignore-previous", b"\x7fELF\x02\x01\x01\0\0\0")).await;
    let outcome = fetch(&server.url("/")).await;
    let message = failed(&outcome, FailureKind::NotUtf8)["error"].as_str().unwrap();
    assert!(message.contains("application/ignore-previous"), "{message}");
    assert_eq!(outcome.label.trust, catalog().resolve("web.fetch").unwrap().label.trust);
    assert_ne!(outcome.label.trust, Label::node().trust);
}

#[tokio::test]
async fn limits_are_failures_with_their_kind() {
    let server = Server::start(|asked| match path(asked) {
        "/large" => page("text/plain", "x".repeat(2000)),
        _ => vec![Act::Send(head(200, &[("content-type", "text/plain")])), Act::Drip],
    })
    .await;
    let small = catalog_with(&EgressConfig { max_body: Size(1000), ..config(&["127.0.0.1"]) }, json!({}));
    let large = call(&small, "web.fetch", json!({"url": server.url("/large")})).await;
    assert_eq!(failed(&large, FailureKind::ResponseTooLarge)["limit_bytes"], 1000);
    let slow = call(&catalog(), "web.fetch", json!({"url": server.url("/slow"), "timeout_secs": 1})).await;
    failed(&slow, FailureKind::Timeout);
    let closed =
        call(&catalog_with(&config(&[]), json!({})), "web.fetch", json!({"url": server.url("/")})).await;
    assert_eq!(failed(&closed, FailureKind::AddressNotAllowed)["rule"], "egress.allow_private");
    let address = server.address;
    drop(server);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    failed(&fetch(&format!("http://{address}/")).await, FailureKind::UpstreamUnavailable);
}

#[tokio::test]
async fn redirects_can_be_left_alone() {
    let server = Server::start(|_| redirect(301, "/there")).await;
    let outcome =
        call(&catalog(), "web.fetch", json!({"url": server.url("/here"), "follow_redirects": false})).await;
    let text = outcome.value.as_str().unwrap();
    assert!(text.contains("301") && text.contains(&server.url("/there")), "{text}");
    assert_eq!(outcome.structured.unwrap()["format"], "redirect");
}

#[tokio::test]
async fn bad_arguments_are_no_fetch() {
    for (tool, arguments) in [
        ("web.fetch", json!({"url": "file:///etc/passwd"})),
        ("web.fetch", json!({"url": "ftp://example.org/"})),
        ("web.fetch", json!({"url": "example.org"})),
        ("web.fetch", json!({"url": ""})),
        ("web.fetch", json!({})),
        ("web.fetch", json!({"url": "https://example.org/", "method": "POST"})),
        ("tool.http-fetch", json!({"url": "https://example.org/", "method": "POST"})),
        ("tool.http-fetch", json!({"url": "gopher://example.org/"})),
        ("web.search", json!({"query": "  "})),
        ("web.search", json!({"query": ""})),
        ("tool.web-search", json!({"query": "\n"})),
    ] {
        let violation =
            try_call(&catalog(), tool, arguments.clone()).await.expect_err(&arguments.to_string());
        assert_eq!(violation.kind, ViolationKind::InvalidArguments, "{arguments}");
    }
}

#[tokio::test]
async fn http_fetch_answers_with_any_status() {
    let server = Server::start(|asked| match path(asked) {
        "/teapot" => answer(418, &[("content-type", "text/plain; charset=utf-8")], "short and stout"),
        "/moved" => redirect(302, "/teapot"),
        _ => answer(500, &[], ""),
    })
    .await;
    let outcome = call(&catalog(), "tool.http-fetch", json!({"url": server.url("/moved")})).await;
    assert_eq!(
        outcome.value,
        json!({"url": server.url("/teapot"), "status": 418, "contentType": "text/plain", "body": "short and stout",
            "truncated": false,
            "provenance": {"source": "remote-http", "trustClassification": "EXTERNAL_UNTRUSTED"}})
    );
    assert_eq!(outcome.label.origin, Some(server.url("/teapot")));
    let broken = call(&catalog(), "tool.http-fetch", json!({"url": server.url("/x")})).await;
    assert_eq!((&broken.value["status"], &broken.value["contentType"]), (&json!(500), &json!("")));
}

#[tokio::test]
async fn http_fetch_sends_harmless_headers_only() {
    let server = Server::start(|_| page("text/plain", "ok")).await;
    let headers = json!({"Accept": "application/json", "X-Trace": "7", "Authorization": "Bearer s3cret",
        "cookie": "s3cret", "Host": "evil.example", "Transfer-Encoding": "chunked", "X-Api-Key": "s3cret",
        "Bad Name": "x", "X-Break": "a\r\nInjected: 1"});
    let outcome =
        call(&catalog(), "tool.http-fetch", json!({"url": server.url("/"), "headers": headers})).await;
    let seen = &server.requests()[0];
    assert!(seen.contains("accept: application/json\r\n") && seen.contains("x-trace: 7\r\n"), "{seen}");
    for absent in ["s3cret", "evil", "chunked", "Injected", "injected"] {
        assert!(!seen.contains(absent), "{absent} in {seen}");
    }
    let dropped = outcome.value["droppedHeaders"].as_array().unwrap();
    assert_eq!(dropped.len(), 7, "{dropped:?}");
    assert!(!outcome.value.to_string().contains("s3cret"));
}

#[tokio::test]
async fn http_fetch_cuts_long_bodies_at_a_character() {
    let server = Server::start(|asked| match path(asked) {
        "/endless" => vec![
            Act::Send(head(200, &[("content-type", "text/plain")])),
            Act::Repeat("€".repeat(1000).into()),
        ],
        "/latin" => page("text/plain; charset=iso-8859-1", vec![0xe9; 600 << 10]),
        _ => page("text/plain", "x".repeat(1 << 20)),
    })
    .await;
    let fetch = |path: &'static str| {
        let url = server.url(path);
        async move { call(&catalog(), "tool.http-fetch", json!({"url": url})).await.value }
    };
    let endless = fetch("/endless").await;
    let body = endless["body"].as_str().unwrap();
    assert_eq!((body.len(), &endless["truncated"]), ((1 << 20) - 1, &json!(true)));
    assert!(body.chars().all(|c| c == '€'));
    let latin = fetch("/latin").await;
    assert_eq!((latin["body"].as_str().unwrap().len(), &latin["truncated"]), (1 << 20, &json!(true)));
    assert_eq!(fetch("/exact").await["truncated"], false);
}

const RESULTS: &str = r#"{"results": [
    {"title": "Tea", "url": "https://example.org/tea", "content": "All about tea"},
    {"title": "Milk", "url": "https://example.org/milk", "content": ""},
    {"title": "Sugar", "url": "https://example.org/sugar", "content": "LONG"}]}"#;

async fn searching() -> (Server, Catalog) {
    let server = Server::start(|asked| {
        let body = if path(asked).contains("q=nothing") {
            r#"{"results": []}"#.to_owned()
        } else {
            RESULTS.replace("LONG", &"sweet ".repeat(200))
        };
        page("application/json", body)
    })
    .await;
    let catalog =
        catalog_with(&config(&["127.0.0.1"]), json!({"engine": "searxng", "endpoint": server.url("/")}));
    (server, catalog)
}

#[tokio::test]
async fn search_results_are_a_list_and_an_object() {
    let (server, catalog) = searching().await;
    let outcome = call(&catalog, "web.search", json!({"query": "tea", "max_results": 2})).await;
    assert_eq!(
        outcome.value,
        "1. Tea\n   https://example.org/tea\n   All about tea\n2. Milk\n   https://example.org/milk"
    );
    assert_eq!(
        outcome.structured.unwrap(),
        json!({"query": "tea", "results": [
            {"title": "Tea", "url": "https://example.org/tea", "snippet": "All about tea"},
            {"title": "Milk", "url": "https://example.org/milk", "snippet": ""}]})
    );
    assert_eq!((outcome.label.source.as_ref(), outcome.label.origin), ("web-search", Some(server.url(""))));
    let none = call(&catalog, "web.search", json!({"query": "nothing"})).await;
    assert_eq!(none.value, "No results for: nothing");
}

#[tokio::test]
async fn assistant_search_has_provenance_and_short_snippets() {
    let (server, catalog) = searching().await;
    let outcome = call(&catalog, "tool.web-search", json!({"query": "tea"})).await;
    assert_eq!(
        outcome.value["provenance"],
        json!({"source": "web-search", "trustClassification": "EXTERNAL_UNTRUSTED"})
    );
    let snippet = outcome.value["results"][2]["snippet"].as_str().unwrap();
    assert!(snippet.chars().count() <= 240 && snippet.ends_with('…'), "{snippet}");
    call(&catalog, "tool.web-search", json!({"query": "tea", "safeMode": false, "maxResults": 1})).await;
    let asked = server.requests();
    assert!(asked[0].contains("safesearch=2"), "{}", asked[0]);
    assert!(asked.last().unwrap().contains("safesearch=0"));
}

#[tokio::test]
async fn a_dead_engine_is_unavailable() {
    let server = Server::start(|_| vec![Act::Close]).await;
    let catalog = catalog_with(&config(&["127.0.0.1"]), json!({"endpoint": server.url("/")}));
    for tool in ["web.search", "tool.web-search"] {
        let outcome = call(&catalog, tool, json!({"query": "x"})).await;
        let message = failed(&outcome, FailureKind::UpstreamUnavailable)["error"].as_str().unwrap();
        assert!(message.starts_with("DuckDuckGo could not be asked"), "{message}");
    }
}
