use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    cli::{Acting, Global, Volume},
    client::Client,
    locate,
    output::{Ending, finish, say, table, text},
};

pub(super) async fn run(global: &Global, command: &Volume) -> anyhow::Result<Ending> {
    super::log("error");
    let client = client(global)?;
    match command {
        Volume::Export { context, volume, tenant, user, ttl } => {
            let mut wanted = json!({"context": context, "ttl_seconds": ttl.as_secs().max(1)});
            for (member, value) in [("volume", volume), ("tenant", tenant), ("user", user)] {
                if let Some(value) = value {
                    wanted[member] = value.as_str().into();
                }
            }
            finish(global, client.post("/v1/volumes/exports", &wanted).await?, |made| {
                say!("{}", text(&made["mount_command"]));
                eprintln!(
                    "{}: volume {} of tenant {} in context {}, until {}; for libnfs: {}; whoever knows the path may \
                     mount it, and it is not shown again",
                    text(&made["id"]),
                    text(&made["volume"]),
                    text(&made["tenant"]),
                    text(&made["context"]),
                    text(&made["expires"]),
                    text(&made["url"])
                );
            })
        }
        Volume::List { limit } => {
            let found = client.get(&format!("/v1/volumes/exports?limit={limit}")).await?;
            finish(global, found, |found| {
                let rows: Vec<[String; 7]> =
                    found["exports"].as_array().into_iter().flatten().map(row).collect();
                table(["ID", "VOLUME", "TENANT", "USER", "CONTEXT", "UNTIL", "REQUESTS"], &rows);
            })
        }
        Volume::Unexport { id } => {
            let path = format!("/v1/volumes/exports/{}", urlencoded(id));
            finish(global, client.delete(&path).await?, |ended| say!("{} has ended", text(&ended["id"])))
        }
    }
}

/// Exports live in the process that answers for them.
fn client(global: &Global) -> anyhow::Result<Client> {
    locate::client_of_running(global, &Acting::default(), "volumes are exported by a running one")
}

fn row(export: &Value) -> [String; 7] {
    let [id, volume, tenant, user, context, expires] =
        ["id", "volume", "tenant", "user", "context", "expires"].map(|member| text(&export[member]));
    [id, volume, tenant, user, context, expires, export["requests"].to_string()]
}
