//! A request as an approver reads it. Everything in it that somebody else wrote is set off, so that no argument can
//! pass for a line of the page.

use std::fmt::Write as _;

use aegis_core::{
    Approval, ApprovalState, Timestamp, TrustClass,
    approval::{ApprovalOutcome, Preview},
};
use serde_json::Value;

use crate::output::harmless;

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The page, with a line's end at its end.
pub(crate) fn render(approval: &Approval, now: Timestamp, coloured: bool) -> String {
    let mut page = Page { text: String::new(), coloured };
    // Writing into a text does not fail.
    let _ = page.write(approval, now);
    page.text
}

/// The commands that decide.
pub(crate) fn commands(approval: &Approval) -> String {
    let id = &approval.id;
    format!(
        "\naegis approvals approve {id}\n\
         aegis approvals reject {id} --reason \"what it should do instead\"\n\
         aegis approvals always {id} --until 8h   # exactly this call, without asking\n"
    )
}

/// How much time there is to decide.
pub(crate) fn left(expires: Timestamp, now: Timestamp) -> String {
    let seconds = expires.millis().saturating_sub(now.millis()) / 1000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        _ if expires <= now => "no time left".to_owned(),
        (0, 0, seconds) => format!("{seconds} s left"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s left"),
        (hours, minutes, _) => format!("{hours} h {minutes} min left"),
    }
}

struct Page {
    text: String,
    coloured: bool,
}

impl Page {
    fn write(&mut self, approval: &Approval, now: Timestamp) -> std::fmt::Result {
        let heading = self.in_colour(BOLD, approval.id.as_str());
        writeln!(self.text, "{heading}  {}\n", standing(approval, now))?;
        let caller = &approval.caller;
        let title = harmless(&approval.title);
        self.line("tool", &format!("{}  ({title})", approval.tool))?;
        if let Some(name) = &approval.asked_as {
            self.line("asked as", &harmless(name))?;
        }
        self.line(
            "caller",
            &format!(
                "{} of tenant {}, tier {}, context {}",
                harmless(caller.user.as_str()),
                harmless(caller.tenant.as_str()),
                caller.tier,
                harmless(caller.context.as_str())
            ),
        )?;
        let session =
            caller.session.as_ref().map_or_else(String::new, |session| format!(", session {session}"));
        self.line("", &harmless(&format!("credential {}{session}", caller.credential)))?;
        for (index, ask) in approval.asks.iter().enumerate() {
            let reason = ask.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            let name = if index == 0 { "why" } else { "" };
            self.line(name, &harmless(&format!("{} ({}){reason}", ask.rule, asker(ask.by))))?;
        }
        self.labels(approval)?;
        self.line("rules", &harmless(&approval.policy_version))?;
        self.arguments(approval)?;
        self.preview(approval)?;
        self.past(approval)?;
        self.outcome(approval)
    }

    fn line(&mut self, name: &str, text: &str) -> std::fmt::Result {
        writeln!(self.text, "  {name:<9} {text}")
    }

    fn labels(&mut self, approval: &Approval) -> std::fmt::Result {
        let labels: Vec<&str> = approval.labels.iter().map(|trust| TrustClass::as_str(*trust)).collect();
        let read =
            if labels.is_empty() { "the session has read nothing yet".to_owned() } else { labels.join(", ") };
        self.line("has read", &read)?;
        for label in &approval.read {
            let origin = label.origin.as_deref().unwrap_or_default();
            self.line("", &harmless(&format!("{}  {} {origin}", label.trust.as_str(), label.source)))?;
        }
        Ok(())
    }

    fn arguments(&mut self, approval: &Approval) -> std::fmt::Result {
        let what = match (approval.arguments_cut, approval.runs) {
            (true, _) => "arguments, as far as they are kept once a request is over",
            (false, true) => "arguments, in full: these run, or nothing does",
            (false, false) => "asks",
        };
        let (bytes, digest) = (approval.arguments_bytes, &approval.arguments_sha256);
        writeln!(self.text, "\n{what} ({bytes} bytes, sha256 {digest})")?;
        for (name, value) in &approval.arguments {
            let name = harmless(name);
            match value {
                Value::String(text) if text.contains('\n') => {
                    let end = if text.ends_with('\n') { "" } else { ", no line's end" };
                    writeln!(self.text, "  {name}  ({} bytes{end})", text.len())?;
                    self.quoted(text.strip_suffix('\n').unwrap_or(text))?;
                }
                Value::Object(_) | Value::Array(_) => {
                    writeln!(self.text, "  {name}")?;
                    self.quoted(&format!("{value:#}"))?;
                }
                value => writeln!(self.text, "  {name}  {}", harmless(&value.to_string()))?,
            }
        }
        Ok(())
    }

    fn quoted(&mut self, text: &str) -> std::fmt::Result {
        text.split('\n').try_for_each(|line| writeln!(self.text, "    | {}", visible(line)))
    }

    fn preview(&mut self, approval: &Approval) -> std::fmt::Result {
        match &approval.preview {
            None => Ok(()),
            Some(Preview::Command { line }) => {
                writeln!(self.text, "\ncommand")?;
                self.quoted(line)
            }
            Some(Preview::Unavailable { reason }) => {
                writeln!(self.text, "\nwhat would change can't be shown: {}", harmless(reason))
            }
            Some(Preview::Diff { path, text, cut }) => {
                writeln!(self.text, "\nchange of {}, as the file was when it was asked", harmless(path))?;
                for line in text.lines() {
                    let colour = match line.as_bytes().first() {
                        Some(b'+') => GREEN,
                        Some(b'-') => RED,
                        Some(b'@') => CYAN,
                        _ => "",
                    };
                    let line = self.in_colour(colour, &visible(line));
                    writeln!(self.text, "    | {line}")?;
                }
                if *cut {
                    writeln!(self.text, "    … cut here; the arguments above are complete")?;
                }
                Ok(())
            }
        }
    }

    fn past(&mut self, approval: &Approval) -> std::fmt::Result {
        if approval.similar.is_empty() {
            return Ok(());
        }
        writeln!(
            self.text,
            "\nearlier decisions about {} for {}",
            approval.tool,
            harmless(approval.caller.user.as_str())
        )?;
        for past in &approval.similar {
            let by = past.decided_by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let same = if past.same_arguments { ", the same arguments" } else { "" };
            let reason = past.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            let line = format!("{} {}{by}{same}{reason}", past.decided, past.state);
            writeln!(self.text, "  {}", harmless(&line))?;
        }
        Ok(())
    }

    fn outcome(&mut self, approval: &Approval) -> std::fmt::Result {
        match &approval.outcome {
            None => Ok(()),
            Some(ApprovalOutcome::Ran { value, label, .. }) => {
                writeln!(self.text, "\nanswer ({})", label.trust.as_str())?;
                match value {
                    Value::String(text) => self.quoted(text),
                    value => self.quoted(&format!("{value:#}")),
                }
            }
            Some(ApprovalOutcome::Refused { violation }) => {
                writeln!(self.text, "\n{}: {}", violation.kind, harmless(&violation.message))
            }
        }
    }

    fn in_colour(&self, colour: &str, text: &str) -> String {
        if self.coloured && !colour.is_empty() { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }
}

/// One line of a text: tabs are common in those, and must be told from spaces.
fn visible(line: &str) -> String {
    harmless(&line.replace('\t', "→   ")).into_owned()
}

fn standing(approval: &Approval, now: Timestamp) -> String {
    let by = approval
        .decided_by
        .as_ref()
        .map_or_else(String::new, |by| format!(" by {}", harmless(by.user.as_str())));
    match (approval.state, approval.decided.or(approval.ended)) {
        (ApprovalState::Pending, _) => {
            format!("pending, {} (until {})", left(approval.expires, now), approval.expires)
        }
        (state, Some(at)) => format!("{state}, decided{by} {at}"),
        (state, None) => state.to_string(),
    }
}

fn asker(by: aegis_core::Asker) -> &'static str {
    use aegis_core::Asker;
    match by {
        Asker::Tool => "the tool's own rule",
        Asker::Context => "the security context",
        Asker::Policy => "a policy",
        Asker::Labels => "because of what the session has read",
    }
}
