//! From a host to an open connection. The name is resolved once, every answer is checked, and the connection goes to
//! an answer that was checked: there is no second lookup that could say something else.

use std::{
    error::Error as StdError,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use aegis_core::domain::normal_host;
use futures::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use http::{Uri, uri::Scheme};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{address::AddressClass, rules::AddressRules};

/// The next address gets its try after this long, while the earlier ones go on.
const HEAD_START: Duration = Duration::from_millis(250);
/// More answers than this are not tried.
const MOST_ADDRESSES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the address is not open")]
    Refused { class: AddressClass },
    #[error("the name does not resolve")]
    Unresolved(#[source] io::Error),
    #[error("no connection could be opened")]
    Unreachable(#[source] io::Error),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("no connection within {0:?}")]
    Slow(Duration),
}

/// Opens connections for the pool.
#[derive(Clone)]
pub(super) struct Connector(Arc<Shared>);

struct Shared {
    rules: AddressRules,
    tls: TlsConnector,
    patience: Duration,
}

impl Connector {
    pub(super) fn new(rules: AddressRules, tls: Arc<rustls::ClientConfig>, patience: Duration) -> Self {
        Self(Arc::new(Shared { rules, tls: TlsConnector::from(tls), patience }))
    }
}

impl Connector {
    /// A bare connection to a host that the rules leave open.
    pub(super) async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let opening = async {
            let addresses = self.0.addresses(&normal_host(host), port).await?;
            race(addresses).await.map_err(ConnectError::Unreachable)
        };
        let patience = self.0.patience;
        tokio::time::timeout(patience, opening).await.unwrap_or(Err(ConnectError::Slow(patience)))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Stream, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            tokio::time::timeout(shared.patience, shared.open(&uri))
                .await
                .unwrap_or(Err(ConnectError::Slow(shared.patience)))
        })
    }
}

impl Shared {
    async fn open(&self, uri: &Uri) -> Result<Stream, ConnectError> {
        let https = uri.scheme() == Some(&Scheme::HTTPS);
        let host = normal_host(uri.host().unwrap_or_default());
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let addresses = self.addresses(&host, port).await?;
        let stream = race(addresses).await.map_err(ConnectError::Unreachable)?;
        // Answers of one request are small; waiting to fill a segment only adds delay.
        let _ = stream.set_nodelay(true);
        if !https {
            return Ok(Stream::Plain(TokioIo::new(stream)));
        }
        let name = ServerName::try_from(bare(&host).to_owned())
            .map_err(|error| ConnectError::Tls(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let stream = self.tls.connect(name, stream).await.map_err(ConnectError::Tls)?;
        Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
    }

    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
        let refused = |class| ConnectError::Refused { class };
        if let Ok(address) = bare(host).parse::<IpAddr>() {
            self.rules.check_address(host, address).map_err(refused)?;
            return Ok(vec![SocketAddr::new(address.to_canonical(), port)]);
        }
        self.rules.check_name(host).map_err(refused)?;
        let answers: Vec<SocketAddr> =
            tokio::net::lookup_host((host, port)).await.map_err(ConnectError::Unresolved)?.collect();
        check_answers(&self.rules, host, &answers).map_err(refused)?;
        Ok(in_turn(&answers))
    }
}

/// One closed answer closes the name: a zone that mixes public and private answers is asking for the private one.
fn check_answers(rules: &AddressRules, host: &str, answers: &[SocketAddr]) -> Result<(), AddressClass> {
    answers.iter().try_for_each(|answer| rules.check_address(host, answer.ip()))
}

/// The two families in turn, in the resolver's order within each, so that one broken family costs one head start.
fn in_turn(answers: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = answers.first() else { return Vec::new() };
    let (mut one, mut other): (Vec<SocketAddr>, Vec<SocketAddr>) =
        answers.iter().copied().partition(|answer| answer.is_ipv6() == first.is_ipv6());
    one.reverse();
    other.reverse();
    let mut order = Vec::new();
    while order.len() < MOST_ADDRESSES && !(one.is_empty() && other.is_empty()) {
        order.extend(one.pop());
        order.extend(other.pop());
    }
    order
}

async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut tries = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        let next = waiting.next();
        let more = next.is_some();
        tries.extend(next.map(TcpStream::connect));
        if tries.is_empty() {
            return Err(last);
        }
        let ended = if more {
            match tokio::time::timeout(HEAD_START, tries.next()).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        } else {
            tries.next().await
        };
        match ended {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = error,
            None => {}
        }
    }
}

/// An IPv6 literal without the brackets of a URL.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host)
}

/// The connector's own error, however deep the client buried it.
pub(super) fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a ConnectError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

pub(super) enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Plain(_) => Connected::new(),
            Self::Tls(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            Self::Tls(_) => Connected::new(),
        }
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 80)).collect()
    }

    #[test]
    fn one_closed_answer_closes_the_name() {
        let rules = AddressRules::default();
        let check = |texts: &[&str]| check_answers(&rules, "mixed.example", &answers(texts));
        assert_eq!(check(&["93.184.215.14", "2606:4700:4700::1111"]), Ok(()));
        assert_eq!(check(&["93.184.215.14", "10.0.0.1"]), Err(AddressClass::Private));
        assert_eq!(check(&["93.184.215.14", "::1"]), Err(AddressClass::Loopback));
    }

    #[test]
    fn families_take_turns() {
        let order = in_turn(&answers(&["2606::1", "2606::2", "1.1.1.1", "1.1.1.2"]));
        assert_eq!(order, answers(&["2606::1", "1.1.1.1", "2606::2", "1.1.1.2"]));
        assert_eq!(in_turn(&[]), []);
    }

    #[tokio::test]
    async fn a_dead_address_does_not_stop_the_next() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let gone = {
            let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            closed.local_addr().unwrap()
        };
        assert_eq!(race(vec![gone, alive]).await.unwrap().peer_addr().unwrap(), alive);
        assert_eq!(race(vec![gone]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(race(Vec::new()).await.is_err());
    }
}
