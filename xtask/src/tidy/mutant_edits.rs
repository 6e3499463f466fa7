//! Rule: each edit of a mutant replaces a text that stands once in its file.
//!
//! Code that changes takes its mutants along. `cargo xtask mutants` runs them, which takes hours;
//! this looks at their lists only.

use toml::{Table, Value};

use super::finding::Finding;
use super::source_tree::{SourceFile, SourceTree};

pub(super) fn check(list: &SourceFile, tree: &SourceTree, findings: &mut Vec<Finding>) {
    let mut report = |message: String| findings.push(Finding::new(&list.path, 1, message));
    let Some(directory) = list.path.strip_suffix("/mutants.toml") else { return };
    let table: Table = match list.text.parse() {
        Ok(table) => table,
        Err(error) => return report(format!("is no list of mutants: {error}")),
    };
    let array = |value: Option<&Value>| value.and_then(Value::as_array).cloned();
    for mutant in array(table.get("mutant")).unwrap_or_default() {
        let text = |value: &Value, key| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text(&mutant, "name").unwrap_or_default();
        for edit in array(mutant.get("edit")).unwrap_or_default() {
            let (Some(file), Some(find)) = (text(&edit, "file"), text(&edit, "find")) else {
                report(format!("{name} has an edit without `file` or `find`"));
                continue;
            };
            let found = tree.text(&format!("{directory}/{file}")).unwrap_or_default();
            let count = found.matches(&find).count();
            if count != 1 {
                report(format!("{name}: {file} has this text {count} times, not once: {find}"));
            }
        }
    }
}
