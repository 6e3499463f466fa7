//! The files that tidy looks at: sources, manifests and Markdown, read once.
//!
//! Build output, dependency directories and version control data are skipped by name, so that the
//! result does not depend on what was built before. Symbolic links are not followed. Every other
//! path is remembered without its contents, because links in documents may point at anything.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// Directories that hold generated or foreign files, wherever they appear.
const SKIPPED_DIRECTORIES: [&str; 9] = [
    ".git",
    "target",
    "node_modules",
    "oribi-data",
    ".conformance",
    "artifacts",
    "corpus",
    "__pycache__",
    "vendor",
];

/// Files that are read; the last four are programs that documents show.
const READ_SUFFIXES: [&str; 8] = [".rs", ".md", ".yml", ".toml", ".py", ".js", ".go", ".java"];

/// One text file of the repository.
pub(crate) struct SourceFile {
    /// Path relative to the root, with forward slashes.
    pub path: String,
    pub text: String,
}

impl SourceFile {
    pub(crate) fn has_extension(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Last component of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// The checked files, and the paths of everything else that exists.
#[derive(Default)]
pub(crate) struct SourceTree {
    files: Vec<SourceFile>,
    paths: BTreeSet<String>,
}

impl SourceTree {
    /// Reads the tree below `root`.
    pub(crate) fn read(root: &Path) -> Result<SourceTree> {
        let mut tree = SourceTree::default();
        tree.read_directory(root, "")?;
        Ok(tree)
    }

    /// A tree made of the given files, for tests of rules that look at more than one.
    #[cfg(test)]
    pub(crate) fn from_files(files: Vec<SourceFile>) -> SourceTree {
        let paths = files.iter().map(|file| file.path.clone()).collect();
        SourceTree { files, paths }
    }

    pub(crate) fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Contents of a file that was read.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// True when `path` is a file or a directory of the tree.
    pub(crate) fn contains(&self, path: &str) -> bool {
        if path.is_empty() || self.paths.contains(path) {
            return true;
        }
        let inside = format!("{path}/");
        self.paths.range(inside.clone()..).next().is_some_and(|first| first.starts_with(&inside))
    }

    fn read_directory(&mut self, root: &Path, relative: &str) -> Result<()> {
        let directory = root.join(relative);
        let entries = std::fs::read_dir(&directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path =
                if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
            let kind = entry.file_type().with_context(|| format!("cannot look at {path}"))?;
            if kind.is_dir() {
                if SKIPPED_DIRECTORIES.contains(&name) {
                    self.paths.insert(path);
                } else {
                    self.read_directory(root, &path)?;
                }
            } else if kind.is_file() {
                self.read_file(root, path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, root: &Path, path: String) -> Result<()> {
        let wanted = READ_SUFFIXES.iter().any(|suffix| path.ends_with(suffix));
        if wanted {
            let text = std::fs::read_to_string(root.join(&path))
                .with_context(|| format!("cannot read {path}"))?;
            self.files.push(SourceFile { path: path.clone(), text });
        }
        self.paths.insert(path);
        Ok(())
    }
}
