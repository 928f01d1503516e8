//! The binary's parts: the composition root and the command line. Only this crate prints.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the command line talks to people")]

pub mod active_config;
pub mod backend;
pub mod cases;
pub mod cli;
pub mod client;
pub mod commands;
pub mod ending;
pub mod explain;
pub mod heard;
pub mod input;
pub mod known;
pub mod locate;
pub mod node;
pub mod otlp;
pub mod output;
pub mod program;
pub mod reference;
pub mod reload;
pub mod reload_policies;
pub mod signals;
pub mod volumes;
