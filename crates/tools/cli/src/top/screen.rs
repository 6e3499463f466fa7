//! The screen of `oribi top`: the model, drawn into a grid of characters.
//!
//! Owns the layout. The same drawing serves the terminal and the plain text of `--once` and
//! `--batch`; the latter is drawn into a grid that has space for everything. [`columns`] chooses
//! what a narrow table shows.

mod columns;

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline, Widget};
use std::time::Duration;

use self::columns::{ScreenColumn, cut, note, number, table};
use super::model::{Rates, TopModel};

/// Columns of the plain text.
const PLAIN_WIDTH: u16 = 120;

/// Longest plain text; longer tables are cut off.
const PLAIN_LINES_MAX: usize = 5000;

/// Lines of the part with rates and sums.
const SUMMARY_LINES: u16 = 8;

/// Width of all columns of the lower table.
const COLLECTIONS_WIDTH: u16 = 116;

/// Columns of the sums, left of the curve.
const SUMS_WIDTH: u16 = 64;

/// Rows of the upper table on a terminal, its header not counted.
const BUCKET_ROWS_MAX: usize = 8;

const HEADER: Style = Style::new().fg(Color::Black).bg(Color::Green);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const ALARM: Style = Style::new().fg(Color::White).bg(Color::Red);

/// Draws the model with a line that names the keys.
pub fn draw(model: &TopModel, area: Rect, buffer: &mut Buffer) {
    let bucket_rows = model.buckets.len().clamp(1, BUCKET_ROWS_MAX) as u16;
    let [body, keys] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    draw_body(model, bucket_rows, body, buffer);
    let help = format!(
        "q quit   s sort ({})   o op/s   i items   m memory   n name   up/down scroll",
        model.sort.name()
    );
    Line::styled(cut(&help, area.width), HEADER).render(keys, buffer);
}

/// The model as lines of text.
pub fn plain(model: &TopModel) -> String {
    let rows = model.buckets.len() + model.collections.len();
    let lines = (rows + usize::from(SUMMARY_LINES) + 6).min(PLAIN_LINES_MAX) as u16;
    let mut buffer = Buffer::empty(Rect::new(0, 0, PLAIN_WIDTH, lines));
    let bucket_rows = model.buckets.len().min(PLAIN_LINES_MAX) as u16;
    draw_body(model, bucket_rows, buffer.area, &mut buffer);
    let text: String = (0..lines).map(|line| format!("{}\n", text_of(&buffer, line))).collect();
    format!("{}\n", text.trim_end())
}

/// One line of a grid, without trailing blanks.
pub fn text_of(buffer: &Buffer, line: u16) -> String {
    let area = buffer.area;
    let cells = (area.left()..area.right()).filter_map(|column| buffer.cell((column, line)));
    cells.map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
}

fn draw_body(model: &TopModel, bucket_rows: u16, area: Rect, buffer: &mut Buffer) {
    let [title, _, summary, over_buckets, buckets, over_collections, collections] =
        Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(SUMMARY_LINES),
            Constraint::Length(1),
            Constraint::Length(bucket_rows.saturating_add(1)),
            Constraint::Length(1),
            Constraint::Fill(1),
        ])
        .areas(area);
    draw_title(model, title, buffer);
    draw_summary(model, summary, buffer);
    draw_table(&BUCKET_COLUMNS, 1, bucket_cells(model), (over_buckets, buckets), buffer);
    let columns = collection_columns(area.width);
    draw_table(&columns, 2, collection_cells(model), (over_collections, collections), buffer);
}

fn draw_title(model: &TopModel, area: Rect, buffer: &mut Buffer) {
    let server = &model.server;
    if let Some(reason) = &model.lost {
        let text = format!("{}  reconnecting: {reason}", model.peer);
        return Line::styled(cut(&text, area.width), ALARM).render(area, buffer);
    }
    let uptime = HumanDuration(Duration::from_secs(server.uptime_s));
    let traffic = format!(
        "  connections {}  in {}/s  out {}/s",
        HumanCount(server.connections),
        HumanBytes(model.received_rate as u64),
        HumanBytes(model.sent_rate as u64),
    );
    let room = usize::from(area.width).saturating_sub(model.peer.chars().count());
    // The traffic stays, and omitted columns have a mark.
    let texts = [
        format!("  {}  up {uptime}{traffic}", server.version),
        format!("  …  up {uptime}{traffic}"),
        format!("  …{traffic}"),
    ];
    let fits = |text: &&String| text.chars().count() <= room;
    let text = texts.iter().find(fits).unwrap_or(&texts[2]);
    let text = cut(text, room as u16);
    Line::from(vec![Span::styled(model.peer.clone(), STRONG), text.into()]).render(area, buffer);
}

fn draw_summary(model: &TopModel, area: Rect, buffer: &mut Buffer) {
    let [sums, curve] =
        Layout::horizontal([Constraint::Length(SUMS_WIDTH), Constraint::Fill(1)]).areas(area);
    Paragraph::new(sum_lines(model, sums.width)).render(sums, buffer);
    let [label, curve] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(curve);
    let most = model.history.iter().copied().max().unwrap_or(0);
    let texts =
        [format!("op/s, highest {}", HumanCount(most)), format!("max {}", HumanCount(most))];
    let fits = |text: &&String| text.chars().count() <= usize::from(label.width);
    let text = texts.iter().find(fits).unwrap_or(&texts[1]);
    Line::from(cut(text, label.width)).render(label, buffer);
    // The latest is at the right end, whether or not the curve is that long yet.
    let shown = model.history.len().min(usize::from(curve.width));
    let left = curve.width - shown as u16;
    let curve = Rect { x: curve.x + left, width: curve.width - left, ..curve };
    let latest = model.history.iter().skip(model.history.len() - shown).copied();
    Sparkline::default().data(latest).style(Style::new().fg(Color::Green)).render(curve, buffer);
}

/// Widths of the numbers on the left and on the right, and of the blanks between.
const fn sum_widths(width: u16) -> (u16, u16, u16) {
    match width {
        61.. => (16, 18, 4),
        39.. => ((width - 25) / 2, (width - 24) / 2, 2),
        // No space for the right side.
        _ => (width.saturating_sub(10), 0, 0),
    }
}

fn sum_lines(model: &TopModel, width: u16) -> Vec<Line<'static>> {
    let Rates { gets, sets, deletes, touches } = model.rates;
    let [binary, text, meta] = model.protocol_rates;
    let [items, memory, quota, queue, streams, lag] = model.sums();
    let persisted: f64 = model.buckets.iter().map(|row| row.persisted_rate).sum();
    let fetched: f64 = model.buckets.iter().map(|row| row.fetched_rate).sum();
    let (left_width, right_width, gap) = sum_widths(width);
    let left = |name: &str, value: String| {
        format!("{name:<10}{:>1$}", number(&value, left_width), usize::from(left_width))
    };
    let right = |name: &str, value: String| match right_width {
        0 => String::new(),
        _ => format!(
            "{:gap$}{name:<13}{:>width$}",
            "",
            number(&value, right_width),
            gap = usize::from(gap),
            width = usize::from(right_width)
        ),
    };
    let pair = |left_name: &str, left_value: String, right_name: &str, right_value: String| {
        Line::from(left(left_name, left_value) + &right(right_name, right_value))
    };
    vec![
        Line::from(vec![
            Span::styled(left("op/s", count(model.rates.total())), STRONG),
            right("hit ratio", percent(model.hit_ratio)).into(),
        ]),
        pair("get/s", count(gets), "items", HumanCount(items).to_string()),
        pair("set/s", count(sets), "memory", HumanBytes(memory).to_string()),
        pair("delete/s", count(deletes), "of quota", share(memory, quota)),
        pair("touch/s", count(touches), "flush queue", HumanCount(queue).to_string()),
        pair("fetched/s", count(fetched), "persisted/s", count(persisted)),
        pair(
            "binary/s",
            count(binary),
            "text + meta/s",
            format!("{} + {}", count(text), count(meta)),
        ),
        pair("streams", HumanCount(streams).to_string(), "stream lag", HumanCount(lag).to_string()),
    ]
}

const fn column(name: &'static str, width: u16, rank: u8) -> ScreenColumn {
    ScreenColumn { name, width, rank }
}

const BUCKET_COLUMNS: [ScreenColumn; 15] = [
    column("bucket", 14, 0),
    column("op/s", 9, 1),
    column("get/s", 9, 6),
    column("set/s", 9, 7),
    column("hits", 6, 8),
    column("items", 13, 2),
    column("memory", 10, 3),
    column("quota", 6, 4),
    column("in mem", 6, 9),
    column("fetch/s", 8, 11),
    column("queue", 9, 5),
    column("persist/s", 9, 10),
    column("streams", 7, 12),
    column("lag", 9, 13),
    column("dense", 9, 14),
];

fn bucket_cells(model: &TopModel) -> impl ExactSizeIterator<Item = Vec<String>> + '_ {
    model.buckets.iter().map(|row| {
        let sample = &row.sample;
        vec![
            sample.name.clone(),
            count(row.rates.total()),
            count(row.rates.gets),
            count(row.rates.sets),
            percent(row.hit_ratio),
            HumanCount(sample.items).to_string(),
            HumanBytes(sample.memory_bytes).to_string(),
            share(sample.memory_bytes, sample.quota_bytes),
            format!("{}%", sample.resident_percent),
            count(row.fetched_rate),
            HumanCount(sample.queue_items).to_string(),
            count(row.persisted_rate),
            HumanCount(sample.streams).to_string(),
            HumanCount(sample.stream_lag).to_string(),
            HumanCount(sample.dense).to_string(),
        ]
    })
}

/// Columns of the lower table: names take less space where it is scarce.
const fn collection_columns(width: u16) -> [ScreenColumn; 8] {
    let (bucket, collection) = if width < COLLECTIONS_WIDTH { (14, 22) } else { (16, 30) };
    [
        column("bucket", bucket, 0),
        column("collection", collection, 1),
        column("op/s", 10, 2),
        column("get/s", 10, 5),
        column("set/s", 10, 6),
        column("delete/s", 9, 7),
        column("items", 13, 3),
        column("memory", 11, 4),
    ]
}

fn collection_cells(model: &TopModel) -> impl ExactSizeIterator<Item = Vec<String>> + '_ {
    model.collections.iter().skip(model.scrolled).map(|row| {
        let sample = &row.sample;
        vec![
            row.bucket.clone(),
            sample.path.clone(),
            count(row.rates.total()),
            count(row.rates.gets),
            count(row.rates.sets),
            count(row.rates.deletes),
            HumanCount(sample.items).to_string(),
            HumanBytes(sample.memory_bytes).to_string(),
        ]
    })
}

/// Draws a table, and above it the columns that do not fit.
fn draw_table(
    columns: &[ScreenColumn],
    names: usize,
    rows: impl ExactSizeIterator<Item = Vec<String>>,
    (above, area): (Rect, Rect),
    buffer: &mut Buffer,
) {
    let below = rows.len().saturating_sub(usize::from(area.height.saturating_sub(1)));
    Line::from(note(columns, area.width, below)).render(above, buffer);
    Widget::render(table(columns, names, rows, (area.width, HEADER)), area, buffer);
}

fn count(rate: f64) -> String {
    HumanCount(rate.round() as u64).to_string()
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "-".to_owned(), |part| format!("{:.1}%", part * 100.0))
}

fn share(part: u64, whole: u64) -> String {
    percent((whole > 0).then(|| part as f64 / whole as f64))
}

#[cfg(test)]
mod tests;
