//! Rule: no unfinished work, no debugging leftovers and no code that only some builds compile.
//!
//! The patterns are written in two halves here, so that this file does not find itself.

use super::finding::Finding;
use super::source_tree::SourceFile;

/// Text that may stand nowhere in a Rust file, and why.
const FORBIDDEN_TEXT: [(&str, &str); 5] = [
    (concat!("to", "do!("), "is unfinished work; finish it or leave the feature out"),
    (concat!("unimpl", "emented!("), "is unfinished work; finish it or leave the feature out"),
    (concat!("db", "g!("), "is a debugging leftover; remove it or log it with tracing"),
    (
        concat!("#[cfg(debug_", "assertions)"),
        "is code that CI compiles and a release lacks; use `debug_assert!` or `cfg!`",
    ),
    (concat!("#[ig", "nore"), "hides a test; make it fast and reliable, or delete it"),
];

/// Words that may stand nowhere in a Rust file.
const FORBIDDEN_WORDS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    for (index, line) in file.text.lines().enumerate() {
        for (text, reason) in FORBIDDEN_TEXT {
            if line.contains(text) {
                findings.push(Finding::new(&file.path, index + 1, format!("`{text}` {reason}")));
            }
        }
        for word in FORBIDDEN_WORDS {
            if contains_word(line, word) {
                let message = format!("`{word}` marks unfinished work; open an issue instead");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
}

/// True when `word` stands in `line` on its own, not as part of a longer identifier.
pub(super) fn contains_word(line: &str, word: &str) -> bool {
    let is_identifier = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let open = start == 0 || !is_identifier(bytes[start - 1]);
        let closed = end == bytes.len() || !is_identifier(bytes[end]);
        open && closed
    })
}
