//! Files that a server's command names as they are called here, although the server starts elsewhere.

use aegis_core::config::McpServer;
use aegis_routes::upstream;

/// What to say of each, with the path to write instead.
pub(super) async fn remarks(server: &McpServer) -> Vec<String> {
    let server = server.clone();
    let looking = move || {
        let here = std::env::current_dir().unwrap_or_default();
        upstream::misplaced(&server, &here)
    };
    let found = tokio::task::spawn_blocking(looking).await.unwrap_or_default();
    let told = |(word, whole): &(String, std::path::PathBuf)| {
        format!(
            "`{word}` is here, but the server starts in a directory of its own: write {}",
            whole.display()
        )
    };
    found.iter().map(told).collect()
}
