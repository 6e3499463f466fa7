//! Histograms, which servers send as JSON, drawn as bars.
//!
//! The form is `{"bucketsLow":l,"data":[[upper,count,percentile],..],"total":n,"overflowed":n,..}`:
//! ranges in ascending order, of which each begins where the one before ends. Anything else that
//! is JSON is no histogram and shown as what it is. Counts may be anything; sums saturate.

use std::fmt::Write;

use indicatif::HumanCount;
use serde::Deserialize;

/// More ranges than this are joined with their neighbours, so that a histogram fits a screen.
const ROWS_MAX: usize = 24;

const BAR_WIDTH_MAX: usize = 48;

/// A part of the values and how often they occurred.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Range {
    low: f64,
    high: f64,
    count: u64,
}

/// See the module text.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    ranges: Vec<Range>,
    overflowed: u64,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "bucketsLow")]
    buckets_low: f64,
    data: Vec<(f64, u64, f64)>,
    #[serde(default)]
    overflowed: u64,
}

impl Histogram {
    /// The histogram in a figure's value, if it is one.
    pub fn parse(value: &str) -> Option<Histogram> {
        if !value.starts_with('{') {
            return None;
        }
        let Document { mut buckets_low, data, overflowed } = serde_json::from_str(value).ok()?;
        let ranges = data.into_iter().map(|(high, count, _)| {
            let low = std::mem::replace(&mut buckets_low, high);
            Range { low, high, count }
        });
        Some(Histogram { ranges: ranges.collect(), overflowed })
    }

    pub fn total(&self) -> u64 {
        self.ranges.iter().fold(self.overflowed, |sum, range| sum.saturating_add(range.count))
    }

    /// The upper end of the range in which the given part (0 to 1) of the values is reached; `None`
    /// when that is beyond the ranges or nothing was counted.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = ((self.total() as f64 * part).ceil() as u64).max(1);
        let mut seen = 0_u64;
        self.ranges.iter().find_map(|range| {
            seen = seen.saturating_add(range.count);
            (seen >= wanted).then_some(range.high)
        })
    }

    /// One line of percentiles, then one of each range: its ends, its count, the part of the values
    /// up to its end, and a bar.
    pub fn draw(&self, name: &str, width: usize) -> String {
        let unit = if is_time(name) { " µs" } else { "" };
        let mut out = format!("{name}: {}", self.summary(unit));
        let rows = self.rows();
        let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
        let texts: Vec<[String; 3]> = rows.iter().map(Range::texts).collect();
        let widest = |column: usize| texts.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths = [widest(0), widest(1), widest(2)];
        let fixed = widths.iter().sum::<usize>() + "   -   100.00%  ".len() + 2;
        let bar_width = width.saturating_sub(fixed).clamp(8, BAR_WIDTH_MAX);
        let total = self.total().max(1) as f64;
        let mut seen = 0_u64;
        for (row, [low, high, count]) in rows.iter().zip(&texts) {
            seen = seen.saturating_add(row.count);
            let percent = seen as f64 / total * 100.0;
            let filled = bar(row.count as f64 / most.max(1) as f64, bar_width);
            let [low_width, high_width, count_width] = widths;
            // One value is no range.
            let ends = match low == high {
                true => format!("{high:>width$}", width = low_width + 3 + high_width),
                false => format!("{low:>low_width$} - {high:>high_width$}"),
            };
            // Writing to a string cannot fail.
            let _ = write!(out, "\n  {ends}  {count:>count_width$} {percent:>6.2}%  {filled}");
            out.truncate(out.trim_end().len());
        }
        if self.overflowed > 0 {
            let _ = write!(out, "\n  beyond: {}", HumanCount(self.overflowed));
        }
        out.push('\n');
        out
    }

    fn summary(&self, unit: &str) -> String {
        let total = self.total();
        if total == 0 {
            return "empty".to_owned();
        }
        let mut text = format!("{} values", HumanCount(total));
        for (label, part) in
            [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)]
        {
            let value = self.quantile(part).map(|value| number(value) + unit);
            let value = value.unwrap_or_else(|| "beyond".to_owned());
            let _ = write!(text, "  {label} {value}");
        }
        text
    }

    /// The ranges, joined until they are few: into steps that grow with the values, so that bars
    /// next to each other compare, else with their neighbours. Empty ones at both ends are left
    /// out.
    fn rows(&self) -> Vec<Range> {
        let is_used = |range: &Range| range.count > 0;
        let first = self.ranges.iter().position(is_used).unwrap_or(self.ranges.len());
        let end = self.ranges.iter().rposition(is_used).map_or(first, |last| last + 1);
        let used = &self.ranges[first..end];
        steps(used).unwrap_or_else(|| joined(used))
    }
}

/// True for figures that servers of this protocol give in microseconds: durations of commands and
/// of background work.
fn is_time(name: &str) -> bool {
    const TIMES: [&str; 7] = [
        "bg_load",
        "bg_wait",
        "checkpoint_remover",
        "disk_commit",
        "persistence_cursor_get_all_items",
        "storage_age",
        "store_fetch",
    ];
    name.ends_with("_cmd") || TIMES.contains(&name)
}

/// Joins neighbours, the same number of them everywhere.
fn joined(ranges: &[Range]) -> Vec<Range> {
    let join = |ranges: &[Range]| Range {
        low: ranges[0].low,
        high: ranges[ranges.len() - 1].high,
        count: ranges.iter().fold(0, |sum, range| sum.saturating_add(range.count)),
    };
    ranges.chunks(ranges.len().div_ceil(ROWS_MAX).max(1)).map(join).collect()
}

/// Sorts ranges by their upper ends into steps of an octave or a part of one; `None` when the
/// values reach too far for that, or below 1.
fn steps(ranges: &[Range]) -> Option<Vec<Range>> {
    let lowest = ranges.first().filter(|range| range.high >= 1.0)?.high;
    let highest = ranges.last()?.high;
    // Ends are whole numbers nearly always, so small values have no finer steps than octaves.
    let step_of = |high: f64, per_octave: i32| (high.log2() * f64::from(per_octave)).ceil() as i32;
    let per_octave = [8, 4, 2, 1].into_iter().find(|&per_octave| {
        let rows = step_of(highest, per_octave).saturating_sub(step_of(lowest, per_octave));
        rows < ROWS_MAX as i32 && (per_octave == 1 || lowest >= 16.0)
    })?;
    let end_of = |step: i32| (f64::from(step) / f64::from(per_octave)).exp2().round();
    let first = step_of(lowest, per_octave);
    let mut rows: Vec<Range> = (first..=step_of(highest, per_octave))
        .map(|step| Range { low: end_of(step - 1).floor(), high: end_of(step), count: 0 })
        .collect();
    if first == 0 {
        rows[0].low = 0.0;
    }
    for range in ranges {
        // Ranges ascend, unless the server sends nonsense.
        let row = step_of(range.high.clamp(lowest, highest), per_octave) - first;
        let row = rows.get_mut(usize::try_from(row).ok()?)?;
        row.count = row.count.saturating_add(range.count);
    }
    Some(rows)
}

impl Range {
    fn texts(&self) -> [String; 3] {
        [number(self.low), number(self.high), HumanCount(self.count).to_string()]
    }
}

fn number(value: f64) -> String {
    match value {
        0.0..1e15 if value.fract() == 0.0 => HumanCount(value as u64).to_string(),
        _ if value.abs() < 1e15 => format!("{value}"),
        _ => format!("{value:e}"),
    }
}

/// A bar of `part` (0 to 1) of `width` characters, exact to an eighth of one. What is more than
/// nothing shows.
pub fn bar(part: f64, width: usize) -> String {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let wanted = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = wanted.max(usize::from(part > 0.0));
    let mut text = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        text.push(PARTS[eighths % 8]);
    }
    text
}

#[cfg(test)]
mod tests {
    //! Drawings of known histograms, and values that are none.

    use super::*;

    const SMALL: &str = r#"{"bucketsLow":0,"data":[[1,0,0.0],[2,10,10.0],[4,80,90.0],
        [8,9,99.0],[30,1,100.0],[2048,0,100.0]],"total":100,"overflowed":0,"overflowed_sum":0,
        "max_trackable":60000000}"#;

    #[test]
    fn draws_bars_with_percentiles() {
        let histogram = Histogram::parse(SMALL).unwrap();
        assert_eq!(
            histogram.draw("get_cmd", 60),
            "get_cmd: 100 values  p50 4 µs  p90 4 µs  p99 8 µs  p99.9 30 µs  max 30 µs\n\
             \x20  1 -  2  10  10.00%  ████▌\n\
             \x20  2 -  4  80  90.00%  ████████████████████████████████████\n\
             \x20  4 -  8   9  99.00%  ████\n\
             \x20  8 - 16   0  99.00%\n\
             \x20 16 - 32   1 100.00%  ▌\n"
        );
    }

    #[test]
    fn steps_are_finer_where_values_are_close() {
        let json =
            r#"{"bucketsLow":0,"data":[[90000,0,0],[100000,4,1],[150000,5,2],[151000,1,3]]}"#;
        let rows = Histogram::parse(json).unwrap().rows();
        let ends: Vec<(f64, f64, u64)> =
            rows.iter().map(|row| (row.low, row.high, row.count)).collect();
        assert_eq!(ends.len(), 6);
        assert_eq!(ends[0], (92_682.0, 101_070.0, 4));
        assert_eq!(ends[5], (142_935.0, 155_872.0, 6));
    }

    /// Values below 1, descending ends and ends beyond any octave are drawn too.
    #[test]
    fn odd_ranges_are_joined_instead() {
        for data in ["[0.5,1,0],[0.75,2,0]", "[0,1,0],[5,1,0]", "[1,1,0],[1e300,2,0]"] {
            let json = format!(r#"{{"bucketsLow":0,"data":[{data}]}}"#);
            let histogram = Histogram::parse(&json).unwrap();
            assert_eq!(histogram.rows(), histogram.ranges);
        }
        let json = r#"{"bucketsLow":0,"data":[[64,1,0],[2,1,0],[128,1,0]]}"#;
        let rows = Histogram::parse(json).unwrap().rows();
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 3);
    }

    #[test]
    fn many_ranges_are_joined_and_lose_nothing() {
        let data: Vec<String> = (1..=1000).map(|high| format!("[{high},2,0.0]")).collect();
        let json = format!(r#"{{"bucketsLow":0,"data":[{}],"overflowed":5}}"#, data.join(","));
        let histogram = Histogram::parse(&json).unwrap();
        assert_eq!(histogram.total(), 2005);
        assert_eq!(histogram.quantile(0.5), Some(502.0));
        assert_eq!(histogram.quantile(1.0), None, "beyond the ranges");
        let rows = histogram.rows();
        assert!(rows.len() <= ROWS_MAX);
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 2000);
        assert_eq!((rows[0].low, rows[rows.len() - 1].high), (0.0, 1024.0));
        assert_eq!(rows[rows.len() - 1], Range { low: 512.0, high: 1024.0, count: 976 });
        let drawn = histogram.draw("h", 80);
        assert!(drawn.contains("p99.9 beyond") && drawn.ends_with("beyond: 5\n"), "{drawn}");
    }

    #[test]
    fn empty_histograms_are_not_drawn() {
        let empty = r#"{"bucketsLow":0,"data":[],"total":0}"#;
        let histogram = Histogram::parse(empty).unwrap();
        assert_eq!(histogram.draw("arith_cmd", 80), "arith_cmd: empty\n");
        assert_eq!(histogram.quantile(0.5), None);
        for other in
            ["", "17", "{}", "[]", r#"{"bucketsLow":0,"data":[[1,-1,0]]}"#, "{\"data\":[]}"]
        {
            assert_eq!(Histogram::parse(other), None, "{other}");
        }
    }

    /// Counts that no sum can hold neither overflow nor panic.
    #[test]
    fn absurd_counts_saturate() {
        let json = format!(
            r#"{{"bucketsLow":-1e300,"data":[[1e300,{max},1],[1e301,{max},1]],"overflowed":{max}}}"#,
            max = u64::MAX
        );
        let histogram = Histogram::parse(&json).unwrap();
        assert_eq!(histogram.total(), u64::MAX);
        let drawn = histogram.draw("h", 0);
        assert!(drawn.lines().count() > 3 && drawn.lines().all(|line| line.len() < 120), "{drawn}");
    }

    #[test]
    fn bars_show_eighths() {
        assert_eq!(bar(0.0, 4), "");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53125, 4), "██▏");
        assert_eq!(bar(7.0, 4), "████");
    }
}
