//! A call that waits, at the terminal it was made from: say what to do, wait, or ask the person there, who may be an
//! approver although the call was made as somebody else.

use std::io::{BufRead, IsTerminal, Write};

use aegis_core::{Approval, Timestamp};
use serde_json::json;

use super::{approve, exactly, find, page, reject, waiting};
use crate::{
    cli::{self, Acting, Global},
    client::{Answer, Client},
    locate,
    output::{self, Ending, harmless, json_line},
};

/// What the person at the terminal wants.
#[derive(Debug, PartialEq, Eq)]
enum Wish {
    Approve,
    Always,
    Reject(String),
    Later,
}

/// Goes on from a call that was answered with a request for approval.
pub(crate) async fn go_on(
    global: &Global,
    command: &cli::Call,
    id: &str,
    answer: &Answer,
) -> anyhow::Result<Ending> {
    let data = locate::data_dir(global)?;
    let Some(running) = locate::running(&data) else { return Ok(unreachable_approver(global, answer)) };
    // A signed call has no token that could look at its request; the person at this machine has the operator's.
    let acting = if command.seal { Acting::default() } else { command.acting.clone() };
    let requester = locate::client(&data, &running, &acting);
    let operator = locate::client(&data, &running, &Acting::default()).ok();
    let other = command.seal
        || operator
            .as_ref()
            .zip(command.acting.token.as_deref())
            .is_some_and(|(operator, token)| operator.token.expose() != token.trim());
    if let Some(operator) = operator.filter(|_| other && at_a_terminal(global))
        && let Ok(approval) = find(&operator, id).await?
    {
        eprint!("{}", page::render(&approval, Timestamp::now(), std::env::var_os("NO_COLOR").is_none()));
        eprintln!();
        let wish = tokio::task::spawn_blocking(|| ask(&mut std::io::stdin().lock())).await?;
        let decided = carry_out(&operator, &approval, &wish).await?;
        match decided {
            Some(Answer::Refused(violation)) => return Ok(output::refusal(&violation, global.json)),
            Some(_) => return conclude(global, &requester?, id).await,
            None => {}
        }
    }
    if command.wait {
        if !global.json {
            eprintln!("waiting for an approver to decide about {id}");
        }
        return conclude(global, &requester?, id).await;
    }
    if global.json {
        if let Answer::Ok(value) = answer {
            json_line(value);
        }
    } else {
        let own = match requester {
            Ok(requester) if !command.seal => find(&requester, id).await?.ok(),
            _ => None,
        };
        let id = harmless(id);
        eprintln!("waiting for approval ({id}): nothing has run");
        if own.is_some_and(|own| own.way_out().is_some()) {
            eprintln!("  you asked as the operator, and whoever asks can't approve");
            eprintln!("  next: another approver looks and decides: aegis approvals show {id}");
            eprintln!("        or take it back: aegis approvals cancel {id}");
            eprintln!(
                "        and make the call as an agent, which you may approve: aegis call --context NAME …"
            );
        } else {
            eprintln!("  next: an approver looks and decides: aegis approvals show {id}");
        }
        eprintln!("        the result: aegis approvals wait {id}, or the same call again");
    }
    Ok(Ending::Waiting)
}

async fn conclude(global: &Global, client: &Client, id: &str) -> anyhow::Result<Ending> {
    match waiting::settled(client, id, None, waiting::ears(global)).await? {
        Ok(approval) => waiting::conclude(global, &approval),
        Err(violation) => Ok(output::refusal(&violation, global.json)),
    }
}

/// Nobody can decide at a node that lives for one command.
fn unreachable_approver(global: &Global, answer: &Answer) -> Ending {
    if global.json {
        if let Answer::Ok(value) = answer {
            json_line(value);
        }
    } else {
        eprintln!(
            "this call needs an approver, and only a running node can be reached by one; it was taken back"
        );
        eprintln!("  next: start a node with `aegis up`, then make the call again");
    }
    // Nothing waits: it is the missing node that stands in the way.
    Ending::Failed
}

fn at_a_terminal(global: &Global) -> bool {
    !global.json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks until there is an answer; the end of the input is one.
fn ask(input: &mut impl BufRead) -> Wish {
    loop {
        eprint!("approve, reject, always (8 h, exactly this call) or later? [later] ");
        let Some(said) = line(input) else { return Wish::Later };
        match said.as_str() {
            "approve" | "a" | "yes" | "y" => return Wish::Approve,
            "always" => return Wish::Always,
            "" | "later" | "l" => return Wish::Later,
            "reject" | "r" | "no" | "n" => {
                eprint!("what should it do instead? ");
                match line(input) {
                    Some(reason) if !reason.is_empty() => return Wish::Reject(reason),
                    _ => eprintln!("a reason is needed: the model receives it"),
                }
            }
            other => eprintln!("`{}` is none of them", harmless(other)),
        }
    }
}

fn line(input: &mut impl BufRead) -> Option<String> {
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(1..) => Some(line.trim().to_owned()),
        _ => None,
    }
}

/// `None` when nothing was to be decided.
async fn carry_out(operator: &Client, approval: &Approval, wish: &Wish) -> anyhow::Result<Option<Answer>> {
    let id = approval.id.as_str();
    Ok(match wish {
        Wish::Later => None,
        Wish::Approve => Some(approve(operator, id).await?),
        Wish::Reject(reason) => Some(reject(operator, id, reason).await?),
        Wish::Always => {
            let mut row = exactly(approval);
            row["note"] = json!(format!("from the terminal, for {id}"));
            match operator.post("/v1/approvals/always", &row).await? {
                Answer::Ok(_) => Some(approve(operator, id).await?),
                refused => Some(refused),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Wish {
        ask(&mut text.as_bytes())
    }

    #[test]
    fn nothing_is_decided_by_mistake() {
        for text in ["", "\n", "later\n", "what?\nl\n", "approv\n", "reject\n\n", "reject\n"] {
            assert_eq!(said(text), Wish::Later, "{text:?}");
        }
    }

    #[test]
    fn each_wish_has_its_word() {
        assert_eq!(said("approve\n"), Wish::Approve);
        assert_eq!(said(" always \n"), Wish::Always);
        assert_eq!(said("hm\nreject\n\nreject\nuse drafts\n"), Wish::Reject("use drafts".to_owned()));
    }
}
