//! Tasks of servers behind the node, as clients hold them. A client never learns a server's own id of a task, and finds
//! a task only with the credential that began it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use aegis_core::{Call, id::CredentialId};
use serde_json::{Map, Value, json, value::RawValue};

use super::session;

/// The oldest are forgotten first.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct ServerTasks {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<String, ServerTask>,
    oldest_first: VecDeque<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTask {
    credential: CredentialId,
    server: String,
    id: String,
}

impl ServerTasks {
    /// Takes a task in, and gives its members with the id that the client will know it by. `None` for what is no task.
    pub(crate) fn file(&self, credential: &CredentialId, members: &str) -> Option<Map<String, Value>> {
        let mut members: Map<String, Value> = serde_json::from_str(members).ok()?;
        let Some(Value::String(server)) = members.remove("server") else { return None };
        let id = members.get("taskId")?.as_str()?.to_owned();
        let public = format!("task:{}", session::random_id().ok()?);
        members.insert("taskId".into(), public.as_str().into());
        let mut table = self.table();
        while table.oldest_first.len() >= MOST {
            if let Some(oldest) = table.oldest_first.pop_front() {
                table.by_id.remove(&oldest);
            }
        }
        table.oldest_first.push_back(public.clone());
        table.by_id.insert(public, ServerTask { credential: credential.clone(), server, id });
        Some(members)
    }

    pub(crate) fn find(&self, credential: &CredentialId, public: &str) -> Option<ServerTask> {
        self.table().by_id.get(public).filter(|task| task.credential == *credential).cloned()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerTask {
    /// What `tasks/get`, `tasks/update` or `tasks/cancel` asks of the plane.
    pub(crate) fn call(&self, method: &str, responses: Option<&RawValue>) -> Call {
        let mut arguments = json!({"server": self.server, "taskId": self.id});
        if method == "tasks/update" {
            let responses = responses.and_then(|raw| serde_json::from_str(raw.get()).ok());
            arguments["inputResponses"] = responses.unwrap_or_else(|| json!({}));
        }
        let tool = match method {
            "tasks/update" => "mcp.tasks.update",
            "tasks/cancel" => "mcp.tasks.cancel",
            _ => "mcp.tasks.get",
        };
        Call::new(tool, arguments.as_object().cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_by_its_own_caller_under_another_name() {
        let tasks = ServerTasks::default();
        let (alice, bob) = (CredentialId::new("a"), CredentialId::new("b"));
        let given = tasks.file(&alice, r#"{"taskId":"secret","status":"working","server":"s"}"#).unwrap();
        assert!(!given.contains_key("server"));
        let public = given["taskId"].as_str().unwrap();
        assert_ne!(public, "secret");
        assert_eq!(tasks.find(&bob, public), None);
        let call = tasks.find(&alice, public).unwrap().call("tasks/cancel", None);
        assert_eq!(
            (call.tool.as_str(), call.arguments["taskId"].as_str()),
            ("mcp.tasks.cancel", Some("secret"))
        );
        assert!(tasks.file(&alice, r#"{"status":"working","server":"s"}"#).is_none());
    }
}
