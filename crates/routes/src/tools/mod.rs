//! One tool, one file, one line in its group's list.

pub mod aegis;
pub mod assistant;
pub mod cmd;
pub mod fs;
pub mod web;
pub mod zaru;
