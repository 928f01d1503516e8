use aegis_core::{
    Failure, Label, TrustClass,
    caller::Tier,
    mode::{Mode, SWITCH_MODE},
    tool::{ApprovalRule, Example, Mutability, Route},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Answer, Facts, Run, Tool};

/// Asks for another mode. The client shows a card, and the user accepts, refuses or dismisses it; nothing changes here.
#[derive(Debug)]
pub struct SwitchMode;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The mode to offer.
    target_mode: Mode,
    /// Why, in one plain sentence for the user.
    #[schemars(length(min = 1))]
    reason: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// `mode_switch_requested`.
    action: &'static str,
    target_mode: Mode,
    reason: String,
}

impl Tool for SwitchMode {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: SWITCH_MODE.into(),
            aliases: Vec::new(),
            title: "Offer another mode".into(),
            category: "zaru".into(),
            description: "Offer the user a switch to another conversation mode, when the request can't be fulfilled in \
                          this one. The user sees a card and accepts, refuses or dismisses it."
                .into(),
            tags: vec!["mode".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::ReadOnly,
            idempotent: true,
            approval: ApprovalRule::NotRequired,
            route: Route::Builtin,
            targets: Vec::new(),
            // The answer repeats what the model wrote.
            label: Label::new(TrustClass::ModelGeneratedUntrusted, "caller"),
            examples: vec![Example {
                title: "Agents are needed".into(),
                arguments: json!({"target_mode": "agentic", "reason": "Running an agent needs another mode."}),
            }],
        }
    }

    async fn run(&self, _: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let Input { target_mode, reason } = input;
        Ok(Output { action: "mode_switch_requested", target_mode, reason }.into())
    }
}
