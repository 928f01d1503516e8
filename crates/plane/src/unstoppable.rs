//! A call that goes on when nobody waits for it any more.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use aegis_core::{Violation, ViolationKind};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::carry_out::Done;

/// The life of a call and its answer. While somebody waits it runs where they wait, which spares every call two changes
/// of task; when they leave, or are answered before its end, the rest of it becomes a task of its own.
pub(crate) struct Unstoppable {
    life: Option<BoxFuture<'static, ()>>,
    answered: oneshot::Receiver<Result<Done, Violation>>,
}

impl Unstoppable {
    pub(crate) fn new(
        life: BoxFuture<'static, ()>,
        answered: oneshot::Receiver<Result<Done, Violation>>,
    ) -> Self {
        Self { life: Some(life), answered }
    }
}

impl Future for Unstoppable {
    type Output = Result<Done, Violation>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(life) = &mut self.life {
            // What is wrong with one call must not end the connection, which others may share.
            let ended = catch_unwind(AssertUnwindSafe(|| life.as_mut().poll(context).is_ready()));
            if ended.unwrap_or(true) {
                self.life = None;
            }
        }
        Pin::new(&mut self.answered).poll(context).map(|answer| {
            answer.unwrap_or_else(|_| {
                Err(Violation::new(ViolationKind::InternalError, "the call ended without an answer")
                    .hint("its record in the audit log says how far it came"))
            })
        })
    }
}

impl Drop for Unstoppable {
    fn drop(&mut self) {
        if let Some(life) = self.life.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(life);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use tokio::sync::Notify;

    use super::*;

    fn answer() -> Result<Done, Violation> {
        Err(Violation::new(ViolationKind::Overloaded, "answered"))
    }

    #[tokio::test]
    async fn it_goes_on_after_its_caller_has_left_or_was_answered() {
        for answers_first in [false, true] {
            let (sender, answered) = oneshot::channel();
            let (go_on, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let life = {
                let (go_on, ended) = (Arc::clone(&go_on), Arc::clone(&ended));
                Box::pin(async move {
                    if answers_first {
                        let _ = sender.send(answer());
                    }
                    go_on.notified().await;
                    ended.notify_one();
                })
            };
            let mut call = Box::pin(Unstoppable::new(life, answered));
            let now = futures::poll!(&mut call);
            assert_eq!(now.is_ready(), answers_first);
            drop(call);
            go_on.notify_one();
            ended.notified().await;
        }
    }

    #[tokio::test]
    async fn a_panic_is_the_end_of_that_call_alone() {
        let (sender, answered) = oneshot::channel::<Result<Done, Violation>>();
        let begun = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&begun);
        let life = Box::pin(async move {
            let _sender = sender;
            seen.store(true, Ordering::SeqCst);
            assert!(!seen.load(Ordering::SeqCst), "a mistake");
        });
        let ended = Unstoppable::new(life, answered).await;
        assert!(begun.load(Ordering::SeqCst));
        assert_eq!(ended.unwrap_err().kind, ViolationKind::InternalError);
    }
}
