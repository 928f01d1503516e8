//! The first HTTP transport: one stream brings everything, and names the address that requests are posted to.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use url::Url;

use super::{Endpoint, Kind, kind_of, page, sse::Events};
use crate::{
    error::Error,
    handler::Handler,
    handshake::Identity,
    limits::Limits,
    shared::{Shared, Wire},
};

#[derive(Debug)]
pub(crate) struct Mailbox {
    endpoint: Endpoint,
    address: Url,
}

pub(super) async fn open(
    endpoint: &Endpoint,
    identity: &Identity,
    limits: &Limits,
    handler: &Arc<dyn Handler>,
) -> Result<Arc<Shared>, Error> {
    let opened = tokio::time::timeout(limits.handshake, stream(endpoint, limits)).await;
    let (mut events, address) = opened.unwrap_or(Err(Error::Silent(limits.handshake)))?;
    let wire = Wire::Mailbox(Mailbox { endpoint: endpoint.clone(), address });
    let shared = Shared::new(wire, identity.clone(), limits.clone(), Arc::clone(handler));
    let reader = Arc::clone(&shared);
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = reader.stopping.cancelled() => return,
            };
            match event {
                Ok(Some(event)) if event.name.is_empty() || event.name == "message" => {
                    reader.take(event.data.as_bytes(), None);
                }
                Ok(Some(_)) => {}
                Ok(None) => return reader.end(&Error::Closed("its stream ended".into())),
                Err(error) => return reader.end(&error),
            }
        }
    });
    Ok(shared)
}

async fn stream(endpoint: &Endpoint, limits: &Limits) -> Result<(Events, Url), Error> {
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() =
        endpoint.url.as_str().parse().map_err(|_| Error::Unreachable("the address can't be used".into()))?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let response = endpoint.send(request).await?;
    let status = response.status().as_u16();
    if status != 200 || kind_of(response.headers()) != Kind::Stream {
        let detail = format!(", and speaks no MCP transport{}", page(response.headers()));
        return Err(Error::Status { status, detail: detail.into() });
    }
    let mut events = Events::new(response.into_body(), limits.message);
    let first = events.next().await?.filter(|event| event.name == "endpoint");
    let first = first.ok_or_else(|| Error::protocol("its stream does not begin with an `endpoint`"))?;
    let address =
        endpoint.url.join(first.data.trim()).map_err(|_| Error::protocol("its `endpoint` can't be read"))?;
    // Our credentials go where the operator sent them, and nowhere else.
    if address.origin() != endpoint.url.origin() {
        return Err(Error::Redirected { to: address.origin().ascii_serialization().into() });
    }
    Ok((events, address))
}

impl Mailbox {
    pub(crate) async fn post(&self, _shared: &Shared, body: Bytes) -> Result<(), Error> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self
            .address
            .as_str()
            .parse()
            .map_err(|_| Error::Unreachable("the address can't be used".into()))?;
        request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.endpoint.send(request).await?;
        match response.status().as_u16() {
            200..=299 => Ok(()),
            status => Err(Error::Status { status, detail: "".into() }),
        }
    }
}
