//! `THIRD-PARTY.txt`: licences and notices of everything in the programs except Oribi's own.
//!
//! Owns: which files of a crate are its notices, and the text that has each of them once. A crate
//! without a notice is an error: its licence could not be kept.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::crate_graph::{CrateGraph, LinkedCrate};

/// Where packages have the text.
pub(super) const PLACE: &str = "share/doc/oribi/THIRD-PARTY.txt";
/// The web console's, which its own build writes.
const CONSOLE: &str = "console/dist/licenses.txt";
const HEAD: &str = "\
The programs `oribi` and `oribi-tools` are under the Apache License 2.0 (LICENSE). They contain the
code of others below.

Rust's standard library is under the MIT licence or the Apache License 2.0, at your choice
(https://www.rust-lang.org). The static programs contain the GNU C Library, under the GNU Lesser
General Public License 2.1 or later (https://www.gnu.org/software/libc/); `cargo xtask dist` links
the same sources with another version of it. Crates under the MIT
licence or the Apache License, at your choice, are used under the MIT licence.

";

pub(super) fn of(root: &Path, graph: &CrateGraph) -> Result<String> {
    let mut crates = Vec::new();
    for described in graph.crates.values().filter(|found| found.in_binary && found.is_foreign) {
        crates.push((described, notices(described)?));
    }
    let console = root.join(CONSOLE);
    let console = fs::read_to_string(&console)
        .with_context(|| format!("cannot read {}", console.display()))?;
    let text = assemble(&crates)?;
    Ok(format!("{HEAD}{text}{RULE}\nThe web console contains:\n\n{}\n", console.trim()))
}

const RULE: &str =
    "--------------------------------------------------------------------------------\n";

/// Crates with the numbers of their texts, then the texts.
fn assemble(crates: &[(&LinkedCrate, Vec<String>)]) -> Result<String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut texts = Vec::new();
    let mut out = String::from("Crates, each with its licence and the numbers of its notices:\n\n");
    for (described, notices) in crates {
        let (name, version) = (&described.name, &described.version);
        if notices.is_empty() {
            bail!(
                "{name} {version} has no file with its licence; see xtask/src/dist/third_party.rs"
            );
        }
        let mut own: Vec<usize> = Vec::new();
        for notice in notices {
            let number = *numbers.entry(notice).or_insert_with(|| {
                texts.push(notice);
                texts.len()
            });
            if !own.contains(&number) {
                own.push(number);
            }
        }
        let license = described.license.as_deref().unwrap_or("see its notices");
        let own: Vec<String> = own.iter().map(usize::to_string).collect();
        writeln!(out, "{name} {version}: {license} [{}]", own.join(", "))?;
    }
    for (index, text) in texts.iter().enumerate() {
        write!(out, "\n{RULE}[{}]\n\n{text}\n", index + 1)?;
    }
    Ok(out + "\n")
}

/// The texts of every notice below a crate's directory: crates with C code have some further down.
/// Of two licences to choose from, the one that is chosen.
fn notices(described: &LinkedCrate) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut pending = vec![described.directory.clone()];
    while let Some(directory) = pending.pop() {
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
            } else if is_notice(&path) {
                found.push(path);
            }
        }
    }
    found.sort_by_key(|path| (path.components().count(), path.clone()));
    if described.license.as_deref().is_some_and(may_be_mit) {
        let has = |path: &PathBuf, word| lower_name(path).contains(word);
        if found.iter().any(|path| has(path, "mit")) {
            found.retain(|path| !has(path, "apache"));
        }
    }
    found.iter().map(text).collect()
}

/// Whether MIT alone is one choice of a licence expression; older crates write `/` for `OR`.
fn may_be_mit(expression: &str) -> bool {
    expression.replace('/', " OR ").split(" OR ").any(|choice| choice.trim() == "MIT")
}

/// Whether a file says under which terms a crate is used: by its name, or by that of its directory
/// (`LICENSES`, as reuse.software has it).
fn is_notice(path: &Path) -> bool {
    const BEGINNINGS: [&str; 6] =
        ["license", "licence", "copying", "copyright", "notice", "unlicense"];
    let name = lower_name(path);
    let is_code = [".rs", ".toml", ".html", ".c", ".h", ".py", ".json"];
    let is_among_licenses = path.parent().is_some_and(|parent| lower_name(parent) == "licenses");
    (is_among_licenses || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)))
        && !is_code.iter().any(|extension| name.ends_with(extension))
}

fn lower_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// A text without what differs between copies of it: ends of lines and blanks around it.
fn text(path: &PathBuf) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> LinkedCrate {
        LinkedCrate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT".to_owned()),
            is_foreign: true,
            checksum: None,
            dependencies: Default::default(),
            in_binary: true,
            directory: PathBuf::new(),
        }
    }

    #[test]
    fn a_text_of_several_crates_stands_once() {
        let (one, two) = (named("one"), named("two"));
        let crates = [
            (&one, vec!["shared".to_owned()]),
            (&two, vec!["of two".to_owned(), "shared".to_owned()]),
        ];
        let text = assemble(&crates).unwrap();
        assert!(text.contains("one 1.0.0: MIT [1]\ntwo 1.0.0: MIT [2, 1]\n"), "{text}");
        assert_eq!(text.matches("shared").count(), 1);
        let error = assemble(&[(&one, Vec::new())]).unwrap_err().to_string();
        assert!(error.contains("one 1.0.0"), "{error}");
    }

    #[test]
    fn a_choice_of_licences_is_read_from_the_expression() {
        for choice in ["MIT", "MIT OR Apache-2.0", "Apache-2.0/MIT", "Unlicense OR MIT"] {
            assert!(may_be_mit(choice), "{choice}");
        }
        for none in ["Apache-2.0 AND MIT", "Apache-2.0", "(MIT AND ISC) OR Zlib"] {
            assert!(!may_be_mit(none), "{none}");
        }
    }

    #[test]
    fn notices_are_told_from_code() {
        for name in [
            "LICENSE",
            "LICENSE-MIT",
            "License.txt",
            "COPYING",
            "NOTICE.md",
            "UNLICENSE",
            "crate/LICENSES/MIT.txt",
        ] {
            assert!(is_notice(Path::new(name)), "{name}");
        }
        for name in ["license.rs", "README.md", "Cargo.toml", "copying.c", "lib.rs"] {
            assert!(!is_notice(Path::new(name)), "{name}");
        }
    }
}
