//! `cargo xtask tidy`: the rules of this repository that no compiler lint checks.
//!
//! Each rule is a function from file contents to [`Finding`]s, in its own module, and has a
//! test with a sample that it must reject: a rule that cannot fail is worth nothing. This module
//! reads the tree once, runs every rule over it and prints the findings as `file:line: message`.
//! Rules look at words and signs, not at types; what needs a compiler belongs in clippy.

mod annotations;
mod assertions;
mod circles;
mod code_mask;
mod columns;
mod file_shape;
mod finding;
pub(crate) mod invariants;
mod layers;
mod links;
mod markers;
mod mutant_edits;
mod named_tests;
mod snippets;
pub(crate) mod source_tree;
#[cfg(test)]
mod tests;
mod threads;
mod type_names;
mod unsafe_code;
mod vocabulary;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use finding::Finding;
use source_tree::SourceTree;

/// Runs every rule over the tree below `root` and prints what it found.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let tree = SourceTree::read(root)?;
    let findings = check(&tree);
    for finding in &findings {
        println!("{}:{}: {}", finding.path, finding.line, finding.message);
    }
    if findings.is_empty() {
        println!("tidy: {} files, no findings", tree.files().len());
        Ok(ExitCode::SUCCESS)
    } else {
        println!("tidy: {} findings in {} files", findings.len(), tree.files().len());
        Ok(ExitCode::FAILURE)
    }
}

/// All findings, sorted by place.
fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        if file.has_extension("rs") {
            file_shape::check(file, &mut findings);
            markers::check(file, &mut findings);
            unsafe_code::check(file, &mut findings);
            threads::check(file, &mut findings);
            columns::check(file, &mut findings);
            type_names::check(file, &mut findings);
            vocabulary::check(file, &mut findings);
        } else if file.has_extension("md") {
            links::check(file, tree, &mut findings);
            named_tests::check(file, tree, &mut findings);
            snippets::check(file, tree, &mut findings);
            columns::check(file, &mut findings);
            vocabulary::check(file, &mut findings);
        } else if file.path.ends_with("/Cargo.toml") {
            layers::check(file, &mut findings);
        } else if file.path.ends_with("/mutants.toml") {
            mutant_edits::check(file, tree, &mut findings);
        }
    }
    circles::check(tree, &mut findings);
    annotations::check(tree, &mut findings);
    assertions::check(tree, &mut findings);
    type_names::check_tree(tree, &mut findings);
    findings.sort();
    findings
}
