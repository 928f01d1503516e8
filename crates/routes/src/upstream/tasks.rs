//! Tools that a server of 2025-11-25 only runs as tasks, and whose the tasks of newer ones are.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aegis_core::secret::Principal;
use aegis_mcp_client::{Client, Error, Request};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);
/// Tasks whose owners are known; the oldest are forgotten first, and then found by nobody.
const MOST_OWNED: usize = 4096;
/// No longer id can be asked for.
pub(super) const LONGEST_ID: usize = 1024;

/// Whose a task is. To a server that all share it is the node that asks, so the node knows whose ids are whose.
#[derive(Debug, Default)]
pub(super) struct Owned {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    known: HashSet<Arc<Ownership>>,
    oldest_first: VecDeque<Arc<Ownership>>,
}

/// Two principals with connections of their own may have tasks of the same id.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ownership {
    server: String,
    task: String,
    principal: Principal,
}

impl Owned {
    pub(super) fn add(&self, server: &str, task: &str, principal: &Principal) {
        if task.len() > LONGEST_ID {
            return;
        }
        let ownership = Arc::new(Ownership::new(server, task, principal));
        let mut table = self.table();
        if !table.known.insert(Arc::clone(&ownership)) {
            return;
        }
        table.oldest_first.push_back(ownership);
        while table.oldest_first.len() > MOST_OWNED {
            if let Some(oldest) = table.oldest_first.pop_front() {
                table.known.remove(&oldest);
            }
        }
    }

    pub(super) fn has(&self, server: &str, task: &str, principal: &Principal) -> bool {
        self.table().known.contains(&Ownership::new(server, task, principal))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ownership {
    fn new(server: &str, task: &str, principal: &Principal) -> Self {
        Self { server: server.to_owned(), task: task.to_owned(), principal: principal.clone() }
    }
}

#[derive(Deserialize)]
struct Created {
    task: Task,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    task_id: String,
    status: String,
    #[serde(default)]
    poll_interval: Option<u64>,
}

/// Waits for a task's end, and gives its result. A task whose caller leaves is cancelled.
pub(super) async fn finish(client: &Client, created: &RawValue) -> Result<Box<RawValue>, Error> {
    let unreadable =
        |error: serde_json::Error| Error::Protocol(format!("its task can't be read: {error}").into());
    let Created { mut task } = serde_json::from_str(created.get()).map_err(unreadable)?;
    let params = RawValue::from_string(json!({"taskId": task.task_id}).to_string()).map_err(unreadable)?;
    let guard = Cancelled { client, params: &params, over: false };
    let ask = |method: &'static str| client.request(Request::new(method).params(&params));
    while matches!(task.status.as_str(), "working" | "submitted" | "input_required") {
        let pause = task.poll_interval.map_or(LONGEST / 5, Duration::from_millis);
        tokio::time::sleep(pause.clamp(SHORTEST, LONGEST)).await;
        let now = ask("tasks/get").await?;
        let now: Task = serde_json::from_str(now.get()).map_err(unreadable)?;
        task = Task { task_id: task.task_id, ..now };
    }
    let mut guard = guard;
    guard.over = true;
    ask("tasks/result").await
}

struct Cancelled<'a> {
    client: &'a Client,
    params: &'a RawValue,
    over: bool,
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (client, params) = (self.client.clone(), self.params.to_owned());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let told = client.request(Request::new("tasks/cancel").params(&params));
                let _ = tokio::time::timeout(LONGEST, told).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_with_its_owner_and_the_oldest_is_forgotten() {
        let owned = Owned::default();
        let anna = Principal { tenant: "t".into(), user: "anna".into() };
        let bert = Principal { tenant: "t".into(), user: "bert".into() };
        owned.add("s", "1", &anna);
        assert!(owned.has("s", "1", &anna));
        assert!(!owned.has("s", "1", &bert) && !owned.has("other", "1", &anna));
        owned.add("s", &"x".repeat(LONGEST_ID + 1), &anna);
        for number in 0..MOST_OWNED {
            owned.add("s", &format!("of bert {number}"), &bert);
        }
        assert!(!owned.has("s", "1", &anna), "the oldest");
        assert!(owned.has("s", "of bert 0", &bert));
        assert_eq!(owned.table().known.len(), MOST_OWNED);
    }
}
