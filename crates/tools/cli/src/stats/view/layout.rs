//! Lays out a [`StatsView`]: lists, tables where they fit, columns where they do not.
//!
//! Things that have the same figures are rows of one table if it fits the width. If not, each gets
//! a heading and its figures in as many columns as there is space for.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Table};

use super::{Entity, Figure, StatsView};
use crate::stats::figures::{self, FigureView};

const GAP: usize = 2;

/// Title of a table's first column.
const NAME_HEADER: &str = "id";

impl StatsView {
    /// The view in lines of at most `width` columns where that is possible.
    pub fn draw(&self, width: usize) -> String {
        let mut sections = Vec::new();
        if !self.whole.figures.is_empty() {
            sections.push(list(&self.whole.figures));
        }
        let parts: Vec<&Entity> = self.whole.parts.iter().collect();
        match parts.iter().any(|entity| !entity.parts.is_empty()) {
            true => sections.extend(parts.iter().map(|entity| nested(entity, width))),
            false => sections.extend(alike(&parts).iter().map(|rows| same(rows, width))),
        }
        let objects: Vec<&Entity> = self.objects.iter().collect();
        sections.extend(alike(&objects).iter().map(|rows| same(rows, width)));
        for (title, rows) in &self.lists {
            let rows: Vec<&Entity> = rows.iter().collect();
            sections.push(format!("{title}\n{}", same(&rows, width)));
        }
        sections
            .extend(self.histograms.iter().map(|(name, histogram)| histogram.draw(name, width)));
        sections.join("\n")
    }
}

/// One figure a line, amounts to the right.
fn list(figures: &[Figure]) -> String {
    let rows: Vec<(&str, FigureView)> = figures
        .iter()
        .map(|figure| (&*figure.name, figures::show(&figure.name, &figure.value)))
        .collect();
    let name_width = rows.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    let numbers = rows.iter().filter(|(_, shown)| shown.is_number);
    let number_width = numbers.map(|(_, shown)| columns(&shown.text)).max().unwrap_or(0);
    let mut out = String::new();
    for (name, FigureView { text, hint, is_number }) in rows {
        let width = if is_number { number_width } else { 0 };
        let hint = hint.map(|hint| format!("  ({hint})")).unwrap_or_default();
        let line = format!("{name:<name_width$}  {text:>width$}{hint}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// An entity with parts: its own figures, then its parts, kind by kind.
fn nested(entity: &Entity, width: usize) -> String {
    let mut out = format!("{}\n", entity.name);
    out.push_str(&indented(&flow(&entity.figures, width.saturating_sub(GAP))));
    let parts: Vec<&Entity> = entity.parts.iter().collect();
    for rows in alike(&parts) {
        out.push_str(&indented(&same(&rows, width.saturating_sub(GAP))));
    }
    out
}

/// Entities by kind. Those of a kind begin with the same figure; some may lack later ones.
fn alike<'e>(entities: &[&'e Entity]) -> Vec<Vec<&'e Entity>> {
    let mut kinds: Vec<(Option<&str>, Vec<&Entity>)> = Vec::new();
    for entity in entities {
        let first = entity.figures.first().map(|figure| &*figure.name);
        match kinds.iter_mut().find(|(kind, _)| *kind == first) {
            Some((_, rows)) => rows.push(entity),
            None => kinds.push((first, vec![entity])),
        }
    }
    kinds.into_iter().map(|(_, rows)| rows).collect()
}

/// Entities of one kind: as a table if it fits and is one.
fn same(rows: &[&Entity], width: usize) -> String {
    match table(rows, width) {
        Some(table) => table,
        None => {
            let block = |entity: &&Entity| {
                let figures = flow(&entity.figures, width.saturating_sub(GAP));
                match entity.name.is_empty() {
                    true => figures,
                    false => format!("{}\n{}", entity.name, indented(&figures)),
                }
            };
            rows.iter().map(block).collect::<Vec<_>>().join("\n")
        }
    }
}

/// `None` when it is wider than `width`.
fn table(rows: &[&Entity], width: usize) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for figure in rows.iter().flat_map(|row| &row.figures) {
        if !names.contains(&&*figure.name) {
            names.push(&figure.name);
        }
    }
    if names.iter().map(|name| columns(name) + GAP).sum::<usize>() > width {
        return None;
    }
    let is_named = rows.iter().any(|row| !row.name.is_empty());
    let shown = |row: &Entity, name: &str| {
        let figure = row.figures.iter().find(|figure| figure.name == name);
        figure.map(|figure| figures::show(name, &figure.value))
    };
    let mut table = Table::new();
    let header = is_named.then_some(NAME_HEADER).into_iter().chain(names.iter().copied());
    table.load_style(NOTHING).set_header(header);
    let mut widths: Vec<usize> = names.iter().map(|name| columns(name)).collect();
    for row in rows {
        let mut cells: Vec<Cell> = Vec::with_capacity(names.len() + 1);
        cells.extend(is_named.then(|| Cell::new(&row.name)));
        for (name, width) in names.iter().zip(&mut widths) {
            let Some(FigureView { text, is_number, .. }) = shown(row, name) else {
                cells.push(Cell::new(""));
                continue;
            };
            *width = columns(&text).max(*width);
            let alignment = if is_number { CellAlignment::Right } else { CellAlignment::Left };
            cells.push(Cell::new(text).set_alignment(alignment));
        }
        table.add_row(cells);
    }
    let name_width = rows.iter().map(|row| columns(&row.name)).max().unwrap_or(0);
    let named_width = if is_named { name_width.max(NAME_HEADER.len()) + GAP } else { 0 };
    if named_width + widths.iter().map(|column| column + GAP).sum::<usize>() > width + GAP {
        return None;
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16));
    }
    Some(format!("{}\n", table.trim_fmt()))
}

/// Figures in columns, downwards first.
fn flow(figures: &[Figure], width: usize) -> String {
    let cells: Vec<(&str, String)> = figures
        .iter()
        .map(|figure| (&*figure.name, figures::show(&figure.name, &figure.value).text))
        .collect();
    let name_width = cells.iter().map(|(name, _)| columns(name)).max().unwrap_or(0);
    // A single long value must not widen all columns; it may overflow at the end of a line.
    let value_width = cells.iter().map(|(_, value)| columns(value).min(24)).max().unwrap_or(0);
    let cell_width = name_width + 1 + value_width + GAP;
    let across = ((width + GAP) / cell_width).max(1);
    let lines = cells.len().div_ceil(across);
    let mut out = String::new();
    for line in 0..lines {
        let row: String = cells
            .iter()
            .skip(line)
            .step_by(lines)
            .map(|(name, value)| format!("{name:<name_width$} {value:>value_width$}  "))
            .collect();
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}").trim_end().to_owned() + "\n").collect()
}

/// Columns of a text on a terminal, approximately: names are nearly always ASCII.
fn columns(text: &str) -> usize {
    text.chars().count()
}
