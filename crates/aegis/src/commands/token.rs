use anyhow::Context;
use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    cli::{Acting, Global, Token},
    client::{Answer, Client},
    locate,
    output::{self, Ending, json_line, say, table},
};

pub(super) async fn run(global: &Global, command: &Token) -> anyhow::Result<Ending> {
    super::log("error");
    let client = client(global)?;
    match command {
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
                table(["ID", "USER", "TENANT", "TIER", "CONTEXT", "STATE", "NOTE"], &rows);
            })
        }
        Token::Revoke { id } => {
            finish(global, client.delete(&format!("/v1/tokens/{}", urlencoded(id))).await?, |token| {
                say!("{} is revoked", text(&token["id"]));
            })
        }
    }
}

/// Tokens are the running node's business: it has them in memory and must hear of a revocation at once.
fn client(global: &Global) -> anyhow::Result<Client> {
    let data = locate::data_dir(global)?;
    let running = locate::running(&data).with_context(|| {
        format!(
            "no node runs on {}; tokens are made and revoked by a running one: start it with `aegis up`",
            data.display()
        )
    })?;
    locate::client(&data, &running, &Acting::default())
}

fn finish(global: &Global, answer: Answer, show: impl FnOnce(&Value)) -> anyhow::Result<Ending> {
    match answer {
        Answer::Ok(value) if global.json => json_line(&value),
        Answer::Ok(value) => show(&value),
        Answer::ToolFailed(_) => return Ok(Ending::Failed),
        Answer::Refused(violation) => return Ok(output::refusal(&violation, global.json)),
    }
    Ok(Ending::Done)
}

fn row(token: &Value) -> [String; 7] {
    let state = match (token["revoked"].as_str(), token["expires"].as_str()) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => "no end".to_owned(),
    };
    let [id, user, tenant, tier, context] =
        ["id", "user", "tenant", "tier", "context"].map(|member| text(&token[member]));
    [id, user, tenant, tier, context, state, text(&token["note"])]
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
