//! `GET /v1/events`: what happens, as it happens. The audit log is the record; this is a view.

use std::{convert::Infallible, sync::Arc, time::Duration};

use aegis_core::{Caller, Door, Violation, ViolationKind, event::Announcement};
use axum::{
    extract::State,
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, StreamExt};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};

use crate::{
    Doors,
    guard::{self, Refused},
};

const MOST_LISTENERS: usize = 64;
static PLACES: Semaphore = Semaphore::const_new(MOST_LISTENERS);
/// How soon a stream ends after its token was revoked.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn stream(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let caller = guard::caller(&doors, &headers, Door::Rest, None).await?;
    let Ok(place) = PLACES.try_acquire() else {
        let full =
            Violation::new(ViolationKind::Overloaded, format!("{MOST_LISTENERS} listeners are connected"));
        return Err(full.retry_after(5).into());
    };
    let events = BroadcastStream::new(doors.plane.bus().subscribe())
        .filter_map(move |received| {
            let event = match received {
                Ok(announcement) if may_see(&caller, &announcement) => Some(
                    Event::default()
                        .event(announcement.event.name.as_str())
                        .json_data(&*announcement)
                        .unwrap_or_default(),
                ),
                Ok(_) => None,
                Err(BroadcastStreamRecvError::Lagged(missed)) => {
                    Some(Event::default().event("lagged").data(json!({"missed": missed}).to_string()))
                }
            };
            std::future::ready(event.map(Ok))
        })
        .take_until(async move {
            let _place = place;
            unwelcome(&doors, &headers).await;
        });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Ends when the node stops, or the credential does.
async fn unwelcome(doors: &Doors, headers: &HeaderMap) {
    loop {
        tokio::select! {
            () = doors.stopping.cancelled() => return,
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
        if guard::caller(doors, headers, Door::Rest, None).await.is_err() {
            return;
        }
    }
}

/// Operators see everything; others see their own tenant's calls.
fn may_see(caller: &Caller, announcement: &Announcement) -> bool {
    guard::is_operator(caller) || announcement.tenant.as_ref() == Some(&caller.tenant)
}
