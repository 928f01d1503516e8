//! Trees of files to search, the same in every run.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use crate::words::{Random, Words};

/// A word that the vocabulary can't make, with a number after it.
pub(crate) const RARE: &str = "quaestorial_";
pub(crate) const RARE_PATTERN: &str = "quaestorial_[0-9]+";
pub(crate) const GLOB: &str = "**/*.rs";

const ENDINGS: [&str; 8] = ["rs", "rs", "md", "txt", "json", "toml", "py", "log"];

#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// What a tree is made of.
struct Plan {
    seed: u64,
    smallest: f64,
    largest: f64,
    /// Files in one directory, and how deep directories go.
    per_directory: u64,
    deepest: usize,
    /// One file in this many holds the rare word once.
    rare_in: u64,
}

impl Tree {
    /// Text files of 2 KiB to 512 KiB, `bytes` together.
    pub(crate) fn large(root: &Path, bytes: u64) -> anyhow::Result<Self> {
        let plan = Plan {
            seed: 500,
            smallest: 2048.0,
            largest: 524_288.0,
            per_directory: 40,
            deepest: 3,
            rare_in: 50,
        };
        Self::grow(root, &plan, |tree| tree.bytes < bytes)
    }

    /// As many files as a small repository has, 200 bytes to 60 KiB each.
    pub(crate) fn repository(root: &Path, files: u64) -> anyhow::Result<Self> {
        let plan = Plan {
            seed: 1000,
            smallest: 200.0,
            largest: 61_440.0,
            per_directory: 9,
            deepest: 5,
            rare_in: 30,
        };
        Self::grow(root, &plan, |tree| tree.files < files)
    }

    fn grow(root: &Path, plan: &Plan, unfinished: impl Fn(&Self) -> bool) -> anyhow::Result<Self> {
        let mut tree = Self { root: root.to_owned(), files: 0, bytes: 0 };
        let mut words = Words::new(plan.seed);
        let mut directory = root.to_owned();
        fs::create_dir_all(&directory)?;
        while unfinished(&tree) {
            if tree.files > 0 && tree.files.is_multiple_of(plan.per_directory) {
                directory = next_directory(root, &directory, plan.deepest, words.random(), tree.files);
                fs::create_dir_all(&directory)?;
            }
            let number = tree.files;
            let ending = ENDINGS[words.random().below(ENDINGS.len())];
            let name = directory.join(format!("{}_{number}.{ending}", words.word()));
            let size = plan.smallest * (plan.largest / plan.smallest).powf(words.random().share());
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a size in the plan's range"
            )]
            let mut text = words.lines(size as usize);
            if number % plan.rare_in == plan.rare_in / 2 {
                let middle = text[..text.len() / 2].rfind('\n').map_or(0, |at| at + 1);
                text.insert_str(middle, &format!("here is {RARE}{number} once\n"));
            }
            File::create(name)?.write_all(text.as_bytes())?;
            tree.files += 1;
            tree.bytes += text.len() as u64;
        }
        Ok(tree)
    }

    pub(crate) fn describe(&self) -> String {
        match self.bytes >> 20 {
            0..100 => format!("{} files", crate::table::whole(self.files as f64)),
            mebibytes => format!("{mebibytes} MiB, {} files", crate::table::whole(self.files as f64)),
        }
    }
}

/// Deeper, or somewhere below the root again.
fn next_directory(root: &Path, present: &Path, deepest: usize, random: &mut Random, number: u64) -> PathBuf {
    let depth = present.components().count() - root.components().count();
    let above = if depth < deepest && random.below(2) == 0 { present } else { root };
    // Some hidden ones, which both sides search.
    let dot = if random.below(20) == 0 { "." } else { "" };
    above.join(format!("{dot}part-{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_the_files_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::repository(&directory.path().join("tree"), 100).unwrap();
        let mut found = (0, 0, 0);
        let mut open = vec![tree.root.clone()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    found = (found.0 + 1, found.1 + text.len() as u64, found.2 + text.matches(RARE).count());
                }
            }
        }
        assert_eq!(found, (tree.files, tree.bytes, 3));
    }
}
