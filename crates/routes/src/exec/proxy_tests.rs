use std::sync::Mutex;

use aegis_core::{
    config::EgressConfig,
    domain::DomainPattern,
    progress::{Listener, Progress},
};

use super::*;

fn wanted(head: &str) -> Result<Option<Wanted>, String> {
    parse(head.as_bytes()).map(|found| found.map(|(wanted, _)| wanted))
}

#[test]
fn two_kinds_of_requests_are_understood() {
    let tunnel = wanted("CONNECT Example.org:443 HTTP/1.1\r\nhost: x\r\n\r\n").unwrap().unwrap();
    assert_eq!((tunnel.host.as_str(), tunnel.port, tunnel.forward), ("example.org", 443, None));
    let plain = wanted(
        "GET http://example.org:8080/a?b=c HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: x\r\nAccept: */*\r\n\r\n",
    )
    .unwrap()
    .unwrap();
    assert_eq!((plain.host.as_str(), plain.port), ("example.org", 8080));
    assert_eq!(
        String::from_utf8(plain.forward.unwrap()).unwrap(),
        "GET /a?b=c HTTP/1.1\r\nhost: example.org:8080\r\nAccept: */*\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(wanted("CONNECT example.org:443 HTTP/1.1\r\n"), Ok(None));
}

#[test]
fn hosts_have_one_spelling() {
    for (target, host) in [
        ("0x7f.1:80", "127.0.0.1"),
        ("[::ffff:127.0.0.1]:80", "[::ffff:7f00:1]"),
        ("2130706433:1", "127.0.0.1"),
    ] {
        let found = wanted(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")).unwrap().unwrap();
        assert_eq!(found.host, host);
    }
}

#[test]
fn everything_else_is_refused() {
    for head in [
        "GET / HTTP/1.1\r\nhost: example.org\r\n\r\n",
        "CONNECT example.org HTTP/1.1\r\n\r\n",
        "CONNECT user@example.org:443 HTTP/1.1\r\n\r\n",
        "CONNECT example.org:443/x HTTP/1.1\r\n\r\n",
        "CONNECT :443 HTTP/1.1\r\n\r\n",
        "GET ftp://example.org/ HTTP/1.1\r\n\r\n",
        "GET https://example.org/ HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x02\0\x01",
        "SSH-2.0-x\r\n\r\n",
    ] {
        assert!(wanted(head).is_err(), "{head:?}: {:?}", wanted(head));
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Listener for Heard {
    fn progress(&self, _: Progress) {}

    fn event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// What a client inside gets for a request, and what was told about it.
async fn through(grant: Grant, allow_private: &[&str], request: String) -> (String, Vec<Event>) {
    let heard = Heard::default();
    let answer = asked(&heard, grant, allow_private, request).await;
    (answer, heard.0.into_inner().unwrap())
}

async fn asked(listener: &dyn Listener, grant: Grant, allow_private: &[&str], request: String) -> String {
    let config = EgressConfig {
        allow_private: allow_private.iter().map(|text| text.parse().unwrap()).collect(),
        ..EgressConfig::default()
    };
    let egress = Egress::new(&config).unwrap();
    let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = inside.local_addr().unwrap();
    let proxy = Proxy { egress: &egress, grant: &grant, listener, pace: Pace::InAll };
    let asking = async {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    };
    tokio::select! {
        answer = asking => answer,
        () = proxy.serve(&inside) => unreachable!(),
    }
}

/// A server that answers every connection with what it was sent.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4096];
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            let _ = stream.write_all(&bytes[..count]).await;
        }
    });
    port
}

fn granted(domains: &[&str]) -> Grant {
    let domains = domains.iter().map(|domain| DomainPattern::parse(domain).unwrap()).collect();
    Grant { domains: Some(domains), ..Grant::default() }
}

#[tokio::test]
async fn a_granted_host_is_reached_and_recorded() {
    let port = echo().await;
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nhello");
    let (answer, events) = through(granted(&["127.0.0.1"]), &["127.0.0.1"], request).await;
    assert_eq!(answer, "HTTP/1.1 200 Connection established\r\n\r\nhello");
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].name, &events[0].detail["port"]), (EventName::EgressConnected, &port.into()));

    let request = format!("GET http://127.0.0.1:{port}/x HTTP/1.1\r\nHost: other\r\n\r\n");
    let (answer, _) = through(granted(&["127.0.0.1"]), &["127.0.0.1"], request).await;
    assert_eq!(answer, format!("GET /x HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n"));
}

/// Has nowhere to write anything down.
struct Deaf;

impl Listener for Deaf {
    fn progress(&self, _: Progress) {}

    fn event(&self, event: Event) {
        panic!("told of {event:?}");
    }

    fn records(&self) -> bool {
        false
    }
}

#[tokio::test]
async fn nothing_is_reached_while_nothing_can_be_recorded() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n");
    let answer = asked(&Deaf, granted(&["127.0.0.1"]), &["127.0.0.1"], request).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("recorded"), "{answer}");
}

#[tokio::test]
async fn everything_else_is_refused_with_the_rule_and_recorded() {
    let port = echo().await;
    let connect = |host: &str| format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n");
    for (grant, open, host, reason) in [
        (granted(&["example.org"]), "127.0.0.1", "127.0.0.1", "domain_allowlist"),
        (granted(&["*"]), "10.0.0.1", "127.0.0.1", "loopback"),
        (granted(&["*"]), "10.0.0.1", "[::ffff:169.254.169.254]", "metadata"),
        (granted(&["*"]), "10.0.0.1", "metadata.google.internal", "metadata"),
    ] {
        let (answer, events) = through(grant, &[open], connect(host)).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(reason), "{answer}");
        assert_eq!(events[0].name, EventName::EgressRefused);
    }
    let (answer, events) = through(granted(&["*"]), &[], "GET / HTTP/1.1\r\n\r\n".into()).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && events.is_empty(), "{answer}");
}
