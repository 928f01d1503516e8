use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Value, json};

use crate::manifest::straight::tag_alias;

/// A way out of a state. Transitions are tried from top to bottom; the first whose condition holds is taken.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = without_condition)]
pub struct Transition {
    /// The state it leads to.
    #[schemars(length(min = 1))]
    pub target: String,
    /// A template that the next state reads as `state.feedback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
    #[serde(flatten)]
    pub condition: Condition,
}

/// When a transition is taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "condition", rename_all = "snake_case")]
#[schemars(
    transform = tag_alias("condition", "approved", "input_equals_yes"),
    transform = tag_alias("condition", "rejected", "input_equals_no")
)]
pub enum Condition {
    /// In any case.
    Always,
    /// The state succeeded.
    OnSuccess,
    /// The state did not succeed.
    OnFailure,
    ExitCodeZero,
    ExitCodeNonZero,
    /// The exit code is `value`.
    ExitCode {
        /// The exit code.
        value: i64,
    },
    /// The score is greater than `threshold`. Equal is not enough.
    ScoreAbove {
        /// From 0 to 1.
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
    },
    /// The score is less than `threshold`.
    ScoreBelow {
        /// From 0 to 1.
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
    },
    /// The score lies between `min` and `max`, both included.
    ScoreBetween {
        /// The least score.
        #[schemars(range(min = 0.0, max = 1.0))]
        min: f64,
        /// The greatest score.
        #[schemars(range(min = 0.0, max = 1.0))]
        max: f64,
    },
    /// The confidence is greater than `threshold`.
    ConfidenceAbove {
        /// From 0 to 1.
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
    },
    /// Both are greater: than `threshold`, or than `score` and `confidence`.
    ScoreAndConfidenceAbove(ScoreAndConfidence),
    /// The agents' score is at least `threshold` and their agreement at least `agreement`.
    Consensus {
        /// The least score.
        #[schemars(range(min = 0.0, max = 1.0))]
        threshold: f64,
        /// The least agreement.
        #[schemars(range(min = 0.0, max = 1.0))]
        agreement: f64,
    },
    /// Every agent scored at least the consensus threshold.
    AllApproved,
    /// Some agent scored less than the consensus threshold.
    AnyRejected,
    /// The answer is `value`, but for white space around it.
    InputEquals {
        /// The answer.
        value: String,
    },
    /// The answer is yes, approve, approved or true.
    #[serde(alias = "approved")]
    InputEqualsYes,
    /// The answer is no, reject, rejected or false.
    #[serde(alias = "rejected")]
    InputEqualsNo,
    /// The expression is true.
    Custom {
        /// Paths, literals, arithmetic, comparisons, `&&`, `||`, `!` and parentheses; braces around it may stay.
        #[schemars(length(min = 1))]
        expression: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("oneOf" = [{"required": ["threshold"]}, {"required": ["score", "confidence"]}]))]
pub struct ScoreAndConfidence {
    /// For both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: Option<f64>,
    /// For the score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub score: Option<f64>,
    /// For the confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub confidence: Option<f64>,
}

impl ScoreAndConfidence {
    /// The bound for the score. What is not written can't be exceeded.
    pub fn score(&self) -> f64 {
        self.score.or(self.threshold).unwrap_or(1.0)
    }

    /// The bound for the confidence. What is not written can't be exceeded.
    pub fn confidence(&self) -> f64 {
        self.confidence.or(self.threshold).unwrap_or(1.0)
    }
}

/// A transition may leave its condition out, which serde's tagged enums can't.
impl<'de> Deserialize<'de> for Transition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            target: String,
            #[serde(default)]
            feedback: Option<String>,
            #[serde(flatten)]
            condition: Condition,
        }
        let mut members = Map::<String, Value>::deserialize(deserializer)?;
        members.entry("condition").or_insert_with(|| "always".into());
        let Written { target, feedback, condition } =
            serde_json::from_value(Value::Object(members)).map_err(D::Error::custom)?;
        Ok(Self { target, feedback, condition })
    }
}

fn without_condition(schema: &mut Schema) {
    if let Some(Value::Array(branches)) = schema.get_mut("oneOf") {
        branches.push(
            json!({"type": "object", "description": "Without a condition: in any case.", "properties": {}}),
        );
    }
}
