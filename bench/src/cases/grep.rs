//! `fs.grep` for a rare pattern against `rg -n --no-heading --no-ignore --hidden`.

use crate::{ripgrep::Search, table::Row, workplace::Workplace};

pub(super) const NAME: &str = "grep";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    super::search::measure(place, NAME, Search::Lines)
}
