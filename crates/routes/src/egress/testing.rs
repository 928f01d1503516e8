//! Servers on loopback that behave as asked, and calls that are permitted.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    Approval, Caller, Door, Gate, GateVerdict, Grant, Permit, Tier, ToolSpec, Violation,
    approval::{Desk, Pending, Question},
    config::EgressConfig,
    domain::DomainPattern,
    id::{CallId, ContextName, CredentialId, TenantId, UserId},
    progress::Silence,
    tool::Directory,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Egress, Reply, Request, WebAddress};
use crate::tool::Run;

/// One thing a server does with its connection.
#[derive(Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// For ever, or until the other side has had enough.
    Repeat(Vec<u8>),
    /// One byte at a time, for ever.
    Drip,
    Hang,
    Close,
}

pub(crate) type Script = Vec<Act>;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// `script` is given the request's head, from the request line on.
    pub(crate) async fn start(script: impl Fn(&str) -> Script + Send + Sync + 'static) -> Self {
        Self::with(script, None).await
    }

    pub(crate) async fn start_tls(
        authority: &Authority,
        script: impl Fn(&str) -> Script + Send + Sync + 'static,
    ) -> Self {
        Self::with(script, Some(authority.acceptor(&[b"http/1.1"]))).await
    }

    async fn with(script: impl Fn(&str) -> Script + Send + Sync + 'static, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let script = Arc::new(script);
        let task = tokio::spawn({
            let (connections, requests) = (Arc::clone(&connections), Arc::clone(&requests));
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    connections.fetch_add(1, Ordering::SeqCst);
                    let (script, requests, tls) = (Arc::clone(&script), Arc::clone(&requests), tls.clone());
                    tokio::spawn(async move {
                        match tls {
                            None => converse(stream, &*script, &requests).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    converse(stream, &*script, &requests).await;
                                }
                            }
                        }
                    });
                }
            }
        });
        Self { address, connections, requests, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// An address of this server under another host: `localhost`, `127.0.0.1`, …
    pub(crate) fn at(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port())
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.at("127.0.0.1", path)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn converse(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: &(dyn Fn(&str) -> Script + Send + Sync),
    requests: &Mutex<Vec<String>>,
) {
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read_buf(&mut received).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let head = String::from_utf8_lossy(&received[..end]).into_owned();
        received.drain(..end);
        requests.lock().unwrap().push(head.clone());
        for act in script(&head) {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                Act::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
                Act::Drip => {
                    while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                Act::Hang => std::future::pending().await,
                Act::Close => {
                    let _ = stream.shutdown().await;
                    return;
                }
            }
        }
    }
}

/// A whole answer with a length, after which the connection can be used again.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Script {
    let mut bytes = head(status, headers);
    bytes.truncate(bytes.len() - 2);
    bytes.extend_from_slice(format!("content-length: {}\r\n\r\n", body.as_ref().len()).as_bytes());
    bytes.extend_from_slice(body.as_ref());
    vec![Act::Send(bytes)]
}

pub(crate) fn page(content_type: &str, body: impl AsRef<[u8]>) -> Script {
    answer(200, &[("content-type", content_type)], body)
}

pub(crate) fn redirect(status: u16, location: &str) -> Script {
    answer(status, &[("location", location)], "")
}

/// Only the head; what follows ends with the connection.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Whatever\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// `/path?query` of a request's head.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

/// A certificate authority of its own, with a server certificate for `localhost` and `127.0.0.1`.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    key: KeyPair,
    pub(crate) file: tempfile::NamedTempFile,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), issuer.pem()).unwrap();
        Self { certificate, key, file }
    }

    pub(crate) fn acceptor(&self, protocols: &[&[u8]]) -> TlsAcceptor {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![self.certificate.der().clone()], key)
                .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Opens what a test names; the rest is as shipped.
pub(crate) fn config(allow_private: &[&str]) -> EgressConfig {
    EgressConfig {
        allow_private: allow_private.iter().map(|text| text.parse().unwrap()).collect(),
        ..EgressConfig::default()
    }
}

pub(crate) fn egress(allow_private: &[&str]) -> Egress {
    Egress::new(&config(allow_private)).unwrap()
}

/// The domains that a caller may reach; none named, any.
pub(crate) fn grant(domains: &[&str]) -> Grant {
    let domains: Vec<DomainPattern> =
        domains.iter().map(|text| DomainPattern::parse(text).unwrap()).collect();
    Grant {
        rule: "the test context".into(),
        domains: (!domains.is_empty()).then_some(domains),
        ..Grant::default()
    }
}

pub(crate) fn permit(tool: &str, grant: Grant) -> Permit {
    let caller = Caller {
        tenant: TenantId::new("local"),
        user: UserId::new("ann"),
        tier: Tier::User,
        context: ContextName::new("workspace"),
        credential: CredentialId::new("test"),
        door: Door::Cli,
        session: None,
        pinned: None,
    };
    let verdicts = Gate::REQUIRED.map(GateVerdict::pass);
    #[allow(clippy::disallowed_methods, reason = "a test stands in for the plane")]
    Permit::grant(CallId::fresh(), tool, caller, grant, &verdicts).unwrap()
}

/// A directory without tools, which the web tools never ask.
pub(crate) struct NoTools;

impl Directory for NoTools {
    fn visible(&self, _: &Caller) -> Vec<Arc<ToolSpec>> {
        Vec::new()
    }
}

impl Desk for NoTools {
    fn ask<'a>(&'a self, _: &'a Caller, _: Question) -> Pending<'a, Result<Option<Approval>, Violation>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// A call under way.
pub(crate) struct UnderWay {
    permit: Permit,
    pub(crate) cancel: CancellationToken,
}

impl UnderWay {
    pub(crate) fn with(grant: Grant) -> Self {
        Self { permit: permit("web.fetch", grant), cancel: CancellationToken::new() }
    }

    pub(crate) fn run(&self) -> Run<'_> {
        Run::new(&self.permit, &NoTools, &NoTools, &self.cancel, &Silence)
    }
}

pub(crate) fn request(url: &str) -> Request {
    Request::get(WebAddress::parse(url).unwrap(), Duration::from_secs(20))
}

/// A fetch by a caller who may reach any domain.
pub(crate) async fn get(egress: &Egress, request: Request) -> Result<Reply, super::FetchError> {
    egress.get(&UnderWay::with(grant(&[])).run(), request).await
}
