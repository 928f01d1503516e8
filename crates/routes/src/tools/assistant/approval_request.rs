use aegis_core::{
    Approval, ApprovalState, Failure, FailureKind, Label, Timestamp,
    approval::Question,
    caller::Tier,
    id::ApprovalId,
    tool::{ApprovalRule, Example, Mutability, Route},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{Answer, Facts, Run, Tool};

/// Asks a person something, and later tells what they said. Nothing runs when they agree: it is the agent that then
/// goes on. A call that needs approval asks by itself.
#[derive(Debug)]
pub struct ApprovalRequest;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// What will happen if approved.
    #[schemars(length(min = 1))]
    summary: String,
    /// The intent of an earlier request, to learn where it stands; a new request is filed when absent.
    intent_id: Option<String>,
    /// Why approval is wanted.
    reason: Option<String>,
    /// Queue hint.
    #[serde(default)]
    urgency: Urgency,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Urgency {
    Low,
    #[default]
    Normal,
    High,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    approval_request_id: ApprovalId,
    state: State,
    summary: String,
    intent_id: String,
    #[schemars(with = "String", extend("format" = "date-time"))]
    expires_at: Timestamp,
    #[schemars(with = "String", extend("format" = "date-time"))]
    created_at: Timestamp,
    /// What the person said, where they said something.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Where it stands beyond the person's word, e.g. `executed` for a call that ran.
    request_state: ApprovalState,
}

/// The person's word, as the contract has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Pending,
    Approved,
    Rejected,
    Expired,
}

impl State {
    fn of(state: ApprovalState) -> Self {
        match state {
            ApprovalState::Pending => Self::Pending,
            ApprovalState::Approved | ApprovalState::Executed | ApprovalState::Failed => Self::Approved,
            ApprovalState::Rejected => Self::Rejected,
            // Taken back, or overtaken: nobody will agree to it any more.
            ApprovalState::Expired | ApprovalState::Cancelled => Self::Expired,
        }
    }
}

impl Tool for ApprovalRequest {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.approval-request".into(),
            aliases: Vec::new(),
            title: "Ask a person".into(),
            category: "governance".into(),
            description:
                "File a request for a person's approval, or look up where an earlier one stands by its \
                          intentId. Agreeing runs nothing: calls that need approval ask by themselves."
                    .into(),
            tags: vec!["approvals".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::Mutating,
            idempotent: false,
            approval: ApprovalRule::NotRequired,
            route: Route::Builtin,
            targets: Vec::new(),
            label: Label::node(),
            examples: vec![Example {
                title: "Before something that can't be undone".into(),
                arguments: json!({"summary": "Delete the cache of the old site", "reason": "It holds 40 GB"}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let mut arguments = Map::new();
        arguments.insert("summary".into(), input.summary.clone().into());
        arguments.insert("urgency".into(), json!(input.urgency));
        if let Some(reason) = input.reason {
            arguments.insert("reason".into(), reason.into());
        }
        let question = Question {
            call: run.permit.call(),
            tool: run.permit.tool().to_owned(),
            title: "Ask a person".into(),
            intent: input.intent_id,
            arguments,
        };
        match run.desk.ask(run.permit.caller(), question).await {
            Ok(Some(approval)) => Ok(output(approval, input.summary).into()),
            Ok(None) => Err(Failure::new(
                FailureKind::NotFound,
                "there is no request of yours with that intentId; leave it out to file a new one",
            )),
            Err(violation) => Err(Failure::new(
                FailureKind::StorageError,
                format!("the request can't be filed: {}", violation.message),
            )),
        }
    }
}

fn output(approval: Approval, asked: String) -> Output {
    let summary = match approval.arguments.get("summary") {
        Some(Value::String(text)) => text.clone(),
        // Of a long one, only its beginning is kept once the request is over.
        Some(Value::Object(cut)) => {
            cut.get("preview").and_then(Value::as_str).map_or(asked, |text| format!("{text}…"))
        }
        _ => asked,
    };
    Output {
        state: State::of(approval.state),
        request_state: approval.state,
        approval_request_id: approval.id,
        summary,
        intent_id: approval.intent,
        expires_at: approval.expires,
        created_at: approval.created,
        reason: approval.reason,
    }
}
