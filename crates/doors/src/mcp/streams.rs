//! Streams that stay open: what a client hears without asking each time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use aegis_routes::upstream::Notice;
use axum::{
    body::Body,
    extract::{Request as HttpRequest, State},
    http::StatusCode,
    response::Response,
};
use bytes::Bytes;
use futures::stream;
use tokio::sync::{
    OwnedSemaphorePermit,
    broadcast::{self, error::RecvError},
};
use tokio_util::sync::CancellationToken;

use super::{
    fault::{Fault, INTERNAL_ERROR},
    http::{Transport, accepts, events, fault, no_such_method},
    listen::{self, Listening},
    message::Request,
    progress,
    standing::Standing,
};

/// `GET`: the stream on which a server speaks unasked: of lists that changed, and of resources that the session
/// watches. It stays open until the session or the node ends, which is how a client notices at once.
pub(super) async fn stream(State(transport): State<Arc<Transport>>, request: HttpRequest) -> Response {
    let (parts, _) = request.into_parts();
    let session = match transport.standing_session(&parts).await {
        Ok(session) => session,
        Err(response) => return response,
    };
    if !accepts(&parts.headers, "text", "event-stream") {
        let refused = Fault::invalid_request("send `Accept: text/event-stream`");
        return fault(&refused.with_status(StatusCode::NOT_ACCEPTABLE), None);
    }
    // Clients take this answer for "no stream here" and go on without.
    let Ok(place) = Arc::clone(&transport.streams).try_acquire_owned() else { return no_such_method().await };
    let doors = &transport.conversation.doors;
    let open = Open {
        _place: place,
        closed: session.open_stream(),
        stopping: doors.stopping.clone(),
        notices: doors.offers.notices(),
        standing: Arc::clone(&session.standing),
    };
    let quiet = transport.conversation.pace.quiet;
    let notices = stream::unfold((open, true), move |(mut open, first)| async move {
        let frame = if first { progress::comment() } else { open.next(quiet).await? };
        Some((Ok::<_, Infallible>(frame), (open, false)))
    });
    events(Body::from_stream(notices))
}

struct Open {
    _place: OwnedSemaphorePermit,
    closed: CancellationToken,
    stopping: CancellationToken,
    notices: broadcast::Receiver<Notice>,
    standing: Arc<Standing>,
}

impl Open {
    async fn next(&mut self, quiet: Duration) -> Option<Bytes> {
        loop {
            let notice = tokio::select! {
                () = self.closed.cancelled() => return None,
                () = self.stopping.cancelled() => return None,
                () = tokio::time::sleep(quiet) => return Some(progress::comment()),
                notice = self.notices.recv() => notice,
            };
            let over = matches!(notice, Err(RecvError::Closed));
            if let Some(text) = listen::plainly(notice, &self.standing) {
                return Some(progress::event(&text));
            }
            if over {
                self.closed.cancelled().await;
                return None;
            }
        }
    }
}

impl Transport {
    /// A stream that a stateless client asked for.
    pub(super) async fn listen(
        &self,
        mut listening: Listening,
        takes_events: bool,
        request: &Request<'_>,
    ) -> Response {
        let id = Some(request.id.as_str());
        if !takes_events {
            let refused = Fault::invalid_request("send `Accept: application/json, text/event-stream`");
            return fault(&refused.with_status(StatusCode::NOT_ACCEPTABLE), id);
        }
        let Ok(place) = Arc::clone(&self.streams).try_acquire_owned() else {
            let full =
                Fault::new(StatusCode::SERVICE_UNAVAILABLE, INTERNAL_ERROR, "too many streams are open");
            return fault(&full, id);
        };
        let acknowledged = progress::event(&listening.acknowledge().await);
        let stopping = self.conversation.doors.stopping.clone();
        let quiet = self.conversation.pace.quiet;
        let start = (Some(acknowledged), Some((listening, place)));
        let notices = stream::unfold(start, move |(ready, open)| {
            let stopping = stopping.clone();
            async move {
                if let Some(ready) = ready {
                    return Some((Ok::<_, Infallible>(ready), (None, open)));
                }
                let (mut listening, place) = open?;
                let text = tokio::select! {
                    () = stopping.cancelled() => None,
                    () = tokio::time::sleep(quiet) => {
                        return Some((Ok(progress::comment()), (None, Some((listening, place)))));
                    }
                    notice = listening.next() => notice,
                };
                match text {
                    Some(text) => Some((Ok(progress::event(&text)), (None, Some((listening, place))))),
                    None => Some((Ok(progress::event(&listening.end())), (None, None))),
                }
            }
        });
        events(Body::from_stream(notices))
    }
}
