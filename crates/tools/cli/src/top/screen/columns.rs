//! The columns of a table that fit, and the marks of the rest.
//!
//! Owns: the choice by rank, and the marks. Invariant: every omitted or cut column has a mark: an
//! ellipsis in the text, or a note above the table.

use ratatui::layout::Constraint;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

/// Blanks between two columns.
const SPACING: u16 = 1;

pub(super) struct ScreenColumn {
    pub(super) name: &'static str,
    pub(super) width: u16,
    /// Columns with the lowest ranks are shown first.
    pub(super) rank: u8,
}

/// The places of the columns that fit, in their order.
pub(super) fn shown(columns: &[ScreenColumn], width: u16) -> Vec<usize> {
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
    columns: &[ScreenColumn],
    names: usize,
    rows: impl Iterator<Item = Vec<String>>,
    (width, header): (u16, Style),
) -> Table<'static> {
    let shown = shown(columns, width);
    let cell = |at: usize, text: &str| match at < names {
        true => Cell::from(cut(text, columns[at].width)),
        false => Cell::from(Line::from(number(text, columns[at].width)).right_aligned()),
    };
    let rows: Vec<Row<'static>> =
        rows.map(|row| shown.iter().map(|at| cell(*at, &row[*at])).collect()).collect();
    let head = |at: usize| match at < names {
        true => Cell::from(cut(columns[at].name, columns[at].width)),
        false => Cell::from(Line::from(cut(columns[at].name, columns[at].width)).right_aligned()),
    };
    let heads: Row<'static> = shown.iter().map(|at| head(*at)).collect();
    let widths = shown.iter().map(|at| Constraint::Length(columns[*at].width));
    Table::new(rows, widths).header(heads.style(header)).column_spacing(SPACING)
}

/// Number of hidden rows of a table; empty when it shows all.
pub(super) fn note(columns: &[ScreenColumn], width: u16, rows_below: usize) -> String {
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

/// A number in this width: without its fraction, or in thousands or more, if it is longer. It never
/// loses a digit, which would make it another number; what does not fit at all is an ellipsis.
pub(super) fn number(text: &str, width: u16) -> String {
    let fits = |text: &String| text.chars().count() <= usize::from(width);
    if let Some((left, right)) = text.split_once(" + ") {
        let each = width.saturating_sub(3) / 2;
        let sum = format!("{} + {}", number(left, each), number(right, each));
        return Some(text.to_owned()).filter(fits).unwrap_or(sum);
    }
    let without_fraction = || {
        let (whole, fraction) = text.split_once('.')?;
        Some(format!(
            "{whole}{}",
            fraction.trim_start_matches(|digit: char| digit.is_ascii_digit())
        ))
    };
    let in_units = || {
        let whole: f64 = text.replace(',', "").parse().ok()?;
        let units = [(1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E")];
        let mut texts = units.iter().filter(|(unit, _)| whole >= *unit).flat_map(|(unit, name)| {
            [format!("{:.1}{name}", whole / unit), format!("{:.0}{name}", whole / unit)]
        });
        texts.find(fits)
    };
    let candidates = [Some(text.to_owned()), without_fraction(), in_units()];
    candidates.into_iter().flatten().find(fits).unwrap_or_else(|| cut("…", width))
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

#[cfg(test)]
mod tests {
    //! Numbers keep their digits.

    use super::number;

    #[test]
    fn numbers_never_lose_a_digit() {
        for (text, width, expected) in [
            ("1,234", 5, "1,234"),
            ("10,000,000", 9, "10000.0k"),
            ("10,000,000", 6, "10000k"),
            ("10,000,000", 5, "10.0M"),
            ("1023.45 MiB", 10, "1023 MiB"),
            ("99.9%", 3, "99%"),
            ("12,345 + 6,789", 14, "12,345 + 6,789"),
            ("12,345 + 6,789", 13, "12.3k + 6,789"),
            ("1,234", 1, "…"),
            ("1023.45 MiB", 4, "…"),
        ] {
            assert_eq!(number(text, width), expected, "{text} in {width}");
        }
    }
}
