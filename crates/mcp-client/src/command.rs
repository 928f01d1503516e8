use std::path::PathBuf;

use crate::handshake::Preference;

/// A program that speaks MCP on its standard input and output.
#[derive(Clone, derive_more::Debug)]
pub struct Command {
    pub program: String,
    pub args: Vec<String>,
    /// The whole environment: nothing is inherited. Values may be secret.
    #[debug("{:?}", environment.iter().map(|(name, _)| name).collect::<Vec<_>>())]
    pub environment: Vec<(String, String)>,
    pub directory: Option<PathBuf>,
    pub preference: Preference,
}
