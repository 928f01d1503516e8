//! A server's tool, as the catalog holds it.

use std::sync::Arc;

use aegis_core::{Label, Outcome, ToolSpec, Violation, secret::Principal};
use aegis_mcp_client::http::parameter_headers;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{
    World, answer,
    ask::{Asked, ask},
    definition::Sound,
    server::Server,
};
use crate::tool::{AnyTool, Intended, Run};

pub(super) struct UpstreamTool {
    pub(super) server: Arc<Server>,
    pub(super) sound: Arc<Sound>,
    pub(super) world: Arc<World>,
}

impl AnyTool for UpstreamTool {
    fn intended(&self, _: &Map<String, Value>) -> Option<Intended> {
        None
    }

    fn run<'a>(
        &'a self,
        spec: &'a ToolSpec,
        run: Run<'a>,
        arguments: Map<String, Value>,
    ) -> BoxFuture<'a, Result<Outcome, Violation>> {
        Box::pin(async move {
            let headers = parameter_headers(&self.sound.headers, &arguments);
            let name = Value::String(self.sound.tool.clone());
            let params = format!(r#"{{"name":{name},"arguments":{}}}"#, Value::Object(arguments));
            let asked = Asked {
                method: "tools/call",
                params,
                about: Some(&self.sound.tool),
                headers,
                as_task: self.sound.as_task,
            };
            let label = Label { origin: Some(self.sound.tool.clone()), ..spec.label.clone() };
            match ask(&self.server, &self.world, &run, asked).await {
                Ok(result) => {
                    let answered = answer::read(&result, &self.world.redactor()).and_then(|mut members| {
                        if members.get("resultType").is_some_and(|kind| kind == "task") {
                            let server = self.server.config.name.as_str();
                            if let Some(task) = members.get("taskId").and_then(Value::as_str) {
                                self.world.owned.add(server, task, &Principal::from(run.permit.caller()));
                            }
                            members.insert("server".to_owned(), server.into());
                        }
                        answer::of_tool(&self.sound, &label, members)
                    });
                    Ok(answered.unwrap_or_else(|failure| answer::failure(&spec.name, &label, &failure)))
                }
                Err(unasked) => unasked.outcome(&spec.name, &label),
            }
        })
    }
}
