//! Load on an HTTP server: connections that stay open, each with one request in flight. One thread drives them all and
//! looks at no more of an answer than it must, so that on a small machine the server gets the time.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use memchr::memmem::Finder;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    task::JoinSet,
};

/// Nothing measured here takes longer.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("the runtime did not start")
}

/// Waits, and does nothing else.
pub(crate) fn pause(time: Duration) -> anyhow::Result<()> {
    runtime()?.block_on(async { tokio::time::sleep(time).await });
    Ok(())
}

/// Calls for `time` over `connections`, which take turns at `requests`: with as many requests as connections, each
/// connection keeps to its own.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) connections: usize,
    pub(crate) requests: &'a [Vec<u8>],
    /// Every answer must have status 200 and hold this.
    pub(crate) expected: &'a str,
    pub(crate) time: Duration,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) calls: u64,
    pub(crate) elapsed: Duration,
    /// How long each call took, in no order.
    pub(crate) times: Vec<Duration>,
}

impl Answered {
    pub(crate) fn per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }
}

impl Load<'_> {
    pub(crate) fn run(&self) -> anyhow::Result<Answered> {
        runtime()?.block_on(self.drive(usize::MAX))
    }

    /// As [`Load::run`], for requests that are good for one use: each is sent once, however long that takes.
    pub(crate) fn run_once(&self) -> anyhow::Result<Answered> {
        runtime()?.block_on(self.drive(1))
    }

    async fn drive(&self, turns: usize) -> anyhow::Result<Answered> {
        let mut prepared = Vec::new();
        for index in 0..self.connections {
            let requests: Vec<Vec<u8>> =
                self.requests.iter().skip(index).step_by(self.connections).cloned().collect();
            let times = Vec::with_capacity(1 << 16);
            prepared.push((Connection::open(self.address).await?, requests, times));
        }
        let expected = Arc::new(Finder::new(self.expected).into_owned());
        let start = Instant::now();
        let end = start.checked_add(self.time);
        let mut work = JoinSet::new();
        for (mut connection, requests, mut times) in prepared {
            let expected = Arc::clone(&expected);
            work.spawn(async move {
                let mut begun = Instant::now();
                for request in std::iter::repeat_n(&requests, turns).flatten() {
                    if end.is_some_and(|end| begun >= end) {
                        break;
                    }
                    // Of the whole answer: a server that only says that it is still there does not answer.
                    let answer = tokio::time::timeout(PATIENCE, connection.call(request));
                    let (status, body) = answer.await.context("no answer came")??;
                    if status != 200 || expected.find(body).is_none() {
                        bail!("status {status}, not the expected answer: {}", String::from_utf8_lossy(body));
                    }
                    let now = Instant::now();
                    times.push(now - begun);
                    begun = now;
                }
                Ok(times)
            });
        }
        let mut times = Vec::new();
        let mut elapsed = Duration::ZERO;
        while let Some(done) = work.join_next().await {
            elapsed = start.elapsed();
            times.extend(done??);
        }
        Ok(Answered { calls: times.len() as u64, elapsed, times })
    }
}

/// A connection for single calls, from code that is not asynchronous.
#[derive(Debug)]
pub(crate) struct Client {
    runtime: Runtime,
    connection: Connection,
}

impl Client {
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let connection = runtime.block_on(Connection::open(address))?;
        Ok(Self { runtime, connection })
    }

    /// The body of an answer that is no refusal.
    pub(crate) fn call(&mut self, request: &[u8]) -> anyhow::Result<&[u8]> {
        let call = async { tokio::time::timeout(PATIENCE, self.connection.call(request)).await };
        let (status, body) = self.runtime.block_on(call).context("no answer came")??;
        if !(200..300).contains(&status) {
            bail!("status {status}: {}", String::from_utf8_lossy(body));
        }
        Ok(body)
    }
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// A chunked body, put together.
    joined: Vec<u8>,
}

/// Where the body of an answer ends.
enum Body {
    Length(usize),
    Chunked,
}

impl Connection {
    async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("nobody listens on {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(64 << 10), joined: Vec::new() })
    }

    /// Status and body. The body is valid until the next call.
    async fn call(&mut self, request: &[u8]) -> anyhow::Result<(u16, &[u8])> {
        self.buffer.clear();
        self.stream.write_all(request).await?;
        let (status, head, body) = loop {
            self.read().await?;
            if let Some(parsed) = head(&self.buffer)? {
                break parsed;
            }
        };
        match body {
            Body::Length(length) => {
                while self.buffer.len() < head + length {
                    self.read().await?;
                }
                Ok((status, &self.buffer[head..head + length]))
            }
            Body::Chunked => {
                while !join_chunks(&self.buffer[head..], &mut self.joined)? {
                    self.read().await?;
                }
                Ok((status, &self.joined))
            }
        }
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => bail!("the server closed the connection"),
            _ => Ok(()),
        }
    }
}

/// Status, length of the head, and how long the body is; nothing while the head is incomplete.
fn head(bytes: &[u8]) -> anyhow::Result<Option<(u16, usize, Body)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
    let header = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok()
    };
    let body = match header("content-length") {
        Some(length) => Body::Length(length.parse()?),
        None if header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) => {
            Body::Chunked
        }
        None => Body::Length(0),
    };
    Ok(Some((response.code.unwrap_or(0), length, body)))
}

/// Whether the chunks are complete; then `joined` holds what was in them.
fn join_chunks(mut bytes: &[u8], joined: &mut Vec<u8>) -> anyhow::Result<bool> {
    joined.clear();
    loop {
        let parsed =
            httparse::parse_chunk_size(bytes).map_err(|_| anyhow::anyhow!("a chunk without a size"))?;
        let httparse::Status::Complete((start, size)) = parsed else { return Ok(false) };
        let end = start + usize::try_from(size)?;
        if bytes.len() < end + 2 {
            return Ok(false);
        }
        if size == 0 {
            return Ok(true);
        }
        joined.extend_from_slice(&bytes[start..end]);
        bytes = &bytes[end + 2..];
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// Answers every request with the given bytes, in two pieces.
    fn server(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                while let Ok(1..) = stream.read(&mut request) {
                    let (first, second) = answer.split_at(answer.len() / 2);
                    stream.write_all(first.as_bytes()).unwrap();
                    stream.flush().unwrap();
                    stream.write_all(second.as_bytes()).unwrap();
                }
            }
        });
        address
    }

    #[test]
    fn reads_bodies_of_known_length_and_in_chunks() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
        ] {
            let mut client = Client::open(server(answer)).unwrap();
            for _ in 0..3 {
                assert_eq!(client.call(b"GET / HTTP/1.1\r\n\r\n").unwrap(), b"hello world");
            }
        }
    }

    #[test]
    fn an_answer_that_was_not_expected_ends_the_run() {
        let request = [b"GET / HTTP/1.1\r\n\r\n".to_vec()];
        let load = |answer| Load {
            address: server(answer),
            connections: 1,
            requests: &request,
            expected: "good",
            time: Duration::from_millis(20),
        };
        assert!(load("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood").run().unwrap().calls > 0);
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad",
            "HTTP/1.1 500 No\r\ncontent-length: 4\r\n\r\ngood",
        ] {
            assert!(load(answer).run().is_err(), "{answer}");
        }
    }
}
