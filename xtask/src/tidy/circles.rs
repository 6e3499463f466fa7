//! Rule: neither the files of a crate nor its top-level modules import each other in a circle.
//!
//! A file imports another when its code names something that the other one defines, in a `use` or
//! in a path, directly or through a re-export. `mod` declarations and re-exports are no imports,
//! and test code does not count ([`tokens`] leaves it out). A circle means that no file of it can
//! be read first: what both ends need belongs into a file below them. [`modules`] says which file a
//! name comes from; this file walks the arrows.

mod modules;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::finding::Finding;
use super::source_tree::SourceTree;
use modules::{Crate, Import};

/// One file's imports from another: the line of the first import, and the names.
struct Arrow<'a> {
    line: usize,
    names: BTreeSet<&'a str>,
}

/// Imports of one crate: from file, to file.
type Arrows<'a> = BTreeMap<usize, BTreeMap<usize, Arrow<'a>>>;

pub(super) fn check(tree: &SourceTree, findings: &mut Vec<Finding>) {
    for name in crates(tree) {
        check_crate(tree, &name, findings);
    }
}

fn check_crate(tree: &SourceTree, name: &str, findings: &mut Vec<Finding>) {
    let source = sources(tree, name);
    let parsed = Crate::parse(&source);
    // A circle of files of two modules is one of the modules too, and is reported once.
    let kinds = [
        ("import circle", arrows(parsed.imports())),
        ("circle of modules", arrows(parsed.module_imports())),
    ];
    let found = kinds.iter().map(|(kind, arrows)| (kind, arrows, loops(arrows)));
    if let Some((kind, arrows, loops)) = found.into_iter().find(|(_, _, loops)| !loops.is_empty()) {
        findings.extend(loops.iter().map(|files| finding(kind, &source, arrows, files)));
    }
}

fn arrows(imports: Vec<Import<'_>>) -> Arrows<'_> {
    let mut arrows = Arrows::new();
    for import in imports {
        let arrow = arrows
            .entry(import.from)
            .or_default()
            .entry(import.to)
            .or_insert(Arrow { line: import.line, names: BTreeSet::new() });
        arrow.line = arrow.line.min(import.line);
        arrow.names.insert(import.name);
    }
    arrows
}

/// Loops that have no arrow in common, the shortest first; none only when there is no loop.
fn loops(arrows: &Arrows) -> Vec<Vec<usize>> {
    let mut shortest: Vec<Vec<usize>> =
        arrows.keys().filter_map(|file| shortest_loop(arrows, *file)).collect();
    shortest.sort_by_key(|files| (files.len(), files.clone()));
    let mut taken = BTreeSet::new();
    shortest.retain(|files| {
        let next = files.iter().cycle().skip(1);
        let arrows: Vec<(usize, usize)> = files.iter().copied().zip(next.copied()).collect();
        let is_new = arrows.iter().all(|arrow| !taken.contains(arrow));
        if is_new {
            taken.extend(arrows);
        }
        is_new
    });
    shortest
}

/// Directories of the workspace's crates.
fn crates(tree: &SourceTree) -> BTreeSet<String> {
    let directories = tree.files().iter().filter_map(|file| file.path.split_once("/src/"));
    directories
        .map(|(directory, _)| directory)
        .filter(|directory| *directory == "xtask" || directory.starts_with("crates/"))
        .map(|directory| directory.trim_start_matches("crates/").to_owned())
        .collect()
}

/// Path and code, without comments and literals, of each file below `src/`.
fn sources(tree: &SourceTree, name: &str) -> Vec<(String, String)> {
    let within = |path: &str| {
        let path = path.strip_prefix("crates/").unwrap_or(path);
        path.strip_prefix(name).is_some_and(|rest| rest.starts_with("/src/"))
    };
    let files = tree.files().iter().filter(|file| file.has_extension("rs") && within(&file.path));
    files.map(|file| (file.path.clone(), super::code_mask::code_only(&file.text))).collect()
}

/// The shortest way from `start` back to it, beginning at the loop's first file; `None` when there
/// is none.
fn shortest_loop(arrows: &Arrows, start: usize) -> Option<Vec<usize>> {
    let mut came_from = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(file) = waiting.pop_front() {
        for next in arrows.get(&file).into_iter().flat_map(BTreeMap::keys) {
            if *next == start {
                let mut files: Vec<usize> =
                    std::iter::successors(Some(file), |file| came_from.get(file).copied())
                        .collect();
                files.reverse();
                let first = (0..files.len()).min_by_key(|at| files[*at])?;
                files.rotate_left(first);
                return Some(files);
            }
            if !came_from.contains_key(next) {
                came_from.insert(*next, file);
                waiting.push_back(*next);
            }
        }
    }
    None
}

fn finding(kind: &str, source: &[(String, String)], arrows: &Arrows, files: &[usize]) -> Finding {
    let short = |file: usize| source[file].0.split_once("/src/").map_or("", |(_, path)| path);
    let mut message = kind.to_owned();
    for (at, from) in files.iter().enumerate() {
        let to = files[(at + 1) % files.len()];
        let names: Vec<&str> = arrows[from][&to].names.iter().copied().collect();
        let mark = if at == 0 { ": " } else { "; " };
        message += &format!("{mark}{} -> {}: {}", short(*from), short(to), names.join(", "));
    }
    let line = arrows[&files[0]][&files[1 % files.len()]].line;
    Finding::new(&source[files[0]].0, line, message)
}
