use serde_json::json;

use super::*;
use crate::egress::testing::{self, Server, UnderWay, answer, egress, grant, page, path};

const DUCKDUCKGO: &str = include_str!("samples/duckduckgo.html");
const PUZZLE: &str = include_str!("samples/duckduckgo_puzzle.html");
const SEARXNG: &str = include_str!("samples/searxng.json");
const BRAVE: &str = include_str!("samples/brave.json");

fn engine(config: serde_json::Value) -> Result<Engine, EngineError> {
    Engine::from_config(&serde_json::from_value(config).unwrap())
}

async fn search(engine: &Engine, wanted: usize, safety: Safety) -> Result<Vec<Hit>, Failure> {
    let words = Words::try_from(" hedgehogs  & co ".to_owned()).unwrap();
    let query = Query { words: &words, wanted, safety };
    engine.search(&egress(&["127.0.0.1"]), &UnderWay::with(grant(&[])).run(), &query).await
}

fn hit(title: &str, url: &str, snippet: &str) -> Hit {
    Hit { title: title.into(), url: url.into(), snippet: snippet.into() }
}

async fn refused(engine: &Engine) -> String {
    let failure = search(engine, 5, Safety::Moderate).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::UpstreamUnavailable);
    failure.message
}

#[tokio::test]
async fn duckduckgo_page() {
    let server = Server::start(|_| page("text/html; charset=UTF-8", DUCKDUCKGO)).await;
    let engine = engine(json!({"endpoint": server.url("/html/")})).unwrap();
    let hits = search(&engine, 10, Safety::Strict).await.unwrap();
    assert_eq!(
        hits,
        [
            hit(
                "Hedgehogs & friends",
                "https://example.org/hedgehogs?page=1&lang=en",
                "Hedgehogs are small mammals with spines; it's 5 < 10 species \"in all\"."
            ),
            hit("Igel", "https://wiki.example/Igel", ""),
        ]
    );
    assert_eq!(search(&engine, 1, Safety::Off).await.unwrap().len(), 1);
    search(&engine, 1, Safety::Moderate).await.unwrap();
    let asked: Vec<String> = server.requests().iter().map(|head| path(head).to_owned()).collect();
    assert_eq!(asked, ["1", "-2", "-1"].map(|kp| format!("/html/?q=hedgehogs+%26+co&kp={kp}")));
}

#[tokio::test]
async fn duckduckgo_without_results_and_without_sense() {
    let server = Server::start(|head| match path(head).split('?').next().unwrap_or_default() {
        "/none" => page("text/html", "<div id=links><div class='no-results'>No  results.</div></div>"),
        "/puzzle" => answer(202, &[("content-type", "text/html")], PUZZLE),
        "/error" => answer(503, &[], ""),
        _ => page("text/html", "<html><body><main>A new design</main></body></html>"),
    })
    .await;
    let at = |path: &str| engine(json!({"endpoint": server.url(path)})).unwrap();
    assert_eq!(search(&at("/none"), 5, Safety::Moderate).await.unwrap(), []);
    assert!(refused(&at("/puzzle")).await.contains("robot"));
    assert!(refused(&at("/error")).await.contains("503"));
    assert!(refused(&at("/new")).await.contains("its page has changed"));
}

#[tokio::test]
async fn searxng_json() {
    let server = Server::start(|head| {
        if path(head).contains("pageno=1") {
            page("application/json", SEARXNG)
        } else {
            page("application/json", r#"{"results":[]}"#)
        }
    })
    .await;
    let hits = [
        hit("Hedgehogs", "https://example.org/hedgehogs", "Small mammals with spines."),
        hit("Igel & Co", "https://wiki.example/Igel", ""),
    ];
    for endpoint in [server.url(""), server.url("/"), server.url("/search")] {
        let engine = engine(json!({"engine": "searxng", "endpoint": endpoint})).unwrap();
        assert_eq!(search(&engine, 5, Safety::Strict).await.unwrap(), hits);
    }
    let below = engine(json!({"engine": "searxng", "endpoint": server.url("/searx/")})).unwrap();
    assert_eq!(search(&below, 2, Safety::Off).await.unwrap(), hits);
    let asked: Vec<String> = server.requests().iter().map(|head| path(head).to_owned()).collect();
    let first = "/search?q=hedgehogs+%26+co&format=json&safesearch=2&pageno=";
    assert_eq!(asked[..2], [format!("{first}1"), format!("{first}2")]);
    // Two were wanted and came with the first page.
    assert_eq!(asked[6..], ["/searx/search?q=hedgehogs+%26+co&format=json&safesearch=0&pageno=1"]);
}

#[tokio::test]
async fn searxng_says_what_is_wrong() {
    let server = Server::start(|head| match path(head).split('/').nth(1).unwrap_or_default() {
        "closed" => answer(403, &[], "Forbidden"),
        "limited" => answer(429, &[], "Too Many Requests"),
        "mute" => page("application/json", r#"{"results":[],"unresponsive_engines":[["google","timeout"]]}"#),
        _ => page("text/html", "<p>Start page</p>"),
    })
    .await;
    let at = |path: &str| engine(json!({"engine": "searxng", "endpoint": server.url(path)})).unwrap();
    assert!(refused(&at("/closed")).await.contains("search.formats"));
    assert!(refused(&at("/limited")).await.contains("429"));
    assert!(refused(&at("/mute")).await.contains("google"));
    assert!(refused(&at("/html")).await.contains("web_search.endpoint"));
}

#[tokio::test]
async fn brave_json() {
    let second = r#"{"query":{"more_results_available":false},"web":{"results":[
        {"title":"Third","url":"https://third.example/","description":""}]}}"#;
    let server = Server::start(move |head| {
        page("application/json", if path(head).contains("offset=0") { BRAVE } else { second })
    })
    .await;
    let engine = engine(
        json!({"engine": "brave", "endpoint": server.url("/res/v1/web/search"), "api_key": "k3y-s3cret"}),
    )
    .unwrap();
    let hits = search(&engine, 30, Safety::Moderate).await.unwrap();
    assert_eq!(
        hits,
        [
            hit("Hedgehogs", "https://example.org/hedgehogs", "It's a small mammal with spines."),
            hit("Igel", "https://wiki.example/Igel", "Ein Säugetier"),
            hit("Third", "https://third.example/", ""),
        ]
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].contains("x-subscription-token: k3y-s3cret"), "{}", requests[0]);
    assert_eq!(
        path(&requests[0]),
        "/res/v1/web/search?q=hedgehogs+%26+co&count=20&offset=0&safesearch=moderate&text_decorations=false"
    );
    assert!(!format!("{engine:?}").contains("s3cret"));
}

#[tokio::test]
async fn brave_says_what_is_wrong() {
    let server = Server::start(|head| match path(head).split('?').next().unwrap_or_default() {
        "/key" => answer(
            401,
            &[("content-type", "application/json")],
            r#"{"type":"ErrorResponse","error":{"code":"SUBSCRIPTION_TOKEN_INVALID"}}"#,
        ),
        "/quota" => answer(429, &[], "{}"),
        "/long" => answer(422, &[], "{}"),
        "/empty" => page("application/json", r#"{"type":"search","query":{"original":"x"}}"#),
        _ => page("application/json", "no JSON"),
    })
    .await;
    let at = |path: &str| {
        engine(json!({"engine": "brave", "endpoint": server.url(path), "api_key": "k"})).unwrap()
    };
    assert!(refused(&at("/key")).await.contains("web_search.api_key"));
    assert!(refused(&at("/quota")).await.contains("quota"));
    assert!(refused(&at("/long")).await.contains("fewer words"));
    assert!(refused(&at("/odd")).await.contains("JSON"));
    assert_eq!(search(&at("/empty"), 5, Safety::Off).await.unwrap(), []);
}

#[tokio::test]
async fn a_key_stays_with_its_host() {
    let other = Server::start(|_| page("application/json", BRAVE)).await;
    let target = other.url("/");
    let server = Server::start(move |_| testing::redirect(302, &target)).await;
    let engine = engine(json!({"engine": "brave", "endpoint": server.url("/"), "api_key": "k3y"})).unwrap();
    search(&engine, 1, Safety::Off).await.unwrap();
    assert!(!other.requests()[0].contains("k3y"));
}

#[tokio::test]
async fn the_engine_meets_the_egress_rules() {
    let server = Server::start(|_| page("text/html", DUCKDUCKGO)).await;
    let engine = engine(json!({"endpoint": server.url("/html/")})).unwrap();
    let words = Words::try_from("x".to_owned()).unwrap();
    let query = Query { words: &words, wanted: 1, safety: Safety::Moderate };
    let closed = engine.search(&egress(&[]), &UnderWay::with(grant(&[])).run(), &query).await.unwrap_err();
    assert_eq!(closed.kind, FailureKind::AddressNotAllowed);
    let elsewhere = UnderWay::with(grant(&["example.org"]));
    let outside = engine.search(&egress(&["127.0.0.1"]), &elsewhere.run(), &query).await.unwrap_err();
    assert_eq!(outside.extra["rule"], "domain_allowlist");
    assert_eq!(server.connections(), 0);
}

#[test]
fn configuration_mistakes_are_found_at_start() {
    let wrong = |config| engine(config).unwrap_err().to_string();
    assert!(wrong(json!({"engine": "searxng"})).contains("web_search.endpoint"));
    assert!(wrong(json!({"endpoint": "ftp://x/"})).contains("web_search.endpoint"));
    assert!(wrong(json!({"endpoint": "https://user:s3cret@search.example/"})).contains("without"));
    assert!(wrong(json!({"engine": "brave"})).contains("web_search.api_key"));
    let missing = wrong(json!({"engine": "brave", "api_key": "file:/nowhere/key"}));
    assert!(missing.contains("file:/nowhere/key"), "{missing}");
    assert!(
        wrong(json!({"engine": "brave", "api_key": "env:AEGIS_NO_SUCH_NAME"})).contains("AEGIS_NO_SUCH_NAME")
    );
    let odd = wrong(json!({"engine": "brave", "api_key": "two\nlines s3cret"}));
    assert!(!odd.contains("s3cret"), "{odd}");
}

#[tokio::test]
async fn a_key_is_read_from_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "k3y-from-file\n").unwrap();
    let server = Server::start(|_| page("application/json", BRAVE)).await;
    let key = format!("file:{}", file.path().display());
    let engine = engine(json!({"engine": "brave", "endpoint": server.url("/"), "api_key": key})).unwrap();
    search(&engine, 2, Safety::Off).await.unwrap();
    assert!(server.requests()[0].contains("k3y-from-file\r\n"));
}

#[test]
fn default_engines_and_their_hosts() {
    assert_eq!(engine(json!({})).unwrap().endpoint().host(), "html.duckduckgo.com");
    let brave = engine(json!({"engine": "brave", "api_key": "k"})).unwrap();
    assert_eq!(brave.endpoint().host(), "api.search.brave.com");
}

#[test]
fn queries_are_not_blank_and_not_endless() {
    assert!(Words::try_from(" \t\n ".to_owned()).is_err());
    assert!(Words::try_from("x".repeat(1025)).is_err());
    assert_eq!(Words::try_from(" a\nb ".to_owned()).unwrap().as_str(), "a b");
}

#[test]
fn long_texts_are_cut_at_characters() {
    assert_eq!(shortened("äöü", 2), "äö…");
    assert_eq!(shortened(" a \n b ", 10), "a b");
}
