//! What a running call has said and its client has not heard yet.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use aegis_core::{
    Event,
    progress::{Listener, Progress},
};
use tokio::sync::Notify;

/// Words that wait. The oldest is lost first: what comes later says more.
const MOST_WORDS: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Words {
    waiting: Mutex<VecDeque<Progress>>,
    there: Notify,
}

impl Words {
    pub(crate) fn try_next(&self) -> Option<Progress> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    pub(crate) async fn next(&self) -> Progress {
        loop {
            let there = self.there.notified();
            if let Some(word) = self.try_next() {
                return word;
            }
            there.await;
        }
    }
}

impl Listener for Words {
    fn progress(&self, progress: Progress) {
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.len() == MOST_WORDS {
                waiting.pop_front();
            }
            waiting.push_back(progress);
        }
        self.there.notify_one();
    }

    /// Subscribers have it from the bus.
    fn event(&self, _: Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(number: usize) -> Progress {
        Progress { progress: number as f64, total: None, message: None }
    }

    #[tokio::test]
    async fn words_come_in_order_and_the_oldest_are_lost() {
        let words = Words::default();
        for number in 0..MOST_WORDS + 2 {
            words.progress(word(number));
        }
        assert_eq!(words.next().await, word(2));
        assert_eq!(words.try_next(), Some(word(3)));
        while words.try_next().is_some() {}
        let (heard, ()) = tokio::join!(words.next(), async { words.progress(word(7)) });
        assert_eq!(heard, word(7));
    }
}
