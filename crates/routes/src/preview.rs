//! What a call would do, shown to whoever is asked to approve it.

use std::sync::Arc;

use aegis_core::{
    Caller, Grant, ToolSpec,
    approval::{Pending, Preview, Previews},
    tool::Target,
};
use serde_json::{Map, Value};

use crate::files::{Compared, Edit, Files, Intended};

/// Texts longer than this are shown by their arguments alone.
const LONGEST_TEXT: u64 = 1 << 20;
/// A diff is cut here, between two lines.
const LONGEST_DIFF: usize = 64 << 10;
/// Lines that differ, of both texts together, up to which the shortest diff is looked for. The search takes longer
/// than in proportion, and the texts may have been made to.
const MOST_LINES: usize = 4000;

/// Previews of the tools of this crate.
#[derive(Debug)]
pub struct ToolPreviews {
    files: Arc<Files>,
}

impl ToolPreviews {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: Arc::clone(files) }
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
            let intended = intended(tool, arguments)?;
            let path = arguments.get("path")?.as_str()?;
            let compared = self.files.compare(&caller.tenant, grant, path, intended, LONGEST_TEXT).await;
            let diff = match compared {
                Ok(compared) => tokio::task::spawn_blocking(move || diff(&compared)).await,
                Err(error) => return Some(Preview::Unavailable { reason: error.to_string() }),
            };
            Some(diff.unwrap_or_else(|error| Preview::Unavailable { reason: error.to_string() }))
        })
    }
}

/// The change that a file tool's arguments describe.
fn intended(tool: &ToolSpec, arguments: &Map<String, Value>) -> Option<Intended> {
    let edit = |object: &Map<String, Value>| {
        Some(Edit {
            target: object.get("target_content")?.as_str()?.to_owned(),
            replacement: object.get("replacement_content")?.as_str()?.to_owned(),
        })
    };
    match tool.name.as_ref() {
        "fs.write" => Some(Intended::Write(arguments.get("content")?.as_str()?.to_owned())),
        "fs.edit" => Some(Intended::Edits(vec![edit(arguments)?])),
        "fs.multi_edit" => {
            let edits = arguments.get("edits")?.as_array()?.iter().map(|one| edit(one.as_object()?));
            Some(Intended::Edits(edits.collect::<Option<_>>()?))
        }
        _ => None,
    }
}

fn command_line(tool: &ToolSpec, arguments: &Map<String, Value>) -> Option<String> {
    tool.targets.iter().find_map(|target| {
        let Target::Command { command, args } = target else { return None };
        let command = arguments.get(command.as_ref())?.as_str()?;
        let args = arguments.get(args.as_ref()).and_then(Value::as_array);
        Some(match args {
            // It is split as a shell would, so it is shown as it came.
            None => command.to_owned(),
            Some(args) => std::iter::once(command)
                .chain(args.iter().filter_map(Value::as_str))
                .map(quoted)
                .collect::<Vec<String>>()
                .join(" "),
        })
    })
}

/// So that a person sees where a word begins and ends.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

fn diff(compared: &Compared) -> Preview {
    let Compared { path, before, after } = compared;
    let patch = if differing_lines(before, after) > MOST_LINES {
        whole(before, after)
    } else {
        diffy::create_patch(before, after).to_string()
    };
    // The library has no names for the two; people have one.
    let body = patch.split_inclusive('\n').skip(2);
    let from = if before.is_empty() { "/dev/null" } else { path.as_str() };
    let mut text = format!("--- {from}\n+++ {path}\n");
    let mut cut = false;
    for line in body {
        if text.len() + line.len() > LONGEST_DIFF {
            cut = true;
            break;
        }
        text.push_str(line);
    }
    Preview::Diff { path: path.to_string(), text, cut }
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
        match diff(&Compared { path, before: before.into(), after: after.into() }) {
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
    }

    #[test]
    fn texts_made_to_be_slow_are_shown_whole_and_cut() {
        let lines = |letter: &str| (0..50_000).map(|n| format!("{letter}{n}\n")).collect::<String>();
        let (text, cut) = shown(&lines("a"), &lines("b"));
        assert!(cut);
        assert!(text.len() <= LONGEST_DIFF);
    }

    #[test]
    fn words_are_quoted_where_they_need_it() {
        assert_eq!(quoted("status"), "status");
        assert_eq!(quoted("a b; rm -rf '"), "'a b; rm -rf '\\'''");
        assert_eq!(quoted(""), "''");
    }
}
