//! What is shown while a backup is made, checked or restored.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

/// A bar over a known number of records, or a count of them.
pub fn bar(records: Option<u64>, what: &'static str) -> ProgressBar {
    let (bar, template) = match records {
        Some(records) => (
            ProgressBar::new(records),
            "{prefix} {wide_bar} {human_pos}/{human_len}  {per_sec}  {eta}  {msg}",
        ),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {human_pos}  {per_sec}  {msg}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    bar.with_style(style).with_prefix(what)
}

/// Documents and bytes for people.
pub fn amount(records: u64, bytes: u64) -> String {
    format!("{} documents ({})", HumanCount(records), HumanBytes(bytes))
}
