//! Judges and how several of them agree.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Findings, straight::alias};
use crate::document::pointer;

/// How the scores of several agents become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConsensusStrategy {
    /// The mean of the scores by weight.
    #[default]
    WeightedAverage,
    /// What more than half of them say.
    Majority,
    /// All must agree.
    Unanimous,
    /// The mean of the best `n`.
    BestOfN,
}

/// An agent that judges another's work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judge {
    /// Name or id of the judge agent.
    #[schemars(length(min = 1))]
    pub agent_id: String,
    /// What the judge is given; the work itself when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_template: Option<String>,
    /// How much this judge counts.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub weight: f64,
}

/// A judge agent with its rubric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SemanticJudge {
    /// Name of the deployed judge agent.
    #[schemars(length(min = 1))]
    pub judge_agent: String,
    /// The rubric, for a model to read.
    #[schemars(length(min = 1))]
    pub criteria: String,
    /// The least score that passes.
    #[serde(default = "judged_score")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_score: f64,
    /// The least confidence that passes.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_confidence: f64,
    /// How long the judge may take, in seconds; after that it counts as refused.
    #[serde(default = "judge_seconds")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u64,
}

/// How parallel agents come to one score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = alias("agreement", "min_agreement_confidence"))]
pub struct Consensus {
    #[serde(default)]
    pub strategy: ConsensusStrategy,
    /// The score from which an agent counts as having approved.
    #[serde(default = "judged_score")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: f64,
    /// The least confidence in their agreement.
    #[serde(default, alias = "agreement", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_agreement_confidence: Option<f64>,
    /// How many scores `best_of_n` looks at; all when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub n: Option<u32>,
    /// How many agents must have answered.
    #[serde(default = "one_judge")]
    #[schemars(range(min = 1, max = 100))]
    pub min_judges_required: u32,
    #[serde(default)]
    pub confidence_weighting: ConfidenceWeighting,
}

/// What confidence is made of. The two factors add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConfidenceWeighting {
    /// The part of how far the scores agree.
    #[serde(default = "agreement_factor")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub agreement_factor: f64,
    /// The part of how sure the agents say they are.
    #[serde(default = "self_confidence_factor")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub self_confidence_factor: f64,
}

impl Default for ConfidenceWeighting {
    fn default() -> Self {
        Self { agreement_factor: agreement_factor(), self_confidence_factor: self_confidence_factor() }
    }
}

impl Default for Consensus {
    fn default() -> Self {
        Self {
            strategy: ConsensusStrategy::default(),
            threshold: judged_score(),
            min_agreement_confidence: None,
            n: None,
            min_judges_required: 1,
            confidence_weighting: ConfidenceWeighting::default(),
        }
    }
}

impl Consensus {
    pub(super) fn check(&self, at: &str, agents: usize, findings: &mut Findings) {
        let ConfidenceWeighting { agreement_factor, self_confidence_factor } = self.confidence_weighting;
        let sum = agreement_factor + self_confidence_factor;
        if (sum - 1.0).abs() > 0.01 {
            findings.error(
                pointer::below(at, ["confidence_weighting"]),
                format!("`agreement_factor` and `self_confidence_factor` add up to {sum}; make it 1"),
            );
        }
        let too_many = |count: u32| usize::try_from(count).is_ok_and(|count| count > agents);
        if too_many(self.min_judges_required) {
            findings.error(
                pointer::below(at, ["min_judges_required"]),
                format!("asks for {} of {agents} agents", self.min_judges_required),
            );
        }
        if let Some(n) = self.n {
            if too_many(n) {
                findings.error(pointer::below(at, ["n"]), format!("asks for {n} of {agents} agents"));
            }
            if self.strategy != ConsensusStrategy::BestOfN {
                findings.warning(pointer::below(at, ["n"]), "only `best_of_n` looks at `n`");
            }
        }
    }
}

pub(super) fn one() -> f64 {
    1.0
}

pub(super) fn one_judge() -> u32 {
    1
}

pub(super) fn judged_score() -> f64 {
    0.7
}

pub(super) fn judge_seconds() -> u64 {
    300
}

fn agreement_factor() -> f64 {
    0.7
}

fn self_confidence_factor() -> f64 {
    0.3
}
