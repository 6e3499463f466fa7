//! Tables of text: a header, and columns as wide as what stands in them.

use crate::stats::clean;

/// The lines of a table. Names from a server do not control the terminal.
pub fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut all = vec![header.map(str::to_owned)];
    all.extend(rows.into_iter().map(|row| row.map(|cell| clean(cell.as_bytes()))));
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &all {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let rows = vec![["a".to_owned(), "1".to_owned()], ["l\u{e9}ng".to_owned(), String::new()]];
        assert_eq!(table(["NAME", "N"], rows), "NAME  N\na     1\nl\u{e9}ng\n");
        let table = table(["NAME"], vec![["a\u{1b}[2J".to_owned()]]);
        assert!(!table.contains('\u{1b}'), "{table:?}");
    }
}
