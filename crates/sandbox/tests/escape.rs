//! Attempts to get out, each of which must fail for the reason intended: the error is compared, not only the failure.
//! Where it does no harm the same attempt is made outside, so that a check that could never fail is noticed.
//! The list follows what public write-ups of container escapes use, and the sandbox's own design.
#![allow(clippy::unwrap_used, reason = "tests say what must hold")]

mod support;

#[path = "escape/calls.rs"]
mod calls;
#[path = "escape/files.rs"]
mod files;
#[path = "escape/processes.rs"]
mod processes;
#[path = "escape/reach.rs"]
mod reach;

use std::{collections::BTreeMap, path::Path, process::Command};

use aegis_sandbox::{Access, Backend, Exit, Launch};

use support::{compile, mount, run};

/// Attempts by name, with the answer each must get inside.
type Answers<'a> = &'a [(&'a str, &'a str)];

fn attack_program(place: &Path) {
    compile(place, "attack", include_str!("escape/attack.c"));
}

/// Makes the attempts inside and compares every answer.
async fn must_answer(backend: &dyn Backend, place: &Path, answers: Answers<'_>) {
    let mut launch = Launch::new("/volume/attack");
    launch.args = answers.iter().map(|(attempt, _)| (*attempt).to_owned()).collect();
    launch.mounts = vec![mount(place, "/volume", Access::ReadWrite)];
    let outcome = run(backend, launch).await;
    assert_eq!(outcome.exit, Exit::Code(0), "{outcome:?}");
    compare("inside", outcome.out(), answers);
}

/// Makes attempts outside, as whoever runs this test.
fn outside(place: &Path, answers: Answers<'_>) {
    let output =
        Command::new(place.join("attack")).args(answers.iter().map(|(attempt, _)| attempt)).output().unwrap();
    compare("outside", &String::from_utf8_lossy(&output.stdout), answers);
}

fn compare(where_: &str, said: &str, answers: Answers<'_>) {
    let said: BTreeMap<_, _> = said.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    let wrong: Vec<_> = answers
        .iter()
        .filter(|(attempt, answer)| !answer.split('|').any(|answer| said.get(attempt) == Some(&answer)))
        .map(|(attempt, answer)| format!("{attempt}: wanted {answer}, got {:?}", said.get(attempt)))
        .collect();
    assert!(wrong.is_empty(), "{where_}:\n{}", wrong.join("\n"));
}

#[test]
fn the_set_holds_for_an_unprivileged_user() {
    support::again_without_root();
}
