//! Progress of making, checking or restoring a backup.

use std::fmt;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use super::restore::writes::RestoreTotals;

/// Before, an estimate of the time that is left is a guess: connecting and the first batches are
/// slower than the rest.
const ESTIMATE_AFTER: Duration = Duration::from_secs(3);

/// A bar over a known number of records, or a count of them.
pub fn bar(records: Option<u64>, what: &'static str) -> ProgressBar {
    let (bar, template) = match records {
        Some(records) => (
            ProgressBar::new(records),
            "{prefix} {wide_bar} {human_pos}/{human_len}  {rate}  {left}  {msg}",
        ),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {human_pos}  {rate}  {msg}"),
    };
    let style = with_rate_and_left(template);
    bar.with_style(style).with_prefix(what)
}

/// A style that knows `{rate}`, a whole number a second, and `{left}`, the time that is left, once
/// there is enough to tell it by.
pub fn with_rate_and_left(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = write!(out, "{}/s", HumanCount(state.per_sec().round() as u64));
    };
    let left = |state: &ProgressState, out: &mut dyn fmt::Write| {
        if state.elapsed() >= ESTIMATE_AFTER && state.pos() > 0 {
            let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
        }
    };
    style.with_key("rate", rate).with_key("left", left)
}

/// So many of something, whose plural is regular.
pub fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", HumanCount(number))
}

/// Progress of a restore or a copy, after its verb: written documents come first, because
/// versions that are there already are read as well.
pub fn written(totals: &RestoreTotals, what: &str, elapsed: Duration) -> String {
    let left_alone = match totals.skipped {
        0 => String::new(),
        skipped => format!("; {} left alone, the same or newer there", HumanCount(skipped)),
    };
    format!(
        "{}{what} in {:.2} s{left_alone}; read {} and {}",
        counted(totals.written, "version"),
        elapsed.as_secs_f64(),
        amount(totals.documents, totals.bytes),
        counted(totals.removals, "removal"),
    )
}

/// Documents and bytes for people.
pub fn amount(records: u64, bytes: u64) -> String {
    format!("{} ({})", counted(records, "document"), HumanBytes(bytes))
}

#[cfg(test)]
mod tests {
    //! Words for numbers.

    use std::time::Duration;

    use super::{RestoreTotals, amount, counted, written};

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "removal"), "1 removal");
        assert_eq!(counted(0, "removal"), "0 removals");
        assert_eq!(amount(1234, 1), "1,234 documents (1 B)");
    }

    #[test]
    fn a_headline_counts_what_was_written() {
        let totals =
            RestoreTotals { documents: 2, bytes: 9, skipped: 2, ..RestoreTotals::default() };
        let expected = "0 versions of b in 1.50 s; 2 left alone, the same or newer there; \
                        read 2 documents (9 B) and 0 removals";
        assert_eq!(written(&totals, " of b", Duration::from_millis(1500)), expected);
    }
}
