//! Rule: a relative link in a Markdown file leads to something that exists.
//!
//! Checked are inline links and images, `[text](target)`, outside code. Addresses with a scheme and
//! anchors within a page are left alone: whether a host answers is no business of a build, and
//! anchor names depend on who renders the page.

use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

pub(super) fn check(file: &SourceFile, tree: &SourceTree, findings: &mut Vec<Finding>) {
    let mut in_code_block = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code_block = !in_code_block;
            continue;
        }
        if in_code_block {
            continue;
        }
        for target in targets(line) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            match resolve(&file.path, path) {
                Some(resolved) if tree.contains(&resolved) => {}
                _ => findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("link to `{target}` leads nowhere"),
                )),
            }
        }
    }
}

/// Targets of the inline links of one line, code spans excluded.
fn targets(line: &str) -> Vec<String> {
    let outside_code: String = line
        .split('`')
        .enumerate()
        .filter(|(index, _)| index % 2 == 0)
        .map(|(_, part)| part)
        .collect();
    let mut found = Vec::new();
    let mut rest = outside_code.as_str();
    while let Some(start) = rest.find("](") {
        rest = &rest[start + 2..];
        let Some(end) = rest.find(')') else { break };
        // A title may follow the target after a space.
        let target = rest[..end].split_whitespace().next().unwrap_or_default();
        found.push(target.trim_matches(['<', '>']).to_owned());
        rest = &rest[end..];
    }
    found
}

/// Path of `target` as seen from the file `from`, both relative to the root; `None` when it leaves
/// the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> =
        if target.starts_with('/') { Vec::new() } else { from.split('/').collect() };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            other => parts.push(other),
        }
    }
    Some(parts.join("/"))
}
