//! Work that goes on whether or not somebody looks.

use futures::future::BoxFuture;
use tokio_util::task::AbortOnDropHandle;

/// The same work as a task of its own: a client that stops reading, or does not come back, can't make it stand still.
/// When nobody has it any more it is dropped, as it would have been.
pub(crate) fn driven<T: Send + 'static>(work: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
    let task = AbortOnDropHandle::new(tokio::spawn(work));
    Box::pin(async move {
        match task.await {
            Ok(done) => done,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The node is going away.
            Err(_) => std::future::pending().await,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn it_comes_to_its_end_unpolled_and_is_dropped_with_its_owner() {
        let (ended, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let work = {
            let ended = Arc::clone(&ended);
            driven(Box::pin(async move {
                ended.notify_one();
                7
            }))
        };
        ended.notified().await;
        assert_eq!(work.await, 7);

        struct Tells(Arc<Notify>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }
        let tells = Tells(Arc::clone(&dropped));
        let endless = driven(Box::pin(async move {
            let _tells = tells;
            std::future::pending::<()>().await;
        }));
        drop(endless);
        dropped.notified().await;
    }
}
