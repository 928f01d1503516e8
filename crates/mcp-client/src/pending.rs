//! Requests that wait for their answers, by id.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::{
    error::Error,
    handler::{Handler, Progress, ProgressUpdate},
};

pub(crate) type Answer = oneshot::Receiver<Result<Box<RawValue>, Error>>;

#[derive(derive_more::Debug)]
pub(crate) struct Pending {
    table: Mutex<Table>,
    limit: usize,
}

#[derive(derive_more::Debug)]
struct Table {
    next: u64,
    #[debug("{}", waiting.len())]
    waiting: HashMap<u64, Waiting>,
    /// Why nothing will be answered any more.
    ended: Option<Error>,
}

struct Waiting {
    answer: oneshot::Sender<Result<Box<RawValue>, Error>>,
    progress: Option<Arc<dyn Progress>>,
    questions: Option<Arc<dyn Handler>>,
}

impl Pending {
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Mutex::new(Table { next: 1, waiting: HashMap::new(), ended: None }), limit }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(
        &self,
        progress: Option<Arc<dyn Progress>>,
        questions: Option<Arc<dyn Handler>>,
    ) -> Result<(u64, Answer), Error> {
        let (answer, answered) = oneshot::channel();
        let mut table = self.table();
        if let Some(ended) = &table.ended {
            return Err(ended.clone());
        }
        if table.waiting.len() >= self.limit {
            return Err(Error::TooManyPending { limit: self.limit });
        }
        let id = table.next;
        table.next += 1;
        table.waiting.insert(id, Waiting { answer, progress, questions });
        Ok((id, answered))
    }

    /// Answers the request of that id. `false` when nobody waits for it: an id that was never used, an answer that
    /// comes twice, or a caller who left.
    pub(crate) fn settle(&self, id: u64, result: Result<Box<RawValue>, Error>) -> bool {
        let waiting = self.table().waiting.remove(&id);
        waiting.is_some_and(|waiting| waiting.answer.send(result).is_ok())
    }

    /// Takes a request back. `true` when it had no answer yet.
    pub(crate) fn leave(&self, id: u64) -> bool {
        self.table().waiting.remove(&id).is_some()
    }

    pub(crate) fn waits(&self, id: u64) -> bool {
        self.table().waiting.contains_key(&id)
    }

    pub(crate) fn progress(&self, id: u64, update: ProgressUpdate) {
        let listener = self.table().waiting.get(&id).and_then(|waiting| waiting.progress.clone());
        if let Some(listener) = listener {
            listener.progress(update);
        }
    }

    /// Whom a question of the server's is for: the request on whose stream it came, or, on a pipe that all share, the
    /// only call under way. With several nobody can tell, also when only one of them could be asked: the question may
    /// be about what another one wants.
    pub(crate) fn questioned(&self, origin: Option<u64>, asks: bool) -> Questioned {
        let table = self.table();
        let mut takers = table
            .waiting
            .iter()
            .filter(|(id, _)| origin.is_none_or(|origin| origin == **id))
            .filter_map(|(_, waiting)| waiting.questions.clone());
        match (takers.next(), takers.next()) {
            (Some(taker), None) if !asks || taker.can_be_asked() => Questioned::One(taker),
            (_, None) => Questioned::Nobody,
            (_, Some(_)) => Questioned::Several,
        }
    }

    /// Ends every request, and all that are still to come, for this reason. The first reason stays.
    pub(crate) fn end(&self, reason: &Error) -> bool {
        let waiting = {
            let mut table = self.table();
            if table.ended.is_some() {
                return false;
            }
            table.ended = Some(reason.clone());
            std::mem::take(&mut table.waiting)
        };
        for (_, waiting) in waiting {
            let _ = waiting.answer.send(Err(reason.clone()));
        }
        true
    }

    pub(crate) fn ended(&self) -> Option<Error> {
        self.table().ended.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.table().waiting.len()
    }
}

pub(crate) enum Questioned {
    One(Arc<dyn Handler>),
    Several,
    Nobody,
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Taker {
        can_be_asked: bool,
    }

    impl Handler for Taker {
        fn can_be_asked(&self) -> bool {
            self.can_be_asked
        }
    }

    fn call(pending: &Pending, can_be_asked: bool) -> (u64, Answer) {
        pending.enter(None, Some(Arc::new(Taker { can_be_asked }))).unwrap()
    }

    #[test]
    fn a_question_on_a_shared_pipe_is_for_the_only_call_under_way() {
        let pending = Pending::new(8);
        let _own = pending.enter(None, None).unwrap();
        assert!(matches!(pending.questioned(None, true), Questioned::Nobody));
        let (mute, _mute) = call(&pending, false);
        assert!(matches!(pending.questioned(None, true), Questioned::Nobody));
        assert!(matches!(pending.questioned(None, false), Questioned::One(_)));
        let (able, _able) = call(&pending, true);
        assert!(matches!(pending.questioned(None, true), Questioned::Several));
        assert!(matches!(pending.questioned(Some(able), true), Questioned::One(_)));
        assert!(matches!(pending.questioned(Some(mute), true), Questioned::Nobody));
        pending.leave(mute);
        assert!(matches!(pending.questioned(None, true), Questioned::One(_)));
    }
}
