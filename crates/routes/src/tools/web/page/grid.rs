//! The cells of a table, so that every row has as many: Markdown knows no spans.

/// Spans beyond these are mistakes or attacks.
const WIDEST_SPAN: usize = 32;
const LONGEST_SPAN: usize = 256;
const MOST_COLUMNS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Grid {
    column: usize,
    /// For each column, how many more rows a cell from above reaches into.
    reach: Vec<usize>,
    /// The cells of the first row.
    width: Option<usize>,
}

/// What a cell takes up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Columns before it that a cell from above fills.
    pub(super) empty: usize,
    /// Columns of its own.
    pub(super) own: usize,
}

impl Grid {
    pub(super) fn start_row(&mut self) {
        self.column = 0;
    }

    pub(super) fn start_cell(&mut self, columns: usize, rows: usize) -> Place {
        let empty = self.pass_reached();
        let own = columns.clamp(1, WIDEST_SPAN).min(MOST_COLUMNS.saturating_sub(self.column)).max(1);
        let below = rows.clamp(1, LONGEST_SPAN) - 1;
        if below > 0 && self.column + own <= MOST_COLUMNS {
            let end = self.column + own;
            if self.reach.len() < end {
                self.reach.resize(end, 0);
            }
            self.reach[self.column..end].fill(below);
        }
        self.column += own;
        Place { empty, own }
    }

    /// How many cells the row lacks.
    pub(super) fn end_row(&mut self) -> usize {
        let reached = self.pass_reached();
        let width = *self.width.get_or_insert(self.column);
        let missing = width.saturating_sub(self.column);
        self.column += missing;
        reached + missing
    }

    fn pass_reached(&mut self) -> usize {
        let start = self.column;
        while let Some(rows) = self.reach.get_mut(self.column).filter(|rows| **rows > 0) {
            *rows -= 1;
            self.column += 1;
        }
        self.column - start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_take_their_room() {
        let mut grid = Grid::default();
        grid.start_row();
        assert_eq!(grid.start_cell(1, 2), Place { empty: 0, own: 1 });
        assert_eq!(grid.start_cell(2, 1), Place { empty: 0, own: 2 });
        assert_eq!(grid.end_row(), 0);
        grid.start_row();
        assert_eq!(grid.start_cell(1, 1), Place { empty: 1, own: 1 });
        assert_eq!(grid.end_row(), 1);
        grid.start_row();
        assert_eq!(grid.start_cell(1, 1), Place { empty: 0, own: 1 });
        assert_eq!(grid.end_row(), 2);
    }

    #[test]
    fn absurd_spans_are_cut() {
        let mut grid = Grid::default();
        grid.start_row();
        assert_eq!(grid.start_cell(usize::MAX, usize::MAX).own, WIDEST_SPAN);
        for _ in 0..1000 {
            grid.start_cell(1_000_000, 1_000_000);
        }
        assert!(grid.reach.len() <= MOST_COLUMNS);
    }
}
