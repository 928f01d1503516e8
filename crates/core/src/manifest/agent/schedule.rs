use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When an agent runs by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Schedule {
    /// At the times of a cron expression.
    Cron {
        /// Five fields (minute, hour, day, month, weekday), six with seconds before them, or a name such as @daily.
        #[schemars(
            regex(pattern = r"^\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+(\s+\S+){4,5})\s*$"),
            extend("patternErrorMessage" = "write five fields such as 0 6 * * *, or @daily")
        )]
        cron: String,
        /// An IANA name such as Europe/Berlin.
        #[serde(default = "utc")]
        #[schemars(length(min = 1))]
        timezone: String,
        /// Turned off, it keeps the schedule without following it.
        #[serde(default = "yes")]
        enabled: bool,
    },
    /// Again and again.
    Interval {
        /// From one start to the next.
        #[schemars(range(min = 1, max = 31_536_000))]
        seconds: u64,
        /// Turned off, it keeps the schedule without following it.
        #[serde(default = "yes")]
        enabled: bool,
    },
    /// Only when someone asks.
    Manual,
}

fn yes() -> bool {
    true
}

fn utc() -> String {
    "UTC".to_owned()
}
