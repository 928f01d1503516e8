//! The accept loop: HTTP/1.1 with a limit on how long a client may dawdle, and an orderly end.
//!
//! No HTTP/2: nobody speaks it without TLS, and its sniffing would wait for ever on a silent connection.

use std::{io, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{Doors, router};

/// A request's headers must be complete by then, counted from the start of a connection or the end of the last answer.
const HEADER_TIME: Duration = Duration::from_secs(60);
/// Open connections; the kernel's queue holds further ones back.
const MOST_CONNECTIONS: usize = 4096;
/// What connections may take to send the answers of calls that ended at the very last.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until `doors.stopping` is cancelled, then lets requests in work finish, in the time that the plane has for them.
pub async fn serve(listener: TcpListener, doors: &Arc<Doors>) {
    let service = TowerToHyperService::new(router(doors));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    let farewell = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = doors.stopping.cancelled() => break,
        };
        let Some((stream, place)) = accepted else { continue };
        let connection = farewell.watch(builder.serve_connection(TokioIo::new(stream), service.clone()));
        tokio::spawn(async move {
            let _place = place;
            // A client that went away mid-request is its own affair.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    let patience = doors.plane.drain_time() + LAST_ANSWERS;
    if tokio::time::timeout(patience, farewell.shutdown()).await.is_err() {
        tracing::warn!("some connections were still open at the end");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Answers are small and whole; waiting to fill a packet only adds latency.
            let _ = stream.set_nodelay(true);
            Some((stream, place))
        }
        Err(error) => {
            // Out of descriptors, most likely: give connections time to end.
            tracing::warn!(%error, "a connection could not be accepted");
            if error.kind() != io::ErrorKind::ConnectionAborted {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            None
        }
    }
}
