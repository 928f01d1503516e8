//! `GET /v1/events`: what happens, as it happens. The audit log is the record; this is a view.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aegis_core::{Caller, Door, Violation, ViolationKind, event::Announcement, id::CredentialId};
use axum::{
    extract::State,
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, StreamExt};
use serde_json::json;
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};

use crate::{
    Doors,
    guard::{self, Refused},
};

const MOST_LISTENERS: usize = 64;
/// Of one credential: whoever took all places would keep the others from looking.
const MOST_OF_ONE: usize = 8;
static LISTENERS: Mutex<BTreeMap<CredentialId, usize>> = Mutex::new(BTreeMap::new());
/// How soon a stream ends after its token was revoked.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(super) async fn stream(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let caller = guard::caller(&doors, &headers, Door::Rest, None).await?;
    let place = Place::take(&caller.credential)
        .map_err(|full| Violation::new(ViolationKind::Overloaded, full).retry_after(5))?;
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

/// One listener's place, given back when its stream ends.
struct Place(CredentialId);

impl Place {
    fn take(credential: &CredentialId) -> Result<Self, String> {
        let mut listeners = listeners();
        if listeners.values().sum::<usize>() >= MOST_LISTENERS {
            return Err(format!("{MOST_LISTENERS} listeners are connected"));
        }
        let own = listeners.entry(credential.clone()).or_default();
        if *own >= MOST_OF_ONE {
            return Err(format!("this credential has {MOST_OF_ONE} listeners connected: end one of them"));
        }
        *own += 1;
        Ok(Self(credential.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut listeners = listeners();
        if let Some(own) = listeners.get_mut(&self.0) {
            *own -= 1;
            if *own == 0 {
                listeners.remove(&self.0);
            }
        }
    }
}

fn listeners() -> MutexGuard<'static, BTreeMap<CredentialId, usize>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
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
