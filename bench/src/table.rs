//! What was measured, as a table for people.

use std::fmt::Write;

use crate::rounds::Spread;

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) case: &'static str,
    pub(crate) what: String,
    pub(crate) ours: String,
    pub(crate) yardstick: String,
    pub(crate) figure: Figure,
    pub(crate) goal: Goal,
}

/// What the goal is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    Ratio(Spread),
    Mebibytes(f64),
    /// It could not be measured here; the row's other cells say why.
    Missing,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Printed because it helps to read the rest.
    Information,
}

impl Row {
    pub(crate) fn met(&self) -> Option<bool> {
        let value = match self.figure {
            Figure::Ratio(spread) => spread.median,
            Figure::Mebibytes(size) => size,
            Figure::Missing => return None,
        };
        match self.goal {
            Goal::AtLeast(least) => Some(value >= least),
            Goal::AtMost(most) => Some(value <= most),
            Goal::Information => None,
        }
    }

    fn cells(&self) -> [String; 7] {
        let unit = if matches!(self.figure, Figure::Mebibytes(_)) { " MiB" } else { "" };
        let figure = match self.figure {
            Figure::Ratio(Spread { median, low, high }) => format!("{median:.2} ({low:.2}–{high:.2})"),
            Figure::Mebibytes(_) | Figure::Missing => "–".to_owned(),
        };
        let goal = match self.goal {
            Goal::AtLeast(least) => format!("≥ {least}{unit}"),
            Goal::AtMost(most) => format!("≤ {most}{unit}"),
            Goal::Information => "–".to_owned(),
        };
        let met = match (self.met(), self.goal) {
            (Some(true), _) => "met",
            (Some(false), _) => "missed",
            (None, Goal::Information) => "–",
            (None, _) => "not measured",
        };
        [
            self.case.to_owned(),
            self.what.clone(),
            self.ours.clone(),
            self.yardstick.clone(),
            figure,
            goal,
            met.to_owned(),
        ]
    }

    /// For whoever watches the run.
    pub(crate) fn line(&self) -> String {
        let [case, what, ours, yardstick, figure, goal, met] = self.cells();
        format!("  {case}: {what}: {ours} against {yardstick}, ratio {figure}, goal {goal}, {met}")
    }
}

const TITLES: [&str; 7] = ["case", "what", "ours", "yardstick", "ratio (lowest–highest)", "goal", ""];

/// In columns, for a terminal.
pub(crate) fn text(rows: &[Row]) -> String {
    let lines = all_cells(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    for (index, line) in all_cells(rows).iter().enumerate() {
        // Writing to a string can't fail.
        let _ = writeln!(text, "| {} |", line.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(TITLES.len()));
        }
    }
    text
}

fn all_cells(rows: &[Row]) -> Vec<[String; 7]> {
    let mut lines = vec![TITLES.map(str::to_owned)];
    lines.extend(rows.iter().map(Row::cells));
    lines
}

/// `12,345`: a rate or a count.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{:.0}", number.round());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn per_second(rate: f64, of: &str) -> String {
    format!("{} {of}/s", whole(rate))
}

/// A time given in seconds.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 0.001 => format!("{:.1} ms", seconds * 1e3),
        seconds => format!("{:.1} µs", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: Figure, goal: Goal) -> Row {
        Row {
            case: "case",
            what: "what".into(),
            ours: whole(1_234_567.0),
            yardstick: time(0.0123),
            figure,
            goal,
        }
    }

    fn ratio(median: f64) -> Figure {
        Figure::Ratio(Spread { median, low: 0.5, high: 2.0 })
    }

    #[test]
    fn goals_are_judged_by_the_median() {
        assert_eq!(row(ratio(0.6), Goal::AtLeast(0.6)).met(), Some(true));
        assert_eq!(row(ratio(0.59), Goal::AtLeast(0.6)).met(), Some(false));
        assert_eq!(row(ratio(1.2), Goal::AtMost(1.1)).met(), Some(false));
        assert_eq!(row(Figure::Mebibytes(39.0), Goal::AtMost(40.0)).met(), Some(true));
        assert_eq!(row(Figure::Missing, Goal::AtMost(40.0)).met(), None);
        assert_eq!(row(ratio(9.0), Goal::Information).met(), None);
    }

    #[test]
    fn a_table_has_one_line_per_row() {
        let rows = [row(ratio(0.6), Goal::AtLeast(0.6)), row(Figure::Missing, Goal::AtMost(40.0))];
        let lines: Vec<String> = markdown(&rows).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[2], "| case | what | 1,234,567 | 12.3 ms | 0.60 (0.50–2.00) | ≥ 0.6 | met |");
        assert!(lines[3].ends_with("| – | ≤ 40 | not measured |"), "{}", lines[3]);
        assert_eq!(text(&rows).lines().count(), 3);
    }
}
