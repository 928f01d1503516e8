//! Validators of an agent's work: a list, or the older object form, which means a list too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::{
    ConsensusStrategy, EmbeddedSchema, Findings, SemanticJudge,
    judge::{judge_seconds, judged_score, one, one_judge},
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Validation {
    /// Validators in order; the first that fails decides.
    List(Vec<Validator>),
    /// The older form. Its parts are checked in the order system, output, script, semantic.
    Rules(Box<ValidationRules>),
}

/// One check of an agent's work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Validator {
    /// The exit code of the agent's process.
    ExitCode {
        /// The code that passes.
        #[serde(default)]
        expected: i32,
        /// The least score that passes; a match scores 1, all else 0.
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_score: f64,
    },
    /// The output, without code fences, against a JSON Schema: `schema`, or `schema_path` and `target_path`.
    #[schemars(extend("anyOf" = [{"required": ["schema"]}, {"required": ["schema_path", "target_path"]}]))]
    JsonSchema {
        /// The schema itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<EmbeddedSchema>,
        /// A file with the schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema_path: Option<String>,
        /// The file to check.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target_path: Option<String>,
        /// The least score that passes; a match scores 1, all else 0.
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_score: f64,
    },
    /// A regular expression that must be found.
    Regex {
        /// The expression.
        #[schemars(length(min = 1))]
        pattern: String,
        /// `stdout`, `stderr` or the absolute path of a file.
        #[serde(default = "stdout")]
        #[schemars(regex(pattern = r"^(stdout|stderr|/.*)$"), extend("patternErrorMessage" = "write stdout, stderr or an absolute path"))]
        target: String,
        /// The least score that passes; a match scores 1, all else 0.
        #[serde(default = "one")]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_score: f64,
    },
    /// Another agent judges.
    Semantic(SemanticJudge),
    /// Several agents judge.
    MultiJudge {
        /// The judges.
        #[schemars(length(min = 1, max = 20))]
        judges: Vec<JudgeWeight>,
        #[serde(default)]
        consensus: ConsensusStrategy,
        /// How many of them must have answered.
        #[serde(default = "one_judge")]
        #[schemars(range(min = 1, max = 20))]
        min_judges_required: u32,
        /// The rubric, for a model to read.
        #[schemars(length(min = 1))]
        criteria: String,
        /// The least score that passes.
        #[serde(default = "judged_score")]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_score: f64,
        /// The least confidence that passes.
        #[serde(default)]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_confidence: f64,
        /// How long the judges may take, in seconds.
        #[serde(default = "judge_seconds")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: u64,
        /// The least confidence in their agreement.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 0.0, max = 1.0))]
        min_agreement_confidence: Option<f64>,
    },
    /// Nothing stands on stderr. Written in the object form only.
    #[serde(skip_deserializing)]
    NoStderr,
    /// The output has a format. Written in the object form only.
    #[serde(skip_deserializing)]
    Format { format: OutputFormat },
    /// A script in the agent's container exits with 0. Written in the object form only.
    #[serde(skip_deserializing)]
    Script(ScriptRules),
    /// A model judges directly, without an agent. Written in the object form only.
    #[serde(skip_deserializing)]
    Model(SemanticRules),
}

/// A judge of several: its name, or its name and how much it counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum JudgeWeight {
    Name(String),
    Weighted {
        /// Name of the deployed judge agent.
        #[schemars(length(min = 1))]
        agent: String,
        /// How much it counts.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        weight: f64,
    },
}

impl JudgeWeight {
    pub fn agent(&self) -> &str {
        match self {
            Self::Name(agent) | Self::Weighted { agent, .. } => agent,
        }
    }

    pub fn weight(&self) -> f64 {
        match self {
            Self::Name(_) => 1.0,
            Self::Weighted { weight, .. } => *weight,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValidationRules {
    /// How the agent's process ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemRules>,
    /// What the output must look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputRules>,
    /// A script that looks at the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptRules>,
    /// A model that judges directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic: Option<SemanticRules>,
}

/// How the agent's process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SystemRules {
    /// Whether the exit code must be 0.
    #[serde(default = "yes")]
    pub must_succeed: bool,
    /// Whether something on stderr is no failure.
    #[serde(default)]
    pub allow_stderr: bool,
    /// How long the process may take, in seconds.
    #[serde(default = "ninety")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u64,
}

/// What the output must look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputRules {
    /// What the output must be readable as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<OutputFormat>,
    /// A JSON Schema that it must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<EmbeddedSchema>,
    /// A regular expression that must be found in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regex: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFormat {
    Json,
    Yaml,
    Text,
    Csv,
    Pdf,
}

/// A script that looks at the work; exit code 0 passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScriptRules {
    /// Where it lies, in the agent's container.
    #[schemars(length(min = 1))]
    pub path: String,
    /// What it looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How long it may take, in seconds.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u64,
}

/// A model that judges directly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SemanticRules {
    /// Turned off, nothing is judged.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Which model; the agent's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What it is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The least score that passes.
    #[serde(default = "threshold")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub threshold: f64,
    /// How long it may take, in seconds.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u64,
    /// What a model that can't be reached means.
    #[serde(default)]
    pub fallback_on_unavailable: OnUnavailable,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnUnavailable {
    Skip,
    #[default]
    Fail,
}

impl Validation {
    /// The validators in the order they are asked.
    pub fn lower(&self) -> Vec<Validator> {
        match self {
            Self::List(validators) => validators.clone(),
            Self::Rules(rules) => rules.lower(),
        }
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        match self {
            Self::List(validators) => {
                for (index, validator) in validators.iter().enumerate() {
                    validator.check(&format!("{at}/{index}"), findings);
                }
            }
            Self::Rules(rules) => {
                if let Some(output) = &rules.output {
                    if let Some(schema) = &output.schema {
                        schema.check(&format!("{at}/output/schema"), findings);
                    }
                    if let Some(pattern) = &output.regex {
                        check_regex(pattern, format!("{at}/output/regex"), findings);
                    }
                }
            }
        }
    }
}

impl ValidationRules {
    fn lower(&self) -> Vec<Validator> {
        let mut validators = Vec::new();
        if let Some(system) = &self.system {
            if system.must_succeed {
                validators.push(Validator::ExitCode { expected: 0, min_score: 1.0 });
            }
            if !system.allow_stderr {
                validators.push(Validator::NoStderr);
            }
        }
        if let Some(output) = &self.output {
            validators.extend(output.format.map(|format| Validator::Format { format }));
            validators.extend(output.schema.clone().map(|schema| Validator::JsonSchema {
                schema: Some(schema),
                schema_path: None,
                target_path: None,
                min_score: 1.0,
            }));
            validators.extend(output.regex.clone().map(|pattern| Validator::Regex {
                pattern,
                target: stdout(),
                min_score: 1.0,
            }));
        }
        validators.extend(self.script.clone().map(Validator::Script));
        validators.extend(self.semantic.clone().filter(|semantic| semantic.enabled).map(Validator::Model));
        validators
    }
}

impl Validator {
    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        match self {
            Self::JsonSchema { schema, schema_path, .. } => {
                if schema.is_some() && schema_path.is_some() {
                    findings.error(at, "`schema` and `schema_path` exclude each other");
                }
                if let Some(schema) = schema {
                    schema.check(&format!("{at}/schema"), findings);
                }
            }
            Self::Regex { pattern, .. } => check_regex(pattern, format!("{at}/pattern"), findings),
            Self::MultiJudge { judges, min_judges_required, .. }
                if usize::try_from(*min_judges_required).is_ok_and(|needed| needed > judges.len()) =>
            {
                findings.error(
                    format!("{at}/min_judges_required"),
                    format!("asks for {min_judges_required} of {} judges", judges.len()),
                );
            }
            _ => {}
        }
    }
}

fn check_regex(pattern: &str, at: String, findings: &mut Findings) {
    if let Err(error) = regex::RegexBuilder::new(pattern).size_limit(1 << 20).build() {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        findings.error(at, format!("this is no regular expression: {reason}"));
    }
}

fn yes() -> bool {
    true
}

fn stdout() -> String {
    "stdout".to_owned()
}

fn ninety() -> u64 {
    90
}

fn half_a_minute() -> u64 {
    30
}

fn threshold() -> f64 {
    0.8
}
