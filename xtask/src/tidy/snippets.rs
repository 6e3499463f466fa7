//! Rules about code blocks of documents.
//!
//! A code block marked `<!-- same as PATH -->` is that file, to the letter. Documents show programs
//! that CI runs; the mark keeps the shown text and the run text one thing. The mark stands alone on
//! the line before the block, and the path is relative to the root.
//!
//! In the README and in `docs/`, commands of a user are in blocks of the language `sh`, which the
//! conformance suite `documents` runs. A block of any other language has a mark that says how it is
//! run: `same as`, `file` (written to a file by that suite), or `not run: REASON`.

use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

/// How the lines of a user's commands begin.
const COMMANDS: [&str; 4] = ["oribi ", "curl ", "docker ", "sudo "];

/// Marks that say how a block is run.
const MARKS: [&str; 3] = ["<!-- same as ", "<!-- file: ", "<!-- not run: "];

pub(super) fn check(file: &SourceFile, tree: &SourceTree, findings: &mut Vec<Finding>) {
    if file.path == "README.md" || file.path.starts_with("docs/") {
        check_is_run(file, findings);
    }
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

fn check_is_run(file: &SourceFile, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut index = 0;
    while index < lines.len() {
        let Some(language) = lines[index].strip_prefix("```") else {
            index += 1;
            continue;
        };
        let block = block_after(&lines[index..]).unwrap_or_default();
        let mark = lines[..index].iter().rev().take_while(|line| line.starts_with("<!-- "));
        let is_marked = mark.clone().any(|line| MARKS.iter().any(|mark| line.starts_with(mark)));
        let is_command = |line: &&str| {
            let rest = COMMANDS.iter().find_map(|command| line.strip_prefix(command));
            rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii()))
        };
        let message = match language {
            "sh" => None,
            "" if block.iter().any(is_command) => Some("commands are a block of the language `sh`"),
            "" => None,
            _ if is_marked => None,
            _ => Some("no mark says how this block is run"),
        };
        if let Some(message) = message {
            findings.push(Finding::new(&file.path, index + 1, message.to_owned()));
        }
        index += block.len() + 2;
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
