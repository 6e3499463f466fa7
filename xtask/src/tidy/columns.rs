//! A rule about prose, in documents and in comments: a line has at most [`COLUMNS_MAX`] columns.
//!
//! Code blocks, rows of tables, marks, and what cannot be broken (a link or a path alone on its
//! line) may be longer. `rustfmt` breaks code, and leaves comments as they are.

use super::finding::Finding;
use super::source_tree::SourceFile;

/// Columns of a line, in characters.
pub(super) const COLUMNS_MAX: usize = 100;

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    let is_document = file.has_extension("md");
    let mut is_code = false;
    for (index, line) in file.text.lines().enumerate() {
        let text = match is_document {
            true => line.trim(),
            false => match line.trim().strip_prefix("//") {
                Some(comment) => comment.trim_start_matches(['/', '!', ' ']),
                None => continue,
            },
        };
        if text.starts_with("```") {
            is_code = !is_code;
        }
        let columns = line.chars().count();
        let is_prose = !is_code && !text.starts_with(['|', '<']) && text.contains(' ');
        if is_prose && columns > COLUMNS_MAX {
            let message = format!("{columns} columns of prose, more than {COLUMNS_MAX}");
            findings.push(Finding::new(&file.path, index + 1, message));
        }
    }
}
