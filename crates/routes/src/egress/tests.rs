mod bodies;

use std::time::Duration;

use aegis_core::{Failure, FailureKind, quantity::Size};
use http::{HeaderValue, header};
use tokio::io::AsyncWriteExt;

use super::{testing::*, *};

fn kind(error: &FetchError) -> FailureKind {
    error.kind()
}

async fn body(egress: &Egress, url: &str) -> Result<Vec<u8>, FetchError> {
    get(egress, request(url)).await?.read(Limit::Whole(egress.max_body())).await.map(|body| body.bytes)
}

async fn fails(egress: &Egress, url: &str) -> FetchError {
    body(egress, url).await.expect_err(url)
}

#[tokio::test]
async fn loopback_is_closed_under_every_spelling() {
    let server = Server::start(|_| page("text/plain", "secret")).await;
    let egress = egress(&[]);
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
        "0",
        "[::]",
        "[::1]",
        "evil@127.0.0.1",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ] {
        let error = fails(&egress, &server.at(host, "/")).await;
        assert_eq!(kind(&error), FailureKind::AddressNotAllowed, "{host}: {error}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn metadata_names_are_closed_before_any_lookup() {
    let egress = egress(&["169.254.0.0/16"]);
    for url in
        ["http://metadata.google.internal/", "http://METADATA.google.internal./x", "http://169.254.169.254/"]
    {
        let error = fails(&egress, url).await;
        assert!(error.to_string().contains("cloud metadata service"), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_name_with_a_private_answer_is_refused_and_says_which_rule() {
    let server = Server::start(|_| page("text/plain", "x")).await;
    let failure = Failure::from(fails(&egress(&[]), &server.at("localhost", "/")).await);
    assert_eq!(failure.kind, FailureKind::AddressNotAllowed);
    assert!(failure.message.contains("its name resolves to a loopback address"), "{}", failure.message);
    assert!(failure.message.contains("egress.allow_private"), "{}", failure.message);
    assert_eq!(failure.extra["hop"], 0);
    assert_eq!(failure.extra["rule"], "egress.allow_private");
}

#[tokio::test]
async fn what_the_operator_names_is_open_and_nothing_else() {
    let server = Server::start(|_| page("text/plain", "in")).await;
    let by_name = egress(&["localhost"]);
    assert_eq!(body(&by_name, &server.at("localhost", "/")).await.unwrap(), b"in");
    assert_eq!(body(&by_name, &server.at("LocalHost.", "/")).await.unwrap(), b"in");
    fails(&by_name, &server.url("/")).await;
    let by_network = egress(&["127.0.0.0/8"]);
    assert_eq!(body(&by_network, &server.url("/")).await.unwrap(), b"in");
    assert_eq!(body(&by_network, &server.at("0x7f.1", "/")).await.unwrap(), b"in");
    assert_eq!(body(&by_network, &server.at("[::ffff:127.0.0.1]", "/")).await.unwrap(), b"in");
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused_at_its_hop() {
    let inner = Server::start(|_| page("text/plain", "secret")).await;
    let target = inner.url("/secret");
    let outer = Server::start(move |head| match path(head) {
        "/start" => redirect(302, "/next"),
        _ => redirect(307, &target),
    })
    .await;
    let failure = Failure::from(fails(&egress(&["localhost"]), &outer.at("localhost", "/start")).await);
    assert_eq!(failure.kind, FailureKind::AddressNotAllowed);
    assert!(failure.message.starts_with("redirect 2, to http://127.0.0.1:"), "{}", failure.message);
    assert!(!failure.message.contains("/secret"), "{}", failure.message);
    assert_eq!(failure.extra["hop"], 2);
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn a_redirect_out_of_the_grant_is_refused_by_name() {
    let inner = Server::start(|_| page("text/plain", "elsewhere")).await;
    let target = inner.url("/");
    let outer = Server::start(move |_| redirect(301, &target)).await;
    let egress = egress(&["127.0.0.0/8", "localhost"]);
    let call = UnderWay::with(grant(&["localhost"]));
    let error = egress.get(&call.run(), request(&outer.at("localhost", "/"))).await.unwrap_err();
    let failure = Failure::from(error);
    assert_eq!(failure.kind, FailureKind::AddressNotAllowed);
    assert_eq!(failure.extra["rule"], "domain_allowlist");
    assert!(failure.message.contains("the test context"), "{}", failure.message);
    assert_eq!(inner.connections(), 0);
    let first = egress.get(&call.run(), request(&outer.url("/"))).await.unwrap_err();
    assert!(
        matches!(first, FetchError::Refused { step: Step { hop: 0, .. }, rule: Rule::Domain { .. } }),
        "{first}"
    );
}

#[tokio::test]
async fn a_redirect_to_another_scheme_is_refused() {
    let server = Server::start(|head| match path(head) {
        "/file" => redirect(302, "file:///etc/passwd"),
        "/user" => redirect(302, "http://user:hunter2@127.0.0.1/"),
        "/junk" => redirect(302, "http://[nonsense"),
        _ => redirect(302, "ftp://127.0.0.1/x"),
    })
    .await;
    let egress = egress(&["127.0.0.1"]);
    for (path, rule) in [
        ("/file", "http and https only"),
        ("/ftp", "http and https only"),
        ("/user", "no credentials in addresses"),
    ] {
        let failure = Failure::from(fails(&egress, &server.url(path)).await);
        assert_eq!(
            (failure.kind, failure.extra["rule"].as_str()),
            (FailureKind::AddressNotAllowed, Some(rule))
        );
        assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    }
    assert!(matches!(fails(&egress, &server.url("/junk")).await, FetchError::BadRedirect { .. }));
}

#[tokio::test]
async fn redirects_end() {
    let server = Server::start(|head| match path(head) {
        "/circle" => redirect(302, "/back"),
        "/back" => redirect(302, "/circle"),
        longer => redirect(302, &format!("{longer}x")),
    })
    .await;
    let egress = egress(&["127.0.0.1"]);
    assert!(matches!(fails(&egress, &server.url("/circle")).await, FetchError::Circle { .. }));
    let error = fails(&egress, &server.url("/more")).await;
    assert!(matches!(&error, FetchError::TooManyRedirects { limit: 5, .. }), "{error}");
    assert_eq!(server.requests().len(), 2 + 6);
}

#[tokio::test]
async fn redirects_are_followed_only_when_asked() {
    let server = Server::start(|head| match path(head) {
        "/a/start" => redirect(303, "../b?q=1#part"),
        _ => page("text/plain", "there"),
    })
    .await;
    let egress = egress(&["127.0.0.1"]);
    let reply = get(&egress, request(&server.url("/a/start"))).await.unwrap();
    assert_eq!(reply.address().to_string(), server.url("/b?q=1"));
    assert_eq!(reply.read(Limit::Whole(100)).await.unwrap().bytes, b"there");
    let reply = get(&egress, request(&server.url("/a/start")).follow_redirects(false)).await.unwrap();
    assert_eq!(reply.status(), 303);
    assert_eq!(reply.location().unwrap().to_string(), server.url("/b?q=1"));
}

#[tokio::test]
async fn credentials_stay_with_their_host() {
    let other = Server::start(|_| page("text/plain", "x")).await;
    let target = other.url("/");
    let own = Server::start(move |head| match path(head) {
        "/start" => redirect(302, "/again"),
        _ => redirect(302, &target),
    })
    .await;
    let mut key = HeaderValue::from_static("s3cret-key");
    key.set_sensitive(true);
    let asked = request(&own.url("/start"))
        .header(header::AUTHORIZATION, HeaderValue::from_static("Bearer s3cret"))
        .header(header::COOKIE, HeaderValue::from_static("id=s3cret"))
        .header("x-subscription".parse().unwrap(), key)
        .header("x-api-key".parse().unwrap(), HeaderValue::from_static("s3cret"))
        .header("x-plain".parse().unwrap(), HeaderValue::from_static("kept"));
    get(&egress(&["127.0.0.1"]), asked).await.unwrap();
    for request in own.requests() {
        assert_eq!(request.matches("s3cret").count(), 4, "{request}");
    }
    let seen = &other.requests()[0];
    assert!(!seen.contains("s3cret") && seen.contains("x-plain: kept"), "{seen}");
    assert!(seen.contains("user-agent: aegis/"), "{seen}");
}

#[tokio::test]
async fn connections_are_reused() {
    let server = Server::start(|_| page("text/plain", "again")).await;
    let egress = egress(&["127.0.0.1"]);
    for _ in 0..3 {
        assert_eq!(body(&egress.clone(), &server.url("/")).await.unwrap(), b"again");
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 3));
}

#[tokio::test]
async fn slow_servers_meet_the_deadline() {
    let server = Server::start(|asked| match path(asked) {
        "/drip" => vec![Act::Send(head(200, &[])), Act::Drip],
        "/head" => vec![Act::Send(b"HTTP/1.1 200 OK\r\nx: ".to_vec()), Act::Drip],
        "/body" => vec![Act::Send(head(200, &[("content-length", "10")])), Act::Hang],
        _ => vec![Act::Hang],
    })
    .await;
    let egress = egress(&["127.0.0.1"]);
    for path in ["/drip", "/head", "/body", "/silence"] {
        let address = WebAddress::parse(&server.url(path)).unwrap();
        let error = async {
            get(&egress, Request::get(address, Duration::from_millis(150)))
                .await?
                .read(Limit::Whole(1 << 20))
                .await
        };
        let error = error.await.expect_err(path);
        assert!(matches!(error, FetchError::Timeout { .. }), "{path}: {error}");
        assert!(error.to_string().contains("150ms"), "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_call_lets_go() {
    let server = Server::start(|_| vec![Act::Hang]).await;
    let call = UnderWay::with(grant(&[]));
    let egress = egress(&["127.0.0.1"]);
    let run = call.run();
    let fetch = egress.get(&run, request(&server.url("/")));
    let (answer, ()) = tokio::join!(fetch, async { call.cancel.cancel() });
    assert!(matches!(answer.unwrap_err(), FetchError::Cancelled));
}

#[tokio::test]
async fn broken_servers_are_told_apart() {
    let server = Server::start(|asked| match path(asked) {
        "/half" => {
            vec![Act::Send(head(200, &[("content-length", "100")])), Act::Send(b"half".to_vec()), Act::Close]
        }
        "/head" => vec![Act::Send(head(200, &[("x", &"y".repeat(200_000))])), Act::Close],
        "/many" => {
            let names: Vec<String> = (0..500).map(|index| format!("x-{index}")).collect();
            let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "y")).collect();
            vec![Act::Send(head(200, &headers)), Act::Close]
        }
        "/none" => vec![Act::Close],
        _ => vec![Act::Send(b"SSH-2.0-OpenSSH_9.9\r\n\r\n".to_vec()), Act::Close],
    })
    .await;
    let egress = egress(&["127.0.0.1"]);
    assert!(matches!(fails(&egress, &server.url("/half")).await, FetchError::BrokenBody(_)));
    for path in ["/head", "/many", "/none", "/ssh"] {
        let error = fails(&egress, &server.url(path)).await;
        assert!(matches!(error, FetchError::Broken { .. }), "{path}: {error}");
        assert_eq!(kind(&error), FailureKind::UpstreamUnavailable);
    }
    let address = server.address;
    drop(server);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    let error = fails(&egress, &format!("http://{address}/")).await;
    assert!(matches!(error, FetchError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_name_that_can_not_resolve_says_so() {
    // A label of 64 letters can't be asked for, so that no question leaves the machine.
    let error = fails(&egress(&[]), &format!("http://{}.example/", "a".repeat(64))).await;
    assert!(matches!(error, FetchError::Unresolved { .. }), "{error}");
}

#[tokio::test]
async fn certificates_are_checked() {
    let authority = Authority::new();
    let server = Server::start_tls(&authority, |_| page("text/plain", "safe")).await;
    let url = format!("https://localhost:{}/", server.port());
    let error = fails(&egress(&["localhost"]), &url).await;
    assert!(matches!(error, FetchError::Tls { .. }), "{error}");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    let trusting = |allow: &str| {
        let mut config = config(&[allow]);
        config.extra_ca_file = Some(authority.file.path().to_str().unwrap().to_owned());
        Egress::new(&config).unwrap()
    };
    assert_eq!(body(&trusting("localhost"), &url).await.unwrap(), b"safe");
    let by_address = format!("https://127.0.0.1:{}/", server.port());
    assert_eq!(body(&trusting("127.0.0.1"), &by_address).await.unwrap(), b"safe");
    let other_name = format!("https://[::ffff:127.0.0.1]:{}/", server.port());
    assert!(matches!(fails(&trusting("127.0.0.1"), &other_name).await, FetchError::Tls { .. }));
}

#[tokio::test]
async fn a_redirect_out_of_https_is_refused() {
    let authority = Authority::new();
    let plain = Server::start(|_| page("text/plain", "x")).await;
    let target = plain.at("localhost", "/");
    let server = Server::start_tls(&authority, move |_| redirect(302, &target)).await;
    let mut config = config(&["localhost"]);
    config.extra_ca_file = Some(authority.file.path().to_str().unwrap().to_owned());
    let error = fails(&Egress::new(&config).unwrap(), &format!("https://localhost:{}/", server.port())).await;
    assert!(matches!(&error, FetchError::Refused { rule: Rule::Downgrade, .. }), "{error}");
    assert_eq!(plain.connections(), 0);
}

#[tokio::test]
async fn http2_is_spoken_where_offered() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(&[b"h2", b"http/1.1"]);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let service =
            hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let body = format!("{:?}", request.version());
                Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(
                    Bytes::from(body),
                )))
            });
        let stream = hyper_util::rt::TokioIo::new(stream);
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(stream, service)
            .await;
    });
    let mut config = config(&["localhost"]);
    config.extra_ca_file = Some(authority.file.path().to_str().unwrap().to_owned());
    let egress = Egress::new(&config).unwrap();
    for _ in 0..2 {
        assert_eq!(body(&egress, &format!("https://localhost:{port}/")).await.unwrap(), b"HTTP/2.0");
    }
    server.abort();
}

#[test]
fn bad_certificate_files_are_named_at_start() {
    let mut config = config(&[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    for text in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        std::fs::write(file.path(), text).unwrap();
        config.extra_ca_file = Some(file.path().to_str().unwrap().to_owned());
        let error = Egress::new(&config).unwrap_err().to_string();
        assert!(error.contains("egress.extra_ca_file"), "{error}");
    }
    config.extra_ca_file = Some("/nowhere/ca.pem".into());
    assert!(Egress::new(&config).is_err());
}
