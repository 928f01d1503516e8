//! Tools that a server of 2025-11-25 only runs as tasks.

use std::time::Duration;

use aegis_mcp_client::{Client, Error, Request};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

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
