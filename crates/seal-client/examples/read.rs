//! Reads a file through a node:
//!
//! ```console
//! $ WORKLOAD=$(aegis seal enroll --context workspace --ttl 1h)
//! $ AEGIS_WORKLOAD=$WORKLOAD cargo run -p aegis-seal-client --example read -- http://127.0.0.1:8088 notes.txt
//! ```
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use aegis_seal_client::Client;
use serde_json::{Map, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: read URL PATH, with the workload id in AEGIS_WORKLOAD".into());
    };
    let client = Client::new(&url, &std::env::var("AEGIS_WORKLOAD")?, "workspace")?;
    let answer = client.call("fs.read", &Map::from_iter([("path".to_owned(), json!(path))])).await?;
    if answer.is_error() {
        return Err(answer.result["error"].to_string().into());
    }
    println!("{}", answer.result["content"].as_str().unwrap_or_default());
    Ok(())
}
