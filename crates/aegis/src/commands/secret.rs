use std::{
    io::{IsTerminal, Read, Write},
    path::Path,
};

use aegis_core::{Secret, quantity::counted, secret::SHORTEST_REDACTED};
use anyhow::Context as _;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    backend::Backend,
    cli::{self, Global},
    client::Answer,
    output::{Ending, finish, say, table_or, text},
};

/// Larger than any secret that is stored.
const LARGEST_INPUT: u64 = 1 << 20;

pub(super) async fn run(global: &Global, command: &cli::Secret) -> anyhow::Result<Ending> {
    super::log("error");
    // Read before anything is opened: a person may take a while.
    let value = match command {
        cli::Secret::Set(value) | cli::Secret::Rotate(value) => Some(read_value(value).await?),
        _ => None,
    };
    let backend = Backend::open(global).await?;
    let answer = match command {
        cli::Secret::Set(wanted) => {
            let mut body = body(wanted, value.as_ref());
            body["name"] = wanted.name.as_str().into();
            backend.post("/v1/secrets", &body).await
        }
        cli::Secret::Rotate(wanted) => {
            backend.put(&address(&wanted.name, None), &body(wanted, value.as_ref())).await
        }
        cli::Secret::List { limit, tenant } => {
            let tenant =
                tenant.as_ref().map(|name| format!("&tenant={}", urlencoded(name))).unwrap_or_default();
            backend.get(&format!("/v1/secrets?limit={limit}{tenant}")).await
        }
        cli::Secret::Delete { name, tenant } => backend.delete(&address(name, tenant.as_deref())).await,
        cli::Secret::RenewKey => backend.post("/v1/secret-keys/renew", &json!({})).await,
    };
    let stored = matches!(answer, Ok(Answer::Ok(_)));
    let ended = answer.map(|answer| finish(global, answer, |found| show(command, found)));
    if let Some(value) = value.filter(|value| stored && value.expose().len() < SHORTEST_REDACTED) {
        eprintln!(
            "warning: {} bytes are too few to be told from ordinary words, so the value is not taken out of what servers \
             answer and of logs; {SHORTEST_REDACTED} and more are",
            value.expose().len()
        );
    }
    backend.close().await;
    ended
}

fn show(command: &cli::Secret, found: &Value) {
    let name = text(&found["name"]);
    let list = |member: &str| -> String {
        let names: Vec<String> = found[member].as_array().into_iter().flatten().map(text).collect();
        names.join(", ")
    };
    match command {
        cli::Secret::Set(_) => {
            say!("{name} is stored; refer to it as secret:{name}");
        }
        cli::Secret::Rotate(_) => {
            say!("{name} has a new value (version {}); the old one is gone", found["version"]);
        }
        cli::Secret::Delete { .. } => {
            say!("{name} is deleted");
            if !list("used_by").is_empty() {
                say!("these servers refer to it and will not start without it: {}", list("used_by"));
            }
        }
        cli::Secret::RenewKey => {
            say!("sealed with a new key: {}", counted(found["sealed_anew"].as_u64().unwrap_or(0), "secret"));
        }
        cli::Secret::List { .. } => {
            let rows: Vec<[String; 6]> = found["secrets"].as_array().into_iter().flatten().map(row).collect();
            let nothing = "no secrets; store one with `aegis secret set NAME`";
            table_or(["NAME", "TENANT", "VERSION", "SET", "UNTIL", "USED BY"], &rows, nothing);
        }
    }
    if !list("restarted").is_empty() {
        say!("started anew with it: {}", list("restarted"));
    }
}

fn row(secret: &Value) -> [String; 6] {
    let used_by: Vec<String> = secret["used_by"].as_array().into_iter().flatten().map(text).collect();
    let until = secret["expires"].as_str().map_or_else(|| "no end".to_owned(), str::to_owned);
    [
        text(&secret["name"]),
        text(&secret["tenant"]),
        secret["version"].to_string(),
        format!("{} by {}", text(&secret["created"]), text(&secret["created_by"])),
        until,
        used_by.join(", "),
    ]
}

/// The slashes of a name are slashes of the address.
pub(super) fn address(name: &str, tenant: Option<&str>) -> String {
    let parts: Vec<String> = name.split('/').map(urlencoded).collect();
    let tenant = tenant.map(|tenant| format!("?tenant={}", urlencoded(tenant))).unwrap_or_default();
    format!("/v1/secrets/{}{tenant}", parts.join("/"))
}

fn body(wanted: &cli::Value, value: Option<&Secret>) -> Value {
    let mut body = json!({"value": value.map(Secret::expose).unwrap_or_default()});
    if let Some(tenant) = &wanted.tenant {
        body["tenant"] = tenant.as_str().into();
    }
    if let Some(ttl) = wanted.ttl {
        body["ttl_seconds"] = ttl.as_secs().max(1).into();
    }
    body
}

async fn read_value(wanted: &cli::Value) -> anyhow::Result<Secret> {
    if let Some(file) = &wanted.from_file {
        return from_file(file);
    }
    if !std::io::stdin().is_terminal() {
        return from_input(std::io::stdin().lock()).context("can't read standard input");
    }
    let name = wanted.name.clone();
    let asked = tokio::task::spawn_blocking(move || ask(&name));
    tokio::select! {
        answered = asked => answered?,
        // The terminal would stay without echo.
        _ = tokio::signal::ctrl_c() => {
            show_typing(true)?;
            eprintln!();
            anyhow::bail!("nothing was stored")
        }
    }
}

fn from_file(file: &Path) -> anyhow::Result<Secret> {
    let opened = std::fs::File::open(file).with_context(|| format!("can't read {}", file.display()))?;
    from_input(opened).with_context(|| format!("can't read {}", file.display()))
}

/// Without the one line break that editors and `echo` put at the end.
fn from_input(input: impl Read) -> anyhow::Result<Secret> {
    let mut value = String::new();
    input.take(LARGEST_INPUT).read_to_string(&mut value).context("the value is no text")?;
    if value.ends_with('\n') {
        value.pop();
        if value.ends_with('\r') {
            value.pop();
        }
    }
    Ok(Secret::new(value))
}

fn ask(name: &str) -> anyhow::Result<Secret> {
    eprint!("value of {name} (not shown): ");
    std::io::stderr().flush()?;
    show_typing(false)?;
    let mut value = String::new();
    let read = std::io::stdin().read_line(&mut value);
    show_typing(true)?;
    eprintln!();
    read?;
    value.truncate(value.trim_end_matches(['\n', '\r']).len());
    Ok(Secret::new(value))
}

fn show_typing(shown: bool) -> anyhow::Result<()> {
    let terminal = std::io::stdin();
    let mut settings = tcgetattr(&terminal)?;
    settings.local_modes.set(LocalModes::ECHO, shown);
    tcsetattr(&terminal, OptionalActions::Flush, &settings)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_break_at_the_end_is_no_part_of_a_value() {
        let value = |text: &str| from_input(text.as_bytes()).unwrap().expose().to_owned();
        assert_eq!(value("abc\n"), "abc");
        assert_eq!(value("abc\r\n"), "abc");
        assert_eq!(value("a\nb\n\n"), "a\nb\n");
        assert!(from_input(&b"\xff"[..]).is_err());
    }
}
