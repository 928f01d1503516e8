//! Answers of tools that run programs, as a person at a terminal wants them: output once, and a failed program as a failure.

use std::{borrow::Cow, io::IsTerminal};

use serde_json::Value;

use crate::{heard, output::Ending};

/// What the label of a program's output says of its source.
const FROM_A_PROGRAM: &str = "process";

/// The members of an answer that hold output.
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// The answer without the output, if the person at the terminal has seen all of it while it came.
pub fn unheard<'v>(result: &'v Value, source: &str) -> Cow<'v, Value> {
    // What was told went to the standard error, and the answer goes to the standard output.
    let at_a_terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    if source == FROM_A_PROGRAM && at_a_terminal {
        beyond(result, heard::told())
    } else {
        Cow::Borrowed(result)
    }
}

/// The answer without its output where so many bytes are all of it. A flood is told in part, and some of what is told
/// gets lost.
fn beyond(result: &Value, told: usize) -> Cow<'_, Value> {
    let bytes = |member: &&str| result[*member].as_str().map_or(0, str::len);
    match result {
        Value::Object(members) if told > 0 && STREAMS.iter().map(bytes).sum::<usize>() == told => {
            let left = members.iter().filter(|(name, _)| !STREAMS.contains(&name.as_str()));
            Cow::Owned(left.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        _ => Cow::Borrowed(result),
    }
}

/// How the command ends: a call that was carried out is done, unless the program in it says that it has failed.
pub fn ending(result: &Value, source: &str, as_json: bool) -> Ending {
    let code = ["exit_code", "exitCode"].iter().find_map(|member| result[member].as_i64());
    match code.filter(|code| source == FROM_A_PROGRAM && *code != 0) {
        None => Ending::Done,
        Some(code) => {
            if !as_json {
                eprintln!("the program has failed: its exit code is {code}");
            }
            Ending::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failed_program_is_a_failure_and_a_code_of_anything_else_is_not() {
        let failed = json!({"exit_code": 3, "stdout": "x"});
        assert_eq!(ending(&failed, FROM_A_PROGRAM, true), Ending::Failed);
        assert_eq!(ending(&json!({"exitCode": -1}), FROM_A_PROGRAM, true), Ending::Failed);
        assert_eq!(ending(&json!({"exit_code": 0}), FROM_A_PROGRAM, true), Ending::Done);
        assert_eq!(ending(&json!("text"), FROM_A_PROGRAM, true), Ending::Done);
        assert_eq!(ending(&failed, "mcp-server", true), Ending::Done);
    }

    #[test]
    fn output_is_left_out_only_where_all_of_it_was_told() {
        let result = json!({"exit_code": 0, "stdout": "äb\n", "stderr": "c"});
        assert_eq!(*beyond(&result, 5), json!({"exit_code": 0}));
        for told in [0, 1, 4, 6, 8192] {
            assert_eq!(*beyond(&result, told), result);
        }
        assert_eq!(*beyond(&json!({"stdout": ""}), 0), json!({"stdout": ""}));
        assert_eq!(*beyond(&json!("text"), 4), json!("text"));
        // A test is at no terminal where both could be seen.
        assert_eq!(*unheard(&json!({"stdout": ""}), "mcp-server"), json!({"stdout": ""}));
    }
}
