//! User data in log lines stands between tags, so that an operator can strip it.

use std::fmt::Write as _;

/// User data between tags, so that a tool can strip it from a log.
pub fn redacted(bytes: &[u8]) -> String {
    let mut text = String::from("<ud>");
    write!(text, "{}", bytes.escape_ascii()).expect("a String takes every write");
    text.push_str("</ud>");
    text
}
