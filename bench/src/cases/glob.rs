//! `fs.glob` against `rg --files --no-ignore --hidden -g`.

use crate::{ripgrep::Search, table::Row, workplace::Workplace};

pub(super) const NAME: &str = "glob";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    super::search::measure(place, NAME, Search::Names)
}
