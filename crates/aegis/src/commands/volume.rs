use aegis_core::quantity::Size;
use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    backend::Backend,
    cli::{Acting, Global, Volume},
    client::{Answer, Client},
    locate,
    output::{Ending, finish, json_line, say, table, text},
};

pub(super) async fn run(global: &Global, command: &Volume) -> anyhow::Result<Ending> {
    super::log("error");
    Ok(match command {
        Volume::List { tenant, limit } => {
            let backend = Backend::open(global).await?;
            let ended = list(global, &backend, tenant.as_deref(), *limit).await;
            backend.close().await;
            return ended;
        }
        Volume::Export { context, volume, tenant, user, ttl } => {
            let mut wanted = json!({"context": context, "ttl_seconds": ttl.as_secs().max(1)});
            for (member, value) in [("volume", volume), ("tenant", tenant), ("user", user)] {
                if let Some(value) = value {
                    wanted[member] = value.as_str().into();
                }
            }
            finish(global, client(global)?.post("/v1/volumes/exports", &wanted).await?, |made| {
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
        Volume::Unexport { id } => {
            let path = format!("/v1/volumes/exports/{}", urlencoded(id));
            finish(global, client(global)?.delete(&path).await?, |ended| {
                say!("{} has ended", text(&ended["id"]));
            })
        }
    })
}

/// Exports live in the process that answers for them.
fn client(global: &Global) -> anyhow::Result<Client> {
    locate::client_of_running(global, &Acting::default(), "volumes are exported by a running one")
}

async fn list(
    global: &Global,
    backend: &Backend,
    tenant: Option<&str>,
    limit: usize,
) -> anyhow::Result<Ending> {
    let mut page = format!("?limit={limit}");
    if let Some(tenant) = tenant {
        page += &format!("&tenant={}", urlencoded(tenant));
    }
    let volumes = match backend.get(&format!("/v1/volumes{page}")).await? {
        Answer::Ok(found) => found,
        refused => return Ok(finish(global, refused, |_| {})),
    };
    let exports = match backend.get(&format!("/v1/volumes/exports{page}")).await? {
        Answer::Ok(found) => found,
        refused => return Ok(finish(global, refused, |_| {})),
    };
    if global.json {
        json_line(&json!({
            "tenant": volumes["tenant"],
            "total": volumes["total"],
            "volumes": volumes["volumes"],
            "nfs": volumes["nfs"],
            "exports_total": exports["total"],
            "exports": exports["exports"],
        }));
        return Ok(Ending::Done);
    }
    let rows = |found: &Value, member: &str| found[member].as_array().cloned().unwrap_or_default();
    let found = rows(&volumes, "volumes");
    let shown: Vec<[String; 5]> = found.iter().map(volume).collect();
    table(["VOLUME", "MOUNTED AT", "ACCESS", "AT MOST", "IN USE"], &shown);
    for row in found.iter().filter(|row| row["unread_directories"].as_u64().unwrap_or(0) > 0) {
        eprintln!("warning: {}", uncounted(row));
    }
    let shown: Vec<[String; 7]> = rows(&exports, "exports").iter().map(export).collect();
    if shown.is_empty() && volumes["nfs"] == false {
        say!("\nnothing is exported; spec.storage.nfs.enabled lets volumes be exported over NFS");
    } else if shown.is_empty() {
        say!("\nnothing is exported; `aegis volume export --context workspace` exports a volume over NFS");
    } else {
        say!();
        table(["EXPORT", "VOLUME", "TENANT", "USER", "CONTEXT", "UNTIL", "REQUESTS"], &shown);
    }
    Ok(Ending::Done)
}

/// What the use of a volume leaves out.
pub(super) fn uncounted(row: &Value) -> String {
    format!(
        "volume `{}`: {} of its directories can't be looked into, so what is in there is not counted as in use",
        text(&row["id"]),
        row["unread_directories"]
    )
}

fn volume(row: &Value) -> [String; 5] {
    let [id, mount_path, access] = ["id", "mount_path", "access_mode"].map(|member| text(&row[member]));
    let limit =
        row["size_limit"].as_u64().map_or_else(|| "no limit".to_owned(), |size| Size(size).to_string());
    // Whole kibibytes are enough to see how full it is.
    let used = row["used"].as_u64().map(|used| Size(used.div_ceil(1024).saturating_mul(1024)).to_string());
    [id, mount_path, access, limit, used.unwrap_or_else(|| "not counted".to_owned())]
}

fn export(row: &Value) -> [String; 7] {
    let [id, volume, tenant, user, context, expires] =
        ["id", "volume", "tenant", "user", "context", "expires"].map(|member| text(&row[member]));
    [id, volume, tenant, user, context, expires, row["requests"].to_string()]
}
