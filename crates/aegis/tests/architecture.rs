//! The rules of the house that no compiler holds. Each failure says which rule, and where it was broken.
// Only what is marked as a test may unwrap.
#![cfg(test)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use aegis_core::{FailureKind, ViolationKind, config::NodeConfig};
use serde_json::Value;

/// From the ground up. Arrows between crates point to a lower floor, never to the same one.
const FLOORS: [&[&str]; 8] = [
    // The client stands by itself: agents use it without the rest.
    &["aegis-core", "aegis-seal-client", "aegis-mcp-client", "aegis-sandbox"],
    &["aegis-stores"],
    &["aegis-engines"],
    &["aegis-gates", "aegis-routes"],
    &["aegis-plane"],
    &["aegis-nfs"],
    &["aegis-doors"],
    &["aegis"],
];
const LONGEST_FILE: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|crates| crates.contains(&name))
}

/// Every file below `directory`, by extension.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
    found
}

/// The sources of our crates, by crate directory, without their `tests/`.
fn sources() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let crate_directory = entry.unwrap().path();
        let name = crate_directory.file_name().unwrap().to_string_lossy().into_owned();
        let in_crate = files(&crate_directory.join("src"), "rs");
        found.extend(in_crate.into_iter().map(|file| (name.clone(), file)));
    }
    assert!(found.len() > 50, "the sources were not found");
    found
}

/// The code that ships: no comments, nothing from the tests at the end of a file on.
fn shipped(file: &Path) -> String {
    let name = file.file_name().unwrap().to_string_lossy();
    if matches!(&*name, "tests.rs" | "testing.rs" | "harness.rs") || name.ends_with("_tests.rs") {
        return String::new();
    }
    let text = fs::read_to_string(file).unwrap();
    text.lines()
        .take_while(|line| !line.trim_start().starts_with("#[cfg(test)]"))
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn arrows_between_crates_point_down() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["name"].as_str().unwrap(), package))
        .collect();
    let mut wrong = Vec::new();
    for (name, package) in &packages {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        if !manifest.starts_with(root().join("crates")) {
            continue;
        }
        let Some(own) = floor(name) else {
            wrong.push(format!("{name} has no floor: give it one in {}", file!()));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let other = dependency["name"].as_str().unwrap();
            if dependency["kind"] == "dev" || !packages.contains_key(other) {
                continue;
            }
            if floor(other).is_none_or(|other| other >= own) {
                wrong.push(format!("{name} → {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that do not point down: {wrong:#?}");
    assert!(packages.contains_key("aegis-core"), "no crates were looked at");
}

#[test]
fn only_the_plane_makes_permits() {
    let makers: Vec<String> = sources()
        .into_iter()
        .filter(|(_, file)| shipped(file).contains("Permit::grant("))
        .map(|(name, file)| format!("{name}: {}", file.display()))
        .collect();
    assert_eq!(makers.len(), 1, "a permit is made in one place: {makers:#?}");
    assert!(makers[0].starts_with("plane: "), "only the plane makes permits: {makers:#?}");
}

#[test]
fn files_stay_short_enough_to_read() {
    let long: Vec<String> = sources()
        .into_iter()
        .map(|(_, file)| (fs::read_to_string(&file).unwrap().lines().count(), file))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .map(|(lines, file)| format!("{} has {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "over {LONGEST_FILE} lines; split by noun: {long:#?}");
}

/// A path of somebody's machine in a test, a script or a page works there and nowhere else.
#[test]
fn nothing_tracked_names_a_home_directory() {
    if !root().join(".git").exists() {
        return;
    }
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).unwrap();
    let mut named = Vec::new();
    for file in listed.split_terminator('\0') {
        // A file may be listed and deleted, or hold no text.
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for (index, line) in text.lines().enumerate() {
            if names_a_home(line) {
                named.push(format!("{file}:{}", index + 1));
            }
        }
    }
    assert!(named.is_empty(), "absolute paths of a home directory: {named:#?}");
}

fn names_a_home(line: &str) -> bool {
    // Put together here, so that this file does not find itself.
    let homes = [["/", "root/"].concat(), ["/", "home/"].concat(), ["/", "Users/"].concat()];
    homes.iter().any(|home| {
        line.match_indices(home.as_str()).any(|(at, _)| {
            // In the middle of a longer path it is a directory of that name, not the one at the top.
            let starts =
                line[..at].chars().next_back().is_none_or(|c| !(c.is_alphanumeric() || "._-}/".contains(c)));
            let rest = &line[at + home.len()..];
            let goes_on = rest.starts_with(|c: char| c.is_alphanumeric() || c == '.');
            // Nobody's: what an example may say.
            starts && goes_on && !rest.starts_with("me/")
        })
    })
}

/// `aegis explain` and the wire must tell the same story.
#[test]
fn error_pages_end_with_what_the_wire_says() {
    let violations = ViolationKind::ALL.iter().map(|kind| {
        (kind.as_str(), format!("HTTP status {}, JSON-RPC code {}.", kind.http_status(), kind.jsonrpc_code()))
    });
    let failures = FailureKind::ALL.iter().map(|kind| {
        (kind.as_str(), "Tool result with isError; over plain HTTP the status is 422.".to_owned())
    });
    let is_failure = |name: &str| FailureKind::ALL.iter().any(|kind| kind.as_str() == name);
    let is_both =
        |name: &str| is_failure(name) && ViolationKind::ALL.iter().any(|kind| kind.as_str() == name);
    for (name, ending) in violations.chain(failures) {
        let page = fs::read_to_string(root().join("errors").join(format!("{name}.md"))).unwrap();
        let lines: Vec<&str> = page.lines().collect();
        assert_eq!(lines[0], format!("# {name}"));
        assert!(lines.contains(&"## Why"), "{name} does not say why");
        assert!(lines.contains(&"## What to do"), "{name} does not say what to do");
        if is_both(name) {
            // A call that was refused, and one that came to nothing.
            assert!(lines[lines.len() - 2..].concat().contains(&ending), "{name}");
        } else {
            assert_eq!(lines[lines.len() - 1], ending, "{name}");
        }
        assert!((10..=25).contains(&lines.len()), "{name} has {} lines", lines.len());
    }
}

/// What a page tells an operator to write must be what the node reads.
#[test]
fn configuration_in_error_pages_is_valid() {
    const ENVELOPE: &str = "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: example}\n";
    let mut seen = 0;
    for file in files(&root().join("errors"), "md") {
        let page = fs::read_to_string(&file).unwrap();
        for block in page.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let text = format!("{ENVELOPE}{block}");
            let mistakes = NodeConfig::parse(&text).err().unwrap_or_default();
            assert!(mistakes.is_empty(), "{}: {mistakes:#?}", file.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} blocks were found");
}
