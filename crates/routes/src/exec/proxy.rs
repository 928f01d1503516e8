//! The way out of a sandbox: an HTTP proxy that the node answers, on a listener inside the sandbox's own network.
//! There is no other way, so what is refused here can't be reached.
//!
//! Understood are `CONNECT host:port` and requests with an absolute `http://` address. Names are resolved by the node,
//! under the rules of every fetch: the domains that the caller was granted, and the addresses that are open.

use std::{io, time::Duration};

use aegis_core::{Event, Grant, event::EventName, progress::Listener};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep_until, timeout},
};
use url::{Host, Url};

use crate::egress::{DialError, Egress};

/// Connections at once; further ones wait to be accepted.
const MOST_AT_ONCE: usize = 64;
/// Each one is an entry of the audit log: so many for one command, so many a minute for a program that runs for good.
const MOST_IN_ALL: usize = 10_000;
const MOST_PER_MINUTE: usize = 600;
const MINUTE: Duration = Duration::from_secs(60);
const LARGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// To send the head of a request.
const PATIENCE: Duration = Duration::from_secs(15);
const BUFFER: usize = 16 << 10;
/// Headers that are for us, or that would keep the connection open for a request that we don't see.
const OURS: [&str; 6] =
    ["proxy-authorization", "proxy-connection", "proxy-authenticate", "connection", "keep-alive", "host"];

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Of a program that ends.
    InAll,
    /// Of one that is meant to run for good.
    PerMinute,
}

#[derive(Clone, Copy)]
pub(crate) struct Proxy<'a> {
    pub(crate) egress: &'a Egress,
    pub(crate) grant: &'a Grant,
    pub(crate) listener: &'a dyn Listener,
    pub(crate) pace: Pace,
}

impl Proxy<'_> {
    /// Serves until it is dropped, which ends every connection.
    pub(crate) async fn serve(self, inside: &TcpListener) {
        let mut connections = FuturesUnordered::new();
        let (mut accepted, mut minute) = (0, Instant::now());
        let most = if self.pace == Pace::InAll { MOST_IN_ALL } else { MOST_PER_MINUTE };
        loop {
            tokio::select! {
                Some(()) = connections.next() => {}
                () = sleep_until(minute + MINUTE), if self.pace == Pace::PerMinute && accepted >= most => {
                    (accepted, minute) = (0, Instant::now());
                }
                arrived = inside.accept(), if connections.len() < MOST_AT_ONCE && accepted < most => {
                    match arrived {
                        Ok((stream, _)) => {
                            if self.pace == Pace::PerMinute && minute.elapsed() >= MINUTE {
                                (accepted, minute) = (0, Instant::now());
                            }
                            accepted += 1;
                            connections.push(self.attend(stream));
                        }
                        // Out of descriptors, or the client has left already.
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                }
                else => std::future::pending().await,
            }
        }
    }

    async fn attend(self, mut client: TcpStream) {
        let (wanted, rest) = match timeout(PATIENCE, read_head(&mut client)).await {
            Ok(Ok(head)) => head,
            Ok(Err(reason)) => return refuse(&mut client, "400 Bad Request", &reason).await,
            Err(_) => return,
        };
        let event =
            |name: EventName| Event::new(name).with("host", wanted.host.as_str()).with("port", wanted.port);
        if !self.listener.records() {
            let reason = "connections can't be recorded at present, so none is made";
            return refuse(&mut client, "503 Service Unavailable", reason).await;
        }
        let mut server = match self.egress.dial(self.grant, &wanted.host, wanted.port).await {
            Ok(server) => server,
            Err(error) => {
                let status = match &error {
                    DialError::Refused(_) => "403 Forbidden",
                    DialError::Unreachable(_) => "502 Bad Gateway",
                };
                let reason = error.to_string();
                self.listener.event(event(EventName::EgressRefused).with("reason", reason.as_str()));
                return refuse(&mut client, status, &format!("{}: {reason}", wanted.host)).await;
            }
        };
        let address = server.peer_addr().map(|address| address.ip().to_string()).unwrap_or_default();
        self.listener.event(event(EventName::EgressConnected).with("address", address));
        let begun = match &wanted.forward {
            None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Some(head) => server.write_all(head).await,
        };
        if begun.is_ok() && server.write_all(&rest).await.is_ok() {
            // However it ends, it is over.
            let _ = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER, BUFFER).await;
        }
    }
}

/// Where a program wants to go.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// As in a URL: an IPv6 literal has its brackets.
    host: String,
    port: u16,
    /// The head of the request as the server is to see it; `None` for a tunnel.
    forward: Option<Vec<u8>>,
}

/// The head, and what came after it already.
async fn read_head(client: &mut TcpStream) -> Result<(Wanted, Vec<u8>), String> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some((wanted, length)) = parse(&bytes)? {
            return Ok((wanted, bytes.split_off(length)));
        }
        if bytes.len() >= LARGEST_HEAD {
            return Err("the head of the request is too long".into());
        }
        match client.read_buf(&mut bytes).await {
            Ok(1..) => {}
            Ok(0) => return Err("the request broke off".into()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// `None` while the head is not whole.
fn parse(bytes: &[u8]) -> Result<Option<(Wanted, usize)>, String> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("this is no HTTP request: {error}")),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    if method.eq_ignore_ascii_case("CONNECT") {
        // The parser of URLs knows all spellings of a host, so that none means one thing here and another there.
        let url = Url::parse(&format!("http://{target}/")).map_err(|error| format!("`{target}`: {error}"))?;
        let explicit = target.rsplit(':').next().and_then(|port| port.parse().ok());
        let plain = url.path() == "/" && url.query().is_none() && url.username().is_empty();
        let (Some(host), Some(port), true) = (host_of(&url), explicit, plain) else {
            return Err("CONNECT needs a host and a port".into());
        };
        return Ok(Some((Wanted { host, port, forward: None }, length)));
    }
    let url = Url::parse(target).map_err(|_| "write the whole address: this is a proxy".to_owned())?;
    if url.scheme() != "http" {
        return Err(format!("{} goes through CONNECT", url.scheme()));
    }
    let host = host_of(&url).ok_or("the address names no host")?;
    let port = url.port_or_known_default().unwrap_or(80);
    let forward = Some(forwarded(method, &url, &host, request.headers));
    Ok(Some((Wanted { host, port, forward }, length)))
}

fn host_of(url: &Url) -> Option<String> {
    match url.host()? {
        Host::Domain("") => None,
        host => Some(host.to_string()),
    }
}

fn forwarded(method: &str, url: &Url, host: &str, headers: &[httparse::Header<'_>]) -> Vec<u8> {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let mut head = format!("{method} {}{query} HTTP/1.1\r\nhost: {host}{port}\r\n", url.path()).into_bytes();
    for header in
        headers.iter().filter(|header| !OURS.iter().any(|ours| header.name.eq_ignore_ascii_case(ours)))
    {
        head.extend_from_slice(header.name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(header.value);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"connection: close\r\n\r\n");
    head
}

async fn refuse(client: &mut TcpStream, status: &str, reason: &str) {
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    );
    let told: io::Result<()> = async {
        client.write_all(answer.as_bytes()).await?;
        client.shutdown().await
    }
    .await;
    // It left before it could be told.
    let _ = told;
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
