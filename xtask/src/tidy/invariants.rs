//! `cargo xtask invariants`: the page docs/invariants.md, from annotations at the tests.
//!
//! A comment `// Invariant: SENTENCE` above a test says what the test holds; a comment
//! `// Compat (SECTION): FEATURE` says which row of COMPAT.md it proves. A test may have several,
//! and several tests may have one. Continuation lines begin with `// `. `cargo xtask tidy` compares
//! the page with the annotations.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::source_tree::{SourceFile, SourceTree};

/// The options of the task.
pub(crate) const USAGE: &str = "  invariants [--check]
         write docs/invariants.md from the annotations at the tests, or compare it with them";

/// Path of the page.
pub(crate) const PAGE: &str = "docs/invariants.md";

const INVARIANT: &str = "// Invariant: ";
const COMPAT: &str = "// Compat (";

const INTRODUCTION: &str = "# Invariants

`cargo xtask invariants` generates this page from annotations at the tests: `// Invariant: SENTENCE`
and `// Compat (SECTION): FEATURE`. A test of a row fails when the row stops being true.
";

pub(crate) fn run(root: &Path, mut arguments: impl Iterator<Item = String>) -> Result<ExitCode> {
    let page = rendered(&SourceTree::read(root)?);
    match arguments.next().as_deref() {
        None => {
            std::fs::write(root.join(PAGE), page).context(PAGE)?;
            Ok(ExitCode::SUCCESS)
        }
        Some("--check") => {
            let current = std::fs::read_to_string(root.join(PAGE)).context(PAGE)?;
            if current == page {
                return Ok(ExitCode::SUCCESS);
            }
            println!("{PAGE} is stale: run `cargo xtask invariants`");
            Ok(ExitCode::FAILURE)
        }
        Some(other) => bail!("unknown option {other:?}\n\n{USAGE}"),
    }
}

/// One annotation above one test.
#[derive(Debug, PartialEq)]
struct Annotation {
    /// Section of COMPAT.md; `None` for an invariant.
    section: Option<String>,
    text: String,
    /// Name of the test; `None` when no function follows.
    test: Option<String>,
    line: usize,
}

/// Lines of annotations that no function follows.
pub(crate) fn without_test(file: &SourceFile) -> Vec<usize> {
    let found = annotations(&file.text).into_iter();
    found.filter(|one| one.test.is_none()).map(|one| one.line).collect()
}

/// The page that the annotations of this tree make.
pub(crate) fn rendered(tree: &SourceTree) -> String {
    // Annotations in the order of paths, each with the links to its tests.
    let mut invariants: Vec<(String, String, Vec<String>)> = Vec::new();
    let mut features: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut files: Vec<&SourceFile> =
        tree.files().iter().filter(|file| file.has_extension("rs")).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for file in files {
        for one in annotations(&file.text) {
            let Some(test) = one.test else { continue };
            let link = format!("[{test}](../{})", file.path);
            if let Some(section) = one.section {
                features.entry((section, one.text)).or_default().push(link);
            } else if let Some(row) = invariants.iter_mut().find(|(_, text, _)| *text == one.text) {
                row.2.push(link);
            } else {
                invariants.push((room(&file.path).to_owned(), one.text, vec![link]));
            }
        }
    }
    let mut page = INTRODUCTION.to_owned();
    let mut heading = "";
    for (room, text, links) in &invariants {
        if room != heading {
            page += &format!("\n## {room}\n\n| invariant | tests |\n|---|---|\n");
            heading = room;
        }
        page += &format!("| {text} | {} |\n", links.join(", "));
    }
    page += "\n## Tests of COMPAT.md\n";
    let mut heading = "";
    for ((section, feature), links) in &features {
        if section != heading {
            page += &format!("\n### {section}\n\n| feature | tests |\n|---|---|\n");
            heading = section;
        }
        page += &format!("| {} | {} |\n", feature.replace('|', "\\|"), links.join(", "));
    }
    page
}

/// The directory of the crate that a file belongs to.
fn room(path: &str) -> &str {
    let end = ["/src/", "/tests/", "/benches/"].iter().filter_map(|part| path.find(part)).min();
    end.map_or(path, |end| &path[..end])
}

/// All annotations of a file.
fn annotations(text: &str) -> Vec<Annotation> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let (section, first) = if let Some(rest) = line.strip_prefix(INVARIANT) {
            (None, rest)
        } else if let Some((section, rest)) =
            line.strip_prefix(COMPAT).and_then(|rest| rest.split_once("): "))
        {
            (Some(section.to_owned()), rest)
        } else {
            continue;
        };
        let continuation = lines[index + 1..].iter().map_while(|line| {
            let is_next = line.starts_with(INVARIANT) || line.starts_with(COMPAT);
            line.strip_prefix("// ").filter(|_| !is_next)
        });
        let text = std::iter::once(first).chain(continuation).collect::<Vec<_>>().join(" ");
        found.push(Annotation {
            section,
            text,
            test: test_after(&lines[index..]),
            line: index + 1,
        });
    }
    found
}

/// The function that the comments and attributes at the beginning of these lines belong to.
fn test_after(lines: &[&str]) -> Option<String> {
    let mut depth = 0_usize;
    for line in lines {
        // Attributes may have several lines.
        let is_attribute = depth > 0 || line.starts_with("#[");
        if is_attribute {
            depth += line.matches('[').count();
            depth = depth.saturating_sub(line.matches(']').count());
        } else if let Some(at) = line.find("fn ").filter(|_| !line.starts_with("//")) {
            let name = line[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
            return name.map(str::to_owned);
        } else if !line.starts_with("//") {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        // The samples have another sign, so that this file has no annotation.
        SourceFile { path: path.to_owned(), text: text.replace("%%", "//") }
    }

    #[test]
    fn annotations_of_several_tests_are_one_row() {
        let sample = "%% Invariant: A closed checkpoint\n%% never changes.\n#[test]\nfn one() {}\n";
        let other =
            "%% Invariant: A closed checkpoint never changes.\n/// Text.\n#[test]\nfn two() {}\n";
        let tree = SourceTree::from_files(vec![
            file("crates/a/src/a.rs", sample),
            file("crates/a/src/b.rs", other),
        ]);
        let row = "| A closed checkpoint never changes. | [one](../crates/a/src/a.rs), [two](../crates/a/src/b.rs) |";
        assert!(rendered(&tree).contains(row), "{}", rendered(&tree));
    }

    #[test]
    fn features_are_grouped_by_section() {
        let sample =
            "%% Compat (Key-value): GET\n%% Compat (Differences): Memory\n#[test]\nfn one() {}\n";
        let page = rendered(&SourceTree::from_files(vec![file("crates/a/src/a.rs", sample)]));
        for part in ["### Key-value", "| GET | [one](", "### Differences", "| Memory | [one]("] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn an_annotation_without_a_test_is_found() {
        let sample = file("crates/a/src/a.rs", "%% Invariant: A.\n\nfn one() {}\n");
        assert_eq!(without_test(&sample), [1]);
    }
}
