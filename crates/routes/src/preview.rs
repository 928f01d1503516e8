//! What a call would do, shown to whoever is asked to approve it.

use std::sync::Arc;

use aegis_core::{
    Caller, Grant, ToolSpec,
    approval::{Pending, Preview, Previews},
    command::CommandLine,
    tool::Target,
};
use serde_json::{Map, Value};

use crate::{
    Catalog,
    files::{FileError, Files, Revised},
    tool::Intended,
};

/// Texts longer than this are shown by their arguments alone.
const LONGEST_TEXT: usize = 1 << 20;
/// A diff is cut here, between two lines.
const LONGEST_DIFF: usize = 64 << 10;
/// Lines that differ, of both texts together, up to which the shortest diff is looked for. The search takes longer
/// than in proportion, and the texts may have been made to.
const MOST_LINES: usize = 4000;
/// Files that the heading of a preview names.
const MOST_NAMED: usize = 5;

/// Previews of the tools of this crate.
#[derive(Debug)]
pub struct ToolPreviews {
    files: Arc<Files>,
    catalog: Arc<Catalog>,
}

impl ToolPreviews {
    pub fn new(files: &Arc<Files>, catalog: &Arc<Catalog>) -> Self {
        Self { files: Arc::clone(files), catalog: Arc::clone(catalog) }
    }
}

impl Previews for ToolPreviews {
    fn preview<'a>(
        &'a self,
        caller: &'a Caller,
        grant: &'a Grant,
        tool: &'a ToolSpec,
        arguments: &'a Map<String, Value>,
    ) -> Pending<'a, Option<Preview>> {
        Box::pin(async move {
            if let Some(line) = command_line(tool, arguments) {
                return Some(Preview::Command { line });
            }
            let revisions = match self.catalog.intended(tool, arguments)? {
                Intended::Revisions(revisions) => revisions,
                Intended::Rename { from, to } => {
                    let text = format!("rename from {from}\nrename to {to}\n");
                    return Some(Preview::Diff { path: from, text, cut: false });
                }
            };
            let diff = match self.files.compare(&caller.tenant, grant, revisions).await {
                Ok(revised) => tokio::task::spawn_blocking(move || diffs(&revised)).await,
                Err(error) => return Some(Preview::Unavailable { reason: error.to_string() }),
            };
            Some(diff.unwrap_or_else(|error| Preview::Unavailable { reason: error.to_string() }))
        })
    }
}

fn command_line(tool: &ToolSpec, arguments: &Map<String, Value>) -> Option<String> {
    tool.targets.iter().find_map(|target| {
        let Target::Command { command, args } = target else { return None };
        let command = arguments.get(command.as_ref())?.as_str()?;
        let args = arguments.get(args.as_ref()).and_then(Value::as_array).into_iter().flatten();
        let args: Vec<String> = args.filter_map(Value::as_str).map(str::to_owned).collect();
        // Word by word, as it will run.
        CommandLine::parse(command, &args).map(|line| line.shown()).ok()
    })
}

/// All of them under one another, as one patch has them.
fn diffs(revised: &[Revised]) -> Preview {
    let mut all = String::new();
    let mut cut = false;
    for one in revised.iter().filter(|one| one.changes()) {
        let text = match diff(one, LONGEST_DIFF - all.len()) {
            Ok((text, whole)) => {
                cut |= !whole;
                text
            }
            Err(error) => return Preview::Unavailable { reason: format!("{}: {error}", one.path) },
        };
        all.push_str(&text);
        if cut {
            break;
        }
    }
    let paths: Vec<&str> = revised.iter().map(|one| one.path.as_str()).take(MOST_NAMED).collect();
    let more = if revised.len() > paths.len() { ", …" } else { "" };
    Preview::Diff { path: paths.join(", ") + more, text: all, cut }
}

/// The diff, and whether it is all of it.
fn diff(revised: &Revised, longest: usize) -> Result<(String, bool), FileError> {
    let (before, after) = (text(revised.before.as_deref())?, text(revised.after.as_deref())?);
    let patch = if differing_lines(before, after) > MOST_LINES {
        whole(before, after)
    } else {
        diffy::create_patch(before, after).to_string()
    };
    let path = revised.path.as_str();
    let from = revised.renamed_from.as_ref().map_or(path, |from| from.as_str());
    let (from, to) = (named(revised.before.is_some(), from), named(revised.after.is_some(), path));
    // The library has no names for the two; people have one.
    let body = patch.split_inclusive('\n').skip(2);
    let mut text = String::new();
    for line in [format!("--- {from}\n"), format!("+++ {to}\n")].iter().map(String::as_str).chain(body) {
        if text.len() + line.len() > longest {
            return Ok((text, false));
        }
        text.push_str(line);
    }
    Ok((text, true))
}

fn named(there: bool, path: &str) -> &str {
    if there { path } else { "/dev/null" }
}

fn text(content: Option<&[u8]>) -> Result<&str, FileError> {
    let content = content.unwrap_or_default();
    if content.len() > LONGEST_TEXT {
        return Err(FileError::TooLarge { size: content.len() as u64, limit: LONGEST_TEXT as u64 });
    }
    std::str::from_utf8(content).map_err(|error| FileError::NotUtf8(error.valid_up_to()))
}

/// How many lines are left when those that the texts begin and end with alike are taken away.
fn differing_lines(before: &str, after: &str) -> usize {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let start = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
    let (before, after) = (&before[start..], &after[start..]);
    let end = before.iter().rev().zip(after.iter().rev()).take_while(|(one, other)| one == other).count();
    before.len() + after.len() - 2 * end
}

/// Everything out, everything in: exact, and found at once.
fn whole(before: &str, after: &str) -> String {
    let count = |text: &str| text.lines().count();
    let mut text = format!("---\n+++\n@@ -1,{} +1,{} @@\n", count(before), count(after));
    for (sign, lines) in [('-', before), ('+', after)] {
        for line in lines.lines() {
            text.push(sign);
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use aegis_core::VolumePath;

    use super::*;

    fn shown(before: &str, after: &str) -> (String, bool) {
        let path = VolumePath::parse("notes/a.txt").unwrap();
        let content = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
        let (before, after) = (content(before), content(after));
        match diffs(&[Revised { path, renamed_from: None, before, after, hunks: Vec::new() }]) {
            Preview::Diff { text, cut, .. } => (text, cut),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_diff_names_the_file_and_shows_the_lines() {
        let (text, cut) = shown("one\ntwo\nthree\n", "one\n2\nthree\n");
        assert_eq!(
            text,
            "--- /workspace/notes/a.txt\n+++ /workspace/notes/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        );
        assert!(!cut);
        assert!(shown("", "new\n").0.starts_with("--- /dev/null\n"));
        assert!(shown("old\n", "").0.contains("+++ /dev/null\n"));
    }

    #[test]
    fn texts_made_to_be_slow_are_shown_whole_and_cut() {
        let lines = |letter: &str| (0..50_000).map(|n| format!("{letter}{n}\n")).collect::<String>();
        let (text, cut) = shown(&lines("a"), &lines("b"));
        assert!(cut);
        assert!(text.len() <= LONGEST_DIFF);
    }
}
