//! The requests of one client that are in work, so that it can withdraw them by id.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use super::message::Id;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    next: u64,
    by_id: HashMap<String, (u64, CancellationToken)>,
}

impl InFlight {
    /// Remembers a request until the guard is dropped. Its token is cancelled when the client withdraws it.
    pub(crate) fn enter(self: &Arc<Self>, id: Id<'_>) -> Entered {
        let key = id.key();
        let withdrawn = CancellationToken::new();
        let mut requests = self.lock();
        let serial = requests.next;
        requests.next += 1;
        requests.by_id.insert(key.clone(), (serial, withdrawn.clone()));
        drop(requests);
        Entered { withdrawn, serial, key, home: Arc::clone(self) }
    }

    /// Withdraws a request. One that is not in work has ended, which the client could not know yet.
    pub(crate) fn withdraw(&self, id: Id<'_>) {
        if let Some((_, withdrawn)) = self.lock().by_id.get(&id.key()) {
            withdrawn.cancel();
        }
    }

    pub(crate) fn withdraw_all(&self) {
        for (_, withdrawn) in self.lock().by_id.values() {
            withdrawn.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in work.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) withdrawn: CancellationToken,
    serial: u64,
    key: String,
    home: Arc<InFlight>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut requests = self.home.lock();
        // A client that used the id again owns the entry now.
        if requests.by_id.get(&self.key).is_some_and(|(serial, _)| *serial == self.serial) {
            requests.by_id.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::Message, *};

    fn with_id(id: &str, test: impl FnOnce(Id<'_>)) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#);
        let Ok(Message::Request(request)) = Message::parse(&text) else { panic!("{id}") };
        test(request.id);
    }

    fn enter(home: &Arc<InFlight>, id: &str) -> Entered {
        let mut entered = None;
        with_id(id, |id| entered = Some(home.enter(id)));
        entered.unwrap()
    }

    #[test]
    fn only_the_named_request_is_withdrawn() {
        let home = Arc::new(InFlight::default());
        let (number, text) = (enter(&home, "1"), enter(&home, "\"1\""));
        with_id("1", |id| home.withdraw(id));
        with_id("2", |id| home.withdraw(id));
        assert!(number.withdrawn.is_cancelled());
        assert!(!text.withdrawn.is_cancelled());
        home.withdraw_all();
        assert!(text.withdrawn.is_cancelled());
    }

    #[test]
    fn nothing_is_left_behind_and_a_reused_id_is_kept() {
        let home = Arc::new(InFlight::default());
        let first = enter(&home, "1");
        let second = enter(&home, "1");
        drop(first);
        with_id("1", |id| home.withdraw(id));
        assert!(second.withdrawn.is_cancelled());
        drop(second);
        assert!(home.lock().by_id.is_empty());
    }
}
