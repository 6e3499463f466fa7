//! Rules: "go to symbol" finds one thing, and what it finds can be read.
//!
//! A type of shipped code that another file can name has a name that no second one has. Tests and
//! the messages of foreign protocols keep theirs. A test's name is at most
//! [`TEST_NAME_MAX`] characters. Outside the published crates, documentation of three words or
//! fewer repeats the name and is deleted.

use std::collections::BTreeMap;

use super::code_mask;
use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

/// Characters of the name of a function.
const TEST_NAME_MAX: usize = 50;

/// Words of documentation that repeat a name.
const REPEATED_WORDS_MAX: usize = 3;

/// Crates that users depend on: each public item is documented.
const PUBLISHED: [&str; 6] = [
    "crates/core/protocol/",
    "crates/core/tls/",
    "crates/core/types/",
    "crates/kudu/client/",
    "crates/kudu/derive/",
    "crates/tools/client/",
];

/// Names that still stand twice. The list only gets shorter.
const NOT_YET: [&str; 0] = [];

/// Code for a build without a feature has the names of the code that it replaces.
const SUBSTITUTES: [&str; 2] =
    ["crates/oribi/src/tools/users.rs", "crates/server/config/src/no_kudu.rs"];

/// Where a type is defined.
pub(super) struct Definition {
    pub name: String,
    pub line: usize,
    pub is_public: bool,
}

/// Types of a file, with and without `pub`. An alias counts when it is public.
pub(super) fn definitions(file: &SourceFile) -> Vec<Definition> {
    let code = code_mask::code_only(&file.text);
    let mut definitions = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let is_public = first == "pub" || first.starts_with("pub(");
        let mut keyword = if is_public { words.next().unwrap_or_default() } else { first };
        // `pub(in path)` and `unsafe trait` have one more word.
        if keyword == "unsafe" || keyword.ends_with(')') {
            keyword = words.next().unwrap_or_default();
        }
        let is_type = matches!(keyword, "struct" | "enum" | "trait" | "union");
        if !(is_type || keyword == "type" && is_public) {
            continue;
        }
        let name: String = words
            .next()
            .unwrap_or_default()
            .chars()
            .take_while(|character| character.is_alphanumeric() || *character == '_')
            .collect();
        if !name.is_empty() {
            definitions.push(Definition { name, line: index + 1, is_public });
        }
    }
    definitions
}

/// Types that two files of the workspace define for others.
pub(super) fn check_tree(tree: &SourceTree, findings: &mut Vec<Finding>) {
    let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for file in tree.files() {
        if !file.has_extension("rs") || !is_member(&file.path) || has_own_names(&file.path) {
            continue;
        }
        for definition in definitions(file).into_iter().filter(|found| found.is_public) {
            places.entry(definition.name).or_default().push((&file.path, definition.line));
        }
    }
    let twice = places.iter().filter(|(_, places)| places.len() > 1);
    for (name, places) in twice.filter(|(name, _)| !NOT_YET.contains(&name.as_str())) {
        let (first, _) = places[0];
        // Two published crates have different users.
        let published =
            |path: &str| PUBLISHED.iter().find(|crate_path| path.starts_with(*crate_path));
        let is_apart = |path: &str| {
            let (one, other) = (published(first), published(path));
            one.is_some() && other.is_some() && one != other
        };
        for (path, line) in places[1..].iter().filter(|(path, _)| !is_apart(path)) {
            let message = format!("the type `{name}` is defined in {first} too; name its role");
            findings.push(Finding::new(path, *line, message));
        }
    }
}

/// Test code, substitutes, and messages that are called as in their definition.
fn has_own_names(path: &str) -> bool {
    let folders = [
        "/tests/",
        "/benches/",
        "/examples/",
        "/proto/",
        "/harness/",
        "/simulation/",
        "/models/",
        "crates/testkit/",
    ];
    folders.iter().any(|folder| path.contains(folder))
        || path.ends_with("/tests.rs")
        || SUBSTITUTES.contains(&path)
}

fn is_member(path: &str) -> bool {
    path.starts_with("crates/") || path.starts_with("xtask/")
}

pub(super) fn check(file: &SourceFile, findings: &mut Vec<Finding>) {
    for (name, line) in functions(file).into_iter().filter(|(name, _)| name.len() > TEST_NAME_MAX) {
        let message = format!(
            "`{name}` has {} characters, more than {TEST_NAME_MAX}: condition and result",
            name.len()
        );
        findings.push(Finding::new(&file.path, line, message));
    }
    if is_member(&file.path) && !PUBLISHED.iter().any(|path| file.path.starts_with(path)) {
        check_comments(file, findings);
    }
}

/// Names of the functions of a file, and their lines.
pub(super) fn functions(file: &SourceFile) -> Vec<(String, usize)> {
    let code = code_mask::code_only(&file.text);
    let named = (1..).zip(code.lines()).filter_map(|(number, line)| {
        let name = function_name(line)?;
        Some((name.to_owned(), number))
    });
    named.collect()
}

fn function_name(line: &str) -> Option<&str> {
    let (_, after) = line.split_once("fn ")?;
    let end = after.find(|character: char| !character.is_alphanumeric() && character != '_')?;
    Some(&after[..end])
}

fn check_comments(file: &SourceFile, findings: &mut Vec<Finding>) {
    // The documentation of a command line is its help.
    if file.text.contains("use clap::") {
        return;
    }
    let mut words = 0;
    let mut start = None;
    for (index, line) in file.text.lines().enumerate() {
        if let Some(comment) = line.trim_start().strip_prefix("///") {
            start = start.or(Some(index + 1));
            words += comment.split_whitespace().count();
        } else if let Some(first) = start.take() {
            if words <= REPEATED_WORDS_MAX {
                let message = format!("{words} words of documentation: delete them, or say more");
                findings.push(Finding::new(&file.path, first, message));
            }
            words = 0;
        }
    }
}
