//! The screen of `oribi top`: the model, drawn into a grid of characters.
//!
//! Owns the layout. The same drawing serves the terminal and the plain text of `--once` and
//! `--batch`; the latter is drawn into a grid that has room for everything.

use indicatif::{HumanBytes, HumanCount, HumanDuration};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, Widget};
use std::time::Duration;

use super::model::{Model, Rates};

/// Columns of the plain text.
const PLAIN_WIDTH: u16 = 120;

/// Longest plain text; longer tables are cut off.
const PLAIN_LINES_MAX: usize = 5000;

/// Lines of the part with rates and sums.
const SUMMARY_LINES: u16 = 8;

/// From this width on, the table of buckets has columns for change streams too.
const STREAMS_WIDTH_MIN: u16 = 138;

/// Columns of the sums, left of the curve.
const SUMS_WIDTH: u16 = 64;

/// Rows of the upper table on a terminal, its header not counted.
const BUCKET_ROWS_MAX: usize = 8;

const HEADER: Style = Style::new().fg(Color::Black).bg(Color::Green);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
const ALARM: Style = Style::new().fg(Color::White).bg(Color::Red);

/// Draws the model with a line that names the keys.
pub fn draw(model: &Model, area: Rect, buffer: &mut Buffer) {
    let bucket_rows = model.buckets.len().clamp(1, BUCKET_ROWS_MAX) as u16;
    let [body, keys] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    draw_body(model, bucket_rows, body, buffer);
    let help = format!(
        "q quit   s sort ({})   o op/s   i items   m memory   n name   up/down scroll",
        model.sort.name()
    );
    Line::styled(help, HEADER).render(keys, buffer);
}

/// The model as lines of text.
pub fn plain(model: &Model) -> String {
    let rows = model.buckets.len() + model.collections.len();
    let lines = (rows + usize::from(SUMMARY_LINES) + 6).min(PLAIN_LINES_MAX) as u16;
    let mut buffer = Buffer::empty(Rect::new(0, 0, PLAIN_WIDTH, lines));
    let bucket_rows = model.buckets.len().min(PLAIN_LINES_MAX) as u16;
    draw_body(model, bucket_rows, buffer.area, &mut buffer);
    let text: String = (0..lines).map(|line| format!("{}\n", text_of(&buffer, line))).collect();
    format!("{}\n", text.trim_end())
}

/// One line of a grid, without what is blank at its end.
pub fn text_of(buffer: &Buffer, line: u16) -> String {
    let area = buffer.area;
    let cells = (area.left()..area.right()).filter_map(|column| buffer.cell((column, line)));
    cells.map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
}

fn draw_body(model: &Model, bucket_rows: u16, area: Rect, buffer: &mut Buffer) {
    let [title, _, summary, _, buckets, _, collections] = Layout::vertical([
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
    Widget::render(bucket_table(model, area.width), buckets, buffer);
    Widget::render(collection_table(model), collections, buffer);
}

fn draw_title(model: &Model, area: Rect, buffer: &mut Buffer) {
    let server = &model.server;
    if let Some(reason) = &model.lost {
        let text = format!("{}  reconnecting: {reason}", model.peer);
        return Line::styled(text, ALARM).render(area, buffer);
    }
    let uptime = HumanDuration(Duration::from_secs(server.uptime_s));
    let text = format!(
        "  {}  up {uptime}  connections {}  in {}/s  out {}/s",
        server.version,
        HumanCount(server.connections),
        HumanBytes(model.received_rate as u64),
        HumanBytes(model.sent_rate as u64),
    );
    Line::from(vec![Span::styled(model.peer.clone(), STRONG), text.into()]).render(area, buffer);
}

fn draw_summary(model: &Model, area: Rect, buffer: &mut Buffer) {
    let [sums, curve] =
        Layout::horizontal([Constraint::Length(SUMS_WIDTH), Constraint::Fill(1)]).areas(area);
    Paragraph::new(sum_lines(model)).render(sums, buffer);
    let [label, curve] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(curve);
    let most = model.history.iter().copied().max().unwrap_or(0);
    Line::from(format!("op/s, highest {}", HumanCount(most))).render(label, buffer);
    // The latest is at the right end, whether or not the curve is that long yet.
    let shown = model.history.len().min(usize::from(curve.width));
    let left = curve.width - shown as u16;
    let curve = Rect { x: curve.x + left, width: curve.width - left, ..curve };
    let latest = model.history.iter().skip(model.history.len() - shown).copied();
    Sparkline::default().data(latest).style(Style::new().fg(Color::Green)).render(curve, buffer);
}

fn sum_lines(model: &Model) -> Vec<Line<'static>> {
    let Rates { gets, sets, deletes, touches } = model.rates;
    let [binary, text, meta] = model.protocol_rates;
    let [items, memory, quota, queue, streams, lag] = model.sums();
    let persisted: f64 = model.buckets.iter().map(|row| row.persisted_rate).sum();
    let fetched: f64 = model.buckets.iter().map(|row| row.fetched_rate).sum();
    let pair = |left: &str, left_value: String, right: &str, right_value: String| {
        Line::from(format!("{left:<10}{left_value:>16}    {right:<13}{right_value:>18}"))
    };
    let first = format!("{:<10}{:>16}", "op/s", count(model.rates.total()));
    vec![
        Line::from(vec![
            Span::styled(first, STRONG),
            format!("    {:<13}{:>18}", "hit ratio", percent(model.hit_ratio)).into(),
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

fn bucket_table(model: &Model, width: u16) -> Table<'static> {
    let has_streams = width >= STREAMS_WIDTH_MIN;
    let rows = model.buckets.iter().map(|row| {
        let sample = &row.sample;
        numbers_row(
            vec![sample.name.clone()],
            [
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
            ],
        )
    });
    let header = numbers_row(
        vec!["bucket".to_owned()],
        [
            "op/s",
            "get/s",
            "set/s",
            "hits",
            "items",
            "memory",
            "quota",
            "in mem",
            "fetch/s",
            "queue",
            "persist/s",
            "streams",
            "lag",
        ]
        .map(str::to_owned),
    );
    let widths = [14, 9, 9, 9, 6, 13, 10, 6, 6, 8, 9, 9, 7, 9];
    // A narrow table shows the columns that have a width.
    let shown = if has_streams { widths.len() } else { widths.len() - 2 };
    table(rows, header, &widths[..shown])
}

fn collection_table(model: &Model) -> Table<'static> {
    let rows = model.collections.iter().skip(model.scrolled).map(|row| {
        let sample = &row.sample;
        numbers_row(
            vec![row.bucket.clone(), sample.path.clone()],
            [
                count(row.rates.total()),
                count(row.rates.gets),
                count(row.rates.sets),
                count(row.rates.deletes),
                HumanCount(sample.items).to_string(),
                HumanBytes(sample.memory_bytes).to_string(),
            ],
        )
    });
    let header = numbers_row(
        vec!["bucket".to_owned(), "collection".to_owned()],
        ["op/s", "get/s", "set/s", "delete/s", "items", "memory"].map(str::to_owned),
    );
    let widths = [16, 30, 10, 10, 10, 9, 13, 11];
    table(rows, header, &widths)
}

fn table(
    rows: impl Iterator<Item = Row<'static>>,
    header: Row<'static>,
    widths: &[u16],
) -> Table<'static> {
    let widths = widths.iter().map(|width| Constraint::Length(*width));
    Table::new(rows, widths).header(header.style(HEADER)).column_spacing(1)
}

/// Names to the left, numbers to the right of their columns.
fn numbers_row<const N: usize>(names: Vec<String>, numbers: [String; N]) -> Row<'static> {
    let numbers = numbers.map(|number| Cell::from(Line::from(number).right_aligned()));
    Row::new(names.into_iter().map(Cell::from).chain(numbers))
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
