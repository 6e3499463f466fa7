//! `--watch`: repeats the same group, and shows how fast its counters grow.
//!
//! It owns one node's previous round. A rate is the difference to that round over the time between
//! the two. Only figures that grew have one, so a restarted counter shows none.

use std::collections::HashMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use oribi_client::Stat;

use super::figures::{self, FigureView};
use super::text::{clean, push_json_string, push_json_value};

/// One figure of a round.
#[derive(Clone, PartialEq, Debug)]
struct Entry {
    name: Box<[u8]>,
    value: Box<[u8]>,
    /// The value, if it is a number that may be a counter.
    number: Option<f64>,
    per_second: Option<f64>,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct Watch {
    previous: HashMap<Box<[u8]>, f64>,
    previous_at: Option<Instant>,
    entries: Vec<Entry>,
}

impl Watch {
    /// Adds a figure to the present round.
    pub fn add(&mut self, stat: &Stat<'_>) {
        let text = std::str::from_utf8(stat.value).ok();
        let is_label = std::str::from_utf8(stat.name).is_ok_and(figures::is_label);
        let number = text.filter(|_| !is_label).and_then(|text| text.parse::<f64>().ok());
        self.entries.push(Entry {
            name: stat.name.into(),
            value: stat.value.into(),
            number: number.filter(|number| number.is_finite()),
            per_second: None,
        });
    }

    /// Ends the round: its figures get their rates.
    pub fn end_round(&mut self, now: Instant) {
        let seconds = self.previous_at.map(|before| (now - before).as_secs_f64());
        for entry in &mut self.entries {
            let Some((number, seconds)) = entry.number.zip(seconds) else { continue };
            let grown = self.previous.get(&entry.name).map(|before| number - before);
            let grown = grown.filter(|grown| *grown > 0.0 && seconds > 0.0);
            entry.per_second = grown.map(|grown| grown / seconds);
        }
        let numbers =
            self.entries.iter().filter_map(|entry| Some((entry.name.clone(), entry.number?)));
        self.previous = numbers.collect();
        self.previous_at = Some(now);
    }

    /// Forgets the round, except the part that the next one is compared with.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The round as one line of JSON.
    pub fn json_line(&self, node: Option<&str>, out: &mut Vec<u8>) {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        out.extend_from_slice(format!("{{\"time_ms\":{}", since_epoch.as_millis()).as_bytes());
        if let Some(node) = node {
            out.extend_from_slice(b",\"node\":");
            push_json_string(out, node.as_bytes());
        }
        out.extend_from_slice(b",\"stats\":{");
        for (position, entry) in self.entries.iter().enumerate() {
            push_member(out, position, &entry.name);
            push_json_value(out, &entry.value);
        }
        out.extend_from_slice(b"},\"per_second\":{");
        let grown = self.entries.iter().filter_map(|entry| Some((entry, entry.per_second?)));
        for (position, (entry, per_second)) in grown.enumerate() {
            push_member(out, position, &entry.name);
            out.extend_from_slice(format!("{per_second:.3}").as_bytes());
        }
        out.extend_from_slice(b"}}\n");
    }

    /// The round as lines of name, value and change, at most `lines` of them: then those that
    /// changed come first.
    pub fn draw(&self, lines: usize) -> String {
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        if entries.len() > lines {
            entries.sort_by_key(|entry| entry.per_second.is_none());
        }
        let kept = match entries.len() > lines {
            true => &entries[..lines.saturating_sub(1)],
            false => &entries[..],
        };
        let mut out = columns(kept);
        if kept.len() < entries.len() {
            out.push_str(&format!(
                "({} more; --filter chooses by name)\n",
                entries.len() - kept.len()
            ));
        }
        out
    }
}

fn push_member(out: &mut Vec<u8>, position: usize, name: &[u8]) {
    if position > 0 {
        out.push(b',');
    }
    push_json_string(out, name);
    out.push(b':');
}

fn columns(entries: &[&Entry]) -> String {
    let rows: Vec<(String, FigureView, String)> = entries
        .iter()
        .map(|entry| {
            let name = clean(&entry.name);
            let shown = figures::show(&name, &clean(&entry.value));
            (name, shown, entry.per_second.map(figures::rate).unwrap_or_default())
        })
        .collect();
    let width = |text: &str| text.chars().count();
    let name_width = rows.iter().map(|(name, ..)| width(name)).max().unwrap_or(0);
    let numbers = rows.iter().filter(|(_, shown, _)| shown.is_number);
    let value_width = numbers.map(|(_, shown, _)| width(&shown.text)).max().unwrap_or(0);
    let rate_width = rows.iter().map(|(.., rate)| width(rate)).max().unwrap_or(0);
    rows.iter()
        .map(|(name, shown, rate)| {
            let text = &shown.text;
            let line = match shown.is_number {
                true => {
                    format!("{name:<name_width$}  {text:>value_width$}  {rate:>rate_width$}")
                }
                false => format!("{name:<name_width$}  {text}"),
            };
            format!("{}\n", line.trim_end())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    //! Two rounds, and what they say.

    use std::time::Duration;

    use super::*;

    fn round(watch: &mut Watch, at: Instant, stats: &[(&str, &str)]) {
        watch.clear();
        for (name, value) in stats {
            watch.add(&Stat { name: name.as_bytes(), value: value.as_bytes() });
        }
        watch.end_round(at);
    }

    fn two_rounds() -> Watch {
        let mut watch = Watch::default();
        let start = Instant::now();
        let first = [
            ("cmd_get", "1000"),
            ("curr_items", "9"),
            ("uuid", "1"),
            ("version", "1.6"),
            ("ratio", "0.5"),
        ];
        round(&mut watch, start, &first);
        assert!(watch.entries.iter().all(|entry| entry.per_second.is_none()));
        let second = [
            ("cmd_get", "6000"),
            ("curr_items", "4"),
            ("uuid", "7"),
            ("version", "1.7"),
            ("new", "3"),
        ];
        round(&mut watch, start + Duration::from_secs(2), &second);
        watch
    }

    #[test]
    fn only_what_grew_has_a_rate() {
        let mut line = Vec::new();
        let watch = two_rounds();
        watch.json_line(Some("db:1"), &mut line);
        let line = String::from_utf8(line).unwrap();
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(json["time_ms"].as_u64().is_some_and(|time| time > 1_600_000_000_000));
        assert_eq!(json["node"], "db:1");
        assert_eq!(json["stats"]["curr_items"], 4);
        assert_eq!(json["per_second"], serde_json::json!({ "cmd_get": 2500.0 }));
    }

    #[test]
    fn changed_rows_come_first_on_a_small_screen() {
        let watch = two_rounds();
        assert_eq!(
            watch.draw(10),
            "cmd_get     6,000  2,500/s\n\
             curr_items      4\n\
             uuid        7\n\
             version     1.7\n\
             new             3\n"
        );
        let short =
            "cmd_get     6,000  2,500/s\ncurr_items      4\n(3 more; --filter chooses by name)\n";
        assert_eq!(watch.draw(3), short);
    }
}
