//! Rule: a code block marked `<!-- same as PATH -->` is that file, to the letter.
//!
//! Documents show programs that CI runs; the mark keeps the shown text and the run text one thing.
//! The mark stands alone on the line before the block, and the path is relative to the root.

use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

pub(super) fn check(file: &SourceFile, tree: &SourceTree, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = file.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let Some(path) = marked_path(line) else { continue };
        let message = match (tree.text(path), block_after(&lines[index + 1..])) {
            (None, _) => format!("`{path}` is not a text file of the tree"),
            (_, None) => "no code block follows the mark".to_owned(),
            (Some(text), Some(block)) if text.lines().ne(block.iter().copied()) => {
                format!("the block differs from `{path}`")
            }
            _ => continue,
        };
        findings.push(Finding::new(&file.path, index + 1, message));
    }
}

fn marked_path(line: &str) -> Option<&str> {
    line.strip_prefix("<!-- same as ")?.strip_suffix(" -->")
}

fn block_after<'a>(lines: &'a [&'a str]) -> Option<&'a [&'a str]> {
    let (fence, rest) = lines.split_first()?;
    if !fence.starts_with("```") {
        return None;
    }
    let end = rest.iter().position(|line| *line == "```")?;
    Some(&rest[..end])
}
