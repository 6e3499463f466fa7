//! What is drawn, on a terminal that remembers it.

use std::time::Instant;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::model::SortKey;
use crate::top::model::tests::sample;

fn model() -> TopModel {
    let start = Instant::now();
    let mut model = TopModel::new("db:11210".to_owned(), SortKey::Ops);
    for seconds in 0..4 {
        model.update(sample(start, seconds));
    }
    model
}

fn drawn(model: &TopModel, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, frame.area(), frame.buffer_mut())).unwrap();
    let buffer = terminal.backend().buffer();
    (0..height).map(|line| text_of(buffer, line)).collect()
}

#[test]
fn all_figures_fit_on_one_screen() {
    let lines = drawn(&model(), 120, 24);
    let expected = [
        "db:11210  1.6.0-oribi  up 62 minutes  connections 12  in 1.91 MiB/s  out 38.15 MiB/s",
        "",
        "op/s                12,010    hit ratio                 90.0%   op/s, highest 12,010",
        "get/s                9,000    items                    37,035                                                        ███",
        "set/s                3,000    memory                96.00 MiB                                                        ███",
        "delete/s                 0    of quota                   4.7%                                                        ███",
        "touch/s                 10    flush queue                  34                                                        ███",
        "fetched/s               90    persisted/s               2,700                                                        ███",
        "binary/s            12,480    text + meta/s          500 + 20                                                        ███",
        "streams                192    stream lag                   15                                                        ███",
        "… no room for streams, lag, dense",
        "bucket              op/s     get/s     set/s   hits         items     memory  quota in mem  fetch/s     queue persist/s",
        "beta               8,005     6,000     2,000  90.0%        24,690  32.00 MiB   3.1%    60%       60        17     1,800",
        "alpha              4,005     3,000     1,000  90.0%        12,345  64.00 MiB   6.2%    50%       30        17       900",
        "",
        "bucket           collection                           op/s      get/s      set/s  delete/s         items      memory",
        "beta             debian.packages                     2,000      2,000          0         0         8,000    1.95 MiB",
        "alpha            debian.packages                     1,000      1,000          0         0         9,000 1000.00 KiB",
        "alpha            _default._default                       0          0          0         0        10,000         0 B",
        "beta             _default._default                       0          0          0         0        10,000         0 B",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(line, expected);
    }
    assert!(lines[20..23].iter().all(String::is_empty));
    assert!(lines[23].starts_with("q quit   s sort (op/s)"), "{}", lines[23]);
}

#[test]
fn a_wide_screen_has_the_streams_of_each_bucket() {
    let lines = drawn(&model(), 140, 24);
    assert!(lines[11].ends_with("persist/s streams       lag"), "{}", lines[11]);
    assert!(lines[12].ends_with("1,800     128        10"), "{}", lines[12]);
}

/// Nothing is cut off without a mark on the usual terminal.
#[test]
fn eighty_columns_name_the_hidden_columns() {
    let mut model = model();
    let lines = drawn(&model, 80, 24);
    let expected = [
        "db:11210  …  up 62 minutes  connections 12  in 1.91 MiB/s  out 38.15 MiB/s",
        "",
        "op/s                12,010    hit ratio                 90.0%   max 12,010",
    ];
    for (line, expected) in lines.iter().zip(expected) {
        assert_eq!(line, expected);
    }
    let rest = [
        "… no room for set/s, hits, in mem, fetch/s, persist/s, streams, lag, dense",
        "bucket              op/s     get/s         items     memory  quota     queue",
        "beta               8,005     6,000        24,690  32.00 MiB   3.1%        17",
        "alpha              4,005     3,000        12,345  64.00 MiB   6.2%        17",
        "… no room for get/s, set/s, delete/s",
        "bucket         collection                   op/s         items      memory",
        "beta           debian.packages             2,000         8,000    1.95 MiB",
    ];
    for (line, expected) in lines[10..].iter().zip(rest) {
        assert_eq!(line, expected);
    }
    assert!(lines[23].ends_with("up/down scroll"), "{}", lines[23]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");

    // Few lines: the tables say how much is below. Long names and reasons end in a mark.
    let lines = drawn(&model, 80, 18);
    assert!(lines[14 - 1].starts_with("alpha"), "{lines:#?}");
    assert!(lines[14].starts_with("… 3 more rows; no room for get/s"), "{lines:#?}");
    model.buckets[0].sample.name = "a-bucket-with-a-long-name".to_owned();
    let lines = drawn(&model, 80, 24);
    assert!(lines[12].starts_with("a-bucket-with…  "), "{}", lines[12]);
    model.lose("the reason is so long ".repeat(5));
    let lines = drawn(&model, 80, 24);
    assert!(lines[0].ends_with('…') && lines[0].chars().count() == 80, "{}", lines[0]);
}

/// A number without its last digits is another number.
#[test]
fn narrow_terminals_cut_no_digit_of_the_sums() {
    let wide = drawn(&model(), 120, 24);
    let numbers = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    for width in 11..80 {
        let lines = drawn(&model(), width, 24);
        for (line, wide) in lines[2..10].iter().zip(&wide[2..10]) {
            let value = line.chars().skip(10).take(usize::from(width)).collect::<String>();
            let expected = numbers(&wide.chars().skip(10).collect::<String>());
            let first = numbers(&value).into_iter().next().unwrap_or_default();
            let is_short = first == "…" || first.ends_with(['k', 'M']) || first.contains(" + ");
            assert!(first == expected[0] || is_short, "{width}: {line:?} of {wide:?}");
        }
    }
}

#[test]
fn a_lost_server_is_told_over_the_last_figures() {
    let mut model = model();
    model.lose("connection refused".to_owned());
    let lines = drawn(&model, 120, 24);
    assert_eq!(lines[0], "db:11210  reconnecting: connection refused");
    assert!(lines[12].starts_with("beta "), "{lines:?}");
}

#[test]
fn scrolling_moves_the_lower_table() {
    let mut model = model();
    model.scroll(2);
    let lines = drawn(&model, 120, 24);
    assert!(lines[16].starts_with("alpha            _default"), "{lines:?}");
}

#[test]
fn plain_text_has_everything_and_no_keys() {
    let text = plain(&model());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 20);
    assert!(lines[0].starts_with("db:11210  1.6.0-oribi"));
    assert!(lines[19].starts_with("beta             _default._default"));
    assert!(!text.contains("quit"));
}

/// Any size of terminal is drawn to without a panic, also before anything is known.
#[test]
fn small_terminals_show_what_fits() {
    let empty = TopModel::new("db:11210".to_owned(), SortKey::Ops);
    for model in [&model(), &empty] {
        for (width, height) in [(1, 1), (2, 5), (20, 3), (40, 10), (300, 100)] {
            drawn(model, width, height);
        }
        assert!(plain(model).starts_with("db:11210"));
    }
}
