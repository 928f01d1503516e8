//! What a call says while it runs: progress to the door it came through, events to everybody who listens.

use aegis_core::{
    Caller, Event, Timestamp, ToolSpec,
    asking::{Answering, Manner, Question},
    event::EventName,
    id::CallId,
    progress::{Listener, Progress},
    record::{Entry, NodeRecord},
    redact,
};

use serde_json::Value;

use crate::pipeline::Plane;

/// Under which name an event is an entry of the log: where a program went is no part of any arguments, and must be known
/// later all the same.
pub(crate) fn recorded_as(event: EventName) -> Option<&'static str> {
    match event {
        EventName::EgressConnected => Some("egress-connected"),
        EventName::EgressRefused => Some("egress-refused"),
        _ => None,
    }
}

pub(crate) struct Heard<'a> {
    pub(crate) plane: &'a Plane,
    pub(crate) caller: &'a Caller,
    pub(crate) call: CallId,
    pub(crate) tool: &'a ToolSpec,
    /// Who waits for the answer.
    pub(crate) listener: &'a dyn Listener,
}

impl Listener for Heard<'_> {
    fn progress(&self, progress: Progress) {
        self.listener.progress(progress);
    }

    fn event(&self, event: Event) {
        if let Some(action) = recorded_as(event.name) {
            let mut detail = event.detail.clone();
            redact::detail(&mut detail);
            detail.insert("call".into(), self.call.to_string().into());
            let caller = Some(self.caller.clone());
            let record = NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller, detail };
            let audit = self.plane.audit().clone();
            self.plane.work.spawn(async move {
                if let Err(error) = audit.record(&Entry::Node(record)).await {
                    tracing::error!(%error, "a connection out of a sandbox could not be recorded");
                }
            });
        }
        self.plane.bus().announce(&self.caller.tenant, self.call, &self.tool.name, event.clone());
        self.listener.event(event);
    }

    fn records(&self) -> bool {
        self.plane.audit().health().is_ok()
    }

    fn log(&self, message: &Value) {
        self.listener.log(message);
    }

    fn manner(&self) -> Option<&Manner> {
        self.listener.manner()
    }

    fn ask(&self, question: Question) -> Answering<'_> {
        self.listener.ask(question)
    }
}
