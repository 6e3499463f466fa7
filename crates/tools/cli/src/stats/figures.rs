//! How single figures are written for people: digits in groups, bytes in binary units, rates.
//!
//! The words of a number's name give its meaning, as all servers of this protocol name them. A name
//! that says nothing known gives grouped digits, which is never wrong, only plain.

use indicatif::{HumanBytes, HumanCount};

/// Below this a number of bytes is as readable as in another unit.
const UNIT_BYTES_MIN: u64 = 10 * 1024;

/// Last words of names whose numbers are labels, not amounts: they are shown digit by digit.
const LABELS: &[&str] = &[
    "uuid", "cas", "id", "cid", "sid", "uid", "pid", "port", "time", "version", "socket", "scope",
    "fd", "tid",
];

/// Words of names that count bytes.
const BYTE_WORDS: &[&str] = &["mem", "memory", "bytes", "quota"];

/// Words that say that something else is counted after all, as in `ht_num_in_memory_items`.
const COUNT_WORDS: &[&str] =
    &["num", "items", "count", "counted", "percent", "ratio", "state", "errors", "cmd"];

/// Ends of names that count bytes without saying so.
const BYTE_ENDINGS: &[&str] = &[
    "max_size",
    "kv_size",
    "value_size",
    "data_size",
    "disk_size",
    "file_size",
    "table_size",
    "storedval_size",
    "item_size",
    "disk",
    "_overhead",
];

/// The words of a figure's name, without the part before the last colon.
fn words(name: &str) -> impl DoubleEndedIterator<Item = &str> {
    name.rsplit(':').next().unwrap_or(name).split(['_', '-', ' '])
}

/// True when the figure is a label, such as a uuid or a port.
pub fn is_label(name: &str) -> bool {
    words(name).next_back().is_some_and(|word| LABELS.contains(&word))
}

/// True when the figure is a number of bytes.
pub fn is_bytes(name: &str) -> bool {
    let has = |list: &[&str]| words(name).any(|word| list.contains(&word));
    let is_named_so = has(BYTE_WORDS) || BYTE_ENDINGS.iter().any(|ending| name.ends_with(ending));
    is_named_so && !has(COUNT_WORDS)
}

/// A value that [`show`] has prepared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureView {
    /// The value; digits are in groups.
    pub text: String,
    /// The same in another unit, if that helps.
    pub hint: Option<String>,
    /// True for amounts, which belong to the right.
    pub is_number: bool,
}

/// The figure `name` with `value` for people.
pub fn show(name: &str, value: &str) -> FigureView {
    let Ok(number) = value.parse::<u64>() else {
        let is_number = value.parse::<f64>().is_ok_and(f64::is_finite) && !is_label(name);
        return FigureView { text: value.to_owned(), hint: None, is_number };
    };
    if is_label(name) {
        return FigureView { text: value.to_owned(), hint: None, is_number: false };
    }
    let hint = (number >= UNIT_BYTES_MIN && is_bytes(name)).then(|| HumanBytes(number).to_string());
    FigureView { text: HumanCount(number).to_string(), hint, is_number: true }
}

/// A change per second: whole when it is large, with a digit after the point when it is small.
pub fn rate(per_second: f64) -> String {
    match per_second {
        // Rates are of counters that grew, and no server counts that far.
        100.0.. => format!("{}/s", HumanCount(per_second.round() as u64)),
        _ => format!("{per_second:.1}/s"),
    }
}

#[cfg(test)]
mod tests {
    //! Names that servers use, and how their figures are shown.

    use super::*;

    #[test]
    fn names_tell_what_numbers_are() {
        for name in ["mem_used", "vb_0:ht_item_memory", "bytes_read", "ep_max_size", "disk_size"] {
            assert!(is_bytes(name), "{name}");
        }
        for name in ["curr_items", "ht_num_in_memory_items", "ep_mem_low_wat_percent", "queue_size"]
        {
            assert!(!is_bytes(name), "{name}");
        }
        for name in ["uuid", "vb_0:uuid", "max_cas", "pid", "time", "manifest:uid"] {
            assert!(is_label(name), "{name}");
        }
        for name in ["uptime", "curr_items", "items"] {
            assert!(!is_label(name), "{name}");
        }
    }

    #[test]
    fn numbers_are_grouped_unless_they_are_labels() {
        let text = |name, value| {
            let FigureView { text, hint, is_number } = show(name, value);
            (text, hint.unwrap_or_default(), is_number)
        };
        let plain = |text: &str, is_number| (text.to_owned(), String::new(), is_number);
        assert_eq!(text("curr_items", "1234567"), plain("1,234,567", true));
        assert_eq!(text("uuid", "1234567"), plain("1234567", false));
        assert_eq!(text("version", "1.6.0"), plain("1.6.0", false));
        assert_eq!(text("drift", "-12"), plain("-12", true));
        assert_eq!(text("nan", "NaN"), plain("NaN", false));
        let shown = ("27,133,696".to_owned(), "25.88 MiB".to_owned(), true);
        assert_eq!(text("mem_used", "27133696"), shown);
        assert_eq!(text("mem_used", "1024"), plain("1,024", true));
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(0.25), "0.2/s");
        assert_eq!(rate(99.94), "99.9/s");
        assert_eq!(rate(123_456.7), "123,457/s");
    }
}
