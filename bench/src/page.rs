//! The page that holds the table of one full run, between two markers.

use std::{fs, path::Path};

use anyhow::{Context, bail};

use crate::table::{self, Row};

const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// Before an hour of measuring: can the page take a table at all?
pub(crate) fn check(page: &Path) -> anyhow::Result<()> {
    read(page).map(drop)
}

pub(crate) fn write(page: &Path, facts: &str, rows: &[Row]) -> anyhow::Result<()> {
    let (before, after) = read(page)?;
    let table = table::markdown(rows);
    let text = format!("{before}{BEGIN}\n{facts}\n\n{table}{END}{after}");
    fs::write(page, text).with_context(|| format!("can't write {}", page.display()))
}

fn read(page: &Path) -> anyhow::Result<(String, String)> {
    let text = fs::read_to_string(page).with_context(|| format!("can't read {}", page.display()))?;
    match text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1))) {
        Some((before, after)) => Ok((before.to_owned(), after.to_owned())),
        None => bail!("{} has no lines `{BEGIN}` and `{END}` to put the table between", page.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_markers_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let page = directory.path().join("page.md");
        fs::write(&page, format!("# Title\n{BEGIN}\nold\n{END}\nrest\n")).unwrap();
        write(&page, "2 cores", &[]).unwrap();
        write(&page, "4 cores", &[]).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.starts_with(&format!("# Title\n{BEGIN}\n4 cores\n\n| case |")), "{text}");
        assert!(text.ends_with(&format!("\n{END}\nrest\n")), "{text}");
        assert!(!text.contains("old") && !text.contains("2 cores"));
        fs::write(&page, "no markers").unwrap();
        assert!(check(&page).is_err());
    }
}
