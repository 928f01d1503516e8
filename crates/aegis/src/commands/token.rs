use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    cli::{Acting, Global, Token},
    client::Client,
    locate,
    output::{Ending, finish, say, table_or, text},
};

pub(super) async fn run(global: &Global, command: &Token) -> anyhow::Result<Ending> {
    super::log("error");
    let client = client(global)?;
    Ok(match command {
        Token::Create { context, tier, ttl, tenant, user, note } => {
            let mut wanted = json!({"context": context, "tier": tier, "ttl_seconds": ttl.as_secs().max(1)});
            for (member, value) in [("tenant", tenant), ("user", user), ("note", note)] {
                if let Some(value) = value {
                    wanted[member] = value.as_str().into();
                }
            }
            finish(global, client.post("/v1/tokens", &wanted).await?, |made| {
                say!("{}", text(&made["token"]));
                eprintln!(
                    "{} for {} of tenant {} in context {}, until {}; it is not shown again",
                    text(&made["id"]),
                    text(&made["user"]),
                    text(&made["tenant"]),
                    text(&made["context"]),
                    text(&made["expires"])
                );
            })
        }
        Token::List { limit } => {
            finish(global, client.get(&format!("/v1/tokens?limit={limit}")).await?, |found| {
                let rows: Vec<[String; 7]> =
                    found["tokens"].as_array().into_iter().flatten().map(row).collect();
                let nothing = "no tokens; make one with `aegis token create --context workspace`";
                table_or(["ID", "USER", "TENANT", "TIER", "CONTEXT", "STATE", "NOTE"], &rows, nothing);
            })
        }
        Token::Revoke { id } => {
            finish(global, client.delete(&format!("/v1/tokens/{}", urlencoded(id))).await?, |token| {
                say!("{} is revoked", text(&token["id"]));
            })
        }
    })
}

/// Tokens are the running node's business: it has them in memory and must hear of a revocation at once.
fn client(global: &Global) -> anyhow::Result<Client> {
    locate::client_of_running(global, &Acting::default(), "tokens are made and revoked by a running one")
}

fn row(token: &Value) -> [String; 7] {
    let state = match (token["revoked"].as_str(), token["expires"].as_str()) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) if token["state"] == "expired" => format!("expired {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => "no end".to_owned(),
    };
    let [id, user, tenant, tier, context] =
        ["id", "user", "tenant", "tier", "context"].map(|member| text(&token[member]));
    [id, user, tenant, tier, context, state, text(&token["note"])]
}
