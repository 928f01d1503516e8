//! Commands: how a call is split into words, and which commands a rule allows.

pub mod arguments;
pub mod interpreter;
mod line;
mod rules;

pub use arguments::{ArgumentPattern, ArgumentPatterns, ArgumentRules};
pub use line::{BadCommand, CommandLine, LONGEST_ARGUMENT, LONGEST_COMMAND};
pub use rules::{ANY_PROGRAM, Command, CommandRules, Objection, mistake_in};
