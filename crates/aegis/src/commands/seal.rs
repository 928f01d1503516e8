use std::time::Duration;

use aegis_core::{Violation, ViolationKind};
use aegis_seal_client::{Client as SealClient, Error, Refused};
use anyhow::bail;
use serde_json::{Map, Value, json};

use super::call::urlencoded;
use crate::{
    cli::{Acting, Global, Seal},
    client::{Answer, Client},
    locate,
    output::{Ending, finish, say, table_or, text},
};

/// For calls: the node's own limit ends them much earlier.
const PATIENT: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn run(global: &Global, command: &Seal) -> anyhow::Result<Ending> {
    super::log("error");
    let client = client(global)?;
    Ok(match command {
        Seal::Enroll { contexts, tier, tenant, user, ttl, uses, key, note } => {
            let mut wanted = json!({"contexts": contexts, "tier": tier, "ttl_seconds": ttl.as_secs().max(1)});
            for (member, value) in [("tenant", tenant), ("user", user), ("key", key), ("note", note)] {
                if let Some(value) = value {
                    wanted[member] = value.as_str().into();
                }
            }
            if let Some(uses) = uses {
                wanted["uses"] = (*uses).into();
            }
            finish(global, client.post("/v1/seal/enrolments", &wanted).await?, |made| {
                say!("{}", text(&made["workload_id"]));
                eprintln!(
                    "{}: the workload id for {} of tenant {} in {}, until {}; it is not shown again",
                    text(&made["id"]),
                    text(&made["user"]),
                    text(&made["tenant"]),
                    words(&made["contexts"]),
                    text(&made["expires"])
                );
            })
        }
        Seal::Enrolments { limit } => {
            finish(global, client.get(&format!("/v1/seal/enrolments?limit={limit}")).await?, |found| {
                let rows: Vec<[String; 8]> =
                    found["enrolments"].as_array().into_iter().flatten().map(enrolment).collect();
                let headings = ["ID", "USER", "TENANT", "TIER", "CONTEXTS", "USES", "STATE", "NOTE"];
                let nothing = "no workloads; enrol one with `aegis seal enroll --context workspace`";
                table_or(headings, &rows, nothing);
            })
        }
        Seal::Revoke { id } => {
            let path = format!("/v1/seal/enrolments/{}", urlencoded(id));
            finish(global, client.delete(&path).await?, |enrolment| {
                say!("{} is revoked, and its sessions are over", text(&enrolment["id"]));
            })
        }
        Seal::Sessions { limit, tenant } => {
            let mut path = format!("/v1/seal/sessions?limit={limit}");
            if let Some(tenant) = tenant {
                path += &format!("&tenant={}", urlencoded(tenant));
            }
            finish(global, client.get(&path).await?, |found| {
                let rows: Vec<[String; 6]> =
                    found["sessions"].as_array().into_iter().flatten().map(session).collect();
                let nothing =
                    "no sessions; an enrolled workload opens one when it attests (`aegis seal enrolments`)";
                table_or(["ID", "USER", "TENANT", "TIER", "CONTEXT", "STATE"], &rows, nothing);
            })
        }
        Seal::End { id, reason } => {
            let mut path = format!("/v1/seal/sessions/{}", urlencoded(id));
            if let Some(reason) = reason {
                path += &format!("?reason={}", urlencoded(reason));
            }
            finish(global, client.delete(&path).await?, |session| {
                say!("{} is over", text(&session["id"]));
            })
        }
        Seal::RotateKeys => finish(global, client.post("/v1/seal/rotate-keys", &json!({})).await?, |made| {
            say!("{}", text(&made["key"]));
            eprintln!("signs new tokens from now on; those that are out stay good until they expire");
        }),
    })
}

/// Enrolments and sessions are the running node's business: it has them in memory and must hear of a change at once.
fn client(global: &Global) -> anyhow::Result<Client> {
    locate::client_of_running(global, &Acting::default(), "workloads attest to a running one")
}

fn enrolment(row: &Value) -> [String; 8] {
    let [id, user, tenant, tier] = ["id", "user", "tenant", "tier"].map(|member| text(&row[member]));
    let uses = match row["uses_left"].as_u64() {
        Some(left) => format!("{} ({left} left)", row["attested"]),
        None => row["attested"].to_string(),
    };
    [id, user, tenant, tier, words(&row["contexts"]), uses, state(row), text(&row["note"])]
}

fn session(row: &Value) -> [String; 6] {
    let [id, user, tenant, tier, context] =
        ["id", "user", "tenant", "tier", "context"].map(|member| text(&row[member]));
    [id, user, tenant, tier, context, state(row)]
}

fn state(row: &Value) -> String {
    match (row["revoked"].as_str(), row["expires"].as_str()) {
        (Some(at), _) => format!("revoked {at}"),
        (None, Some(at)) => format!("until {at}"),
        (None, None) => "no end".to_owned(),
    }
}

fn words(list: &Value) -> String {
    list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ")
}

/// A call in a signed envelope, as an agent would make it: a key for this one call, a session, the call.
pub(super) async fn call(
    global: &Global,
    workload: &str,
    context: Option<&str>,
    tool: &str,
    arguments: &Map<String, Value>,
) -> anyhow::Result<Answer> {
    let data = locate::data_dir(global)?;
    let Some(running) = locate::running(&data) else {
        bail!(
            "no node runs on {}; workloads attest to a running one: start it with `aegis up`",
            data.display()
        );
    };
    let url = format!("http://{}", running.address);
    let client = SealClient::new(&url, workload, context.unwrap_or_default())?.patience(PATIENT);
    match client.call(tool, arguments).await {
        Ok(answer) => {
            let failed = answer.is_error();
            let value = json!({
                "call": answer.call,
                "is_error": failed,
                "result": answer.result,
                "label": answer.label,
            });
            Ok(if failed { Answer::ToolFailed(value) } else { Answer::Ok(value) })
        }
        Err(Error::Refused(refused)) => Ok(Answer::Refused(violation(*refused))),
        Err(error) => Err(error.into()),
    }
}

fn violation(refused: Refused) -> Violation {
    let kind = refused
        .violation
        .and_then(|name| serde_json::from_value(name.into()).ok())
        .unwrap_or(ViolationKind::InternalError);
    Violation {
        kind,
        message: refused.message,
        rule: refused.rule,
        hint: refused.hint,
        retry_after_seconds: refused.retry_after_seconds,
    }
}
