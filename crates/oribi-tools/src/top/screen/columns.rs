//! Which columns of a table fit, and what is said about the rest.
//!
//! Owns: the choice by rank, and the marks. Invariant: what is left out or cut off has a mark: an
//! ellipsis in the text, or a note above the table.

use ratatui::layout::Constraint;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

/// Blanks between two columns.
const SPACING: u16 = 1;

/// One column.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) width: u16,
    /// Columns with the lowest ranks are shown first.
    pub(super) rank: u8,
}

/// The places of the columns that fit, in their order.
pub(super) fn shown(columns: &[Column], width: u16) -> Vec<usize> {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|at| columns[*at].rank);
    let mut left = width.saturating_add(SPACING);
    by_rank.retain(|at| {
        let needed = columns[*at].width + SPACING;
        let fits = needed <= left;
        left -= if fits { needed } else { 0 };
        fits
    });
    by_rank.sort_unstable();
    by_rank
}

/// The table with the columns that fit. The first `names` columns are to the left, the others are
/// numbers.
pub(super) fn table(
    columns: &[Column],
    names: usize,
    rows: impl Iterator<Item = Vec<String>>,
    (width, header): (u16, Style),
) -> Table<'static> {
    let shown = shown(columns, width);
    let cell = |at: usize, text: &str| {
        let text = cut(text, columns[at].width);
        match at < names {
            true => Cell::from(text),
            false => Cell::from(Line::from(text).right_aligned()),
        }
    };
    let rows: Vec<Row<'static>> =
        rows.map(|row| shown.iter().map(|at| cell(*at, &row[*at])).collect()).collect();
    let heads: Row<'static> = shown.iter().map(|at| cell(*at, columns[*at].name)).collect();
    let widths = shown.iter().map(|at| Constraint::Length(columns[*at].width));
    Table::new(rows, widths).header(heads.style(header)).column_spacing(SPACING)
}

/// What a table does not show; empty when it shows everything.
pub(super) fn note(columns: &[Column], width: u16, rows_below: usize) -> String {
    let shown = shown(columns, width);
    let hidden = columns.iter().enumerate().filter(|(at, _)| !shown.contains(at));
    let hidden: Vec<&str> = hidden.map(|(_, column)| column.name).collect();
    let mut parts = Vec::new();
    if rows_below > 0 {
        parts.push(format!("{rows_below} more rows"));
    }
    if !hidden.is_empty() {
        parts.push(format!("no room for {}", hidden.join(", ")));
    }
    if parts.is_empty() { String::new() } else { cut(&format!("… {}", parts.join("; ")), width) }
}

/// The text, with an ellipsis at its end if it is longer than the width.
pub(super) fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}
