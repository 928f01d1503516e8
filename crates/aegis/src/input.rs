//! Files that a command is given.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use anyhow::Context;

use crate::ending::Mistake;

/// The text of a file; `-` is standard input.
pub fn text(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("can't read standard input")?;
        return Ok(text);
    }
    let mut text = String::new();
    open(file)?.read_to_string(&mut text).with_context(|| format!("can't read {}", file.display()))?;
    Ok(text)
}

/// A file that is there.
pub fn open(file: &Path) -> anyhow::Result<File> {
    File::open(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Mistake::new(format!("there is no file {}", file.display()), "check the path").into()
        }
        _ => anyhow::Error::new(error).context(format!("can't read {}", file.display())),
    })
}
