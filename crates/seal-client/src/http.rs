//! As much HTTP as two requests need.

use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Request, Uri,
    body::Bytes,
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::error::Error;

/// Larger answers are not read.
const LARGEST_ANSWER: usize = 64 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    authority: String,
}

impl Endpoint {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let bad = || Error::Address(url.to_owned());
        let uri: Uri = url.trim().trim_end_matches('/').parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        // Without a scheme, `localhost:8088` alone.
        let plain = uri.scheme_str().is_none_or(|scheme| scheme == "http");
        let bare =
            matches!(uri.path(), "" | "/") && uri.query().is_none() && !authority.as_str().contains('@');
        if !plain || !bare {
            return Err(bad());
        }
        let authority = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:80"),
        };
        Ok(Self { authority })
    }

    /// Status and body of the answer.
    pub(crate) async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<(u16, Bytes), Error> {
        tokio::time::timeout(limit, self.exchange(path, body)).await.map_err(|_| Error::Late(limit))?
    }

    async fn exchange(&self, path: &str, body: Vec<u8>) -> Result<(u16, Bytes), Error> {
        let broken = |error: hyper::Error| Error::Broken(error.to_string());
        let stream = TcpStream::connect(&self.authority)
            .await
            .map_err(|source| Error::Unreachable { address: self.authority.clone(), source })?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let request = Request::post(path)
            .header(HOST, &self.authority)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::Broken(error.to_string()))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), LARGEST_ANSWER)
                .collect()
                .await
                .map_err(|error| Error::Broken(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        // Driven here rather than by a task of its own: when the caller stops waiting, both end.
        let mut answer = std::pin::pin!(answer);
        tokio::select! {
            biased;
            answered = &mut answer => answered,
            driven = connection => match driven {
                Ok(()) => answer.await,
                Err(error) => Err(broken(error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let authority = |url| Endpoint::parse(url).map(|endpoint| endpoint.authority).ok();
        assert_eq!(authority("http://127.0.0.1:8088/").as_deref(), Some("127.0.0.1:8088"));
        assert_eq!(authority("127.0.0.1:8088").as_deref(), Some("127.0.0.1:8088"));
        assert_eq!(authority("http://[::1]").as_deref(), Some("[::1]:80"));
        for bad in ["", "https://a:1", "http://a:1/v1", "http://me@a:1", "ftp://a:1"] {
            assert_eq!(authority(bad), None, "{bad}");
        }
    }
}
