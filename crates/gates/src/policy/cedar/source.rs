//! Policy files as texts, read from a directory within bounds.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::problem::{Problem, RulesError};

const MOST_FILES: usize = 2000;
const LONGEST_FILE: u64 = 1 << 20;
const LONGEST_ALL: u64 = 16 << 20;

/// A file of policies (`*.cedar`) or of examples (`*.examples`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's own name.
    pub name: String,
    pub text: String,
    /// As it stands in messages and in the record.
    place: String,
}

impl Source {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let name = name.into();
        Self { place: format!("policies/{name}"), name, text: text.into() }
    }

    /// The same, shown as a file of this directory and not as one of the node's own.
    #[must_use]
    pub fn shown_in(mut self, directory: &Path) -> Self {
        self.place = directory.join(&self.name).display().to_string();
        self
    }

    /// One file, wherever it is.
    pub fn read(path: &Path) -> Result<Self, RulesError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let found = fs::metadata(path).map_err(|source| unreadable(path, source))?;
        let text = read(path, &name, &found).map_err(|problem| RulesError::Rejected(vec![problem]))?;
        Ok(Self::new(name, text))
    }

    /// A directory's files, or one file with the examples beside it.
    pub fn read_all(place: &Path) -> Result<Vec<Self>, RulesError> {
        if !place.is_file() {
            return Self::read_directory(place);
        }
        let mut sources = vec![Self::read(place)?];
        let beside = place.with_extension("examples");
        if beside != place && beside.is_file() {
            sources.push(Self::read(&beside)?);
        }
        Ok(sources)
    }

    /// Every policy and example file of a directory in the order of their names. A directory that is not there holds
    /// none. What can't be taken is an error: a policy that is passed over would not forbid what it says.
    pub fn read_directory(directory: &Path) -> Result<Vec<Self>, RulesError> {
        let mut sources = Vec::new();
        let mut problems = Vec::new();
        let mut length = 0;
        for (name, path) in list(directory)? {
            let found = match fs::symlink_metadata(&path) {
                Ok(found) => found,
                Err(error) => {
                    problems.push(Problem::of_file(&name, format!("it can't be looked at: {error}")));
                    continue;
                }
            };
            length += found.len();
            if length > LONGEST_ALL {
                problems.push(Problem::of_file(
                    &name,
                    format!("the policy files are larger than {} MiB together", LONGEST_ALL >> 20),
                ));
                break;
            }
            match read(&path, &name, &found) {
                Ok(text) => sources.push(Self::new(name, text)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(sources) } else { Err(RulesError::Rejected(problems)) }
    }

    pub(super) fn has_policies(&self) -> bool {
        !self.name.ends_with(".examples")
    }

    pub(super) fn place(&self) -> String {
        self.place.clone()
    }

    pub(super) fn stem(&self) -> &str {
        self.name.strip_suffix(".cedar").unwrap_or(&self.name)
    }
}

const ENDINGS: [&str; 2] = [".cedar", ".examples"];

/// Names and paths of the files that count, sorted. What begins with a dot is an editor's.
pub fn list(directory: &Path) -> Result<Vec<(String, PathBuf)>, RulesError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(directory, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unreadable(directory, error))?;
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        if shown.starts_with('.') {
            continue;
        }
        if let Some(passed_over) = passed_over(&entry, &shown) {
            return Err(RulesError::Rejected(vec![Problem::of_file(&shown, passed_over)]));
        }
        if !ENDINGS.iter().any(|ending| shown.ends_with(ending)) {
            continue;
        }
        found.push((shown.into_owned(), entry.path()));
        if found.len() > MOST_FILES {
            let problem = Problem::of_file(
                &directory.display().to_string(),
                format!("there are more than {MOST_FILES} policy files: put several policies into one file"),
            );
            return Err(RulesError::Rejected(vec![problem]));
        }
    }
    found.sort();
    Ok(found)
}

/// Why an entry would be passed over though its owner surely means it to count.
fn passed_over(entry: &fs::DirEntry, name: &str) -> Option<&'static str> {
    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
        return Some("directories are not looked into: put its policy files here, or take it away");
    }
    let lower = name.to_ascii_lowercase();
    let nearly = |ending: &&str| lower.ends_with(*ending) && !name.ends_with(*ending);
    ENDINGS.iter().any(nearly).then_some("write its ending in small letters: .cedar or .examples")
}

fn read(path: &Path, name: &str, found: &fs::Metadata) -> Result<String, Problem> {
    if !found.is_file() {
        return Err(Problem::of_file(
            name,
            "it is no regular file: put the file itself here, or take the name away",
        ));
    }
    if found.len() > LONGEST_FILE {
        return Err(Problem::of_file(name, format!("it is larger than {} MiB", LONGEST_FILE >> 20)));
    }
    let bytes =
        fs::read(path).map_err(|error| Problem::of_file(name, format!("it can't be read: {error}")))?;
    String::from_utf8(bytes).map_err(|_| Problem::of_file(name, "it is no UTF-8 text"))
}

fn unreadable(path: &Path, source: io::Error) -> RulesError {
    RulesError::Unreadable { directory: path.to_owned(), source }
}
